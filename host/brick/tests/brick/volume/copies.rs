//! Copies of directories: made when they are needed, like the home's, and never of what is gone.

use std::os::unix::fs::MetadataExt;

use portcullis_core::Status;
use portcullis_core::volume::{Ask, CopyAttr, DirId, MemberSet, Preparation, Told};
use portcullis_wire::message::{Mutated, Mutation, SetAttr};
use portcullis_wire::{Reply, Request};

use super::support::{Member, members, name_on, place, root, run, tx};

fn create(dir: &DirId, name: &str) -> Mutation {
    Mutation::Create { dir: dir.handle(), name: name.into(), mode: 0o640, flags: 2 }
}

async fn ticket(member: &mut Member, id: DirId) -> u64 {
    match member.ask(Ask::ExpectCopy { id }).await {
        Ok(Told::Ticket(ticket)) => ticket,
        other => panic!("{other:?}"),
    }
}

async fn enlist(home: &mut Member, id: DirId, member: u8) -> (CopyAttr, MemberSet) {
    match home.ask(Ask::Enlist { id, member }).await {
        Ok(Told::Copy { attr, copies, .. }) => (attr, copies),
        other => panic!("{other:?}"),
    }
}

/// Has member 1 make a copy of a directory of member 0.
async fn copy(members: &mut [Member], id: DirId) {
    let ticket = ticket(&mut members[1], id).await;
    let (attr, copies) = enlist(&mut members[0], id, 1).await;
    assert_eq!(copies, MemberSet::of(1));
    assert_eq!(members[1].ask(Ask::MakeCopy { id, ticket, attr }).await, Ok(Told::Done));
}

#[test]
fn a_member_without_a_copy_has_no_names_until_one_is_made() {
    run(async {
        let mut members = members(2).await;
        let root = root(&members).handle();
        let id = members[0].mkdir(root, &name_on(0, root, "dir"), 2, 7).await;
        let name = name_on(1, id.handle(), "file");
        assert_eq!(members[1].lookup(id.handle(), &name).await, Err(Status::NotFound));
        assert!(members[1].names(id.handle()).await.is_empty());
        let synced = members[1].brick.call(Request::Fsyncdir { dir: id.handle() }).await;
        assert_eq!(synced, Ok(Reply::Done));
        let no_copy = Ok(Mutated::Told(Told::NoCopy));
        let op = members[1].op();
        let connection = members[1].brick.connection.clone();
        let again = async || {
            let caller = portcullis_wire::message::Caller::ROOT;
            super::support::mutate_on(&connection, op, caller, create(&id, &name)).await
        };
        assert_eq!(again().await, no_copy);
        let unlink = Ask::Unlink { tx: tx(1), place: place(id.handle(), &name) };
        assert_eq!(members[1].ask(unlink).await, Err(Status::NotFound));
        copy(&mut members, id).await;
        // The same operation is done now: that it was not is not kept as its answer.
        let created = again().await;
        assert!(matches!(created, Ok(Mutated::Created { .. })), "{created:?}");
        assert_eq!(members[1].names(id.handle()).await, [name]);
        assert!(members[0].names(id.handle()).await.is_empty());
    });
}

#[test]
fn a_copy_is_like_the_directory_at_home_and_follows_it() {
    run(async {
        let mut members = members(2).await;
        let root = root(&members).handle();
        let id = members[0].mkdir(root, &name_on(0, root, "dir"), 2, 7).await;
        copy(&mut members, id).await;
        let mode =
            |member: &Member| std::fs::metadata(member.copy(&id)).expect("there").mode() & 0o7777;
        assert_eq!([mode(&members[0]), mode(&members[1])], [0o755; 2]);
        let chmod = || Mutation::Setattr {
            handle: id.handle(),
            file: 0,
            set: SetAttr { mode: Some(0o1700), ..SetAttr::default() },
        };
        assert_eq!(members[0].mutate(chmod()).await, Err(Status::Busy), "nobody has promised");
        assert_eq!(members[0].ask(Ask::Mark { tx: tx(1), id }).await, Ok(Told::Done));
        assert!(matches!(members[0].mutate(chmod()).await, Ok(Mutated::Attr(_))));
        // Whoever promised may be gone: the promise is not.
        let home = members.remove(0).restart().await;
        members.insert(0, home);
        assert_eq!(members[0].unfinished().await, (1, 0));
        let read = members[0].ask(Ask::ReadCopy { id }).await;
        let Ok(Told::Copy { attr, copies, .. }) = read else { panic!("{read:?}") };
        assert_eq!((attr.mode, copies), (0o1700, MemberSet::of(1)));
        let set = |attr: &CopyAttr| Ask::SetCopy { id, attr: attr.clone() };
        assert_eq!(members[1].ask(set(&attr)).await, Ok(Told::Done));
        assert_eq!(mode(&members[1]), 0o1700);
        // What comes late changes nothing.
        let late = CopyAttr { mode: 0o777, version: attr.version, ..attr.clone() };
        assert_eq!(members[1].ask(set(&late)).await, Ok(Told::Done));
        assert_eq!(mode(&members[1]), 0o1700);
        let forget = |version: u64| Ask::Forget { tx: tx(1), version: Some(version) };
        assert_eq!(members[0].ask(forget(attr.version - 1)).await, Ok(Told::Changed));
        assert_eq!(members[0].ask(forget(attr.version)).await, Ok(Told::Done));
        assert_eq!(members[0].unfinished().await, (0, 0));
    });
}

#[test]
fn a_ticket_is_no_longer_good_once_the_directory_is_sealed() {
    run(async {
        let mut members = members(2).await;
        let root = root(&members).handle();
        let id = members[0].mkdir(root, &name_on(0, root, "dir"), 2, 7).await;
        let ticket = ticket(&mut members[1], id).await;
        let (attr, _) = enlist(&mut members[0], id, 1).await;
        let part = Preparation::Seal { id };
        members[1].prepare(tx(1), 0, part).await;
        let make = || Ask::MakeCopy { id, ticket, attr: attr.clone() };
        assert_eq!(members[1].ask(make()).await, Ok(Told::NoTicket));
        let member = members.remove(1).restart().await;
        members.push(member);
        assert_eq!(members[1].ask(make()).await, Ok(Told::NoTicket), "forgotten");
        let aborted = members[1].ask(Ask::Abort { tx: tx(1) }).await;
        assert_eq!(aborted, Ok(Told::Aborted { was_there: true }));
        copy(&mut members, id).await;
        assert!(members[1].copy(&id).exists());
    });
}

#[test]
fn touching_a_directory_gives_it_the_time_of_now() {
    run(async {
        let mut members = members(2).await;
        let root = root(&members).handle();
        let id = members[0].mkdir(root, &name_on(0, root, "dir"), 2, 7).await;
        let before = members[0].brick.getattr(id.handle()).await.expect("there");
        crate::support::wait_for_the_next_tick();
        assert_eq!(members[0].ask(Ask::Touch { id }).await, Ok(Told::Done));
        let after = members[0].brick.getattr(id.handle()).await.expect("there");
        assert!(after.mtime > before.mtime && after.ctime > before.ctime);
        let gone = DirId::new(2, 0, [8; 14]).expect("an id");
        assert_eq!(members[0].ask(Ask::Touch { id: gone }).await, Ok(Told::Done));
    });
}
