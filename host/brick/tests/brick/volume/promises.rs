//! Changes on several members: promised, committed, finished; with restarts in between.

use std::os::unix::fs::MetadataExt;

use portcullis_core::Status;
use portcullis_core::volume::{
    Ask, Change, DirId, Duty, MemberSet, Named, Place, Pointer, Preparation, Purpose, Told,
    Unfinished,
};
use portcullis_wire::message::{Mutated, Mutation};
use portcullis_wire::{Reply, Request};

use super::support::{Member, members, name_on, only, place, placing, root, run, tx};

const LINK: u128 = 0xabcd << 100;

/// Restarts a member.
async fn restart(members: &mut Vec<Member>, number: usize) {
    let member = members.remove(number).restart().await;
    members.insert(number, member);
}

/// A file on member 0, under a name that it arbitrates, and a name that member 1 does.
async fn two_names(members: &[Member]) -> (Place, Place, Pointer) {
    let root = root(members);
    let from = name_on(0, root.handle(), "old");
    members[0].write(&root, &from, "content");
    let entry = members[0].lookup(root.handle(), &from).await.expect("there");
    let pointer = Pointer::File { handle: entry.handle, kind: entry.kind, link: LINK };
    let to = name_on(1, root.handle(), "new");
    (place(root.handle(), &from), place(root.handle(), &to), pointer)
}

fn text(place: &Place) -> &str {
    std::str::from_utf8(&place.name).expect("ours")
}

#[test]
fn a_file_is_renamed_across_members_with_a_restart_after_every_step() {
    run(async {
        let mut members = members(2).await;
        let (from, to, pointer) = two_names(&members).await;
        let Pointer::File { handle, .. } = pointer else { panic!("a file") };
        let leave = || Preparation::Leave { place: from.clone(), link: LINK };
        let record = members[0].prepare(tx(1), 1, leave()).await.expect("there");
        assert_eq!(record.what.handle(), handle);
        restart(&mut members, 0).await;
        let promised = members[0].brick.call(Request::Unfinished).await;
        let orphan = Unfinished::Prepared { tx: tx(1), coordinator: 1 };
        assert_eq!(promised, Ok(Reply::Unfinished { orphans: vec![orphan], led: vec![] }));
        // It is there for whoever looks, and waits for whoever would change it.
        assert_eq!(members[0].lookup(from.dir, text(&from)).await.expect("there").handle, handle);
        let unlink = Ask::Unlink { tx: tx(9), place: from.clone() };
        assert_eq!(members[0].ask(unlink).await, Err(Status::InUse));
        assert_eq!(members[0].prepare(tx(1), 1, leave()).await, Some(record), "promised again");

        let commit = || {
            let change = placing(&to, pointer);
            Ask::Commit { tx: tx(1), change, prepared: only(0), cause: None }
        };
        assert_eq!(members[1].ask(commit()).await, Ok(Told::NotHeld));
        assert_eq!(members[1].hold(tx(1), &to, Purpose::Replace).await, None);
        restart(&mut members, 1).await;
        assert_eq!(members[1].ask(commit()).await, Ok(Told::NotHeld), "it ended with its session");
        assert_eq!(members[1].hold(tx(1), &to, Purpose::Replace).await, None);
        let duties = vec![Duty::Finish { member: 0 }];
        let committed = Ok(Told::Committed { duties: duties.clone() });
        assert_eq!(members[1].ask(commit()).await, committed);
        restart(&mut members, 1).await;
        assert_eq!(members[1].ask(commit()).await, committed, "asked again");
        assert_eq!(members[1].unfinished().await, (1, 0));
        let settled = members[1].ask(Ask::Settle { tx: tx(1) }).await;
        assert_eq!(settled, Ok(Told::Settled { is_committed: true }));
        let found = members[1].lookup(to.dir, text(&to)).await.expect("there");
        assert_eq!((found.handle, found.attr), (handle, None), "the other member has it");

        assert_eq!(members[0].ask(Ask::Finish { tx: tx(1) }).await, Ok(Told::Done));
        restart(&mut members, 0).await;
        assert_eq!(members[0].ask(Ask::Finish { tx: tx(1) }).await, Ok(Told::Done), "once more");
        assert_eq!(members[0].lookup(from.dir, text(&from)).await, Err(Status::NotFound));
        assert_eq!(members[1].ask(Ask::Forget { tx: tx(1), version: None }).await, Ok(Told::Done));
        for member in &members {
            assert_eq!(member.unfinished().await, (0, 0));
        }
        let told = members[0].brick.call(Request::Getattrs { handles: vec![handle] }).await;
        let Ok(Reply::Entries(entries)) = told else { panic!("{told:?}") };
        let attr = entries[0].as_ref().and_then(|entry| entry.attr).expect("told");
        assert_eq!((attr.nlink, attr.size_bytes), (1, 7));
        let file = members[0].brick.open(handle).await.expect("opened");
        assert_eq!(members[0].brick.read(file, 0, 100).await.expect("read"), b"content");
        let release = Request::Release { file, unlock: None };
        assert_eq!(members[0].brick.call(release).await, Ok(Reply::Done));

        // Its name is removed where it is, and then the file where that is.
        let unlink = Ask::Unlink { tx: tx(2), place: to.clone() };
        let duties = vec![Duty::RemoveBody { member: 0, link: LINK }];
        assert_eq!(members[1].ask(unlink).await, Ok(Told::Committed { duties }));
        restart(&mut members, 1).await;
        assert_eq!(members[1].unfinished().await, (1, 0));
        assert_eq!(members[1].lookup(to.dir, text(&to)).await, Err(Status::NotFound));
        for _ in 0..2 {
            assert_eq!(members[0].ask(Ask::RemoveBody { link: LINK }).await, Ok(Told::Done));
        }
        let forget = Ask::Forget { tx: tx(2), version: None };
        assert_eq!(members[1].ask(forget).await, Ok(Told::Done));
        // Kept for those who knew an earlier life of the brick, but without a name.
        let left = members[0].brick.getattr(handle).await;
        assert!(left.is_err() || left.is_ok_and(|attr| attr.nlink == 0));
    });
}

