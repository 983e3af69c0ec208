//! What came of operations that clients ask for again; names that are exchanged between members; owners
//! of pointers, and times of directories that were renamed.

use std::os::unix::fs::MetadataExt;

use portcullis_core::volume::{
    Ask, Cause, Change, Duty, Named, Pointer, Preparation, Purpose, Told, TxId,
};
use portcullis_core::{FileKind, Status};
use portcullis_wire::message::Caller;

use super::support::{Member, members, name_on, only, place, placing, root, run, tx};

const LINK: u128 = 0xabcd << 100;
/// A transaction of another gateway.
const LATER: TxId = TxId { gateway: 78, number: 1 };

async fn restart(members: &mut Vec<Member>, number: usize) {
    let member = members.remove(number).restart().await;
    members.insert(number, member);
}

#[test]
fn who_asks_again_is_told_what_was_committed_or_commits_it_alone() {
    run(async {
        let mut members = members(2).await;
        let dir = root(&members).handle();
        let to = place(dir, &name_on(1, dir, "new"));
        let handle = {
            let name = name_on(0, dir, "old");
            members[0].write(&root(&members), &name, "content");
            members[0].lookup(dir, &name).await.expect("there").handle
        };
        let pointer = Pointer::File { handle, kind: FileKind::Regular, link: LINK };
        let commit = |tx, cause| {
            let change = placing(&to, pointer);
            Ask::Commit { tx, change, prepared: only(0), cause: Some(cause) }
        };
        let cause = Cause { client: 9, number: 4, oldest: 1, life: members[1].life() };
        let again = |cause| Ask::TakeOver { tx: LATER, cause };
        // It was not committed: then only he does it who was told so.
        let other = Cause { number: 5, ..cause };
        let taken = Ok(Told::TakenOver { committed: None });
        assert_eq!(members[1].ask(again(other)).await, taken);
        assert_eq!(members[1].hold(tx(1), &to, Purpose::Replace).await, None);
        assert_eq!(members[1].ask(commit(tx(1), other)).await, Ok(Told::NotHeld));

        let duties = vec![Duty::Finish { member: 0 }];
        let committed = members[1].ask(commit(tx(1), cause)).await;
        assert_eq!(committed, Ok(Told::Committed { duties: duties.clone() }));
        let told = Ok(Told::TakenOver { committed: Some((tx(1), duties)) });
        assert_eq!(members[1].ask(again(cause)).await, told);
        restart(&mut members, 1).await;
        assert_eq!(members[1].ask(again(cause)).await, told, "the intent tells it");
        assert_eq!(members[1].ask(again(other)).await, Err(Status::InDoubt));
        assert_eq!(members[1].ask(Ask::Forget { tx: tx(1), version: None }).await, Ok(Told::Done));
        let told = Ok(Told::TakenOver { committed: Some((tx(1), vec![])) });
        assert_eq!(members[1].ask(again(cause)).await, told, "and is done");
        assert_eq!(
            members[1].ask(commit(tx(1), cause)).await,
            Ok(Told::Committed { duties: vec![] })
        );
    });
}

/// Files on two members exchange their names, and come back. A restart after every step changes nothing.
#[test]
fn names_are_exchanged_between_members_with_a_restart_after_every_step() {
    run(async {
        let mut members = members(2).await;
        let root = root(&members);
        let dir = root.handle();
        let names = [name_on(0, dir, "one"), name_on(1, dir, "two")];
        let mut files = Vec::new();
        for member in [0, 1] {
            members[member].write(&root, &names[member], &format!("of {member}"));
            files.push(members[member].lookup(dir, &names[member]).await.expect("there").handle);
        }
        let places = [place(dir, &names[0]), place(dir, &names[1])];
        for round in 1..=2_u64 {
            let links = [LINK + u128::from(round), LINK + 16 + u128::from(round)];
            let other = members[1].hold(tx(round), &places[1], Purpose::Take).await.expect("there");
            let leads = |what: &Named, link| match *what {
                Named::Pointer(pointer) => pointer,
                Named::Body { handle, kind } => Pointer::File { handle, kind, link },
            };
            let pointer = leads(&other.what, links[1]);
            let part = Preparation::Replace {
                place: places[0].clone(),
                pointer,
                uid: other.uid,
                link: links[0],
            };
            let moved = members[0].prepare(tx(round), 1, part).await.expect("there");
            restart(&mut members, 0).await;
            let change = Change::Swap {
                place: places[1].clone(),
                pointer: leads(&moved.what, links[0]),
                uid: moved.uid,
                replaced: other.what.handle(),
                link: links[1],
            };
            let commit = Ask::Commit { tx: tx(round), change, prepared: only(0), cause: None };
            members[1].ask(commit).await.expect("committed");
            restart(&mut members, 1).await;
            for _ in 0..2 {
                assert_eq!(members[0].ask(Ask::Finish { tx: tx(round) }).await, Ok(Told::Done));
                restart(&mut members, 0).await;
            }
            let forget = Ask::Forget { tx: tx(round), version: None };
            assert_eq!(members[1].ask(forget).await, Ok(Told::Done));
            for member in [0, 1] {
                let file = files[if round == 1 { 1 - member } else { member }];
                let found = members[member].lookup(dir, &names[member]).await.expect("there");
                assert_eq!(found.handle, file, "round {round}, member {member}");
                let attr = members[member].brick.getattr(files[member]).await.expect("it lives");
                assert_eq!(attr.nlink, 1, "round {round}, member {member}");
                assert_eq!(members[member].unfinished().await, (0, 0));
            }
        }
        for member in [0, 1] {
            let path = members[member].copy(&root).join(&names[member]);
            assert_eq!(std::fs::read_to_string(path).expect("a file"), format!("of {member}"));
        }
    });
}

