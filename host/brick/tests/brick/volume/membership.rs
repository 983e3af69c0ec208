//! Which part of a volume a brick is: kept, and never another.

use portcullis_brick::{Brick, BrickConfig, HandleChoice};
use portcullis_core::Status;
use portcullis_core::volume::{DirId, KIND_MEMBER, MemberSet, Owner, member_of};
use portcullis_transport::Role;
use portcullis_wire::message::Membership;
use portcullis_wire::{Reply, Request};

use super::support::{VOLUME, members, name_on, root, run};
use crate::support::{TestBrick, attach};

fn of(member: u8, count: u8) -> Membership {
    Membership { volume: VOLUME, member, count, root_layout: 2, joined: MemberSet::EMPTY }
}

async fn join(
    brick: &TestBrick,
    membership: Option<Membership>,
) -> Result<Option<Membership>, Status> {
    match brick.call(Request::Join { membership }).await? {
        Reply::Joined { membership, .. } => Ok(membership),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_membership_outlives_a_restart_grows_and_is_never_another() {
    run(async {
        let brick = TestBrick::start(HandleChoice::Auto).await.expect("it starts");
        assert_eq!(join(&brick, None).await, Ok(None));
        assert!(brick.call(attach(false)).await.is_ok(), "it serves alone");
        assert!(!brick.path(".portcullis-volume").exists(), "nothing is kept");
        for impossible in [of(2, 2), of(0, 65), Membership { root_layout: 3, ..of(0, 2) }] {
            assert_eq!(join(&brick, Some(impossible)).await, Err(Status::InvalidArgument));
        }
        assert_eq!(join(&brick, Some(of(1, 2))).await, Ok(Some(of(1, 2))));
        let brick = brick.restart().await;
        assert_eq!(brick.call(attach(false)).await, Err(Status::InvalidArgument), "not joined");
        for other in [
            of(0, 2),
            of(1, 1),
            Membership { volume: VOLUME + 1, ..of(1, 2) },
            Membership { root_layout: 1, ..of(1, 2) },
        ] {
            assert_eq!(join(&brick, Some(other)).await, Err(Status::InvalidArgument), "{other:?}");
            assert_eq!(brick.call(attach(false)).await, Err(Status::InvalidArgument));
        }
        assert_eq!(join(&brick, Some(of(1, 3))).await, Ok(Some(of(1, 3))));
        assert_eq!(join(&brick, Some(of(1, 2))).await, Err(Status::InvalidArgument), "shrinks");
        for (told, kept) in [(0b10, 0b10), (0b1, 0b11), (0, 0b11)] {
            let [told, kept] = [told, kept]
                .map(|bits| Membership { joined: MemberSet::of_bits(bits), ..of(1, 3) });
            assert_eq!(join(&brick, Some(told)).await, Ok(Some(kept)), "nobody who joined leaves");
        }
        let nobody = Membership { joined: MemberSet::of(3), ..of(1, 3) };
        assert_eq!(join(&brick, Some(nobody)).await, Err(Status::InvalidArgument));
        let brick = brick.restart().await;
        let joined = Membership { joined: MemberSet::first(2), ..of(1, 3) };
        assert_eq!(join(&brick, None).await, Ok(Some(joined)));
        let root = brick.root().await;
        assert_eq!(Some(root), DirId::root(2).map(|id| id.handle()));
    });
}

#[test]
fn a_membership_that_cannot_be_read_is_not_taken_for_none() {
    run(async {
        let brick = TestBrick::start(HandleChoice::Auto).await.expect("it starts");
        join(&brick, Some(of(1, 2))).await.expect("joined");
        std::fs::write(brick.path(".portcullis-volume/member"), b"x").expect("written");
        let identity = brick.identities.identity(Role::Brick).expect("an identity");
        let listen = "127.0.0.1:0".parse().expect("an address");
        let error = Brick::bind(BrickConfig::new(brick.path(""), listen), &identity).err();
        assert!(error.is_some_and(|error| error.to_string().contains(".portcullis-volume")));
    });
}

#[test]
fn handles_and_inode_numbers_say_whose_they_are_and_others_are_refused() {
    run(async {
        let members = members(2).await;
        let root = root(&members);
        let mut handles = Vec::new();
        for member in &members {
            let name = name_on(member.number, root.handle(), "file");
            member.write(&root, &name, "content");
            let entry = member.lookup(root.handle(), &name).await.expect("there");
            assert_eq!(member_of(&entry.handle), Owner::Member(member.number));
            let attr = entry.attr.expect("told");
            if member.number == 1 {
                assert_eq!(entry.handle.as_bytes()[0], KIND_MEMBER);
                assert_eq!(attr.ino >> 56, 1);
            }
            assert_eq!(member.brick.getattr(entry.handle).await, Ok(attr));
            let listed = member.brick.list(root.handle(), vec![]).await.expect("listed");
            assert!(listed.iter().any(|(_, listed, _)| *listed == entry), "{listed:?}");
            handles.push(entry.handle);
        }
        assert_eq!(members[0].brick.getattr(handles[1]).await, Err(Status::Stale));
        assert_eq!(members[1].brick.getattr(handles[0]).await, Err(Status::Stale));
        let nowhere = DirId::new(1, 0, [9; 14]).expect("an id").handle();
        assert_eq!(members[0].brick.getattr(nowhere).await, Err(Status::Stale), "gone from home");
        assert_eq!(members[1].brick.getattr(nowhere).await, Err(Status::Stale), "never there");
    });
}

#[test]
fn what_a_brick_that_served_alone_gave_out_is_good_in_member_0() {
    run(async {
        let brick = TestBrick::start(HandleChoice::Auto).await.expect("it starts");
        std::fs::create_dir(brick.path("dir")).expect("made");
        let root = brick.root().await;
        let dir = brick.lookup(root, "dir").await.expect("there").handle;
        let joined = Membership { root_layout: 1, ..of(0, 2) };
        assert_eq!(join(&brick, Some(joined)).await, Ok(Some(joined)));
        assert_eq!(brick.root().await, root);
        assert_eq!(brick.lookup(root, "dir").await.expect("there").handle, dir);
        assert_eq!(brick.lookup(root, ".portcullis-volume").await.map(drop), Err(Status::NotFound));
        let listed = brick.list(root, vec![]).await.expect("listed");
        assert_eq!(listed.len(), 1, "what the brick keeps is hidden");
    });
}
