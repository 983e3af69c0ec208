//! Locks hold between clients of one gateway and of two, and over what happens to connections.

use std::fs;

use portcullis_core::Status;
use portcullis_wire::message::{Lock, LockKind, LockSort};
use portcullis_wire::{Reply, ReplyFrame, Request};

use crate::coherence::two_gateways;
use crate::harness::{RunningBrick, frame, until};
use crate::leases::behind_a_relay;
use crate::mount::{Mount, O_RDWR, refused};
use crate::tree;

const SORTS: [LockSort; 2] = [LockSort::Posix, LockSort::Flock];

/// Opens `name-0` for a mount.
async fn opened(mount: &Mount) -> u64 {
    let handle = mount.watch(mount.root, b"name-0").await.handle;
    mount.client.open_as(handle, O_RDWR).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_exclude_clients_of_other_gateways_each_sort_for_itself() {
    let dir = tree::flat(1);
    let (_brick, [near, far]) = two_gateways(dir.path());
    let mounts = [Mount::new(&near).await, Mount::new(&near).await, Mount::new(&far).await];
    let [a, b, c] = &mounts;
    let files = [opened(a).await, opened(b).await, opened(c).await];
    for sort in SORTS {
        a.setlk(files[0], a.lock(sort, LockKind::Write)).await.unwrap();
        for (mount, file) in [(b, files[1]), (c, files[2])] {
            let wanted = mount.lock(sort, LockKind::Read);
            assert_eq!(refused(mount.setlk(file, wanted).await), Status::Busy, "{sort:?}");
        }
        let getlk = Request::Getlk { file: files[2], lock: c.lock(sort, LockKind::Write) };
        match c.client.call(getlk).await {
            Ok(Reply::Lock(Some(lock))) => assert_eq!(lock.owner.client, a.instance),
            other => panic!("{other:?}"),
        }
    }
    // A descriptor is closed: record locks end, a flock stays.
    let owner = a.lock(LockSort::Posix, LockKind::Unlock).owner;
    let flush = Request::Flush { file: files[0], owner };
    assert_eq!(a.client.call(flush).await, Ok(Reply::Done));
    c.setlk(files[2], c.lock(LockSort::Posix, LockKind::Write)).await.unwrap();
    let flock = c.lock(LockSort::Flock, LockKind::Write);
    assert_eq!(refused(c.setlk(files[2], flock).await), Status::Busy);
    // The open file is closed: the flock ends, too.
    let release = Request::Release { file: files[0], unlock: Some(owner) };
    assert_eq!(a.client.call(release).await, Ok(Reply::Done));
    c.setlk(files[2], flock).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_gets_the_lock_and_whoever_gave_up_does_not() {
    let dir = tree::flat(1);
    let (_brick, [near, far]) = two_gateways(dir.path());
    let (a, b, c) = (Mount::new(&near).await, Mount::new(&far).await, Mount::new(&far).await);
    let files = [opened(&a).await, opened(&b).await, opened(&c).await];
    for sort in SORTS {
        a.setlk(files[0], a.lock(sort, LockKind::Write)).await.unwrap();
        let wait = |file, lock: Lock| Request::Setlk { file, lock, wait: true };
        let given_up = b.client.stream(wait(files[1], b.lock(sort, LockKind::Write))).await;
        let mut waiting = c.client.stream(wait(files[2], c.lock(sort, LockKind::Write))).await;
        until("both wait at the brick", async || {
            // One try at once and one wait each, for each sort.
            let asked = far.brick_requests().await.get("setlk").copied().unwrap_or(0);
            let before = if sort == LockSort::Posix { 0 } else { 5 };
            (asked >= before + 4).then_some(())
        })
        .await;
        drop(given_up);
        a.setlk(files[0], a.lock(sort, LockKind::Unlock)).await.unwrap();
        assert_eq!(frame(&mut waiting).await, ReplyFrame::Reply(Reply::Done), "{sort:?}");
        c.setlk(files[2], c.lock(sort, LockKind::Unlock)).await.unwrap();
        until("nobody holds it", async || {
            let taken = a.setlk(files[0], a.lock(sort, LockKind::Write)).await;
            taken.ok()
        })
        .await;
        a.setlk(files[0], a.lock(sort, LockKind::Unlock)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_a_lock_outlives_the_session_with_the_brick() {
    let dir = tree::flat(1);
    let (_brick, relay, [cut_off, direct]) = behind_a_relay(dir.path(), 25_000).await;
    let (a, b) = (Mount::new(&direct).await, Mount::new(&cut_off).await);
    let (mine, theirs) = (opened(&a).await, opened(&b).await);
    a.setlk(mine, a.lock(LockSort::Posix, LockKind::Write)).await.unwrap();
    let lock = b.lock(LockSort::Posix, LockKind::Write);
    let mut waiting = b.client.stream(Request::Setlk { file: theirs, lock, wait: true }).await;
    until("it waits at the brick", async || {
        (cut_off.brick_requests().await.get("setlk") == Some(&2)).then_some(())
    })
    .await;
    relay.cut_after(0);
    until("the session is lost", async || {
        (!cut_off.stats().await.bricks[0].connected).then_some(())
    })
    .await;
    relay.mend();
    until("it waits there again", async || {
        (cut_off.brick_requests().await.get("setlk") == Some(&3)).then_some(())
    })
    .await;
    a.setlk(mine, a.lock(LockSort::Posix, LockKind::Unlock)).await.unwrap();
    assert_eq!(frame(&mut waiting).await, ReplyFrame::Reply(Reply::Done));
    let wanted = a.lock(LockSort::Posix, LockKind::Read);
    assert_eq!(refused(a.setlk(mine, wanted).await), Status::Busy, "it has it now");
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_are_taken_again_after_the_brick_was_restarted() {
    let dir = tree::flat(1);
    let (brick, [near, far]) = two_gateways(dir.path());
    let (a, b) = (Mount::new(&near).await, Mount::new(&far).await);
    let (mine, theirs) = (opened(&a).await, opened(&b).await);
    for sort in SORTS {
        a.setlk(mine, a.lock(sort, LockKind::Write)).await.unwrap();
    }
    let address = brick.address;
    brick.stop().await;
    let _brick = RunningBrick::start(&near.ids, dir.path(), address);
    // Without anything being done with the file.
    until("the locks are taken again", async || {
        (near.brick_requests().await["setlk"] >= 4).then_some(())
    })
    .await;
    a.write(mine, 0, b"mine").await.unwrap();
    for sort in SORTS {
        let wanted = b.lock(sort, LockKind::Read);
        assert_eq!(refused(b.setlk(theirs, wanted).await), Status::Busy, "{sort:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_cannot_be_taken_again_is_reported_lost() {
    let dir = tree::flat(1);
    let (brick, [near, _far]) = two_gateways(dir.path());
    let mount = Mount::new(&near).await;
    let file = opened(&mount).await;
    mount.setlk(file, mount.lock(LockSort::Flock, LockKind::Write)).await.unwrap();
    let address = brick.address;
    brick.stop().await;
    let local = fs::File::open(dir.path().join("name-0")).unwrap();
    until("the lock is free", async || local.try_lock().ok()).await;
    let _brick = RunningBrick::start(&near.ids, dir.path(), address);
    for _ in 0..2 {
        let failure = mount.write(file, 0, b"mine no more").await.unwrap_err();
        assert_eq!(failure.status, Status::Io);
        assert!(failure.detail.contains("lock") && failure.detail.contains("lost"), "{failure}");
        assert_eq!(refused(mount.client.read(file, 0, 1).await), Status::Io);
    }
    mount.client.release(file).await;
    assert_eq!(fs::read(dir.path().join("name-0")).unwrap(), b"");
    let again = opened(&mount).await;
    let flock = mount.lock(LockSort::Flock, LockKind::Write);
    assert_eq!(refused(mount.setlk(again, flock).await), Status::Busy);
    local.unlock().unwrap();
    mount.setlk(again, flock).await.unwrap();
    assert_eq!(mount.write(again, 0, b"mine").await.unwrap(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_of_a_client_that_left_end_and_those_of_one_that_may_come_back_do_not() {
    let dir = tree::flat(1);
    let (_brick, [near, far]) = two_gateways(dir.path());
    let (a, b, c) = (Mount::new(&near).await, Mount::new(&near).await, Mount::new(&far).await);
    let (its, theirs, wanted) = (opened(&a).await, opened(&b).await, opened(&c).await);
    a.setlk(its, a.lock(LockSort::Posix, LockKind::Write)).await.unwrap();
    b.setlk(theirs, b.lock(LockSort::Flock, LockKind::Write)).await.unwrap();
    assert_eq!(a.client.call(Request::Detach).await, Ok(Reply::Done));
    a.client.0.close("done");
    b.client.0.close("lost");
    until("the locks of the one that left are free", async || {
        c.setlk(wanted, c.lock(LockSort::Posix, LockKind::Write)).await.ok()
    })
    .await;
    let flock = c.lock(LockSort::Flock, LockKind::Write);
    assert_eq!(refused(c.setlk(wanted, flock).await), Status::Busy);
    let back = Mount::again(&near, b.instance, b.session).await;
    let again = opened(&back).await;
    back.setlk(again, back.lock(LockSort::Flock, LockKind::Write)).await.unwrap();
    let unlock = Some(back.lock(LockSort::Flock, LockKind::Unlock).owner);
    let release = Request::Release { file: again, unlock };
    assert_eq!(back.client.call(release).await, Ok(Reply::Done));
    c.setlk(wanted, flock).await.unwrap();
}