#[test]
fn a_file_comes_back_to_the_member_that_it_lies_on() {
    run(async {
        let mut members = members(2).await;
        let (from, to, pointer) = two_names(&members).await;
        let Pointer::File { handle, .. } = pointer else { panic!("a file") };
        let leave = Preparation::Leave { place: from.clone(), link: LINK };
        members[0].prepare(tx(1), 1, leave).await;
        members[1].hold(tx(1), &to, Purpose::Replace).await;
        let commit = Ask::Commit {
            tx: tx(1),
            change: placing(&to, pointer),
            prepared: only(0),
            cause: None,
        };
        members[1].ask(commit).await.expect("committed");
        members[0].ask(Ask::Finish { tx: tx(1) }).await.expect("finished");
        members[1].ask(Ask::Forget { tx: tx(1), version: None }).await.expect("forgotten");

        let back = place(from.dir, &name_on(0, from.dir, "back"));
        members[0].hold(tx(2), &back, Purpose::Replace).await;
        let leave = Preparation::Leave { place: to.clone(), link: 5 };
        let record = members[1].prepare(tx(2), 0, leave).await.expect("there");
        assert_eq!(record.what, Named::Pointer(pointer));
        let commit = Ask::Commit {
            tx: tx(2),
            change: placing(&back, pointer),
            prepared: only(1),
            cause: None,
        };
        members[0].ask(commit).await.expect("committed");
        members[1].ask(Ask::Finish { tx: tx(2) }).await.expect("finished");
        members[0].ask(Ask::Forget { tx: tx(2), version: None }).await.expect("forgotten");
        let entry = members[0].lookup(back.dir, text(&back)).await.expect("there");
        let attr = entry.attr.expect("it lies here");
        assert_eq!((entry.handle, attr.nlink), (handle, 1));
        assert!(members[1].names(to.dir).await.is_empty());
    });
}

