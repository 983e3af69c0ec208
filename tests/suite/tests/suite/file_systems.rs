//! Bricks over file systems of other kinds: with the kernel's handles and without, seen by
//! fanotify and not.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use portcullis_suite::backing::Backing;
use portcullis_suite::share::{Layout, Share, is_local};
use portcullis_suite::{find, need, run, tree, view, wait};
use portcullis_wire::message::Notices;

use super::posix::pjdfstest;

/// What of pjdfstest is run here: what depends most on the file system below.
const CASES: &[&str] = &["rename::", "unlink::", "link::", "mkdir::", "open::", "ftruncate::"];

/// Takes minutes.
const LINK_COUNT_MAX: &str = "link::link_count_max";
/// Counts the links of a removed file that is open, among which is its hidden name (S-OPEN-4).
const OPEN_FILE: &str = "unlink::open_file_not_freed";
/// The same of a file that was closed a moment ago, and has another name.
const CLOSED_FILE: &str = "link::remove_link::regular";

/// `notices`: how the brick has to notice what others do there.
fn on(test: &str, programs: &[&str], notices: &[Notices], backing: impl FnOnce() -> Backing) {
    if !need::programs(test, programs) || !need::programs(test, &["pjdfstest"]) {
        return;
    }
    if !need::users(test) || !need::fuse_and_root(test) {
        return;
    }
    let backing = backing();
    let export = backing.path().join("export");
    fs::create_dir(&export).expect("a directory");
    tree::odd(&export);
    let layout = Layout { export: Some(export), mounts: &[0, 0, 1], ..Layout::default() };
    let Some(share) = Share::start(test, &layout) else { return };
    let below = find::local(share.export(), find::EVERYTHING);
    for mount in 0..3 {
        find::assert_equal(&find::local(share.mount(mount), find::EVERYTHING), &below);
    }
    coherent(&share);
    // libfuse gives a removed file that is open a hidden name of its own, which counts as a link.
    let hidden_links = u64::from(backing.dir().join("source").is_dir());
    open_without_a_name(&share, hidden_links);
    changed_directly(&share, share.export());
    // What is behind a FUSE file system changes without the kernel's knowing.
    let source = backing.dir().join("source/export");
    if source.is_dir() {
        changed_directly(&share, &source);
    }
    if !is_local() {
        let told = share.site().stats().watch.notices;
        assert!(notices.contains(&told), "it notices by {told:?}");
    }
    let beyond = if hidden_links == 0 {
        &[LINK_COUNT_MAX][..]
    } else {
        &[LINK_COUNT_MAX, OPEN_FILE, CLOSED_FILE]
    };
    passes_what_passes_below(&share, &backing, beyond);
    view::assert_same_tree(
        "a mount and the brick",
        &view::tree(&share.mount(2).join("c")),
        &view::tree(&share.export().join("c")),
    );
}

/// Changes through each mount are seen through the others at once.
fn coherent(share: &Share) {
    fs::create_dir(share.mount(0).join("c")).expect("a directory");
    let all = |look: &dyn Fn(&Path) -> String| -> Vec<String> {
        (0..3).map(|mount| look(&share.mount(mount).join("c"))).collect()
    };
    let agree = |what: &str, look: &dyn Fn(&Path) -> String| {
        let expected = look(&share.export().join("c"));
        for (mount, seen) in all(look).iter().enumerate() {
            assert_eq!(*seen, expected, "{what}, seen by mount {mount}");
        }
    };
    for mount in 0..3 {
        let dir = share.mount(mount).join("c");
        let name = format!("f{mount}");
        let at = |dir: &Path| dir.join(&name);
        agree("absent", &|dir| view::kind(&at(dir)));
        fs::write(at(&dir), "one").expect("a file");
        agree("created", &|dir| view::content(&at(dir)));
        agree("listed", &|dir| view::names(dir, ""));
        fs::write(at(&dir), "two and more").expect("written");
        agree("written", &|dir| view::content(&at(dir)));
        run::sh(&dir, &format!("chmod 4711 {name}; ln {name} other-{name}; mkdir d{mount}"));
        agree("linked", &|dir| view::attr(&at(dir)));
        fs::rename(at(&dir), dir.join("over")).expect("renamed");
        agree("renamed away", &|dir| view::kind(&at(dir)));
        agree("renamed", &|dir| view::content(&dir.join("over")));
        fs::remove_file(dir.join(format!("other-{name}"))).expect("removed");
        agree("unlinked", &|dir| view::attr(&dir.join("over")));
        fs::rename(dir.join(format!("d{mount}")), dir.join(format!("e{mount}"))).expect("renamed");
        agree("a directory renamed", &|dir| view::names(dir, ""));
    }
}

