//! What an author of a policy does: `policy new`, `build`, `inspect`, `test`, `replay`, without a network.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use portcullis_suite::{binary, guest, need, policy, run};
use serde_json::Value;

/// A project is compiled twice, for tests and as a component, with all that it depends on.
const BUILD_LIMIT: Duration = Duration::from_secs(1_200);

/// This checkout.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("tests/suite").to_owned()
}

/// `portcullis policy ...` as an author far from this checkout calls it. What is compiled is kept in
/// the build directory, apart from everything else there.
fn author(dir: &Path, arguments: &[&str]) -> Output {
    let policies = policy("lru");
    let projects = policies.parent().expect("a folder").join("test/projects");
    let mut command = Command::new(binary());
    command.arg("policy").args(arguments).current_dir(dir).env("CARGO_TARGET_DIR", projects);
    run::Running::start(&mut command).wait(BUILD_LIMIT)
}

#[track_caller]
fn success(dir: &Path, arguments: &[&str]) -> String {
    let output = author(dir, arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{arguments:?}: {stdout}{stderr}");
    stdout
}

/// The line on standard error of a command that fails.
#[track_caller]
fn failure(dir: &Path, arguments: &[&str]) -> String {
    let output = author(dir, arguments);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
    stderr
}

fn inspected(dir: &Path, component: &str) -> Value {
    serde_json::from_str(&success(dir, &["inspect", component, "--json"])).expect("JSON")
}

fn trace(dir: &Path) {
    let mut text = String::new();
    for request in 0..20_000_u64 {
        let object = if request % 3 == 0 { request % 50 } else { request * 7_919 % 1_000 };
        let _ = writeln!(text, "{object}");
    }
    std::fs::write(dir.join("made-up.trace"), text).expect("a file");
}

/// What `policy new` makes, of each kind: it builds and passes its tests as it stands, natively and as
/// the component.
#[test]
fn a_new_project_builds_and_passes_its_tests_as_it_stands() {
    let dir = tempfile::tempdir().expect("a directory");
    let sdk = root().join("sdk");
    let sdk = sdk.to_string_lossy();
    for kind in ["eviction", "prefetch", "inlining"] {
        let name = format!("my-{kind}");
        success(dir.path(), &["new", &name, "--kind", kind, "--sdk", &sdk]);
        let tested = success(dir.path(), &["test", &name, "--offline", "--json"]);
        let checks: Vec<Value> =
            tested.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        assert!(checks.len() >= 6, "{tested}");
        assert!(checks.iter().all(|check| check["passed"] == true), "{tested}");
        assert!(checks.iter().all(|check| check["kind"] == kind && check["policy"] == *name));
        let component = format!("{name}/target/{name}.wasm");
        let found = inspected(dir.path(), &component);
        assert_eq!((&found["kind"], &found["name"]), (&kind.into(), &name.as_str().into()));
        assert_eq!((&found["version"], &found["interface"]), (&"0.1.0".into(), &"0.1.0".into()));
        assert_eq!(found["digest"], checks[0]["digest"]);
    }
    // The same component replays.
    trace(dir.path());
    let component = "my-eviction/target/my-eviction.wasm";
    let arguments = ["replay", "made-up.trace", "--policy", component, "--policy", "fifo"];
    let printed = success(dir.path(), &[&arguments[..], &["--capacity", "200", "--json"]].concat());
    let hits: Vec<u64> = printed
        .lines()
        .take(2)
        .map(|line| {
            serde_json::from_str::<Value>(line).expect(line)["hits"].as_u64().expect("hits")
        })
        .collect();
    assert!(hits[0] > hits[1], "a second chance is better than none here: {hits:?}");
    // A defect of the author's is told by the tests of the project.
    let source = dir.path().join("my-eviction/src/lib.rs");
    let text = std::fs::read_to_string(&source).expect("the source");
    let broken = text.replace("self.hit.remove(&id);\n                    // Those", "// Those");
    assert_ne!(text, broken);
    std::fs::write(&source, broken).expect("a file");
    let output = author(dir.path(), &["test", "my-eviction", "--offline"]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{stdout}");
    assert!(stdout.contains("FAILED its answers keep to the interface: seed 1: "), "{stdout}");
    assert!(stdout.contains("which is not resident"), "{stdout}");
}

/// Every policy that we ship, with its kind.
#[test]
fn shipped_policies_pass_the_test_of_policies() {
    let dir = tempfile::tempdir().expect("a directory");
    for (kind, names) in [
        ("eviction", &["lru", "sieve", "s3fifo", "w-tinylfu", "gdsf"][..]),
        ("prefetch", &["none", "statahead", "crawl"]),
        ("inlining", &["fixed", "learnt"]),
    ] {
        for name in names {
            let component = policy(name).to_string_lossy().into_owned();
            let tested = success(dir.path(), &["test", &component]);
            assert!(tested.contains(&format!("{kind} policy ")), "{tested}");
            assert_eq!(tested.lines().count(), 5, "{tested}");
        }
    }
}

#[test]
fn what_is_no_policy_is_said_in_one_line() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("text.wasm"), "#!/bin/sh\n").expect("a file");
    std::fs::write(dir.path().join("module.wasm"), b"\0asm\x01\0\0\0").expect("a file");
    std::fs::create_dir(dir.path().join("empty")).expect("a directory");
    for (arguments, words) in [
        (&["inspect", "absent.wasm"][..], "cannot be read: No such file"),
        (&["inspect", "text.wasm"], "is not a WebAssembly component"),
        (&["inspect", "module.wasm"], "is a WebAssembly module and not a component"),
        (&["test", "module.wasm"], "is a WebAssembly module and not a component"),
        (&["build", "empty"], "has no Cargo.toml: `portcullis policy new` makes a project"),
        (&["build", "module.wasm"], "to encode a module, say its --kind and --output"),
        (
            &["build", "module.wasm", "--kind", "eviction", "--output", "o.wasm"],
            "does not become a component",
        ),
        (&["new", "Mine", "--sdk", "."], "is no name for a policy"),
        (&["new", "std", "--sdk", "."], "means something else in Rust"),
        (&["new", "mine", "--sdk", "empty"], "is not the SDK"),
    ] {
        let stderr = failure(dir.path(), arguments);
        assert!(stderr.starts_with("portcullis: ") && stderr.contains(words), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
    let sdk = root().join("sdk");
    let taken = failure(dir.path(), &["new", "empty", "--sdk", &sdk.to_string_lossy()]);
    assert!(taken.contains("empty is there already"), "{taken}");
}

/// A component that traps in its third batch passes nothing, and is told of in words.
#[test]
fn a_policy_that_traps_fails_the_test() {
    let dir = tempfile::tempdir().expect("a directory");
    let component = guest("trap-third-batch").to_string_lossy().into_owned();
    let output = author(dir.path(), &["test", &component]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{stdout}");
    assert!(
        stdout.contains("FAILED its answers keep to the interface: seed 1: on-events"),
        "{stdout}"
    );
    assert!(stdout.contains("trapped in on-events"), "{stdout}");
}

/// `examples/eviction-in-c`: the interface is not Rust's alone.
#[test]
fn a_policy_in_c_works() {
    if !need::programs("a_policy_in_c_works", &["clang", "wasm-ld"]) {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let source = root().join("examples/eviction-in-c/clock.c");
    let flags = ["--target=wasm32", "-O2", "-ffreestanding", "-nostdlib", "-Wl,--no-entry"];
    let strict = ["-Wall", "-Wextra", "-Werror", "-o", "clock.module.wasm"];
    let mut clang = Command::new("clang");
    run::success(clang.args(flags).args(strict).arg(source).current_dir(dir.path()));
    let build = ["build", "clock.module.wasm", "--kind", "eviction", "--output", "clock.wasm"];
    success(dir.path(), &build);
    let found = inspected(dir.path(), "clock.wasm");
    assert_eq!((&found["name"], &found["kind"]), (&"clock-in-c".into(), &"eviction".into()));
    assert_eq!(found["imports"], serde_json::json!([]));
    success(dir.path(), &["test", "clock.wasm"]);
    let config = dir.path().join("config");
    std::fs::write(&config, "x").expect("a file");
    let refused = failure(dir.path(), &["test", "clock.wasm", "--config", "config"]);
    assert!(refused.contains("clock-in-c takes no configuration"), "{refused}");
    // CLOCK is second chance: it hits more than FIFO and about as much as LRU.
    trace(dir.path());
    let arguments = ["replay", "made-up.trace", "--policy", "./clock.wasm", "--policy", "fifo"];
    let printed = success(dir.path(), &[&arguments[..], &["--capacity", "200", "--json"]].concat());
    let rows: Vec<Value> =
        printed.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    assert!(rows[0]["hits"].as_u64() > rows[1]["hits"].as_u64(), "{printed}");
    assert_eq!(rows[0]["useless"], 0, "{printed}");
}