#[test]
fn what_is_undone_leaves_nothing() {
    run(async {
        let mut members = members(2).await;
        let (from, to, pointer) = two_names(&members).await;
        let Pointer::File { handle, .. } = pointer else { panic!("a file") };
        let path = members[0].copy(&root(&members)).join(text(&from));
        let links = || std::fs::metadata(&path).expect("there").nlink();
        let link = || Preparation::Link { handle, link: LINK };
        for restarts in [false, true] {
            members[0].prepare(tx(1), 1, link()).await;
            members[0].prepare(tx(1), 1, link()).await;
            assert_eq!(links(), 2);
            if restarts {
                restart(&mut members, 0).await;
            }
            let aborted = members[0].ask(Ask::Abort { tx: tx(1) }).await;
            assert_eq!(aborted, Ok(Told::Aborted { was_there: true }));
            assert_eq!(links(), 1);
            let aborted = members[0].ask(Ask::Abort { tx: tx(1) }).await;
            assert_eq!(aborted, Ok(Told::Aborted { was_there: false }));
        }
        // Once it was told that it is not committed, it never is.
        members[1].hold(tx(2), &to, Purpose::Make).await;
        let settled = members[1].ask(Ask::Settle { tx: tx(2) }).await;
        assert_eq!(settled, Ok(Told::Settled { is_committed: false }));
        let commit = Ask::Commit {
            tx: tx(2),
            change: placing(&to, pointer),
            prepared: only(0),
            cause: None,
        };
        assert_eq!(members[1].ask(commit).await, Ok(Told::NotHeld));
        assert!(members[1].names(to.dir).await.is_empty());
    });
}

#[test]
fn holds_end_with_their_session() {
    run(async {
        let members = members(2).await;
        let root = root(&members).handle();
        let name = name_on(0, root, "file");
        let other = members[0].connect(false).await;
        let op = |number| portcullis_core::replay::OpId {
            client: 99,
            number,
            oldest: 1,
            life: 0,
            retry: false,
        };
        let caller = portcullis_wire::message::Caller::ROOT;
        let create =
            Mutation::Create { dir: root, name: name.clone().into(), mode: 0o600, flags: 2 };
        let hold = Ask::Hold { tx: tx(1), place: place(root, &name), purpose: Purpose::Make };
        let hold = Mutation::Volume(hold);
        let held = super::support::mutate_on(&other, op(1), caller.clone(), hold).await;
        assert_eq!(held, Ok(Mutated::Told(Told::Record(None))));
        let mine = members[0].brick.connection.clone();
        let waiting = super::support::mutate_on(&mine, op(2), caller, create);
        tokio::pin!(waiting);
        tokio::select! {
            created = &mut waiting => panic!("it does not wait: {created:?}"),
            absent = members[0].lookup(root, &name) => assert_eq!(absent, Err(Status::NotFound)),
        }
        other.close("gone");
        let created = waiting.await;
        assert!(matches!(created, Ok(Mutated::Created { .. })), "{created:?}");
    });
}

/// A directory of member 0 with a copy on member 1.
async fn directory(members: &mut [Member]) -> (DirId, Place) {
    let root = root(members).handle();
    let name = name_on(0, root, "dir");
    let id = members[0].mkdir(root, &name, 2, 7).await;
    let Ok(Told::Ticket(ticket)) = members[1].ask(Ask::ExpectCopy { id }).await else {
        panic!("no ticket")
    };
    let enlisted = members[0].ask(Ask::Enlist { id, member: 1 }).await;
    let Ok(Told::Copy { attr, .. }) = enlisted else { panic!("{enlisted:?}") };
    assert_eq!(members[1].ask(Ask::MakeCopy { id, ticket, attr }).await, Ok(Told::Done));
    (id, place(root, &name))
}