fn open_without_a_name(share: &Share, hidden_links: u64) {
    let path = share.mount(0).join("c/open");
    fs::write(&path, "the content").expect("a file");
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("it opens");
    fs::remove_file(share.mount(2).join("c/open")).expect("removed");
    let mut bytes = [0; 11];
    file.read_exact_at(&mut bytes, 0).expect("it reads");
    assert_eq!(&bytes, b"the content");
    file.write_all_at(b"more", 11).expect("written");
    let attr = file.metadata().expect("fstat");
    assert_eq!(attr.len(), 15);
    assert!(attr.nlink() <= hidden_links, "{} links", attr.nlink());
    drop(file);
    assert_eq!(view::names(&share.mount(0).join("c"), "open"), "");
}

/// What other programs do in the exported directory is seen, by fanotify or by polling.
fn changed_directly(share: &Share, export: &Path) {
    let (dir, below) = (share.mount(0).join("c"), export.join("c"));
    let _ = (view::names(&dir, ""), view::kind(&dir.join("direct")));
    File::create(below.join("direct")).expect("a file");
    wait::until("a name is seen", || (view::kind(&dir.join("direct")) == "file").then_some(()));
    fs::write(below.join("direct"), "longer than before").expect("written");
    wait::until("content is seen", || {
        (view::content(&dir.join("direct")) == "longer than before").then_some(())
    });
    fs::remove_file(below.join("direct")).expect("removed");
    wait::until("a removal is seen", || {
        (view::kind(&dir.join("direct")) == "error 2").then_some(())
    });
    assert_eq!(view::names(&dir, "direct"), "");
}

/// Every case that passes on the file system itself passes through the mount, save those `beyond`.
fn passes_what_passes_below(share: &Share, backing: &Backing, beyond: &[&str]) {
    let local = backing.path().join("local");
    fs::create_dir(&local).expect("a directory");
    let config = backing.dir().join("config.toml");
    let below = pjdfstest(&local, &config, &[]);
    let chosen: Vec<&str> = below
        .iter()
        .filter(|(name, result)| {
            *result == "ok"
                && CASES.iter().any(|case| name.starts_with(case))
                && !beyond.contains(&name.as_str())
        })
        .map(|(name, _)| name.as_str())
        .collect();
    assert!(chosen.len() > 60, "only {} cases pass below", chosen.len());
    let mounted = pjdfstest(share.mount(0), &config, &chosen);
    let failed: Vec<&&str> =
        chosen.iter().filter(|case| mounted.get(**case).is_none_or(|told| told != "ok")).collect();
    assert!(failed.is_empty(), "{} of {}: {failed:#?}", failed.len(), chosen.len());
}

#[test]
fn a_brick_over_xfs() {
    on("a_brick_over_xfs", &["mkfs.xfs"], &[Notices::Fanotify], Backing::xfs);
}

#[test]
fn a_brick_over_tmpfs() {
    on("a_brick_over_tmpfs", &[], &[Notices::Fanotify], Backing::tmpfs);
}

#[test]
fn a_brick_over_overlayfs() {
    on("a_brick_over_overlayfs", &[], &[Notices::Fanotify, Notices::Polling], Backing::overlayfs);
}

/// It keeps no birth times, and uses inode numbers again at once.
/// S-COH-2, S-ENTRY-4, S-OPEN-4.
#[test]
fn a_brick_over_a_fuse_file_system() {
    on("a_brick_over_a_fuse_file_system", &["bindfs"], &[Notices::Polling], Backing::bindfs);
}

/// A file that only the brick can tell from others is known to its next life.
/// S-OPEN-1.
#[test]
fn a_removed_file_outlives_its_brick_on_a_fuse_file_system() {
    let name = "a_removed_file_outlives_its_brick_on_a_fuse_file_system";
    if is_local() || !need::programs(name, &["bindfs"]) || !need::fuse_and_root(name) {
        return;
    }
    let backing = Backing::bindfs();
    let export = backing.path().join("export");
    fs::create_dir(&export).expect("a directory");
    let layout = Layout { export: Some(export), options: "timeout=120", ..Layout::default() };
    let Some(mut share) = Share::start(name, &layout) else { return };
    for name in ["removed", "named"] {
        fs::write(share.mount(0).join(name), name).expect("a file");
    }
    let mut open = OpenOptions::new();
    let open = open.read(true).write(true);
    let file = open.open(share.mount(0).join("removed")).expect("it opens");
    fs::remove_file(share.mount(0).join("removed")).expect("removed");
    share.site_mut().kill_brick();
    share.site_mut().restart_brick();
    file.write_all_at(b" and open", 7).expect("written");
    file.sync_all().expect("fsync");
    let mut bytes = [0; 16];
    file.read_exact_at(&mut bytes, 0).expect("it reads");
    assert_eq!(&bytes, b"removed and open");
    assert_eq!(view::content(&share.mount(0).join("named")), "named");
    assert_eq!(view::names(share.mount(0), ""), "named=file");
}
