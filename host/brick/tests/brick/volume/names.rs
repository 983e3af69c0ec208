//! What a member does alone: names, directories, and what nobody may make.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::Ordering;

use portcullis_core::volume::{Ask, DirId, Told};
use portcullis_core::watch::Change;
use portcullis_core::{FileKind, Status};
use portcullis_wire::message::{Caller, Mutated, Mutation};
use portcullis_wire::{Reply, Request};

use super::support::{members, name_on, place, root, run, tx};
use crate::support::without_atime;

#[test]
fn a_directory_is_made_listed_and_removed_by_its_home_alone() {
    run(async {
        let mut members = members(2).await;
        let root = root(&members).handle();
        let name = name_on(1, root, "dir");
        let id = members[1].mkdir(root, &name, 2, 7).await;
        let entry = members[1].lookup(root, &name).await.expect("there");
        assert_eq!((entry.handle, entry.kind), (id.handle(), FileKind::Directory));
        let attr = entry.attr.expect("this is its home");
        assert_eq!((attr.nlink, attr.mode & 0o7777), (1, 0o755));
        assert_eq!(members[1].brick.getattr(id.handle()).await, Ok(attr));
        let listed = members[1].brick.list(root, vec![]).await.expect("listed");
        assert_eq!(listed.iter().map(|(_, entry, _)| entry).collect::<Vec<_>>(), [&entry]);
        // Asked again with the same id it is the same directory, with another it is in the way.
        let again = Ask::Mkdir { place: place(root, &name), mode: 0o755, id };
        let again = members[1].ask(again).await;
        let Ok(Told::Made(made)) = again else { panic!("{again:?}") };
        assert_eq!(without_atime(made).handle, entry.handle);
        let other = DirId::new(2, 1, [8; 14]).expect("an id");
        let other = Ask::Mkdir { place: place(root, &name), mode: 0o755, id: other };
        assert_eq!(members[1].ask(other).await, Err(Status::Exists));
        // Not where another arbitrates.
        assert_eq!(members[0].lookup(root, &name).await, Err(Status::InvalidArgument));

        members[1].write(&id, "stray", "");
        let rmdir = || Ask::Rmdir { place: place(root, &name) };
        assert_eq!(members[1].ask(rmdir()).await, Err(Status::NotEmpty));
        std::fs::remove_file(members[1].copy(&id).join("stray")).expect("removed");
        let unlink = Ask::Unlink { tx: tx(1), place: place(root, &name) };
        assert_eq!(members[1].ask(unlink).await, Err(Status::IsDirectory));
        assert_eq!(members[1].ask(rmdir()).await, Ok(Told::Done));
        assert_eq!(members[1].ask(rmdir()).await, Err(Status::NotFound));
        assert_eq!(members[1].brick.getattr(id.handle()).await, Err(Status::Stale));
        assert!(!members[1].copy(&id).exists());
        assert_eq!(members[1].unfinished().await, (0, 0));
    });
}

#[test]
fn only_names_are_told_that_lie_with_their_arbiter() {
    run(async {
        let members = members(2).await;
        let root = root(&members);
        for number in 0..200 {
            members[0].write(&root, &format!("file-{number}"), "");
        }
        let mine = (0..200)
            .map(|number| format!("file-{number}"))
            .filter(|name| portcullis_core::volume::arbiter(&root.handle(), name.as_bytes()) == 0);
        let mut mine: Vec<String> = mine.collect();
        mine.sort();
        assert!(mine.len() > 50 && mine.len() < 150);
        assert_eq!(members[0].names(root.handle()).await, mine);
        let strays = members[0].brick.counters.strays.load(Ordering::Relaxed);
        assert_eq!(strays, 200 - mine.len() as u64);
    });
}

#[test]
fn nobody_makes_a_pointer_but_the_brick() {
    run(async {
        let mut members = members(2).await;
        let root = root(&members);
        let name = name_on(0, root.handle(), "dir");
        let id = members[0].mkdir(root.handle(), &name, 2, 7).await;
        let target = std::fs::read_link(members[0].copy(&root).join(&name)).expect("a link");
        let target = target.to_str().expect("text").to_owned();
        assert!(target.starts_with(".portcullis:"));
        let forged = name_on(0, root.handle(), "forged");
        let make = Mutation::Symlink {
            dir: root.handle(),
            name: forged.clone().into(),
            target: target.clone().into(),
        };
        assert_eq!(members[0].mutate(make).await, Err(Status::InvalidArgument));
        // Somebody on the brick's host who changes one digit makes a link that leads nowhere.
        let last = if target.ends_with('0') { "1" } else { "0" };
        let altered = format!("{}{last}", &target[..target.len() - 1]);
        symlink(&altered, members[0].copy(&root).join(&forged)).expect("made");
        let entry = members[0].lookup(root.handle(), &forged).await.expect("there");
        assert_eq!((entry.kind, entry.target), (FileKind::Symlink, Some(altered.into_bytes())));
        // What the brick keeps of the directory is nobody's business.
        let names = members[0].brick.call(Request::Listxattr { handle: id.handle() }).await;
        let Ok(Reply::Xattr(names)) = names else { panic!("{names:?}") };
        assert!(!String::from_utf8_lossy(&names).contains("portcullis"), "{names:?}");
    });
}

