//! Policies of a running gateway: swapped, rolled back, switched off.

use std::path::Path;

use portcullis_core::Status;
use portcullis_suite::load::Load;
use portcullis_suite::site::Site;
use portcullis_suite::{dial, find, guest, policy, soaking, tree, wait};
use portcullis_transport::{CallError, Role};
use portcullis_wire::Request;
use portcullis_wire::message::{PolicyCommand, PolicyKind, PolicySource};
use tempfile::TempDir;

const DIRS: u64 = 40;
const FILES: u64 = 300;

/// A gateway whose cache is far too small for what it is asked.
fn busy_site(args: &[&str]) -> (TempDir, Site, Load) {
    let dir = tempfile::tempdir().expect("a directory");
    tree::wide(dir.path(), DIRS as usize, FILES as usize);
    let args = [&["--cache-bytes", "1MiB"], args].concat();
    let site = Site::start(dir.path(), &args);
    let load = Load::start(site.gateway.ready(), site.identity(), DIRS, FILES);
    (dir, site, load)
}

/// Waits until victims of the active policy were taken, and many lookups answered.
fn works(site: &Site, load: &Load) {
    let (accepted, done) = (site.stats().eviction.accepted, load.done());
    wait::until("evictions under load", || {
        let more = site.stats().eviction.accepted > accepted + 100;
        (more && load.done() > done + 500).then_some(())
    });
}

fn path(file: &Path) -> &str {
    file.to_str().expect("UTF-8")
}

/// S-POLICY-2.
#[test]
fn swaps_under_load_fail_no_request_and_the_status_names_the_truth() {
    let (_dir, site, load) = busy_site(&[]);
    works(&site, &load);
    let rounds = if soaking() { 1_000 } else { 24 };
    let policies = ["lru", "sieve", "s3fifo"].map(policy);
    let mut digests = Vec::new();
    for round in 0..rounds {
        let swapped = site.policy("swap", &[path(&policies[round % 3])]);
        let swapped = swapped.unwrap_or_else(|error| panic!("round {round}: {error}"));
        let active = &swapped.active;
        assert_eq!((active.kind.as_str(), active.digest.len()), ("wasm", 64), "{swapped:?}");
        assert_eq!((swapped.swaps, swapped.faults), (round as u64 + 1, 0), "{swapped:?}");
        let (status, stats) =
            (site.policy("status", &[]).expect("a status"), site.stats().eviction);
        assert_eq!(&status.active, active, "round {round}");
        assert_eq!((&stats.name, &stats.digest), (&active.name, &active.digest), "round {round}");
        assert_eq!((stats.fallback_reason.as_str(), status.last_refusal.as_str()), ("", ""));
        digests.push(active.digest.clone());
        if round % 6 == 0 {
            works(&site, &load);
        }
    }
    // Each is another one, and comes again as the same.
    assert!(digests[0] != digests[1] && digests[0] == digests[3], "{digests:?}");
    let (done, failed) = load.end();
    assert_eq!(failed, 0, "of {done} lookups");
}

/// S-POLICY-2, H-1, H-21, H-39.
#[test]
fn what_cannot_be_swapped_in_leaves_the_old_one_in_charge_and_says_why() {
    let (_dir, site, load) = busy_site(&[]);
    let before = site.policy("status", &[]).expect("a status").active;
    let text = site.scratch("text.wasm");
    std::fs::write(&text, "#!/bin/sh\n").expect("it can be written");
    let whole = std::fs::read(policy("lru")).expect("it is there");
    let cut = site.scratch("cut.wasm");
    std::fs::write(&cut, &whole[..whole.len() / 2]).expect("it can be written");
    let config = site.scratch("config");
    std::fs::write(&config, "small=20%").expect("it can be written");
    let s3fifo = policy("s3fifo");
    let cases: &[(&[&str], &str)] = &[
        (&[path(&text)], "is not a WebAssembly component"),
        (&[path(&cut)], "is not a WebAssembly component"),
        (&[path(&s3fifo), "--config", path(&config)], "refuses its configuration"),
        (&["no-such-policy"], "is no native policy"),
    ];
    for (args, why) in cases {
        for verb in ["load", "swap"] {
            let refused = site.policy(verb, args).expect_err("it is no good");
            assert!(refused.contains(why), "{verb} {args:?}: {refused}");
            assert_eq!(refused.trim_end().lines().count(), 1, "{refused}");
            let status = site.policy("status", &[]).expect("a status");
            assert_eq!(status.active, before);
            assert!(status.last_refusal.contains(why), "{status:?}");
        }
    }
    for kind in ["prefetch", "inlining"] {
        let refused = site.policy("swap", &[path(&s3fifo), "--kind", kind]);
        refused.expect_err("an eviction policy is none of those");
    }
    works(&site, &load);
    assert_eq!(load.end().1, 0);
}

