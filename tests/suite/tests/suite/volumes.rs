//! A volume of several bricks: where names lie, what a brick that is away takes along, and what a
//! gateway that dies leaves behind.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use portcullis_suite::share::{Layout, Share, is_local};
use portcullis_suite::{soaking, view, wait};

/// What an operation is answered whose fate nobody knows.
const EIO: i32 = 5;

/// Where bricks keep what is the volume's own.
const HIDDEN: &str = ".portcullis-volume";

fn share(test: &str, bricks: usize, mounts: &[usize]) -> Option<Share> {
    if is_local() {
        return None;
    }
    // A brick that is away is not waited for long.
    let gateway_args = &["--brick-timeout", "2s"];
    let layout = Layout { bricks, mounts, gateway_args, options: "timeout=2", ..Layout::default() };
    Share::start(test, &layout)
}

fn listed(dir: &Path) -> BTreeSet<OsString> {
    let names: Vec<OsString> = fs::read_dir(dir)
        .expect("it lists")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    let unique: BTreeSet<_> = names.iter().cloned().collect();
    assert_eq!(unique.len(), names.len(), "a name twice in {}", dir.display());
    unique
}

fn numbered(prefix: &str, count: usize) -> BTreeSet<OsString> {
    (0..count).map(|number| format!("{prefix}-{number}").into()).collect()
}

/// How many bricks have files of the root in their export.
fn bricks_with_files(share: &Share, bricks: usize) -> usize {
    let export = |number: usize| match number {
        0 => share.export().to_owned(),
        _ => share.scratch(&format!("export-{number}")),
    };
    let has_files = |number: &usize| {
        let mut entries = fs::read_dir(export(*number)).expect("an export");
        entries.any(|entry| {
            let name = entry.expect("an entry").file_name();
            name != HIDDEN && name != view::ORPHANS
        })
    };
    (0..bricks).filter(has_files).count()
}

/// S-VOLUME-1.
#[test]
fn names_of_one_directory_lie_on_all_bricks_and_list_as_one() {
    const BRICKS: usize = 4;
    let test = "names_of_one_directory_lie_on_all_bricks_and_list_as_one";
    let Some(share) = share(test, BRICKS, &[0, 0]) else { return };
    let (one, other) = (share.mount(0), share.mount(1));
    for number in 0..100 {
        fs::write(one.join(format!("file-{number}")), format!("content {number}"))
            .expect("written");
        fs::create_dir(one.join(format!("dir-{number}"))).expect("made");
        fs::write(one.join(format!("dir-{number}/below")), "x").expect("written");
    }
    assert_eq!(bricks_with_files(&share, BRICKS), BRICKS);
    let expected: BTreeSet<_> =
        numbered("file", 100).union(&numbered("dir", 100)).cloned().collect();
    for root in [one, other] {
        assert_eq!(listed(root), expected, "{}", root.display());
        for number in 0..100 {
            let content = view::content(&root.join(format!("file-{number}")));
            assert_eq!(content, format!("content {number}"));
            assert_eq!(view::names(&root.join(format!("dir-{number}")), ""), "below=file");
        }
    }
    let inodes: BTreeSet<u64> = fs::read_dir(one)
        .expect("it lists")
        .map(|entry| entry.and_then(|entry| entry.metadata()).expect("attributes").ino())
        .collect();
    assert_eq!(inodes.len(), 200, "an inode number of its own for each");
    for number in 0..100 {
        fs::remove_file(other.join(format!("dir-{number}/below"))).expect("removed");
        fs::remove_dir(other.join(format!("dir-{number}"))).expect("removed");
    }
    assert_eq!(listed(one), numbered("file", 100));
}

/// S-VOLUME-4.
#[test]
fn a_directory_is_asked_of_each_brick_once_and_a_name_of_one() {
    const BRICKS: usize = 4;
    let test = "a_directory_is_asked_of_each_brick_once_and_a_name_of_one";
    let Some(mut share) = share(test, BRICKS, &[0]) else { return };
    let root = share.mount(0).to_owned();
    fs::create_dir(root.join("dir")).expect("made");
    for number in 0..50 {
        fs::write(root.join(format!("dir/file-{number}")), "x").expect("written");
        fs::create_dir(root.join(format!("dir/dir-{number}"))).expect("made");
    }
    drop(share.take_mount(0));
    share.site_mut().restart_gateway();
    let asked = |share: &Share, verb: &str| -> Vec<u64> {
        let requests = share.site().requests_by_brick();
        requests.iter().map(|requests| requests.get(verb).copied().unwrap_or(0)).collect()
    };
    let ls = |share: &Share| share.site().stdout("ls", "/dir", &["-l"]);
    let before = asked(&share, "getattrs");
    assert_eq!(ls(&share).split(|&byte| byte == b'\n').count(), 101);
    assert_eq!(asked(&share, "list"), [1; BRICKS], "cold");
    assert_eq!(asked(&share, "getattrs"), before, "attributes come along");
    let lookups = asked(&share, "lookup");
    assert_eq!(lookups.iter().sum::<u64>(), 1, "of the name of the directory: {lookups:?}");
    ls(&share);
    assert_eq!(asked(&share, "list"), [1; BRICKS], "again");
    share.site_mut().restart_gateway();
    share.site().stdout("stat", "/dir/file-7", &[]);
    let lookups = asked(&share, "lookup");
    assert_eq!(lookups.iter().sum::<u64>(), 2, "one for each name of the path: {lookups:?}");
    let absent = share.site().run("stat", "/dir/nothing", &[]);
    assert_eq!(absent.status.code(), Some(1));
}

