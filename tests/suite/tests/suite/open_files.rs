//! A file that is open stays usable, whatever becomes of its name.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use portcullis_suite::actor::Actor;
use portcullis_suite::relay::Relay;
use portcullis_suite::share::{Layout, Share, is_local};
use portcullis_suite::{run, view, wait};

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("it opens")
}

/// Everything that can be done with an open file.
fn use_it(file: &File, content: &[u8]) {
    let mut bytes = vec![0; content.len()];
    file.read_exact_at(&mut bytes, 0).expect("it reads");
    assert_eq!(bytes, content);
    file.write_all_at(b"more", 10).expect("it is written");
    file.set_len(12).expect("it is truncated");
    file.set_permissions(fs::Permissions::from_mode(0o640)).expect("its mode");
    file.sync_all().expect("synced");
    let attr = file.metadata().expect("attributes");
    assert_eq!((attr.len(), attr.mode() & 0o7777), (12, 0o640));
    file.read_exact_at(&mut bytes[..2], 10).expect("it reads");
    assert_eq!(&bytes[..2], b"mo");
}

/// S-OPEN-1.
#[test]
fn a_removed_file_stays_open_whoever_removed_it() {
    let Some(share) = Share::three("a_removed_file_stays_open_whoever_removed_it") else { return };
    let removers = [share.mount(0), share.mount(1), share.mount(2), share.export()];
    for (number, remover) in removers.into_iter().enumerate() {
        let name = format!("f{number}");
        fs::write(share.mount(0).join(&name), "the content").expect("a file");
        let file = open(&share.mount(0).join(&name));
        fs::remove_file(remover.join(&name)).expect("removed");
        use_it(&file, b"the content");
        if remover != share.export() {
            assert_eq!(file.metadata().expect("attributes").nlink(), 0, "removed by {number}");
        }
        fs::write(remover.join(&name), "another file").expect("a new file of that name");
        let mut bytes = [0; 3];
        file.read_exact_at(&mut bytes, 0).expect("it reads");
        assert_eq!(&bytes, b"the", "the open file is still the old one");
    }
}

#[test]
fn a_file_that_was_renamed_over_stays_open() {
    let Some(share) = Share::three("a_file_that_was_renamed_over_stays_open") else { return };
    for (number, mover) in [0, 1, 2].into_iter().enumerate() {
        let name = format!("f{number}");
        fs::write(share.mount(0).join(&name), "the content").expect("a file");
        let file = open(&share.mount(0).join(&name));
        fs::write(share.mount(mover).join("new"), "what is new").expect("a file");
        fs::rename(share.mount(mover).join("new"), share.mount(mover).join(&name))
            .expect("renamed");
        assert_eq!(view::content(&share.mount(0).join(&name)), "what is new");
        use_it(&file, b"the content");
        assert_eq!(view::content(&share.mount(0).join(&name)), "what is new");
    }
}

#[test]
fn an_open_file_is_followed_when_it_moves() {
    let Some(share) = Share::two("an_open_file_is_followed_when_it_moves") else { return };
    let (one, other) = (share.mount(0), share.mount(1));
    fs::create_dir_all(one.join("a/b")).expect("directories");
    fs::write(one.join("a/b/f"), "the content").expect("a file");
    let file = open(&one.join("a/b/f"));
    fs::rename(other.join("a"), other.join("c")).expect("renamed");
    fs::rename(other.join("c/b/f"), other.join("g")).expect("renamed");
    fs::create_dir_all(other.join("a/b")).expect("directories");
    fs::write(other.join("a/b/f"), "not this one").expect("a file");
    use_it(&file, b"the content");
    assert_eq!(view::content(&other.join("a/b/f")), "not this one");
    assert_eq!(fs::metadata(other.join("g")).expect("attributes").len(), 12);
}

/// What one opened another one sees too, and the other way round. S-COH-5.
#[test]
fn what_is_written_through_one_mount_is_read_through_the_open_file_of_another() {
    let name = "what_is_written_through_one_mount_is_read_through_the_open_file_of_another";
    let Some(share) = Share::three(name) else { return };
    fs::write(share.mount(0).join("f"), "0000000000").expect("a file");
    let files: Vec<File> = share.paths().iter().map(|path| open(&path.join("f"))).collect();
    for round in 0..30_usize {
        let (writer, text) = (round % files.len(), format!("{round:010}"));
        files[writer].write_all_at(text.as_bytes(), 0).expect("written");
        for (reader, file) in files.iter().enumerate() {
            let mut bytes = [0; 10];
            file.read_exact_at(&mut bytes, 0).expect("read");
            assert_eq!(bytes, text.as_bytes(), "round {round}: {reader} reads what {writer} wrote");
        }
        files[writer].set_len(10 + round as u64).expect("its size");
        for file in &files {
            assert_eq!(file.metadata().expect("attributes").len(), 10 + round as u64);
        }
    }
}