#[test]
fn a_load_tells_what_a_swap_would_take_and_changes_nothing() {
    let (_dir, site, _load) = busy_site(&[]);
    let before = site.policy("status", &[]).expect("a status");
    let tried = site.policy("load", &[path(&policy("lru"))]).expect("it is good");
    assert_eq!(tried.loaded.as_ref().map(|loaded| loaded.name.as_str()), Some("lru"), "{tried:?}");
    assert_eq!((tried.active, tried.swaps, tried.previous), (before.active, 0, None));
}

#[test]
fn a_rollback_and_the_panic_switch() {
    let (_dir, site, load) = busy_site(&[]);
    let first = site.policy("status", &[]).expect("a status").active;
    let nothing = site.policy("rollback", &[]).expect_err("there is nothing before");
    assert!(nothing.contains("no policy was active before this one"), "{nothing}");
    let second = site.policy("swap", &[path(&policy("lru"))]).expect("it is good").active;
    let back = site.policy("rollback", &[]).expect("there is one");
    assert_eq!(back.active, first);
    assert_eq!(back.previous.map(|previous| previous.policy), Some(second));

    let panicked = site.policy("panic", &[]).expect("it works always");
    assert!(panicked.panic, "{panicked:?}");
    assert_eq!(panicked.active.kind, "native", "{panicked:?}");
    works(&site, &load);
    assert_eq!(site.stats().eviction.fallback_reason, "the panic switch is on");
    let refused = site.policy("rollback", &[]).expect_err("the switch stays");
    assert!(refused.contains("the panic switch is on"), "{refused}");
    let swapped = site.policy("swap", &["built-in"]).expect("it is good");
    assert!(!swapped.panic && swapped.fallback_reason.is_empty(), "{swapped:?}");
    assert_eq!(swapped.active, first);
    let native = site.policy("swap", &["sieve"]).expect("there is one");
    assert_eq!((&native.active.name[..], &native.active.kind[..]), ("sieve", "native"));
    assert_eq!(load.end().1, 0);
}

/// The prefetch policy of a gateway that serves: another one, the one before, the panic switch, and what
/// is refused. H-21, H-30.
#[test]
fn prefetch_policies_change_places() {
    let (_dir, site, load) = busy_site(&[]);
    let prefetch =
        |verb: &str, args: &[&str]| site.policy(verb, &[args, &["--kind", "prefetch"]].concat());
    let first = prefetch("status", &[]).expect("a status").active;
    assert_eq!((first.name.as_str(), first.kind.as_str()), ("crawl", "native"));
    let statahead = policy("statahead");
    let swapped = prefetch("swap", &[path(&statahead)]).expect("it is good");
    assert_eq!((&swapped.active.name[..], &swapped.active.kind[..]), ("statahead", "wasm"));
    assert_eq!((swapped.swaps, swapped.fallback_reason.as_str()), (1, ""), "{swapped:?}");
    assert_eq!(swapped.previous.map(|previous| previous.policy), Some(first.clone()));
    wait::until("it is asked", || {
        find::through(&site, "/", find::EVERYTHING);
        (site.stats().prefetch.calls > 0).then_some(())
    });
    assert_eq!(site.stats().prefetch.digest, swapped.active.digest);
    let lru = policy("lru");
    let refused = prefetch("swap", &[path(&lru)]).expect_err("it is for something else");
    assert!(refused.contains("it is not a prefetch policy"), "{refused}");
    let after = prefetch("status", &[]).expect("a status");
    assert_eq!((&after.active, after.swaps), (&swapped.active, 1));
    assert!(after.last_refusal.contains("it is not a prefetch policy"), "{after:?}");
    assert_eq!(prefetch("rollback", &[]).expect("there is one").active, first);
    let panicked = prefetch("panic", &[]).expect("it works always");
    assert!(panicked.panic && panicked.active.kind == "native", "{panicked:?}");
    assert!(site.policy("status", &[]).expect("a status").panic, "it is for every kind");
    let none = prefetch("swap", &["none"]).expect("there is one");
    assert_eq!((&none.active.name[..], none.panic), ("none", false));
    assert_eq!(load.end().1, 0);
}