/// S-VOLUME-3.
#[test]
fn a_brick_that_is_away_takes_its_own_names_along_and_nothing_else() {
    const BRICKS: usize = 4;
    const NAMES: usize = 40;
    let test = "a_brick_that_is_away_takes_its_own_names_along_and_nothing_else";
    let Some(mut share) = share(test, BRICKS, &[0, 0]) else { return };
    let root = share.mount(0).to_owned();
    for number in 0..NAMES {
        fs::write(root.join(format!("file-{number}")), "kept").expect("written");
    }
    assert_eq!(listed(&root), numbered("file", NAMES));
    share.site_mut().kill_brick_number(2);
    let away = |name: &str| view::content(&root.join(name)) == "error 5";
    let all: Vec<String> = (0..NAMES).map(|number| format!("file-{number}")).collect();
    let lost = wait::until("the loss is noticed", || {
        let lost: Vec<_> = all.iter().filter(|name| away(name)).collect();
        (!lost.is_empty()).then_some(lost)
    });
    assert!((2..22).contains(&lost.len()), "a quarter of the names: {}", lost.len());
    let kept = all.iter().filter(|name| !lost.contains(name));
    kept.for_each(|name| assert_eq!(view::content(&root.join(name)), "kept"));
    // What is there is listed, and then comes an error in the place of the end.
    let mut names = 0;
    let end = fs::read_dir(&root).expect("it opens").find_map(|entry| match entry {
        Ok(_) => {
            names += 1;
            None
        }
        Err(why) => Some(view::error(&why)),
    });
    assert_eq!((names, end.as_deref()), (NAMES - lost.len(), Some("error 5")));
    let ls = share.site().run("ls", "/", &[]);
    let stderr = String::from_utf8_lossy(&ls.stderr);
    assert_eq!(ls.status.code(), Some(1));
    assert!(stderr.contains("a brick is down"), "{stderr}");
    let stat = share.site().run("stat", &format!("/{}", lost[0]), &[]);
    let stderr = String::from_utf8_lossy(&stat.stderr);
    assert!(stderr.contains("brick 2 at 127.0.0.1:"), "it says which: {stderr}");
    // New names go where they belong, or nowhere.
    let created: Vec<bool> = (0..20)
        .map(|number| match fs::write(root.join(format!("new-{number}")), "x") {
            Ok(()) => true,
            Err(why) => {
                assert_eq!(view::error(&why), "error 5");
                false
            }
        })
        .collect();
    assert!(created.contains(&true) && created.contains(&false), "{created:?}");
    share.site_mut().restart_brick_number(2);
    wait::until("the brick is taken back", || (!away(lost[0])).then_some(()));
    for root in share.paths() {
        let found = listed(root);
        assert!(found.is_superset(&numbered("file", NAMES)), "{found:?}");
        // Of those that failed any may be made yet: whoever waited no longer, his mount went on.
        let made = created.iter().enumerate().filter(|(_, created)| **created);
        made.for_each(|(number, _)| {
            assert!(found.contains(&OsString::from(format!("new-{number}"))), "{found:?}");
        });
        all.iter().for_each(|name| assert_eq!(view::content(&root.join(name)), "kept"));
    }
}

