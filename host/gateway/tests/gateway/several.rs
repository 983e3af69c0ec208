//! Volumes of two bricks: what a gateway knows without asking, what it forgets with a lost brick, and
//! which bricks it takes.

use std::path::Path;
use std::sync::Arc;

use portcullis_core::volume::{MemberId, arbiter};
use portcullis_core::{Handle, Status, Timestamp};
use portcullis_gateway::GatewayConfig;
use portcullis_transport::IdentitySet;
use portcullis_wire::message::{Mutation, SetAttr, SetTime};
use tempfile::TempDir;

use crate::harness::{Client, RunningBrick, Stand, any_port, until};
use crate::mount::Mount;

/// Two bricks, each with an export of its own.
pub(crate) struct Bricks {
    pub(crate) ids: Arc<IdentitySet>,
    pub(crate) exports: Vec<TempDir>,
    pub(crate) running: Vec<RunningBrick>,
}

impl Bricks {
    pub(crate) fn start() -> Self {
        let ids = Arc::new(IdentitySet::generate().unwrap());
        let mut bricks = Self { ids, exports: Vec::new(), running: Vec::new() };
        (0..2).for_each(|_| bricks.add());
        bricks
    }

    /// One more, which gateways have that are started from now on.
    fn add(&mut self) {
        let export = tempfile::tempdir().unwrap();
        self.running.push(RunningBrick::start(&self.ids, export.path(), any_port()));
        self.exports.push(export);
    }

    /// A gateway in front of them that has joined both.
    pub(crate) async fn gateway(&self) -> Stand {
        let stand = self.any_gateway();
        until("both bricks are there", async || {
            stand.stats().await.bricks.iter().all(|brick| brick.connected).then_some(())
        })
        .await;
        stand
    }

    fn any_gateway(&self) -> Stand {
        let bricks = self.running.iter().map(|brick| brick.address).collect();
        let config = GatewayConfig {
            bricks,
            brick_timeout_ms: 3_000,
            ..GatewayConfig::new(self.running[0].address)
        };
        Stand::start(self.ids.clone(), config)
    }

    /// Ends a brick, and starts one at its address with another export.
    fn replace(&mut self, number: usize, export: &Path) {
        self.running[number].kill();
        let address = self.running[number].address;
        self.running[number] = RunningBrick::start(&self.ids, export, address);
    }
}

/// Names of a directory that a member arbitrates.
pub(crate) fn names_on(dir: &Handle, member: MemberId, count: usize) -> Vec<Vec<u8>> {
    let names = (0..).map(|number| format!("name-{number}").into_bytes());
    names.filter(|name| arbiter(dir, name) == member).take(count).collect()
}

pub(crate) fn mknod(dir: Handle, name: &[u8]) -> Mutation {
    Mutation::Mknod { dir, name: name.to_vec(), mode: 0o100_644, rdev: 0 }
}

/// Lookups that bricks were sent so far.
async fn lookups(stand: &Stand) -> u64 {
    let bricks = stand.stats().await.bricks;
    bricks.iter().filter_map(|brick| brick.requests.get("lookup")).sum()
}

async fn absent(client: &Client, dir: Handle, name: &[u8]) {
    assert_eq!(client.lookup(dir, name).await, Err(Status::NotFound));
}

/// S-VOLUME-8.
#[tokio::test(flavor = "multi_thread")]
async fn a_directory_is_known_to_be_empty_until_another_gateway_has_names_of_it() {
    let bricks = Bricks::start();
    let (here, there) = (bricks.gateway().await, bricks.gateway().await);
    let (mount, other) = (Mount::new(&here).await, Mount::new(&there).await);
    for filled_on in [0, 1] {
        let name = format!("dir-{filled_on}");
        let dir = mount.mkdir(mount.root, name.as_bytes()).await.unwrap().handle;
        let before = lookups(&here).await;
        for member in [0, 1] {
            for name in names_on(&dir, member, 3) {
                absent(&mount.client, dir, &name).await;
            }
        }
        assert_eq!(lookups(&here).await, before, "nobody is asked for names of an empty directory");
        // What this gateway makes on either brick is known, and so is that there is nothing else.
        for member in [0, 1] {
            mount.done(mknod(dir, &names_on(&dir, member, 1)[0])).await;
        }
        for member in [0, 1] {
            let names = names_on(&dir, member, 3);
            assert!(mount.client.lookup(dir, &names[0]).await.is_ok());
            absent(&mount.client, dir, &names[1]).await;
        }
        assert_eq!(lookups(&here).await, before);
        let name = &names_on(&dir, filled_on, 3)[2];
        other.done(mknod(dir, name)).await;
        assert!(mount.client.lookup(dir, name).await.is_ok(), "brick {filled_on}");
    }
}