/// S-POLICY-3, H-36.
#[test]
fn three_faults_in_a_minute_quarantine_a_component() {
    let component = guest("trap-third-batch");
    let (_dir, site, load) = busy_site(&["--eviction", path(&component)]);
    let status = wait::until("the quarantine", || {
        let status = site.policy("status", &[]).expect("a status");
        (!status.quarantined.is_empty()).then_some(status)
    });
    assert_eq!((status.active.kind.as_str(), status.faults), ("native", 3), "{status:?}");
    assert!(status.fallback_reason.contains("trapped in on-events"), "{status:?}");
    let refused = site.policy("swap", &[path(&component)]).expect_err("it is quarantined");
    assert!(refused.contains("is quarantined until this gateway restarts"), "{refused}");
    let forced = site.policy("load", &[path(&component), "--force"]).expect("it starts well");
    assert_eq!(forced.quarantined, []);
    site.policy("swap", &[path(&policy("lru"))]).expect("another one is not concerned");
    works(&site, &load);
    assert_eq!(load.end().1, 0);
}

#[test]
fn only_an_admin_may_change_policies() {
    let dir = tempfile::tempdir().expect("a directory");
    tree::small(dir.path());
    let site = Site::start(dir.path(), &[]);
    let clients = site.scratch("client-id");
    std::fs::create_dir(&clients).expect("it can be made");
    for file in ["ca.pem", "client.pem", "client.key"] {
        std::fs::copy(site.identity().join(file), clients.join(file)).expect("it is there");
    }
    let mut command = std::process::Command::new(portcullis_suite::binary());
    command.args(["policy", "panic"]).arg(site.url("/")).arg("--identity").arg(&clients);
    let output = command.output().expect("the command runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("has no admin.key"), "{stderr}");
    // Without the command line in between.
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let failed = runtime.block_on(async {
        let connected =
            dial::connect(site.gateway.ready(), &clients, Role::Client, Role::Gateway).await;
        let (_connector, connection) = connected.expect("clients are admitted");
        let source =
            PolicySource::Component { name: String::new(), len_bytes: 9, config_len_bytes: None };
        let mut answers = Vec::new();
        for command in [PolicyCommand::Panic, PolicyCommand::Swap { source, force: true }] {
            let request = Request::Policy { kind: PolicyKind::Eviction, command };
            answers.push(connection.call_with(&request, &[]).await);
        }
        answers
    });
    for answer in failed {
        match answer {
            Err(CallError::Failed(failure)) => assert_eq!(failure.status, Status::WrongRole),
            other => panic!("a client was not refused: {other:?}"),
        }
    }
    assert!(!site.policy("status", &[]).expect("a status").panic);
}

/// What was swapped in, with its configuration, is active after a crash; what is damaged is not, and
/// the status says so. S-POLICY-3, H-26, H-27, H-34.
#[test]
fn the_active_policy_outlives_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let state = dir.path().join("state");
    let export = dir.path().join("export");
    std::fs::create_dir(&export).expect("it can be made");
    tree::small(&export);
    let mut site = Site::start(&export, &["--state", path(&state)]);
    let swapped = site.policy("swap", &[path(&policy("lru"))]).expect("it is good").active;
    site.restart_gateway();
    let status = site.policy("status", &[]).expect("a status");
    assert_eq!((&status.active, status.last_refusal.as_str()), (&swapped, ""), "{status:?}");
    site.policy("panic", &[]).expect("it works always");
    site.restart_gateway();
    assert!(site.policy("status", &[]).expect("a status").panic, "the switch stays on");
    site.policy("swap", &[path(&policy("sieve"))]).expect("it is good");
    for entry in std::fs::read_dir(state.join("policies")).expect("it is there") {
        let file = entry.expect("an entry").path();
        if file.extension().is_some_and(|extension| extension == "wasm") {
            std::fs::write(file, "damaged").expect("it can be written");
        }
    }
    site.restart_gateway();
    let status = site.policy("status", &[]).expect("a status");
    assert_eq!((status.active.name.as_str(), status.panic), ("s3-fifo", false), "{status:?}");
    assert!(status.last_refusal.contains("is damaged"), "{status:?}");
}
