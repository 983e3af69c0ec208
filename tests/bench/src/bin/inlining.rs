//! A search (`grep -r`) through a mount over small files, with contents that travel along with listings and
//! without: over a line without delay, and over one with 1 ms more each way on both hops.
//!
//! Cold: gateway and mount have just been started. Another mount: the gateway was searched through before,
//! and its inlining policy has been asked since. Again: the same mount once more, at once.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use portcullis_bench::{print_policy, print_ratio};
use portcullis_suite::mounted::Mounted;
use portcullis_suite::relay::{Conditions, Relay};
use portcullis_suite::site::Site;
use portcullis_suite::wait;
use portcullis_wire::stats::GatewayStats;

const ROUNDS: usize = 3;
const POLICIES: [&str; 3] = ["none", "fixed", "learnt"];
const FILES_IN_DIR: usize = 100;
const LEN_BYTES_MAX: usize = 6 * 1024;

/// Least times of one policy, and the requests that they took.
#[derive(Clone, Copy)]
struct Row {
    cold: Duration,
    another: Duration,
    again: Duration,
    opens: [u64; 3],
}

fn main() {
    for (files, delay_us) in [(10_000, 0), (1_000, 1_000)] {
        let tree = tempfile::tempdir().expect("a directory");
        let len_bytes = plant(tree.path(), files);
        println!(
            "grep -r: {files} files, {len_bytes} bytes, {delay_us} us more each way on each hop"
        );
        let zero = Duration::MAX;
        let mut rows = [Row { cold: zero, another: zero, again: zero, opens: [0; 3] }; 3];
        for _ in 0..ROUNDS {
            for (row, policy) in rows.iter_mut().zip(POLICIES) {
                measure(row, policy, tree.path(), delay_us);
            }
        }
        let none = rows[0];
        for (row, policy) in rows.iter().zip(POLICIES) {
            println!(
                "{policy}: cold {:.2?}, another mount {:.2?}, again {:.2?}; opens {:?}",
                row.cold, row.another, row.again, row.opens
            );
            let ratio = |own: Duration, none: Duration| own.as_secs_f64() / none.as_secs_f64();
            print_ratio(&format!("{policy}, cold"), ratio(row.cold, none.cold), "of none");
            print_ratio(&format!("{policy}, another"), ratio(row.another, none.another), "of none");
            print_ratio(&format!("{policy}, again"), ratio(row.again, none.again), "of none");
        }
    }
}

fn measure(row: &mut Row, policy: &str, tree: &Path, delay_us: u64) {
    let mut site = Site::start(tree, &["--inlining", policy]);
    let to_brick = Relay::start(site.brick_address());
    let number = site.add_gateway_before(&to_brick.address(), &["--inlining", policy]);
    let address = site.gateway_number(number).ready().to_owned();
    let to_gateway = Relay::start(&address);
    let url = format!("pc://{}/", to_gateway.address());
    let delay = |conditions: Conditions| {
        [&to_gateway, &to_brick].iter().for_each(|hop| hop.set_both(conditions));
    };
    let opens = |before: u64| opens(&stats(&site, &address)) - before;
    let search = |name: &str, times: [&mut Duration; 2]| {
        delay(Conditions::default());
        let mounted = Mounted::at(&site, &url, name, &[]);
        delay(Conditions::delayed(delay_us));
        let opened = times.map(|time| {
            let (before, start) = (opens(0), Instant::now());
            grep(mounted.path());
            *time = (*time).min(start.elapsed());
            opens(before)
        });
        delay(Conditions::default());
        opened
    };
    let mut unused = Duration::MAX;
    let [cold, again] = search("cold", [&mut row.cold, &mut row.again]);
    let calls = stats(&site, &address).inlining.calls;
    if policy != "none" {
        wait::until("the policy", || {
            (stats(&site, &address).inlining.calls > calls + 1).then_some(())
        });
    }
    let [another, _] = search("another", [&mut row.another, &mut unused]);
    row.opens = [cold, another, again];
    print_policy(&stats(&site, &address));
}

/// Files of up to 6 KiB, evenly, in directories of 100; answers how many bytes there are.
fn plant(root: &Path, files: usize) -> usize {
    let mut len_bytes = 0;
    for file in 0..files {
        let dir = root.join(format!("d{}", file / FILES_IN_DIR));
        if file % FILES_IN_DIR == 0 {
            std::fs::create_dir(&dir).expect("a directory");
        }
        let len = file * 7919 % LEN_BYTES_MAX;
        std::fs::write(dir.join(format!("file-{file}")), vec![b'a'; len]).expect("a file");
        len_bytes += len;
    }
    len_bytes
}

fn grep(dir: &Path) {
    let mut grep = Command::new("grep");
    let status = grep.args(["-r", "-c", "zzz"]).arg(dir).stdout(Stdio::null()).status();
    assert_eq!(status.expect("grep runs").code(), Some(1), "there is no such word");
}

/// What the gateway tells of itself, not by the relay.
fn stats(site: &Site, address: &str) -> GatewayStats {
    let mut stats = Command::new(portcullis_suite::binary());
    stats.arg("stats").arg(format!("pc://{address}/")).arg("--json");
    let output = stats.arg("--identity").arg(site.identity()).output().expect("it runs");
    serde_json::from_slice(&output.stdout).expect("stats are JSON")
}

fn opens(stats: &GatewayStats) -> u64 {
    stats.requests.get("open").copied().unwrap_or(0)
}