/// A mount keeps pages that it has only written, and never read or asked for: it is told when they
/// change. S-COH-1.
#[test]
fn pages_that_were_only_written_are_not_kept_too_long() {
    let name = "pages_that_were_only_written_are_not_kept_too_long";
    let Some(share) = Share::three(name) else { return };
    for other in [1, 2] {
        let path = format!("f{other}");
        fs::write(share.mount(0).join(&path), vec![b'0'; 20_000]).expect("a file");
        let (one, two) = (open(&share.mount(0).join(&path)), open(&share.mount(other).join(&path)));
        for round in 0..10 {
            // What the first mount was told before is used up by this change.
            two.set_len(round).expect("truncated");
            one.write_all_at(&[b'c'; 20_000], 1).expect("written");
            two.write_all_at(&[b'j'; 20_000], 4_096).expect("written");
            let mut bytes = [0; 4_096];
            one.read_exact_at(&mut bytes, 1).expect("read");
            assert_eq!(bytes[4_095], b'j', "round {round}, mount {other}");
        }
    }
}

/// The working directory of a process is removed by another mount.
#[test]
fn a_removed_directory_is_empty_and_takes_nothing() {
    let Some(share) = Share::two("a_removed_directory_is_empty_and_takes_nothing") else { return };
    fs::create_dir(share.mount(0).join("d")).expect("a directory");
    let script = "
        rmdir \"$1\"
        ls -a . 2>/dev/null | grep -v '^[.]' || true
        if (: > new) 2>/dev/null; then echo made; fi
        if stat . >/dev/null 2>&1; then echo there; fi";
    let mut sh = std::process::Command::new("sh");
    sh.args(["-c", script, "sh"]).arg(share.mount(1).join("d"));
    let printed = run::success(sh.current_dir(share.mount(0).join("d")));
    assert!(!printed.contains("made"), "{printed}");
    assert_eq!(view::names(share.mount(0), ""), "");
}

/// Another process holds it, over restarts of both servers. S-OPEN-1.
/// S-OPEN-3.
#[test]
fn a_removed_file_is_kept_over_restarts() {
    let name = "a_removed_file_is_kept_over_restarts";
    if is_local() {
        return;
    }
    let layout = Layout { mounts: &[0, 0], options: "timeout=120", ..Layout::default() };
    let Some(mut share) = Share::start(name, &layout) else { return };
    let path = share.mount(0).join("f");
    let over = share.mount(0).join("over");
    fs::write(&path, "the content").expect("a file");
    fs::write(&over, "renamed over").expect("a file");
    let mut holder = Actor::start();
    holder.ok(&format!("open f RDWR {}", path.display()));
    holder.ok(&format!("open over RDWR {}", over.display()));
    holder.ok(&format!("open tmp RDWR+TMPFILE {}", share.mount(0).display()));
    holder.ok("write tmp 0 unnamed");
    fs::remove_file(share.mount(1).join("f")).expect("removed");
    fs::write(share.mount(1).join("x"), "x").expect("a file");
    fs::rename(share.mount(1).join("x"), share.mount(1).join("over")).expect("renamed");
    for restart in ["brick", "gateway", "both"] {
        let site = share.site_mut();
        if restart != "gateway" {
            site.kill_brick();
            site.restart_brick();
        }
        if restart != "brick" {
            site.kill_gateway();
            site.restart_gateway();
        }
        assert_eq!(holder.ask("read f 0 11"), "=the content", "{restart}");
        assert_eq!(holder.ask("read over 0 12"), "=renamed over", "{restart}");
        assert_eq!(holder.ask("read tmp 0 7"), "=unnamed", "{restart}");
        holder.ok("write f 20 later");
        assert_eq!(holder.ask("fstat f"), "size=25 nlink=0 mode=100644");
        assert_eq!(view::names(share.mount(1), ""), "over=file");
    }
    holder.ok(&format!("link tmp {}", share.mount(0).join("named").display()));
    assert_eq!(view::content(&share.mount(1).join("named")), "unnamed");
}

