//! Two mounts at work in one directory: neither waits for ever, and both see what is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use portcullis_suite::share::{Layout, Share};
use portcullis_suite::{soaking, view};

/// Names that both use.
const NAMES: usize = 12;

fn seconds() -> u64 {
    if soaking() { 30 } else { 10 }
}

/// Creates, renames over and deletes names that the other one uses too. Only what a race explains
/// may fail.
fn work(dir: &Path, who: usize, until: Instant) -> usize {
    let mut done = 0;
    let mut state = who as u64 + 1;
    let mut random = move |end: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % end
    };
    while Instant::now() < until {
        let (one, other) = (random(NAMES), random(NAMES));
        let at = |number: usize| dir.join(format!("name-{number:02}"));
        let own = dir.join(format!("own-{who}"));
        let result = match random(4) {
            0 => fs::write(at(one), format!("{who}")),
            1 => fs::write(&own, "moved").and_then(|()| fs::rename(&own, at(other))),
            2 => fs::rename(at(one), at(other)),
            _ => fs::remove_file(at(one)),
        };
        if let Err(why) = result {
            assert_eq!(why.kind(), std::io::ErrorKind::NotFound, "mount {who}: {why}");
        }
        done += 1;
    }
    done
}

fn contend(test: &str, bricks: usize, mounts: &[usize]) {
    let layout = Layout { bricks, mounts, ..Layout::default() };
    let Some(share) = Share::start(test, &layout) else { return };
    let dirs: Vec<_> = share.paths().iter().map(|path| path.join("dir")).collect();
    fs::create_dir(&dirs[0]).expect("a directory");
    let until = Instant::now() + Duration::from_secs(seconds());
    let done: Vec<usize> = std::thread::scope(|scope| {
        let workers: Vec<_> = dirs
            .iter()
            .enumerate()
            .map(|(who, dir)| scope.spawn(move || work(dir, who, until)))
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("it goes on")).collect()
    });
    println!("operations by each mount: {done:?}");
    assert!(done.iter().all(|done| *done > 20), "one of them starved: {done:?}");
    // No brick of several has all of it.
    let below = if bricks == 1 { share.export().join("dir") } else { dirs[0].clone() };
    let expected = view::names(&below, "");
    for dir in &dirs {
        assert_eq!(view::names(dir, ""), expected, "{}", dir.display());
        let names: Vec<_> = fs::read_dir(dir).expect("it lists").collect();
        let unique: BTreeSet<_> =
            names.iter().map(|entry| entry.as_ref().expect("an entry").file_name()).collect();
        assert_eq!(unique.len(), names.len(), "a name twice");
        view::assert_same_tree("a mount and the brick", &view::tree(dir), &view::tree(&below));
        for number in 0..NAMES {
            let name = format!("name-{number:02}");
            assert_eq!(view::kind(&dir.join(&name)), view::kind(&below.join(&name)), "{name}");
        }
    }
}

/// S-COH-4.
#[test]
fn two_mounts_of_one_gateway_change_one_directory() {
    contend("two_mounts_of_one_gateway_change_one_directory", 1, &[0, 0]);
}

/// S-COH-4.
#[test]
fn two_mounts_of_two_gateways_change_one_directory() {
    contend("two_mounts_of_two_gateways_change_one_directory", 1, &[0, 1]);
}

/// S-COH-4, S-VOLUME-2.
#[test]
fn two_mounts_of_two_gateways_change_one_directory_on_four_bricks() {
    contend("two_mounts_of_two_gateways_change_one_directory_on_four_bricks", 4, &[0, 1]);
}

/// Of all that make one name with O_EXCL, or one directory, exactly one succeeds. S-ATOMIC-1.
#[test]
fn one_of_many_creates_a_name() {
    const ROUNDS: usize = 100;
    let name = "one_of_many_creates_a_name";
    let Some(share) = Share::three(name) else { return };
    let paths: Vec<_> = share.paths().iter().map(|path| path.to_path_buf()).collect();
    let barrier = Barrier::new(paths.len());
    let won: Vec<(usize, usize)> = std::thread::scope(|scope| {
        let racers: Vec<_> = paths
            .iter()
            .map(|path| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let (mut files, mut dirs) = (0, 0);
                    for round in 0..ROUNDS {
                        barrier.wait();
                        let file = fs::File::create_new(path.join(format!("file-{round}")));
                        let dir = fs::create_dir(path.join(format!("dir-{round}")));
                        for why in [file.as_ref().err(), dir.as_ref().err()].into_iter().flatten() {
                            assert_eq!(why.kind(), std::io::ErrorKind::AlreadyExists, "{why}");
                        }
                        files += usize::from(file.is_ok());
                        dirs += usize::from(dir.is_ok());
                    }
                    (files, dirs)
                })
            })
            .collect();
        racers.into_iter().map(|racer| racer.join().expect("only EEXIST")).collect()
    });
    assert_eq!(won.iter().map(|(files, _)| files).sum::<usize>(), ROUNDS, "{won:?}");
    assert_eq!(won.iter().map(|(_, dirs)| dirs).sum::<usize>(), ROUNDS, "{won:?}");
}

/// Appends of two mounts to one file lose nothing and do not mix. S-WRITE-4.
#[test]
fn appends_of_several_mounts_keep_all_lines() {
    const LINES: usize = 150;
    let name = "appends_of_several_mounts_keep_all_lines";
    let Some(share) = Share::three(name) else { return };
    fs::write(share.mount(0).join("log"), "").expect("a file");
    let paths: Vec<_> = share.paths().iter().map(|path| path.join("log")).collect();
    std::thread::scope(|scope| {
        for (who, path) in paths.iter().enumerate() {
            scope.spawn(move || {
                let mut file = fs::OpenOptions::new().append(true).open(path).expect("it opens");
                for line in 0..LINES {
                    let line = format!("{who}-{line:04}-{}\n", "x".repeat(line % 70));
                    std::io::Write::write_all(&mut file, line.as_bytes()).expect("written");
                }
            });
        }
    });
    for path in paths.iter().chain([&share.export().join("log")]) {
        let text = fs::read_to_string(path).expect("it reads");
        let unique: BTreeSet<&str> = text.lines().collect();
        assert_eq!(text.lines().count(), LINES * 3, "{}", path.display());
        assert_eq!(unique.len(), LINES * 3, "{}", path.display());
        assert!(text.lines().all(|line| line.trim_end_matches('x').len() == 7), "lines are whole");
    }
}
