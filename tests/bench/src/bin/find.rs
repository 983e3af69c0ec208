//! `portcullis find` of 100,000 files in one directory against a local `find`, cold and again.
//! Cold means a gateway that has just been started; the brick's page cache is warm for everybody.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use portcullis_bench::{ROUNDS, print_policy, print_ratio};
use portcullis_suite::site::Site;

const FILES: usize = 100_000;
const FORMAT: &str = "%y %s %m %U %G %T@ %P %l %n %i\\n";

fn main() {
    let tree = tempfile::tempdir().expect("a directory");
    for file in 0..FILES {
        std::fs::write(tree.path().join(format!("file-{file:011}")), b"").expect("a file");
    }
    let [mut local, mut cold, mut again] = [Duration::MAX; 3];
    for round in 0..ROUNDS {
        let site = Site::start(tree.path(), &[]);
        local = local.min(time(Command::new("find").arg(tree.path()).args(["-printf", FORMAT])));
        cold = cold.min(time(site.command("find", "/").args(["-printf", FORMAT])));
        let asked = site.brick_requests();
        again = again.min(time(site.command("find", "/").args(["-printf", FORMAT])));
        assert_eq!(site.brick_requests(), asked, "again sends no request to the brick");
        if round + 1 == ROUNDS {
            print_equal(&site, tree.path());
            print_policy(&site.stats());
        }
    }
    println!("find: {FILES} files in one directory; local find takes {local:.2?}");
    print_ratio("cold", cold.as_secs_f64() / local.as_secs_f64(), "at most 3");
    print_ratio("again", again.as_secs_f64() / local.as_secs_f64(), "at most 1.5");
}

fn time(command: &mut Command) -> Duration {
    let start = Instant::now();
    let status = command.stdout(Stdio::null()).status().expect("it starts");
    assert!(status.success(), "{command:?}: {status}");
    start.elapsed()
}

fn print_equal(site: &Site, tree: &Path) {
    let everything = portcullis_suite::find::EVERYTHING;
    let through = portcullis_suite::find::through(site, "/", everything);
    let local = portcullis_suite::find::local(tree, everything);
    portcullis_suite::find::assert_equal(&through, &local);
    println!("every entry is as the local find prints it: {}", through.len());
}