#[test]
fn a_caller_needs_what_the_system_call_needs() {
    run(async {
        let mut members = members(2).await;
        let root = root(&members);
        let caller = Caller::new(4321, 8765, vec![]);
        let copy = members[0].copy(&root);
        if std::fs::metadata(&copy).expect("there").uid() != 0 {
            return crate::support::skipped(
                "a_caller_needs_what_the_system_call_needs",
                "not root",
            );
        }
        let name = name_on(0, root.handle(), "dir");
        let mkdir = |random: u8| {
            let id = DirId::new(2, 0, [random; 14]).expect("an id");
            Ask::Mkdir { place: place(root.handle(), &name), mode: 0o750, id }
        };
        let mode = |mode: u32| {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&copy, permissions).expect("changed");
        };
        mode(0o755);
        assert_eq!(members[0].ask_as(caller.clone(), mkdir(1)).await, Err(Status::AccessDenied));
        let hold = |take: bool, number: u64| Ask::Hold {
            tx: tx(number),
            place: place(root.handle(), &name),
            purpose: if take {
                portcullis_core::volume::Purpose::Take
            } else {
                portcullis_core::volume::Purpose::Make
            },
        };
        let held = members[0].ask_as(caller.clone(), hold(false, 1)).await;
        assert_eq!(held, Err(Status::AccessDenied));
        // A directory that hands its group down, and its sticky bit keeps others from removing.
        mode(0o3777);
        std::os::unix::fs::chown(&copy, None, Some(1001)).expect("changed");
        let made = members[0].ask_as(caller.clone(), mkdir(2)).await;
        let Ok(Told::Made(entry)) = made else { panic!("{made:?}") };
        let attr = entry.attr.expect("told");
        assert_eq!((attr.uid, attr.gid, attr.mode & 0o7777), (4321, 1001, 0o2750));
        let other = Caller::new(999, 999, vec![]);
        assert_eq!(members[0].ask_as(other, hold(true, 2)).await, Err(Status::NotPermitted));
        let held = members[0].ask_as(caller, hold(true, 3)).await;
        assert!(matches!(held, Ok(Told::Record(Some(_)))), "{held:?}");
    });
}

#[test]
fn names_of_255_bytes_are_as_good_as_any() {
    run(async {
        let mut members = members(2).await;
        let root = root(&members).handle();
        let name = name_on(0, root, &"n".repeat(252));
        assert!(name.len() <= 255);
        let long = format!("{name}{}", "x".repeat(255 - name.len()));
        let member = usize::from(portcullis_core::volume::arbiter(&root, long.as_bytes()));
        let id = members[member].mkdir(root, &long, 2, 3).await;
        assert_eq!(members[member].names(root).await, std::slice::from_ref(&long));
        let too_long = Ask::Rmdir { place: place(root, &format!("{long}x")) };
        assert!(members[member].ask(too_long).await.is_err());
        let to = (0..).map(|number: u32| format!("{number:0255}"));
        let mut to = to.filter(|to| {
            usize::from(portcullis_core::volume::arbiter(&root, to.as_bytes())) == member
        });
        let to = to.next().expect("one of them");
        let rename =
            Ask::Rename { tx: tx(1), from: place(root, &long), to: place(root, &to), flags: 0 };
        let renamed = members[member].ask(rename).await;
        assert_eq!(renamed, Ok(Told::Renamed { duties: vec![], moved: vec![] }));
        assert_eq!(members[member].lookup(root, &to).await.expect("there").handle, id.handle());
        assert_eq!(
            members[member].ask(Ask::Rmdir { place: place(root, &to) }).await,
            Ok(Told::Done)
        );
    });
}

#[test]
fn an_answer_is_recalled_and_nothing_is_kept_of_asking_for_one_that_never_was() {
    run(async {
        let mut members = members(2).await;
        let root = root(&members).handle();
        let name = name_on(0, root, "dir");
        let id = DirId::new(2, 0, [4; 14]).expect("an id");
        let op = members[0].op();
        let connection = members[0].brick.connection.clone();
        let ask = async |mutation: Mutation| {
            super::support::mutate_on(&connection, op, Caller::ROOT, mutation).await
        };
        assert_eq!(ask(Mutation::Recall).await, Ok(Mutated::NotAsked));
        let mkdir = Ask::Mkdir { place: place(root, &name), mode: 0o755, id };
        let made = ask(Mutation::Volume(mkdir)).await;
        assert!(matches!(made, Ok(Mutated::Told(Told::Made(_)))), "{made:?}");
        assert_eq!(ask(Mutation::Recall).await, made);
    });
}

#[test]
fn what_other_programs_change_in_a_copy_is_told_of_the_directory() {
    run(async {
        let mut members = members(2).await;
        let root = root(&members).handle();
        let name = name_on(0, root, "dir");
        let id = members[0].mkdir(root, &name, 2, 7).await;
        let watcher = members[0].connect(true).await;
        let mine = name_on(0, id.handle(), "file");
        let lookup = Request::Lookup { dir: id.handle(), name: mine.clone().into() };
        assert!(watcher.call(&lookup).await.is_err(), "absent");
        members[0].write(&id, &mine, "");
        let wanted = Change::Name { dir: id.handle(), name: mine.into() };
        let told = async {
            loop {
                let recall = watcher.next_recall().await.expect("it is told");
                let is_told = recall.changes().contains(&wanted);
                recall.acknowledge().await;
                if is_told {
                    return;
                }
            }
        };
        let limit = std::time::Duration::from_secs(30);
        tokio::time::timeout(limit, told).await.expect("in time");
    });
}
