//! Time to the first entry of a large directory, cold, against that of a small one.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::Bench;
use crate::listing::data;
use crate::listing::installation::Installation;
use crate::listing::report::Report;
use crate::listing::row::{Measure, Row, shown};

/// Entries of the small directory.
const SMALL: usize = 10;
/// What the first entry of the large directory may take more.
const MORE_MAX_MS: f64 = 20.0;

/// How the first entry of a directory is had; how long it takes.
type Way = fn(&Installation, &str) -> Duration;

/// The rows of this module.
pub fn measure(bench: &Bench, report: &mut Report) {
    let large = bench.sizes.large;
    let tree = bench.flat(&[SMALL, large]);
    let setup = bench.setup(&tree);
    let ways: [(&str, Way); 2] = [("mount", by_mount), ("portcullis find", by_find)];
    for (way, first_entry) in ways {
        let mut least = [Duration::MAX; 2];
        for _ in 0..bench.sizes.rounds {
            for (entries, least) in [SMALL, large].into_iter().zip(&mut least) {
                let setup = setup.clone();
                let setup = if way == "mount" { setup.mounted("") } else { setup };
                let running = setup.start();
                *least = (*least).min(first_entry(&running, &data::flat_name(entries)));
            }
        }
        let [of_small, of_large] = least;
        report.row(Row {
            work: format!("first entry of {large}, {way}, cold, more than of {SMALL}"),
            ours: Measure::DifferenceMs((of_large.as_secs_f64() - of_small.as_secs_f64()) * 1e3),
            against: None,
            bar: Some(MORE_MAX_MS),
            note: format!("{}, of the small one {}", shown(of_large), shown(of_small)),
        });
    }
}

fn by_mount(running: &Installation, dir: &str) -> Duration {
    let path = running.mountpoint().join(dir);
    let start = Instant::now();
    let mut listing = std::fs::read_dir(path).expect("it is there");
    listing.next().expect("it is not empty").expect("an entry");
    start.elapsed()
}

/// To the second line: the first is the directory itself.
fn by_find(running: &Installation, dir: &str) -> Duration {
    let mut command = running.command("find", &format!("/{dir}"));
    let start = Instant::now();
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let stdout = child.stdout.take().expect("a pipe");
    let lines = BufReader::new(stdout).lines();
    let mut lines = lines.map(|line| line.expect("it is text"));
    assert!(lines.nth(1).is_some(), "it is not empty");
    let took = start.elapsed();
    // Fails where it has ended.
    let _ = child.kill();
    child.wait().expect("our own child");
    took
}