/// S-VOLUME-8.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_takes_a_directory_for_empty_is_told_before_another_brick_has_names_of_it() {
    let bricks = Bricks::start();
    let (here, there) = (bricks.gateway().await, bricks.gateway().await);
    let (mount, other) = (Mount::new(&here).await, Mount::new(&there).await);
    for number in 0..8 {
        let dir = mount.mkdir(mount.root, format!("dir-{number}").as_bytes()).await.unwrap().handle;
        for member in [0, 1] {
            let name = &names_on(&dir, member, 1)[0];
            other.done(mknod(dir, name)).await;
            assert!(mount.client.lookup(dir, name).await.is_ok(), "{number}: brick {member}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_made_side_by_side_share_what_the_home_of_their_directory_is_told() {
    const CHANGES: usize = 200;
    let bricks = Bricks::start();
    let stand = bricks.gateway().await;
    let mount = Arc::new(Mount::new(&stand).await);
    let dir = mount.mkdir(mount.root, b"dir").await.unwrap().handle;
    let home = portcullis_core::volume::member_of(&dir).home();
    let names = names_on(&dir, 1 - home, CHANGES + 1);
    mount.done(mknod(dir, &names[CHANGES])).await;
    let touches = async || {
        let bricks = stand.stats().await.bricks;
        bricks[usize::from(home)].requests.get("volume").copied().unwrap_or(0)
    };
    let long_ago = Timestamp { secs: 1, nanos: 0 };
    let set = SetAttr { mtime: Some(SetTime::At(long_ago)), ..SetAttr::default() };
    mount.done(Mutation::Setattr { handle: dir, file: 0, set }).await;
    let before = touches().await;
    let made = names.into_iter().take(CHANGES).map(|name| {
        let mount = mount.clone();
        tokio::spawn(async move {
            mount.done(mknod(dir, &name)).await;
            // Answered when the directory has its time.
            mount.client.getattr(dir).await.unwrap().mtime
        })
    });
    for made in made.collect::<Vec<_>>() {
        assert!(made.await.unwrap() > long_ago);
    }
    let told = touches().await - before;
    assert!((1..CHANGES as u64).contains(&told), "{told} for {CHANGES} changes");
}

/// S-VOLUME-3.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_brick_told_is_kept_when_another_one_is_lost() {
    let mut bricks = Bricks::start();
    let stand = bricks.gateway().await;
    let mount = Mount::new(&stand).await;
    let names: Vec<_> = [0, 1].iter().map(|&on| names_on(&mount.root, on, 3)).collect();
    for name in names.iter().flat_map(|names| &names[..2]) {
        mount.done(mknod(mount.root, name)).await;
    }
    let client = stand.client().await;
    assert_eq!(client.list(client.root().await).await.len(), 4);
    bricks.running[1].kill();
    until("the gateway knows", async || (!stand.stats().await.bricks[1].connected).then_some(()))
        .await;
    let client = stand.client().await;
    let before = lookups(&stand).await;
    for name in &names[0][..2] {
        let found = until("the cache answers", async || client.lookup(mount.root, name).await.ok());
        assert!(found.await.attr.is_some());
    }
    assert_eq!(lookups(&stand).await, before, "brick 0 is not asked for what it told");
    absent(&client, mount.root, &names[0][2]).await;
    assert_eq!(lookups(&stand).await, before + 1, "it is asked whether that is all it has");
    for name in &names[1] {
        assert_eq!(client.lookup(mount.root, name).await, Err(Status::Unavailable));
    }
}

/// S-VOLUME-7.
#[tokio::test(flavor = "multi_thread")]
async fn an_empty_directory_in_the_place_of_a_brick_is_refused() {
    for lost in [0, 1] {
        let mut bricks = Bricks::start();
        let stand = bricks.gateway().await;
        let mount = Mount::new(&stand).await;
        let name = names_on(&mount.root, lost, 1).remove(0);
        mount.done(mknod(mount.root, &name)).await;
        stand.stop().await;
        let (empty, lost) = (tempfile::tempdir().unwrap(), usize::from(lost));
        bricks.replace(lost, empty.path());
        let stand = bricks.any_gateway();
        let error = until("it is said", async || {
            let error = stand.stats().await.bricks[lost].last_error.clone();
            error.contains("was there before").then_some(error)
        });
        assert!(error.await.contains("bring its files back"));
        assert!(!empty.path().join(".portcullis-volume").exists(), "it is told nothing");
        // The brick itself is as good as ever.
        let export = bricks.exports[lost].path().to_owned();
        bricks.replace(lost, &export);
        let stand = bricks.gateway().await;
        let mount = Mount::new(&stand).await;
        assert!(mount.client.lookup(mount.root, &name).await.is_ok());
    }
}

/// S-VOLUME-5, S-VOLUME-7.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_a_volume_has_outgrown_takes_nothing_for_absent_and_serves_nobody() {
    let mut bricks = Bricks::start();
    let old = bricks.gateway().await;
    let mount = Mount::new(&old).await;
    mount.done(mknod(mount.root, b"before")).await;
    bricks.add();
    let new = bricks.gateway().await;
    let other = Mount::new(&new).await;
    let dir = other.mkdir(other.root, b"dir").await.unwrap().handle;
    let names = names_on(&dir, 2, 3);
    for name in &names {
        other.done(mknod(dir, name)).await;
    }
    // Whatever the old one still answers, it is not that what is on the new brick is absent.
    let refusal = until("it serves nobody", async || {
        for name in &names {
            let status = mount.client.lookup(dir, name).await.map(drop);
            assert!(
                !matches!(status, Ok(()) | Err(Status::NotFound | Status::Stale)),
                "{status:?}"
            );
        }
        let stats = old.stats().await.bricks;
        let refused = |error: &&String| error.contains("name all");
        let refusal = stats.iter().map(|brick| &brick.last_error).find(refused);
        refusal.filter(|_| stats.iter().all(|brick| !brick.connected)).cloned()
    })
    .await;
    assert!(refusal.contains("3 bricks, and 2 are named"), "{refusal}");
    // One that has all of them finds everything where it was.
    for name in &names {
        assert!(other.client.lookup(dir, name).await.is_ok());
    }
    assert!(other.client.lookup(other.root, b"before").await.is_ok());
}