/// S-VOLUME-5.
#[test]
fn a_brick_added_later_takes_new_names_and_moves_no_old_one() {
    let test = "a_brick_added_later_takes_new_names_and_moves_no_old_one";
    let Some(mut share) = share(test, 2, &[0]) else { return };
    let root = share.mount(0).to_owned();
    fs::create_dir(root.join("old")).expect("made");
    for number in 0..40 {
        fs::write(root.join(format!("old/file-{number}")), "kept").expect("written");
    }
    drop(share.take_mount(0));
    let export = share.scratch("export-2");
    fs::create_dir(&export).expect("a directory to export");
    share.site_mut().add_brick(&export);
    share.site_mut().restart_gateway();
    let address = share.site().gateway.ready().to_owned();
    let mount = share.add_mount(&address, "");
    let root = share.mount(mount).to_owned();
    assert_eq!(listed(&root.join("old")), numbered("file", 40));
    for number in 0..40 {
        assert_eq!(view::content(&root.join(format!("old/file-{number}"))), "kept");
        fs::write(root.join(format!("old/new-{number}")), "x").expect("written");
    }
    fs::create_dir(root.join("new")).expect("made");
    for number in 0..60 {
        fs::write(root.join(format!("new/file-{number}")), vec![7; 1000]).expect("written");
    }
    assert_eq!(listed(&root.join("new")), numbered("file", 60));
    let on_new = |dir: &Path| {
        let mut found = 0;
        let mut dirs = vec![dir.to_owned()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).expect("it lists").map(|entry| entry.expect("an entry"))
            {
                match entry.metadata().expect("attributes") {
                    attr if attr.is_dir() => dirs.push(entry.path()),
                    attr => found += usize::from(attr.len() == 1000),
                }
            }
        }
        found
    };
    let found = on_new(&export);
    assert!((8..35).contains(&found), "a third of the new directory's files: {found}");
    // From one directory to the other and back, over all bricks.
    for number in 0..40 {
        let (old, new) =
            (root.join(format!("old/file-{number}")), root.join(format!("new/moved-{number}")));
        fs::rename(&old, &new).expect("renamed");
        assert_eq!((view::kind(&old), view::content(&new)), ("error 2".into(), "kept".into()));
    }
    fs::rename(root.join("new"), root.join("old/new")).expect("renamed");
    assert_eq!(listed(&root.join("old/new")).len(), 100);
}

/// Rounds of changes, and those of them that ended with what nobody knows the fate of.
#[derive(Clone, Copy, Default)]
struct Rounds {
    whole: usize,
    in_doubt: usize,
}

/// Rounds of changes under names of its own, until told to end.
fn change_on(root: &Path, worker: usize, is_over: &AtomicBool) -> Rounds {
    let mut rounds = Rounds::default();
    while !is_over.load(Ordering::Relaxed) {
        let round = rounds.whole + rounds.in_doubt;
        let at = |what: &str| root.join(format!("{what}-{worker}-{round}"));
        match change(at, &format!("{worker} {round}")) {
            Ok(()) => rounds.whole += 1,
            Err(what) => {
                println!("{what} of {worker}, round {round}: nobody knows");
                rounds.in_doubt += 1;
                wait::until("what is left of the round is away", || away(at).then_some(()));
            }
        }
    }
    rounds
}

/// Changes on all bricks, one after another; which one it is whose fate nobody knows, if there is such a
/// one. All others go well.
fn change(at: impl Fn(&str) -> PathBuf, content: &str) -> Result<(), &'static str> {
    let done = |what: &'static str, result: std::io::Result<()>| match result {
        Ok(()) => Ok(()),
        Err(why) if why.raw_os_error() == Some(EIO) => Err(what),
        Err(why) => panic!("{what}, {}: {why}", at("").display()),
    };
    done("write", fs::write(at("a"), content))?;
    done("rename", fs::rename(at("a"), at("b")))?;
    done("link", fs::hard_link(at("b"), at("c")))?;
    done("unlink", fs::remove_file(at("b")))?;
    done("write", fs::write(at("d"), "x"))?;
    done("rename over", fs::rename(at("c"), at("d")))?;
    assert_eq!(view::content(&at("d")), content);
    done("mkdir", fs::create_dir(at("dir")))?;
    for name in ["1", "2", "3", "4"] {
        done("rename into", fs::rename(at("d"), at("dir").join(name)))?;
        done("rename out", fs::rename(at("dir").join(name), at("d")))?;
    }
    done("rename of a directory", fs::rename(at("dir"), at("moved")))?;
    done("rmdir", fs::remove_dir(at("moved")))?;
    done("unlink", fs::remove_file(at("d")))
}

/// Whether all that a round may have left is removed.
fn away(at: impl Fn(&str) -> PathBuf) -> bool {
    let is_gone = |removed: std::io::Result<()>| match removed {
        Ok(()) => true,
        Err(why) => why.kind() == std::io::ErrorKind::NotFound,
    };
    let mut files: Vec<_> = ["a", "b", "c", "d"].map(&at).into();
    for dir in ["dir", "moved"] {
        files.extend(["1", "2", "3", "4"].map(|name| at(dir).join(name)));
    }
    let files_are_gone = files.into_iter().all(|file| is_gone(fs::remove_file(file)));
    files_are_gone && ["dir", "moved"].into_iter().all(|dir| is_gone(fs::remove_dir(at(dir))))
}

