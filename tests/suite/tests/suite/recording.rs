//! `portcullis trace record`, and its trace replayed.

use std::process::Command;

use portcullis_suite::run::{self, Running};
use portcullis_suite::site::Site;
use portcullis_suite::{binary, dial, wait};
use portcullis_transport::Role;
use serde_json::Value;

const DIRS: u64 = 60;
const FILES: u64 = 150;
const NAMES: u64 = 12_000;

/// Names asked for through a gateway with the smallest cache, some often and most seldom. What
/// the replay says of the same policy at the same capacity is within two points of what was recorded
/// (objects that directories share weigh nothing in a replay), and one that is told to have no cache
/// hits nothing.
#[test]
fn a_recorded_trace_replays_to_what_really_happened() {
    let export = tempfile::tempdir().expect("a directory");
    for dir in 0..DIRS {
        let dir = export.path().join(format!("d{dir}"));
        std::fs::create_dir(&dir).expect("a directory");
        for file in 0..FILES {
            std::fs::write(dir.join(format!("f{file}")), b"").expect("a file");
        }
    }
    let site = Site::start(export.path(), &["--cache-bytes", "1MiB", "--prefetch", "none"]);
    let file = site.scratch("a.pctrace");
    let mut record = Command::new(binary());
    record.args(["trace", "record", &site.url("/")]).arg(&file).arg("--identity");
    record.arg(site.identity()).args(["--for", "10min", "--json"]);
    let mut recording = Running::start(&mut record);
    wait::until("the recording to begin", || {
        assert!(!recording.has_ended(), "it ended");
        site.stats().requests.contains_key("trace").then_some(())
    });
    tokio::runtime::Runtime::new().expect("a runtime").block_on(ask(&site));
    recording.interrupt();
    let output = recording.wait(run::limit());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let summary: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&summary["ended"], &summary["lost"]), (&"signal".into(), &0.into()), "{summary}");
    assert!(summary["requests"].as_u64() > Some(NAMES), "{summary}");

    let mut replay = Command::new(binary());
    replay.args(["policy", "replay"]).arg(&file);
    replay.args(["--policy", "s3-fifo", "--capacity", "live", "--batch", "64", "--json"]);
    let output = replay.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Vec<Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let ratio = |policy: &str| {
        let row =
            rows.iter().find(|row| row["policy"].as_str().is_some_and(|p| p.starts_with(policy)));
        row.and_then(|row| row["hit_ratio"].as_f64()).expect("a row")
    };
    let (live, replayed) = (ratio("live"), ratio("s3-fifo"));
    assert!((live - replayed).abs() < 0.02, "{live} live, {replayed} replayed");
    assert!((0.2..0.99).contains(&live) && ratio("none") == 0.0, "{live}");
    let again = Command::new(binary())
        .args(["trace", "record", &site.url("/")])
        .arg(&file)
        .arg("--identity")
        .arg(site.identity())
        .output()
        .expect("it runs");
    assert!(!again.status.success(), "a file that is there is not written over");
}

/// Asks for names, the lower numbers more often.
async fn ask(site: &Site) {
    let address = site.gateway.ready();
    let (_connector, connection) =
        dial::connect(address, &site.identity(), Role::Client, Role::Gateway)
            .await
            .expect("a client connects");
    let root = dial::attach(&connection).await;
    let mut state = 7_u64;
    for _ in 0..NAMES {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (high, low) = (state >> 40, state >> 33 & 7);
        let at = (high % (DIRS * FILES)) >> low;
        let dir = format!("d{}", at % DIRS);
        let dir = dial::lookup(&connection, root, dir.as_bytes()).await.expect("it is there");
        let file = format!("f{}", at / DIRS);
        let found = dial::lookup(&connection, dir.handle, file.as_bytes()).await;
        found.expect("it is there");
    }
}
