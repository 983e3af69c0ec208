//! What it costs that the eviction policy is a component, and what it costs to be listened to: the same
//! S3-FIFO inside the host and as a component, in turn.
//!
//! `policies [SECONDS]`: 10 pairs of runs of so many seconds through one gateway, with half of the lookups
//! missing and with none. What is compared is lookups for each second of the gateway's own processor time:
//! how many there are in a second of the clock is as much the doing of whoever else uses the machine, and
//! is printed beside it. Then hits inside one process: calls into the policy, instructions (valgrind), and
//! time with a recording.

#![allow(clippy::panic, reason = "a benchmark that cannot go on has failed")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use portcullis_bench::hits::{self, Hits};
use portcullis_bench::open_loop::Names;
use portcullis_bench::{alternate, print_ratio};
use portcullis_policy::PolicyChoice;
use portcullis_suite::site::Site;
use portcullis_suite::{dial, tree};
use portcullis_transport::Role;

const PAIRS: usize = 10;
const IN_FLIGHT: u64 = 64;
const CONNECTIONS: usize = 4;
const SECONDS: f64 = 3.0;
const DIRS: usize = 100;
const FILES: usize = 500;
/// Of the names: about so many that half of the lookups miss.
const HALF_ENTRIES: &str = "10200";
/// All of the names, and more.
const ALL_ENTRIES: &str = "100000";
/// Student's t for 95 % and 9 degrees of freedom.
const T: f64 = 2.262;
/// What the callgrind part tells this program to count.
const COUNT: &str = "--count";

fn main() {
    let given: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, what] = &given[..]
        && flag == COUNT
    {
        return count(what);
    }
    let seconds =
        given.first().map_or(SECONDS, |given| given.parse().expect("a number of seconds"));
    through_a_gateway(Duration::from_secs_f64(seconds));
    in_one_process();
}

fn through_a_gateway(time: Duration) {
    let export = tempfile::tempdir().expect("a directory");
    tree::wide(export.path(), DIRS, FILES);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    for (what, entries) in [("half of the lookups miss", HALF_ENTRIES), ("hits only", ALL_ENTRIES)]
    {
        let args = ["--cache-entries", entries, "--prefetch", "none", "--max-age", "1h"];
        let site = Site::start(export.path(), &args);
        let names = runtime.block_on(connect(&site));
        runtime.block_on(names.saturate(IN_FLIGHT, time * 4));
        let before = site.stats();
        let (mut by_cpu, mut by_clock) = (Vec::new(), Vec::new());
        for pair in 0..PAIRS {
            let run = |policy| {
                site.policy("swap", &[policy]).unwrap_or_else(|error| panic!("{error}"));
                let (began, cpu) = (Instant::now(), cpu_of(site.gateway.id()));
                let rate = runtime.block_on(names.saturate(IN_FLIGHT, time));
                let cpu = cpu_of(site.gateway.id()).saturating_sub(cpu);
                (rate, rate * began.elapsed().as_secs_f64() / cpu.as_secs_f64())
            };
            // In turn, each first in half of the pairs.
            let (component, native) = if pair % 2 == 0 {
                let component = run("built-in");
                (component, run("s3-fifo"))
            } else {
                let native = run("s3-fifo");
                (run("built-in"), native)
            };
            by_clock.push(component.0 / native.0);
            by_cpu.push(component.1 / native.1);
        }
        let after = site.stats();
        let hits = after.cache.lookup_hits - before.cache.lookup_hits;
        let misses = after.cache.lookup_misses - before.cache.lookup_misses;
        let missed = 100.0 * misses as f64 / (hits + misses) as f64;
        println!("{what} ({missed:.0} % did), component / native, {PAIRS} pairs:");
        print_interval("lookups a second of processor time (above 0.95)", &by_cpu);
        print_interval("lookups a second", &by_clock);
    }
}

fn print_interval(what: &str, ratios: &[f64]) {
    let (mean, half) = interval(ratios);
    println!("  {what}: {mean:.3}, 95 % interval {:.3} to {:.3}", mean - half, mean + half);
}

/// The mean, and half of the 95 % interval around it.
fn interval(ratios: &[f64]) -> (f64, f64) {
    let count = ratios.len() as f64;
    let mean = ratios.iter().sum::<f64>() / count;
    let squares = ratios.iter().map(|ratio| (ratio - mean).powi(2)).sum::<f64>();
    (mean, T * (squares / (count - 1.0) / count).sqrt())
}

/// Processor time that a process has used, to a hundredth of a second.
fn cpu_of(id: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).expect("it runs");
    // Its name, in brackets, may have anything in it.
    let (_, fields) = stat.rsplit_once(')').expect("a name in brackets");
    let ticks = |at| fields.split_ascii_whitespace().nth(at).and_then(|it| it.parse::<u64>().ok());
    let sum = ticks(11).expect("utime") + ticks(12).expect("stime");
    Duration::from_secs_f64(sum as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn in_one_process() {
    let stand = Hits::start(PolicyChoice::BuiltIn);
    // The driver's first look at what there is to tell may come now.
    stand.look_up_all(None);
    let before = stand.calls();
    stand.look_up_all(None);
    let after = stand.calls();
    println!("{} hits: {} calls into the policy (0)", hits::LOOKUPS, after[1] - before[1]);
    let stand = Hits::start(PolicyChoice::Native);
    let times = alternate(&mut [&mut || stand.look_up_all(None), &mut || {
        let listener = stand.listen();
        stand.look_up_all(Some(&listener));
    }]);
    let each = |time: Duration| time.as_nanos() as f64 / hits::LOOKUPS as f64;
    println!("a hit: {:.0} ns, {:.0} ns while recorded", each(times[0]), each(times[1]));
    let [native, component, recorded] =
        ["native", "component", "recorded"].map(|what| hits::instructions(&[COUNT, what]));
    let (Some(native), Some(component), Some(recorded)) = (native, component, recorded) else {
        return println!("instructions of a hit: not counted, valgrind is not installed");
    };
    let percent = 100.0 * (component / native - 1.0);
    println!(
        "instructions of a hit: {native:.1} with the native policy, {component:.1} with the component: \
         {percent:+.3} % (within 0.1 %)"
    );
    print_ratio("instructions of a hit while recorded", recorded / native, "no bar");
}

/// In the process that callgrind watches.
fn count(what: &str) {
    let choice = match what {
        "component" => PolicyChoice::BuiltIn,
        _ => PolicyChoice::Native,
    };
    let stand = Hits::start(choice);
    let listener = (what == "recorded").then(|| stand.listen());
    stand.look_up_all(listener.as_ref());
    // It is still the one that was to be counted.
    stand.calls();
}

async fn connect(site: &Site) -> Arc<Names> {
    let (mut connections, mut root) = (Vec::new(), None);
    for _ in 0..CONNECTIONS {
        let address = site.gateway.ready();
        let connected = dial::connect(address, &site.identity(), Role::Client, Role::Gateway).await;
        let (connector, connection) = connected.expect("connected");
        // The connection needs its endpoint for as long as the benchmark runs.
        std::mem::forget(connector);
        root = Some(dial::attach(&connection).await);
        connections.push(connection);
    }
    let root = root.expect("there are connections");
    let mut dirs = Vec::new();
    for number in 0..DIRS {
        let name = format!("directory-{number:06}");
        let found = dial::lookup(&connections[0], root, name.as_bytes()).await;
        dirs.push(found.expect("it is there").handle);
    }
    Arc::new(Names { connections, dirs, files: FILES as u64 })
}
