//! `portcullis policy replay`: natively and as components, on made-up traces and, where
//! `PORTCULLIS_TRACES` names a directory that has them, on published ones.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use portcullis_suite::{binary, need, policy, run};
use serde_json::Value;

/// The policies that come in both forms.
const BOTH: &[(&str, &str)] = &[
    ("lru", "lru"),
    ("sieve", "sieve"),
    ("s3-fifo", "s3fifo"),
    ("w-tinylfu", "w-tinylfu"),
    ("gdsf", "gdsf"),
];

fn replay(trace: &Path, arguments: &[&str]) -> Output {
    run::output(Command::new(binary()).args(["policy", "replay"]).arg(trace).args(arguments))
}

fn json(trace: &Path, arguments: &[&str]) -> Vec<Value> {
    let output = replay(trace, &[arguments, &["--json"]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    let stdout = String::from_utf8(output.stdout).expect("JSON is text");
    stdout.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn component(name: &str) -> String {
    policy(name).to_string_lossy().into_owned()
}

/// A trace of 30,000 requests: a few objects are asked for often, many seldom, and now and then a
/// scan goes by.
fn made_up(dir: &Path) -> PathBuf {
    let mut text = String::new();
    let mut state = 1_u64;
    for request in 0..30_000_u64 {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (high, low) = (state >> 48, state >> 33 & 7);
        let object = if request % 500 > 440 { request % 2_000 } else { (high % 1_500) >> low };
        let _ = writeln!(text, "{object}");
    }
    let path = dir.join("made-up.trace");
    std::fs::write(&path, text).expect("a file");
    path
}

/// Seven requests, worked out by hand. With three places, FIFO hits the second 1; LRU the third too,
/// since 4 pushes out 2 and not 1; OPT lets 3 go, which never comes again, and hits the second 2 as
/// well.
#[test]
fn a_hand_made_trace_has_its_answers_in_the_order_asked_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let trace = dir.path().join("hand.trace");
    std::fs::write(&trace, "1\n2\n3\n1\n4\n1\n2\n").expect("a file");
    let rows = json(&trace, &["--policy", "fifo", "--policy", "lru", "--capacity", "3,2"]);
    let found: Vec<(&str, u64, u64, u64)> = rows
        .iter()
        .map(|row| {
            let number = |field: &str| row[field].as_u64().expect("a number");
            let policy = row["policy"].as_str().expect("a name");
            (policy, number("capacity"), number("requests"), number("hits"))
        })
        .collect();
    let expected = [
        ("fifo", 3, 7, 1),
        ("fifo", 2, 7, 1),
        ("lru", 3, 7, 2),
        ("lru", 2, 7, 1),
        ("opt", 3, 7, 3),
        ("opt", 2, 7, 2),
        ("none", 3, 7, 0),
        ("none", 2, 7, 0),
    ];
    assert_eq!(found, expected);
    assert!(rows.iter().all(|row| row["trace"] == trace.to_string_lossy().as_ref()));
}

#[test]
fn a_component_answers_as_the_native_policy() {
    let dir = tempfile::tempdir().expect("a directory");
    let trace = made_up(dir.path());
    for pace in [&[][..], &["--batch", "32", "--drop", "10"]] {
        for (native, file) in BOTH {
            let file = component(file);
            let mut arguments =
                vec!["--policy", *native, "--policy", &file, "--capacity", "50,400"];
            arguments.extend(["--seeds", "2"]);
            arguments.extend(pace);
            let rows = json(&trace, &arguments);
            for (ours, theirs) in rows[..2].iter().zip(&rows[2..4]) {
                assert_eq!((&ours["kind"], &theirs["kind"]), (&"native".into(), &"wasm".into()));
                for field in ["hits", "hits_min", "hits_max", "evicted", "spared", "interval_hits"]
                {
                    assert_eq!(ours[field], theirs[field], "{native}, {field}, {pace:?}");
                }
                assert_eq!((&theirs["useless"], &theirs["seeds"]), (&0.into(), &2.into()));
                assert!(ours["hits"].as_u64() > Some(0));
            }
        }
    }
}

/// Standard output and the plot, of the same command twice.
#[test]
fn the_same_command_prints_the_same_to_the_byte() {
    let dir = tempfile::tempdir().expect("a directory");
    let trace = made_up(dir.path());
    let sieve = component("sieve");
    let arguments = [
        "--policy",
        "w-tinylfu",
        "--policy",
        &sieve,
        "--seeds",
        "3",
        "--batch",
        "8",
        "--drop",
        "25",
    ];
    let printed = [0, 1].map(|number| {
        let svg = dir.path().join(format!("{number}.svg"));
        let svg_path = svg.to_string_lossy().into_owned();
        let output = replay(&trace, &[&arguments[..], &["--svg", &svg_path]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        (output.stdout, std::fs::read(svg).expect("a plot"))
    });
    assert_eq!(printed[0], printed[1]);
    let table = String::from_utf8_lossy(&printed[0].0).into_owned();
    assert!(table.contains("against w-tinylfu, points") && table.contains(" to "), "{table}");
    assert!(printed[0].1.starts_with(b"<svg ") && printed[0].1.ends_with(b"</svg>\n"));
}

#[test]
fn a_loss_that_is_not_allowed_fails() {
    let dir = tempfile::tempdir().expect("a directory");
    let trace = made_up(dir.path());
    let arguments =
        ["--policy", "fifo", "--policy", "lru", "--baseline", "lru", "--capacity", "100"];
    let allowed = replay(&trace, &[&arguments[..], &["--max-loss", "50"]].concat());
    assert_eq!(allowed.status.code(), Some(0));
    let failed = replay(&trace, &[&arguments[..], &["--max-loss", "0.1"]].concat());
    assert_eq!(failed.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&failed.stderr);
    assert!(stderr.starts_with("portcullis: fifo at 100: ") && stderr.contains(" below lru"));
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert_eq!(failed.stdout, allowed.stdout, "the table is printed all the same");
}

#[test]
fn what_cannot_be_replayed_is_said_in_one_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let trace = made_up(dir.path());
    let broken = dir.path().join("broken.trace");
    std::fs::write(&broken, "1\nx\n").expect("a file");
    let absent = dir.path().join("absent.trace");
    let not_wasm = broken.to_string_lossy().into_owned();
    for (trace, arguments, code, words) in [
        (&trace, vec!["--policy", "lfu"], 1, "there is no policy lfu"),
        (&trace, vec!["--policy", &not_wasm], 1, "is not a WebAssembly component"),
        (&trace, vec!["--policy", "lru", "--policy", "lru"], 1, "lru is given twice"),
        (&trace, vec!["--policy", "lru", "--baseline", "fifo"], 1, "fifo is no --policy"),
        (&trace, vec!["--policy", "lru", "--capacity", "64MiB"], 1, "does not tell sizes"),
        (&trace, vec!["--policy", "lru", "--capacity", "0"], 2, "a capacity is a number"),
        (&trace, vec![], 2, "--policy"),
        (&broken, vec!["--policy", "lru"], 1, "line 2: it is not a number"),
        (&absent, vec!["--policy", "lru"], 1, "No such file"),
        (&dir.path().to_path_buf(), vec!["--policy", "lru"], 1, "portcullis: "),
    ] {
        let output = replay(trace, &arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(words), "{arguments:?}: {stderr}");
        assert!(code == 2 || stderr.lines().count() == 1, "{arguments:?}: {stderr}");
    }
}

/// The published answers of `host/replay/tests`, through the components.
#[test]
fn components_have_the_published_answers() {
    let name = "cloudPhysicsIO.oracleGeneral.bin";
    let traces = std::env::var_os("PORTCULLIS_TRACES").map(PathBuf::from);
    let test = "components_have_the_published_answers";
    let has = traces.is_some();
    if !need::that(test, &format!("{name} in PORTCULLIS_TRACES"), has) {
        return;
    }
    let trace = traces.expect("it is there").join(name);
    let capacities: Vec<String> = (1..=8).map(|times| format!("{}MiB", 128 * times)).collect();
    let capacities = capacities.join(",");
    for (file, misses) in [
        ("lru", [93374, 89783, 83572, 81722, 72494, 72104, 71972, 71704]),
        ("sieve", [91699, 86720, 78578, 76707, 69945, 66221, 64445, 64376]),
        ("s3fifo", [89307, 82387, 77041, 76791, 71300, 70343, 70455, 70355]),
        ("gdsf", [89068, 84750, 74853, 70488, 67919, 64180, 61029, 58721]),
    ] {
        let rows = json(&trace, &["--policy", &component(file), "--capacity", &capacities]);
        let found: Vec<u64> =
            rows[..8].iter().map(|row| row["backend_calls"].as_u64().expect("a number")).collect();
        assert_eq!(found, misses, "{file}");
    }
}
