//! What must hold when everything has come to its end.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_core::volume::{LinkId, Named, Owner, Pointer, arbiter, member_of};

use crate::member::Copy;
use crate::tree::{Dir, Key, key};
use crate::world::World;
use portcullis_core::Handle;

/// Everything that does not hold.
pub(crate) fn violations(world: &World) -> Vec<String> {
    let mut found = Vec::new();
    for member in &world.members {
        let id = member.id;
        if !(member.prepared.is_empty() && member.intents.is_empty() && member.holds.is_empty()) {
            found.push(format!(
                "member {id} is not through: {:?} {:?} {:?}",
                member.prepared, member.intents, member.holds
            ));
        }
        for dir in member.copies.keys().filter(|dir| !world.tree.dirs.contains_key(*dir)) {
            found.push(format!("member {id} has a copy of a directory that is gone: {dir:?}"));
        }
    }
    for (dir, expected) in &world.tree.dirs {
        check_dir(world, dir, expected, &mut found);
    }
    check_links(world, &mut found);
    check_files(world, &mut found);
    found
}

fn check_dir(world: &World, dir: &Key, expected: &Dir, found: &mut Vec<String>) {
    let handle = Handle::new(dir).expect("a handle");
    let home_id = member_of(&handle).home();
    let copies: Vec<(u8, &Copy)> = world
        .members
        .iter()
        .filter_map(|member| Some((member.id, member.copies.get(dir)?)))
        .collect();
    let Some((_, home)) = copies.iter().find(|(id, _)| *id == home_id) else {
        found.push(format!("{handle:?} has no copy at home"));
        return;
    };
    let Some(meta) = &home.home else {
        found.push(format!("{handle:?} is not at home at home"));
        return;
    };
    if meta.parent != expected.parent {
        found.push(format!("{handle:?} is in {:?}, not in {:?}", meta.parent, expected.parent));
    }
    if home.attr.mode != expected.mode {
        found.push(format!("{handle:?} has mode {}, not {}", home.attr.mode, expected.mode));
    }
    let mut names = BTreeMap::new();
    for (id, copy) in copies.iter().copied() {
        if copy.attr != home.attr {
            found.push(format!("{handle:?} is on {id} as {:?}, not {:?}", copy.attr, home.attr));
        }
        if !meta.copies.contains(id) {
            found.push(format!("{handle:?} has a copy on {id}, which its home does not know"));
        }
        for (name, record) in &copy.names {
            if arbiter(&handle, name) != id {
                found.push(format!("{handle:?} has {name:?} on {id}, which is not its arbiter"));
            }
            names.insert(name.clone(), record.what.handle());
        }
    }
    if names != expected.names {
        found.push(format!("{handle:?} has {names:?}, not {:?}", expected.names));
    }
}

/// Each pointer has its hidden name, and each hidden name its pointer.
fn check_links(world: &World, found: &mut Vec<String>) {
    let mut pointers: BTreeMap<(u8, LinkId), Handle> = BTreeMap::new();
    for member in &world.members {
        for record in member.copies.values().flat_map(|copy| copy.names.values()) {
            if let Named::Pointer(Pointer::File { handle, link, .. }) = record.what {
                let Owner::Member(lies_on) = member_of(&handle) else {
                    found.push(format!("a pointer to a file leads to {handle:?}"));
                    continue;
                };
                if lies_on == member.id {
                    found.push(format!("a pointer to {handle:?}, which lies on the same member"));
                }
                if pointers.insert((lies_on, link), handle).is_some() {
                    found.push(format!("two pointers to the hidden name {link:x}"));
                }
            }
        }
    }
    let hidden = world.members.iter().flat_map(|member| {
        member.links.iter().map(move |(link, handle)| ((member.id, *link), *handle))
    });
    let hidden: BTreeMap<(u8, LinkId), Handle> = hidden.collect();
    if hidden != pointers {
        found.push(format!("hidden names {hidden:x?}, pointers {pointers:x?}"));
    }
}

/// Each file has as many names as it should.
fn check_files(world: &World, found: &mut Vec<String>) {
    let mut files: BTreeMap<Key, u32> = BTreeMap::new();
    let mut all = BTreeSet::new();
    for member in &world.members {
        files.extend(member.files.iter().map(|(file, names)| (file.clone(), *names)));
        all.extend(
            member
                .copies
                .values()
                .flat_map(|copy| copy.names.values())
                .map(|record| key(&record.what.handle())),
        );
    }
    if files != world.tree.files {
        found.push(format!("files {files:?}, not {:?}", world.tree.files));
    }
    for lost in files.keys().filter(|file| !all.contains(*file)) {
        found.push(format!("file {lost:?} has no name"));
    }
}
