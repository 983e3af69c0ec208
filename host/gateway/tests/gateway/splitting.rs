//! Two policies on the halves of a live cache: begun, through, stopped, promoted, and after a restart.

use std::path::Path;

use portcullis_core::ab::{Stage, Verdict};
use portcullis_gateway::{GatewayConfig, PolicyChoice};
use portcullis_transport::{IdentitySet, Role};
use portcullis_wire::message::{AbStatus, Candidate, Compare};
use portcullis_wire::{Reply, Request};

use crate::harness::{Client, RunningBrick, Stand, any_port, until};
use crate::tree;

const NAMES: usize = 3_000;

async fn ask(stand: &Stand, compare: Compare) -> AbStatus {
    let admin = Client(stand.connect(Role::Admin).await);
    match admin.call(Request::Compare(compare)).await {
        Ok(Reply::Compared(compared)) => compared.ab.expect("a comparison"),
        other => panic!("{other:?}"),
    }
}

fn start(name: &str, period_requests: u64) -> Compare {
    let candidate = Candidate { name: name.to_owned(), ..Candidate::default() };
    Compare::AbStart { candidate, period_requests, period_ms_max: 600_000 }
}

fn config(brick: &RunningBrick, state: &Path) -> GatewayConfig {
    GatewayConfig {
        cache_entries: Some(600),
        eviction: PolicyChoice::Named("lru".to_owned()),
        state: Some(state.to_owned()),
        ..GatewayConfig::new(brick.address)
    }
}

/// A tree of several directories, as the halves are made of them.
fn export() -> tempfile::TempDir {
    tree::spread(100, NAMES / 100)
}

/// Asks for names until `enough` says so; none fails.
async fn load(stand: &Stand, mut enough: impl AsyncFnMut() -> bool) {
    let client = stand.client().await;
    let root = client.root().await;
    let mut dirs = Vec::new();
    for number in 0..100 {
        dirs.push(client.lookup(root, format!("d{number}").as_bytes()).await.unwrap().handle);
    }
    let mut state = 7_u64;
    loop {
        for _ in 0..500 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let (high, low) = (state >> 40, state >> 33 & 3);
            let at = (high as usize % NAMES) >> low;
            let name = format!("name-{}", at / 100);
            client.lookup(dirs[at % 100], name.as_bytes()).await.unwrap();
        }
        if enough().await {
            return;
        }
    }
}

/// All of it: A/A, A/B, exchanged, through. No request fails; afterwards the incumbent has the whole cache
/// and goes on evicting; promoting puts the candidate in.
#[tokio::test(flavor = "multi_thread")]
async fn a_comparison_goes_through_and_its_candidate_is_promoted() {
    let (dir, state) = (export(), tempfile::tempdir().unwrap());
    let ids = IdentitySet::generate().unwrap();
    let brick = RunningBrick::start(&ids, dir.path(), any_port());
    let stand = Stand::start(ids, config(&brick, state.path()));
    let begun = ask(&stand, start("fifo", 3_000)).await;
    assert_eq!((&*begun.incumbent.name, &*begun.candidate.name), ("lru", "fifo"));
    assert!(begun.split && begun.report.verdict == Verdict::UnderWay, "{begun:?}");
    load(&stand, async || !ask(&stand, Compare::Status).await.split).await;
    let ended = ask(&stand, Compare::Status).await;
    assert_eq!((ended.report.stage, &*ended.ended), (Stage::Done, ""), "{ended:?}");
    assert_ne!(ended.report.verdict, Verdict::UnderWay);
    assert!(ended.report.all_periods_full && ended.report.all_periods_warm, "{ended:?}");
    assert!(ended.report.hit_ratio.is_some() && ended.windows.len() >= 16, "{ended:?}");
    let before = stand.stats().await;
    assert_eq!(before.eviction.name, "lru");
    load(&stand, async || {
        stand.stats().await.cache.evicted_proposed > before.cache.evicted_proposed + 500
    })
    .await;
    ask(&stand, Compare::AbPromote).await;
    assert_eq!(stand.stats().await.eviction.name, "fifo");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_comparison_that_is_stopped_leaves_the_incumbent() {
    let (dir, state) = (export(), tempfile::tempdir().unwrap());
    let ids = IdentitySet::generate().unwrap();
    let brick = RunningBrick::start(&ids, dir.path(), any_port());
    let stand = Stand::start(ids, config(&brick, state.path()));
    ask(&stand, start("fifo", 1_000_000)).await;
    load(&stand, async || ask(&stand, Compare::Status).await.report.stage > Stage::WarmAlike).await;
    let stopped = ask(&stand, Compare::AbStop).await;
    assert!(!stopped.split && stopped.ended.contains("stopped"), "{stopped:?}");
    assert_eq!(stand.stats().await.eviction.name, "lru");
    let again = ask(&stand, start("sieve", 1_000_000)).await;
    assert_eq!(again.candidate.name, "sieve");
}

/// A gateway that is stopped in the midst of A/B goes on with it when it is started again: what was
/// measured before stays, what was being measured is measured anew, and it ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_comparison_survives_a_restart() {
    let (dir, state) = (export(), tempfile::tempdir().unwrap());
    let ids = std::sync::Arc::new(IdentitySet::generate().unwrap());
    let brick = RunningBrick::start(&ids, dir.path(), any_port());
    let stand = Stand::start(ids.clone(), config(&brick, state.path()));
    ask(&stand, start("fifo", 2_000)).await;
    load(&stand, async || ask(&stand, Compare::Status).await.report.stage >= Stage::First).await;
    let before = ask(&stand, Compare::Status).await;
    stand.stop().await;
    let stand = Stand::start(ids, config(&brick, state.path()));
    let resumed = until("it goes on", async || {
        let admin = Client(stand.connect(Role::Admin).await);
        match admin.call(Request::Compare(Compare::Status)).await {
            Ok(Reply::Compared(compared)) => compared.ab,
            other => panic!("{other:?}"),
        }
    })
    .await;
    assert!(resumed.split && resumed.candidate.name == "fifo", "{resumed:?}");
    assert_eq!(resumed.report.alike, before.report.alike, "A/A was measured before");
    load(&stand, async || !ask(&stand, Compare::Status).await.split).await;
    let ended = ask(&stand, Compare::Status).await;
    assert_eq!((ended.report.stage, &*ended.ended), (Stage::Done, ""), "{ended:?}");
}
