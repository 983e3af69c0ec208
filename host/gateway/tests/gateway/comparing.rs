//! Policies compared beside live traffic.

use portcullis_core::Status;
use portcullis_core::ab::{Progress, ShadowReport};
use portcullis_transport::Role;
use portcullis_wire::message::{Candidate, Compare, Compared};
use portcullis_wire::{Reply, Request};

use crate::harness::{Client, Stand, serve, serve_with, until};
use crate::tree;

/// Asks something of comparisons.
async fn compare(stand: &Stand, compare: Compare) -> Result<Compared, Status> {
    let admin = Client(stand.connect(Role::Admin).await);
    match admin.call(Request::Compare(compare)).await {
        Ok(Reply::Compared(compared)) => Ok(*compared),
        Err(failure) => Err(failure.status),
        other => panic!("{other:?}"),
    }
}

fn shadow_of(name: &str, sample: u32) -> Compare {
    let candidate = Candidate { name: name.to_owned(), ..Candidate::default() };
    Compare::ShadowStart { candidate, sample, for_ms: 600_000 }
}

async fn report(stand: &Stand) -> ShadowReport {
    compare(stand, Compare::Status).await.unwrap().shadow.expect("a shadow")
}

/// H-38. The active policy works on as if there were no shadow: nobody else's calls, events or victims are
/// counted as its own, it stays the active one, and no request fails. The shadow's own two agree
/// where they are of the same kind.
#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_has_no_effect_on_what_is_live() {
    const DIRS: usize = 100;
    const NAMES: usize = 4_000;
    let dir = tree::spread(DIRS, NAMES / DIRS);
    let (_brick, stand) = serve_with(dir.path(), |config| {
        config.cache_entries = Some(1_000);
        config.eviction = portcullis_gateway::PolicyChoice::Named("s3-fifo".to_owned());
    });
    let client = stand.client().await;
    let root = client.root().await;
    let before = stand.stats().await.eviction;
    let started = compare(&stand, shadow_of("s3-fifo", 1)).await.unwrap();
    assert_eq!(started.shadow.expect("a shadow").candidate.name, "s3-fifo");
    assert_eq!(compare(&stand, shadow_of("s3-fifo", 1)).await.err(), Some(Status::Busy));
    let mut dirs = Vec::new();
    for number in 0..DIRS {
        dirs.push(client.lookup(root, format!("d{number}").as_bytes()).await.unwrap().handle);
    }
    let mut state = 7_u64;
    for _ in 0..20_000 {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (high, low) = (state >> 40, state >> 33 & 3);
        let at = (high as usize % NAMES) >> low;
        let name = format!("name-{}", at / DIRS);
        client.lookup(dirs[at % DIRS], name.as_bytes()).await.unwrap();
    }
    let counted = until("it has counted", async || {
        let report = report(&stand).await;
        (report.requests > 5_000).then_some(report)
    })
    .await;
    assert!(counted.warm && counted.progress == Progress::Counting, "{counted:?}");
    let found = counted.hit_ratio.expect("an estimate");
    assert!(found.difference.abs() < 1e-9, "the same policy twice: {counted:?}");
    let apart = (found.incumbent - counted.live_hit_percent).abs();
    assert!(apart < 3.0, "the ghost is like the cache it watches: {counted:?}");
    let after = stand.stats().await.eviction;
    assert_eq!((&after.name, &after.kind), (&before.name, &before.kind));
    assert_eq!((after.foreign, after.repeated), (0, 0), "{after:?}");
    let cache = stand.stats().await.cache;
    assert!(after.events > 0 && after.accepted <= cache.evicted_proposed + 512, "{after:?}");
    compare(&stand, Compare::ShadowStop).await.unwrap();
    let stopped = until("its end", async || {
        let report = report(&stand).await;
        (report.progress == Progress::Stopped).then_some(report)
    })
    .await;
    assert!(stopped.words().contains("no difference shown"), "{}", stopped.words());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_compared_is_refused_with_its_reason() {
    let dir = tree::flat(1);
    let (_brick, stand) = serve(dir.path());
    assert_eq!(compare(&stand, shadow_of("no such", 1)).await.err(), Some(Status::NotFound));
    assert_eq!(compare(&stand, shadow_of("s3-fifo", 0)).await.err(), Some(Status::InvalidArgument));
    let admin = stand.connect(Role::Admin).await;
    let candidate =
        Candidate { name: "x.wasm".into(), component_len_bytes: 4, config_len_bytes: 0 };
    let request = Request::Compare(Compare::ShadowStart { candidate, sample: 1, for_ms: 1_000 });
    let refused = admin.call_with(&request, &[bytes::Bytes::from_static(b"junk")]).await;
    assert!(format!("{refused:?}").contains("x.wasm"), "{refused:?}");
    assert_eq!(compare(&stand, Compare::Status).await, Ok(Compared::default()));
    let client = stand.client().await;
    let failure = client.call(Request::Compare(Compare::Status)).await.expect_err("a client");
    assert_eq!(failure.status, Status::WrongRole);
}
