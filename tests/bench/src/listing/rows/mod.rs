//! The rows of the table, one module a group.

pub mod deep;
pub mod first;
pub mod growth;
pub mod memory;
pub mod spread;
pub mod wide;

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::data;
use super::installation::Setup;
use super::options::{Options, Sizes};
use super::planting;
use super::report::Report;

/// What can be measured alone. `files`, `acl`, `dirs` and `crawl` are rows of mounts over a wide
/// tree, `find` of `portcullis find`; `delay` and `requests` are over a deep tree; the others over
/// large directories, but for `bricks`, which is over a small one.
pub const NAMES: [&str; 12] = [
    "files", "acl", "dirs", "crawl", "find", "delay", "requests", "first", "memory", "tight",
    "growth", "bricks",
];

/// What the groups share: the options, and trees that are made when they are first asked for.
#[derive(Debug)]
pub struct Bench {
    /// The command line.
    pub options: Options,
    /// How large everything is.
    pub sizes: Sizes,
    trees: TempDir,
}

/// Measures one or more groups.
type Measure = fn(&Bench, &mut Report);

/// Measures everything that is wanted. The trees go with what is answered, which takes a while.
pub fn all(options: Options, report: &mut Report) -> Bench {
    let sizes = options.sizes();
    let trees = tempfile::tempdir().expect("a temporary directory");
    let bench = Bench { options, sizes, trees };
    let groups: [(&[&str], Measure); 7] = [
        (&["files", "acl", "dirs", "crawl", "find"], wide::measure),
        (&["bricks"], spread::measure),
        (&["delay", "requests"], deep::measure),
        (&["first"], first::measure),
        (&["memory"], memory::of_an_entry),
        (&["tight"], memory::of_a_small_cache),
        (&["growth"], growth::measure),
    ];
    for (names, measure) in groups {
        if names.iter().any(|name| bench.options.wants(name)) {
            report.note_load(&format!("before {}", names.join(", ")));
            measure(&bench, report);
        }
    }
    report.note_load("at the end");
    bench
}

impl Bench {
    /// The wide tree.
    pub fn wide(&self) -> PathBuf {
        self.tree("wide", |path| data::wide(path, &self.sizes))
    }

    /// The deep tree.
    pub fn deep(&self) -> PathBuf {
        self.tree("deep", |path| data::deep(path, self.sizes.deep))
    }

    /// The tree of flat directories, with one of each of these sizes.
    pub fn flat(&self, entries: &[usize]) -> PathBuf {
        let path = self.tree("flat", |_| ());
        entries.iter().for_each(|&entries| drop(data::flat(&path, entries)));
        path
    }

    /// The exports of a volume of several bricks that holds the wide tree. Which brick holds a file
    /// is the volume's business, so it is made through a gateway.
    pub fn wide_on(&self, bricks: usize) -> Vec<PathBuf> {
        if bricks == 1 {
            return vec![self.wide()];
        }
        let (exports, is_new) = self.exports(&format!("wide-on-{bricks}"), bricks);
        if is_new {
            let exports = exports.clone();
            let running = Setup { exports, ..self.setup(Path::new("")) }.start();
            planting::wide(&running, &self.sizes);
        }
        exports
    }

    /// Directories for so many bricks, and whether they were made just now, empty.
    pub fn exports(&self, name: &str, bricks: usize) -> (Vec<PathBuf>, bool) {
        let root = self.trees.path().join(name);
        let exports: Vec<_> = (0..bricks).map(|brick| root.join(brick.to_string())).collect();
        let is_new = !root.exists();
        if is_new {
            eprintln!("making {name}");
            exports.iter().for_each(|dir| std::fs::create_dir_all(dir).expect("a directory"));
        }
        (exports, is_new)
    }

    /// One brick and a gateway with the arguments of this run.
    pub fn setup(&self, export: &Path) -> Setup {
        let identity = self.trees.path().join("id");
        if !identity.exists() {
            portcullis_suite::site::identity(&identity);
        }
        let identity = Some(identity);
        Setup { identity, ..Setup::of(export, &self.options.gateway_args()) }
    }

    fn tree(&self, name: &str, make: impl FnOnce(&Path)) -> PathBuf {
        let path = self.trees.path().join(name);
        if !path.exists() {
            eprintln!("making {name}");
            std::fs::create_dir(&path).expect("a directory");
            make(&path);
        }
        path
    }
}