/// The directory that keeps them is nobody's business. S-OPEN-2.
#[test]
fn the_place_of_removed_files_cannot_be_named() {
    const ORPHANS: &str = ".portcullis-orphans";
    let name = "the_place_of_removed_files_cannot_be_named";
    if is_local() {
        return;
    }
    let Some(share) = Share::two(name) else { return };
    let root = share.mount(0);
    for is_used in [false, true] {
        let file = is_used.then(|| {
            fs::write(root.join("f"), "the content").expect("a file");
            let file = open(&root.join("f"));
            fs::remove_file(share.mount(1).join("f")).expect("removed");
            file
        });
        for root in [share.mount(0), share.mount(1)] {
            assert_eq!(view::names(root, ""), "", "hidden, used: {is_used}");
            assert_eq!(view::kind(&root.join(ORPHANS)), "error 2");
            let made = fs::create_dir(root.join(ORPHANS));
            assert!(made.is_err(), "made, used: {is_used}");
            assert!(fs::write(root.join(ORPHANS), "").is_err(), "used: {is_used}");
            fs::create_dir(root.join("d")).expect("a directory");
            assert!(fs::rename(root.join("d"), root.join(ORPHANS)).is_err(), "used: {is_used}");
            fs::remove_dir(root.join("d")).expect("removed");
            assert!(fs::remove_dir(root.join(ORPHANS)).is_err());
        }
        if let Some(file) = file {
            use_it(&file, b"the content");
        }
    }
    // Below the root it is a name like any other.
    fs::create_dir_all(root.join("d").join(ORPHANS)).expect("a directory");
}

/// The same for pages that were only read, time and again, through a file that stays open. S-COH-1.
#[test]
fn pages_that_were_only_read_are_not_kept_too_long() {
    let name = "pages_that_were_only_read_are_not_kept_too_long";
    let Some(share) = Share::three(name) else { return };
    for other in [1, 2] {
        let path = format!("f{other}");
        fs::write(share.mount(0).join(&path), [b'0'; 100]).expect("a file");
        let (one, two) = (open(&share.mount(0).join(&path)), open(&share.mount(other).join(&path)));
        for round in 0..20_u8 {
            two.write_all_at(&[round; 100], 0).expect("written");
            let mut bytes = [0; 100];
            one.read_exact_at(&mut bytes, 0).expect("read");
            assert_eq!(bytes, [round; 100], "round {round}, mount {other}");
        }
    }
}

/// How often the brick has the file at `path` open.
fn opens_at_brick(share: &Share, path: &Path) -> usize {
    let brick = share.site().brick.as_ref().expect("a brick");
    let Ok(open) = fs::read_dir(format!("/proc/{}/fd", brick.id())) else { return 0 };
    let is_it = |fd: &fs::DirEntry| fs::read_link(fd.path()).is_ok_and(|target| target == path);
    open.flatten().filter(is_it).count()
}

/// S-OPEN-3.
#[test]
fn a_file_that_was_closed_during_an_outage_is_closed_at_the_brick() {
    let test = "a_file_that_was_closed_during_an_outage_is_closed_at_the_brick";
    if is_local() {
        return;
    }
    let Some(mut share) = Share::start(test, &Layout { mounts: &[], ..Layout::default() }) else {
        return;
    };
    let relay = Relay::start(share.site().gateway.ready());
    let mount = share.add_mount(&relay.address(), "timeout=120");
    let (path, export) = (share.mount(mount).join("f"), share.export().join("f"));
    fs::write(&path, "the content").expect("a file");
    let files: Vec<File> = (0..3).map(|_| open(&path)).collect();
    files[0].lock().expect("nobody holds it");
    wait::until("the brick has it open", || (opens_at_brick(&share, &export) >= 3).then_some(()));
    relay.cut(true);
    drop(files);
    wait::until("the gateway has lost the mount", || {
        share.site().gateway.log().contains("disconnected").then_some(())
    });
    relay.cut(false);
    wait::until("the mount works", || (view::content(&path) == "the content").then_some(()));
    wait::until("the brick has it closed", || (opens_at_brick(&share, &export) == 0).then_some(()));
    let below = open(&export);
    wait::until("its lock is gone", || below.try_lock().ok());
}
