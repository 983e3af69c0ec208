//! One operation at a time, nothing fails: each ends as it would in one file system.

use portcullis_core::volume::{DirId, Operation, Place};
use portcullis_core::{Handle, Status};

use crate::check::violations;
use crate::mixed::{Told, any_op, any_world, finish};
use crate::run::Op;
use crate::tree::{EXCHANGE, Tree, key};
use crate::world::{World, apply};

const SEEDS: u64 = 150;
const OPERATIONS: usize = 100;

/// S-VOLUME-2.
#[test]
fn alone_each_operation_ends_as_in_one_file_system() {
    let (mut done, mut refused) = (0, 0);
    for seed in 0..SEEDS {
        let told = Told(seed);
        let mut world = any_world(seed, None);
        for _ in 0..OPERATIONS {
            let op = any_op(&mut world, 0);
            match one(&mut world, op) {
                Ok(()) => done += 1,
                Err(_) => refused += 1,
            }
        }
        finish(&mut world, false);
        assert_eq!(violations(&world), [""; 0]);
        drop(told);
    }
    eprintln!("{done} done, {refused} refused");
    assert!(done > refused / 2, "{done} done, {refused} refused");
}

/// Does one operation, and compares how it ends.
fn one(world: &mut World, op: Op) -> Result<(), Status> {
    let mut expected_tree = world.tree.clone();
    let expected = match &op {
        // Which file it becomes is not known before.
        Op::Create(place) => world.tree.clone().create(place, Handle::new(b"file").expect("short")),
        Op::Chmod { id, .. } if world.tree.is_dir(&id.handle()) => Ok(()),
        Op::Chmod { .. } => Err(Status::Stale),
        Op::Volume(operation) => apply(&mut expected_tree, operation),
    };
    let gives_dirs_other_parents = gives_dirs_other_parents(&world.tree, &op);
    let before = times(world, &op);
    let id = world.begin(0, op.clone());
    while world.deliver() {}
    assert!(world.is_idle(), "nobody else is there to wait for: {op:?}");
    let found = world.outcomes[id].result.expect("it ended");
    match (found, expected) {
        (Err(Status::InvalidArgument), _) if gives_dirs_other_parents => {}
        // Of two reasons to refuse a rename either may be told.
        (Err(_), Err(Status::InvalidArgument)) => {}
        (Err(Status::NotFound | Status::Stale), Err(Status::NotFound | Status::Stale)) => {}
        (found, expected) => assert_eq!(found, expected, "{op:?} in {:?}", world.tree),
    }
    if found.is_ok() && changes_names(&expected_tree, &op) {
        let after = times(world, &op);
        assert!(before.iter().zip(&after).all(|(before, after)| before < after), "times of {op:?}");
    }
    found
}

/// Whether an exchange would give a directory another parent, which it does not do.
fn gives_dirs_other_parents(tree: &Tree, op: &Op) -> bool {
    let Op::Volume(Operation::Rename { from, to, flags: EXCHANGE, .. }) = op else { return false };
    let is_dir = |place: &&Place| tree.get(place).is_some_and(|handle| tree.is_dir(&handle));
    from.dir != to.dir && [from, to].iter().any(is_dir)
}

/// Whether an operation that went well changed the names of directories.
fn changes_names(after: &Tree, op: &Op) -> bool {
    match op {
        Op::Chmod { .. } => false,
        // Two names of one file are left as they are.
        Op::Volume(Operation::Rename { from, .. }) => after.get(from).is_none(),
        _ => true,
    }
}

/// When the directories of an operation were last changed, as their homes tell.
fn times(world: &World, op: &Op) -> Vec<u64> {
    let time = |place: &Place| {
        let id = DirId::of_handle(&place.dir)?;
        let copy = world.members[usize::from(id.home())].copies.get(&key(&place.dir))?;
        Some(copy.changes)
    };
    let places = match op {
        Op::Create(place) => vec![place],
        Op::Chmod { .. } => vec![],
        Op::Volume(Operation::Rename { from, to, .. }) => vec![from, to],
        Op::Volume(
            Operation::Mkdir { place, .. }
            | Operation::Unlink { place, .. }
            | Operation::Rmdir { place, .. }
            | Operation::Link { place, .. },
        ) => vec![place],
        Op::Volume(_) => vec![],
    };
    places.into_iter().filter_map(time).collect()
}
