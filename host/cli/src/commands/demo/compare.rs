//! Whether what a pass found is what this machine sees.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::local::{Facts, Tree};
use crate::error::shown;

/// Differences that are kept in words; further ones are only counted.
const SHOWN_MAX: usize = 20;

/// How a pass differs from the tree on disk.
#[derive(Debug, Default)]
pub(super) struct Differences {
    pub(super) count: usize,
    pub(super) shown: Vec<String>,
}

impl Differences {
    fn add(&mut self, difference: String) {
        self.count += 1;
        if self.shown.len() < SHOWN_MAX {
            self.shown.push(difference);
        }
    }
}

/// Compares `found`, of the pass named `pass`, with `local`; looks at the disk again for whatever
/// differs, to tell a change from a mistake.
pub(super) fn compare(start: &Path, pass: &str, local: &Tree, found: &Tree) -> Differences {
    let mut differences = Differences::default();
    let mut unseen: HashMap<&[u8], &Facts> =
        local.entries.iter().map(|(path, facts)| (&path[..], facts)).collect();
    for (path, facts) in &found.entries {
        let what = match unseen.remove(&path[..]) {
            Some(expected) if expected == facts => continue,
            Some(expected) => format!("{} differ", facts.differences(expected).join(", ")),
            None => "not on disk, or told twice".to_owned(),
        };
        let before = local_facts(local, path);
        differences.add(describe(start, pass, path, &what, before));
    }
    for (path, facts) in unseen {
        differences.add(describe(start, pass, path, "missing", Some(facts)));
    }
    let mut unlisted = [local.unlisted.clone(), found.unlisted.clone()];
    unlisted.iter_mut().for_each(|paths| paths.sort_unstable());
    if unlisted[0] != unlisted[1] {
        let [on_disk, through] = unlisted.map(|paths| paths.len());
        differences
            .add(format!("{pass}: {through} directories could not be listed, {on_disk} on disk"));
    }
    differences
}

fn local_facts<'a>(local: &'a Tree, path: &[u8]) -> Option<&'a Facts> {
    local.entries.iter().find(|(of, _)| of == path).map(|(_, facts)| facts)
}

fn describe(start: &Path, pass: &str, path: &[u8], what: &str, before: Option<&Facts>) -> String {
    let now = Facts::read(&start.join(OsStr::from_bytes(path))).ok();
    let changed = if now.as_ref() == before { "" } else { "; it changed on disk meanwhile" };
    let path = if path.is_empty() { ".".into() } else { shown(path) };
    format!("{pass}: {path}: {what}{changed}")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::local::walk;
    use super::*;

    fn tree() -> (tempfile::TempDir, Tree) {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(dir.path().join("a/b")).expect("made");
        fs::write(dir.path().join("a/file"), "x").expect("written");
        symlink("nowhere", dir.path().join("a/b/link")).expect("made");
        let tree = walk(dir.path()).expect("walked");
        (dir, tree)
    }

    #[test]
    fn the_same_tree_in_another_order_is_equal() {
        let (dir, local) = tree();
        assert_eq!(local.entries.len(), 5);
        let mut found = walk(dir.path()).expect("walked");
        found.entries.reverse();
        assert_eq!(compare(dir.path(), "first", &local, &found).count, 0);
    }

    #[test]
    fn each_way_to_differ_is_said() {
        let (dir, local) = tree();
        let mut found = walk(dir.path()).expect("walked");
        let at = |found: &Tree, path: &[u8]| {
            found.entries.iter().position(|(of, _)| of == path).expect("it is there")
        };
        let file = at(&found, b"a/file");
        found.entries[file].1.size_bytes += 1;
        found.entries[file].1.mode ^= 0o111;
        let link = at(&found, b"a/b/link");
        found.entries.swap_remove(link);
        found.entries.push((b"extra".to_vec(), found.entries[0].1.clone()));
        found.unlisted.push(b"a".to_vec());
        let mut said = compare(dir.path(), "first", &local, &found).shown;
        said.sort_unstable();
        assert_eq!(
            said,
            [
                "first: 1 directories could not be listed, 0 on disk",
                "first: a/b/link: missing",
                "first: a/file: mode, size differ",
                "first: extra: not on disk, or told twice",
            ]
        );
    }

    #[test]
    fn a_change_on_disk_is_told_from_a_mistake() {
        let (dir, local) = tree();
        fs::write(dir.path().join("a/file"), "longer").expect("written");
        let found = walk(dir.path()).expect("walked");
        let said = compare(dir.path(), "first", &local, &found).shown;
        // Within one tick of the kernel's clock the mtime stays.
        let [said] = &said[..] else { panic!("{said:?}") };
        assert!(said.starts_with("first: a/file: size"), "{said}");
        assert!(said.ends_with("differ; it changed on disk meanwhile"), "{said}");
    }
}