#[test]
fn a_pointer_gets_the_owner_that_its_file_has_by_now() {
    run(async {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: nobody but root gives files away");
            return;
        }
        let mut members = members(2).await;
        let root = root(&members);
        let dir = root.handle();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        std::fs::set_permissions(members[1].copy(&root), mode).expect("it is ours");
        let name = name_on(0, dir, "file");
        members[0].write(&root, &name, "");
        let handle = members[0].lookup(dir, &name).await.expect("there").handle;
        let at = place(dir, &name_on(1, dir, "new"));
        let pointer = Pointer::File { handle, kind: FileKind::Regular, link: LINK };
        members[1].hold(tx(1), &at, Purpose::Replace).await;
        let change = placing(&at, pointer);
        let commit = Ask::Commit { tx: tx(1), change, prepared: only(0), cause: None };
        members[1].ask(commit).await.expect("committed");
        members[1].ask(Ask::Forget { tx: tx(1), version: None }).await.expect("forgotten");
        let caller = || Caller::new(1000, 1000, vec![]);
        let unlink = |number| Ask::Unlink { tx: tx(number), place: at.clone() };
        let refused = members[1].ask_as(caller(), unlink(2)).await;
        assert_eq!(refused, Err(Status::NotPermitted), "it is root's");
        let own = |handle| Ask::Own { place: at.clone(), handle, uid: 1000 };
        assert_eq!(members[1].ask(own(dir)).await, Ok(Told::Done), "another file");
        let refused = members[1].ask_as(caller(), unlink(3)).await;
        assert_eq!(refused, Err(Status::NotPermitted));
        assert_eq!(members[1].ask(own(handle)).await, Ok(Told::Done));
        assert!(members[1].ask_as(caller(), unlink(4)).await.is_ok(), "it is his");
    });
}

#[test]
fn a_directory_that_was_renamed_has_its_time_of_last_status_change() {
    run(async {
        let mut members = members(2).await;
        let root = root(&members);
        let dir = root.handle();
        let name = name_on(0, dir, "dir");
        let id = members[0].mkdir(dir, &name, 2, 3).await;
        let times = |member: &Member| {
            let attr = std::fs::metadata(member.copy(&id)).expect("there");
            ((attr.mtime(), attr.mtime_nsec()), (attr.ctime(), attr.ctime_nsec()))
        };
        let before = times(&members[0]);
        // Until the clock of the file system has gone on.
        let wait = || {
            let made = || {
                let file = tempfile::NamedTempFile::new().expect("a file");
                let attr = file.as_file().metadata().expect("there");
                (attr.ctime(), attr.ctime_nsec())
            };
            let first = made();
            while made() <= first {
                std::thread::yield_now();
            }
        };
        wait();
        let to = place(dir, &name_on(0, dir, "other"));
        let rename = Ask::Rename { tx: tx(1), from: place(dir, &name), to, flags: 0 };
        let renamed = members[0].ask(rename).await;
        assert_eq!(renamed, Ok(Told::Renamed { duties: vec![], moved: vec![] }), "at home here");
        let after = times(&members[0]);
        assert!(after.1 > before.1 && after.0 == before.0, "{before:?} {after:?}");
        wait();
        assert_eq!(members[0].ask(Ask::Renamed { id }).await, Ok(Told::Done));
        let last = times(&members[0]);
        assert!(last.1 > after.1 && last.0 == before.0, "{after:?} {last:?}");
    });
}