#[test]
fn a_directory_with_copies_is_sealed_everywhere_before_it_is_removed() {
    run(async {
        let mut members = members(2).await;
        let (id, at) = directory(&mut members).await;
        assert_eq!(members[0].ask(Ask::Rmdir { place: at.clone() }).await, Ok(Told::Elsewhere));
        let name = name_on(1, id.handle(), "file");
        members[1].write(&id, &name, "");
        let seal =
            |coordinator| Ask::Prepare { tx: tx(1), coordinator, part: Preparation::Seal { id } };
        assert_eq!(members[1].ask(seal(0)).await, Err(Status::NotEmpty));
        std::fs::remove_file(members[1].copy(&id).join(&name)).expect("removed");
        // What was refused has sealed nothing.
        let create = || Mutation::Create {
            dir: id.handle(),
            name: name.clone().into(),
            mode: 0o600,
            flags: 2,
        };
        assert!(members[1].mutate(create()).await.is_ok());
        let unlink = Ask::Unlink { tx: tx(8), place: place(id.handle(), &name) };
        assert_eq!(members[1].ask(unlink).await, Ok(Told::Committed { duties: vec![] }));

        assert!(members[0].hold(tx(1), &at, Purpose::Take).await.is_some());
        let told = members[0].ask(seal(0)).await;
        let copies = MemberSet::of(1);
        assert_eq!(told, Ok(Told::Prepared { record: None, copies }));
        assert!(members[1].ask(seal(0)).await.is_ok());
        restart(&mut members, 1).await;
        assert_eq!(members[1].mutate(create()).await, Err(Status::InUse), "sealed");
        let prepared = MemberSet::of(0).with(1);
        let change = Change::Remove { place: at.clone() };
        let committed =
            members[0].ask(Ask::Commit { tx: tx(1), change, prepared, cause: None }).await;
        let duties = vec![Duty::Finish { member: 0 }, Duty::Finish { member: 1 }];
        assert_eq!(committed, Ok(Told::Committed { duties }));
        restart(&mut members, 0).await;
        assert_eq!(members[0].lookup(at.dir, text(&at)).await, Err(Status::NotFound));
        // What another program puts there even now is not lost.
        members[1].write(&id, "stray", "kept");
        for member in [1, 0] {
            assert_eq!(members[member].ask(Ask::Finish { tx: tx(1) }).await, Ok(Told::Done));
            assert!(!members[member].copy(&id).exists());
        }
        let lost = members[1].brick.path(".portcullis-volume/lost").join(id.to_string());
        assert_eq!(std::fs::read(lost.join("stray")).expect("read"), b"kept");
        assert_eq!(members[0].ask(Ask::Forget { tx: tx(1), version: None }).await, Ok(Told::Done));
        for member in &members {
            assert_eq!(member.unfinished().await, (0, 0));
        }
        assert_eq!(members[0].brick.getattr(id.handle()).await, Err(Status::Stale));
    });
}

#[test]
fn a_commit_that_a_crash_interrupted_is_found_out_about() {
    run(async {
        for is_done in [true, false] {
            let mut members = members(2).await;
            let (from, to, pointer) = two_names(&members).await;
            let leave = Preparation::Leave { place: from.clone(), link: LINK };
            members[0].prepare(tx(1), 1, leave).await;
            members[1].hold(tx(1), &to, Purpose::Replace).await;
            let commit = Ask::Commit {
                tx: tx(1),
                change: placing(&to, pointer),
                prepared: only(0),
                cause: None,
            };
            members[1].ask(commit).await.expect("committed");
            // As it was before the last step of the commit, or before the one that did it.
            let name = format!("{:032x}-{:016x}", 77, 1);
            let intents = members[1].brick.path(".portcullis-volume/intents");
            let noted = intents.join(format!("{name}.new"));
            std::fs::rename(intents.join(&name), &noted).expect("renamed");
            if !is_done {
                let path = members[1].copy(&root(&members)).join(text(&to));
                std::fs::remove_file(path).expect("removed");
            }
            restart(&mut members, 1).await;
            assert!(!noted.exists());
            let settled = members[1].ask(Ask::Settle { tx: tx(1) }).await;
            assert_eq!(settled, Ok(Told::Settled { is_committed: is_done }));
            assert_eq!(members[1].unfinished().await, (usize::from(is_done), 0));
        }
    });
}

#[test]
fn a_directory_that_moves_remembers_where_it_is() {
    run(async {
        let mut members = members(2).await;
        let (id, at) = directory(&mut members).await;
        let parent = members[0].ask(Ask::Parent { id }).await;
        assert_eq!(parent, Ok(Told::Parent(at.dir)));
        let to = members[0].mkdir(at.dir, &name_on(0, at.dir, "to"), 2, 9).await;
        let part = Preparation::Reparent { id, parent: to.handle() };
        members[0].prepare(tx(1), 1, part).await;
        restart(&mut members, 0).await;
        assert_eq!(members[0].ask(Ask::Parent { id }).await, Err(Status::InUse), "not known yet");
        assert_eq!(members[0].ask(Ask::Finish { tx: tx(1) }).await, Ok(Told::Done));
        let parent = members[0].ask(Ask::Parent { id }).await;
        assert_eq!(parent, Ok(Told::Parent(to.handle())));
        assert_eq!(members[1].ask(Ask::HoldTree { tx: tx(2) }).await, Err(Status::InvalidArgument));
        assert_eq!(members[0].ask(Ask::HoldTree { tx: tx(2) }).await, Ok(Told::Done));
        assert_eq!(members[0].ask(Ask::HoldTree { tx: tx(3) }).await, Err(Status::InUse));
    });
}