/// What was asked of a gateway that died is asked again of the next one, which does not do it twice, and tells
/// what came of it, or that nobody knows: then it is wholly done or not at all. S-VOLUME-6.
#[test]
fn a_gateway_killed_amid_changes_is_followed_by_one_that_knows_what_came_of_them() {
    const WORKERS: usize = 6;
    let kills = if soaking() { 30 } else { 4 };
    let test = "a_gateway_killed_amid_changes_is_followed_by_one_that_knows_what_came_of_them";
    if is_local() {
        return;
    }
    let layout = Layout { bricks: 3, options: "timeout=120", ..Layout::default() };
    let Some(mut share) = Share::start(test, &layout) else { return };
    let root = share.mount(0).to_owned();
    let is_over = AtomicBool::new(false);
    let rounds: Vec<Rounds> = std::thread::scope(|scope| {
        let begin = |worker| {
            let (root, is_over) = (&root, &is_over);
            scope.spawn(move || change_on(root, worker, is_over))
        };
        let workers: Vec<_> = (0..WORKERS).map(begin).collect();
        for _ in 0..kills {
            wait::pause(Duration::from_millis(700));
            share.site_mut().kill_gateway();
            share.site_mut().restart_gateway();
        }
        wait::pause(Duration::from_millis(700));
        is_over.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().expect("all went well")).collect()
    });
    let whole: usize = rounds.iter().map(|rounds| rounds.whole).sum();
    let in_doubt: usize = rounds.iter().map(|rounds| rounds.in_doubt).sum();
    println!("{whole} rounds of {WORKERS} programs, {in_doubt} in doubt, {kills} gateways killed");
    assert!(whole + in_doubt >= WORKERS, "{whole} rounds");
    assert!(in_doubt <= WORKERS * kills, "{in_doubt} rounds, and each kill is amid one of each");
    assert_eq!(listed(&root), BTreeSet::new());
}

/// Renames until the gateway is gone; answers where the file must be: under one of two names.
fn rename_on(root: &Path, file: usize, until: Instant) -> (usize, usize) {
    let at = |step: usize| root.join(format!("file-{file}-{}", step % 50));
    let mut step = 0;
    while Instant::now() < until {
        match fs::rename(at(step), at(step + 1)) {
            Ok(()) => step += 1,
            Err(_) => return (step % 50, (step + 1) % 50),
        }
    }
    (step % 50, step % 50)
}

/// S-VOLUME-6.
#[test]
fn a_gateway_killed_amid_renames_leaves_each_file_under_one_name() {
    const FILES: usize = 6;
    const ROUNDS: usize = 2;
    let test = "a_gateway_killed_amid_renames_leaves_each_file_under_one_name";
    let Some(mut share) = share(test, 3, &[0]) else { return };
    for round in 0..ROUNDS {
        let root = share.mount(round).join(format!("round-{round}"));
        fs::create_dir(&root).expect("made");
        for file in 0..FILES {
            fs::write(root.join(format!("file-{file}-0")), format!("file {file}"))
                .expect("written");
        }
        let until = Instant::now() + Duration::from_secs(30);
        let root = &root;
        let places: Vec<(usize, usize)> = std::thread::scope(|scope| {
            let workers: Vec<_> =
                (0..FILES).map(|file| scope.spawn(move || rename_on(root, file, until))).collect();
            wait::pause(Duration::from_millis(700));
            share.site_mut().kill_gateway();
            workers.into_iter().map(|worker| worker.join().expect("it ends")).collect()
        });
        // With the mount goes what it would still ask again.
        drop(share.take_mount(round));
        share.site_mut().restart_gateway();
        let address = share.site().gateway.ready().to_owned();
        let mount = share.add_mount(&address, "timeout=5");
        let root = share.mount(mount).join(format!("round-{round}"));
        wait::until("what was left is finished", || {
            let names = listed(&root);
            (names.len() == FILES).then_some(())
        });
        for (file, (one, other)) in places.into_iter().enumerate() {
            let at = |step: usize| root.join(format!("file-{file}-{step}"));
            let found: Vec<_> = [one, other]
                .into_iter()
                .filter(|step| view::content(&at(*step)) == format!("file {file}"))
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect();
            assert_eq!(found.len(), 1, "file {file} is at {one} or {other}, and at {found:?}");
            assert_eq!(fs::metadata(at(found[0])).expect("attributes").nlink(), 1);
            fs::rename(at(found[0]), root.join(format!("free-{file}")))
                .expect("it is held no more");
        }
        assert_eq!(listed(&root), numbered("free", FILES));
        fs::remove_dir_all(&root).expect("removed");
    }
}
