//! What one member of a volume told leaves the cache, when the session through which it was told is
//! lost; what the others told stays.
//!
//! What must hold: of each thing that is cached it is known who told it, and tells of its changes.
//! - What a name stands for, or that it is absent: its arbiter. A run of a listing bears the number of
//!   the brick that listed it, and has no names but those that brick arbitrates.
//! - Attributes, wherever they are cached: the home of the file or directory.
//! - That a directory has no other names: all members of its layout.

use super::DentryCache;
use super::common::Common;
use super::shard::{KEEP, Shard};
use super::slot::{Content, Slot};
use crate::chunk::Chunk;
use crate::eviction::Removal;
use crate::handle::Handle;
use crate::volume::{MemberId, arbiter, member_of};

impl<W> DentryCache<W> {
    /// Forgets what this member told, and lets nothing in that was asked for so far, of whomever.
    pub fn forget_member(&self, member: MemberId) {
        self.common.fence.raise_all();
        for shard in &self.shards {
            shard.write().forget_member(&self.common, member);
        }
    }
}

impl<W> Shard<W> {
    fn forget_member(&mut self, common: &Common, member: MemberId) {
        for number in 0..self.dir_numbers() {
            let Some(dir) = self.dir_mut(number) else { continue };
            let Some(handle) = Handle::new(dir.handle_bytes()) else { continue };
            let has_names = member_of(&handle).members().contains(member);
            // The directory is kept while it changes.
            dir.filling = KEEP;
            let (complete, ordered) = (dir.complete, dir.ordered);
            for slot in 0..dir.slots.numbers() {
                self.forget_slot_of(common, number, slot, &handle, member);
            }
            if let Some(dir) = self.dir_mut(number) {
                dir.filling = 0;
                dir.complete = complete && !has_names;
                dir.ordered = ordered && !has_names;
            }
            self.drop_if_vacant(common, number);
        }
    }

    /// Forgets what of a slot of the directory `dir` a member told.
    fn forget_slot_of(
        &mut self,
        common: &Common,
        number: u32,
        slot_number: u32,
        dir: &Handle,
        member: MemberId,
    ) {
        let Some(kept) = self.dir_mut(number) else { return };
        let complete = kept.complete;
        let Some(slot) = kept.slot_mut(slot_number) else { return };
        let told_name = |name: &[u8]| arbiter(dir, name) == member;
        let is_untrue = match &slot.content {
            Content::Run { chunk, .. } => chunk.brick() == u16::from(member),
            Content::Single(chunk) => told_name(chunk.name(0)),
            Content::Negative(name) => told_name(name),
            Content::Own(_) => member_of(dir).home() == member,
            Content::Empty => member_of(dir).members().contains(member),
        };
        let stale = slot.chunk().map_or(0, |chunk| attrs_of(chunk, member));
        // Of a complete listing the name stays, since names that are not there count as absent.
        if is_untrue || (stale != 0 && !complete && !slot.is_run()) {
            self.remove_slot(common, number, slot_number, Removal::Invalidated);
        } else {
            Slot::mark_stale(slot, stale);
        }
    }
}

/// The entries of a chunk whose attributes a member told, a bit each.
fn attrs_of(chunk: &Chunk, member: MemberId) -> u128 {
    (0..chunk.count()).fold(0, |told, entry| {
        let handle = Handle::new(chunk.handle_bytes(entry));
        let is_its = handle.is_none_or(|handle| member_of(&handle).home() == member);
        told | u128::from(is_its) << entry
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{cache, lead};
    use super::super::{Answer, Filled};
    use super::*;
    use crate::attr::{Attr, FileKind};
    use crate::chunk::ChunkBuilder;
    use crate::entry::{Entry, EntryRef};
    use crate::volume::{DirId, KIND_MEMBER};

    const CAPACITY_BYTES: u64 = 1 << 20;

    /// A file of a member.
    fn file(member: MemberId, number: u8) -> Entry {
        let handle = match member {
            0 => Handle::new(&[1, number]),
            _ => Handle::new(&[KIND_MEMBER, member, 1, number]),
        };
        let attr = Attr { mode: 0o100_644, ino: number.into(), ..Attr::default() };
        let handle = handle.expect("a handle");
        Entry { handle, attr: Some(attr), kind: FileKind::Regular, target: None }
    }

    /// Names of a directory that a member arbitrates.
    fn names_on(dir: &Handle, member: MemberId, count: usize) -> Vec<String> {
        let names = (0..).map(|number| format!("name-{number}"));
        names.filter(|name| arbiter(dir, name.as_bytes()) == member).take(count).collect()
    }

    /// A directory of two members that is listed whole: two names on each, of which the second of
    /// member 0 leads to a file of member 1.
    fn listed(cache: &DentryCache<u32>, dir: &Handle) -> [Vec<String>; 2] {
        let names = [names_on(dir, 0, 2), names_on(dir, 1, 2)];
        let mut ticket = cache.begin_listing(dir);
        for (member, names) in (0..).zip(&names) {
            let mut builder = ChunkBuilder::default();
            for (at, name) in (0_u8..).zip(names) {
                let lies_on = if at == 1 { 1 } else { member };
                let entry = file(lies_on, member * 2 + at);
                let entry =
                    EntryRef { cookie: u64::from(at) + 1, ..entry.as_ref(name.as_bytes(), 0) };
                assert!(builder.push(&entry));
            }
            let chunk = builder.finish(u16::from(member)).expect("entries");
            cache.fill_chunk(0, &mut ticket, &chunk);
        }
        cache.finish_listing(0, ticket, true);
        names
    }

    #[test]
    fn what_others_told_stays_and_what_a_lost_member_told_goes() {
        let cache = cache(CAPACITY_BYTES);
        let dir = DirId::new(2, 0, [5; 14]).expect("an id").handle();
        let [first, second] = listed(&cache, &dir);
        let absent = names_on(&dir, 0, 3).remove(2);
        let lookup = |name: &str| cache.lookup(0, &dir, name.as_bytes(), || 0);
        assert!(matches!(lookup(&absent), Answer::Negative), "the listing is whole");
        cache.forget_member(1);
        assert!(matches!(lookup(&first[0]), Answer::Hit(entry) if entry == file(0, 0)));
        cache.fill(0, lead(lookup(&first[1])), &Filled::Failed);
        cache.fill(0, lead(lookup(&second[0])), &Filled::Failed);
        cache.fill(0, lead(lookup(&absent)), &Filled::Failed);
        assert!(cache.list(0, &dir, &[]).is_none(), "nobody knows whether that is all");
    }

    #[test]
    fn what_was_asked_before_a_member_was_lost_comes_too_late() {
        let cache = cache(CAPACITY_BYTES);
        let dir = DirId::new(2, 0, [6; 14]).expect("an id").handle();
        for member in [0, 1] {
            let name = names_on(&dir, member, 1).remove(0);
            let lookup = || cache.lookup(0, &dir, name.as_bytes(), || 0);
            let ticket = lead(lookup());
            cache.forget_member(1);
            cache.fill(0, ticket, &Filled::Entry(file(member, 9)));
            cache.fill(0, lead(lookup()), &Filled::Failed);
        }
    }

    #[test]
    fn a_directory_that_lies_elsewhere_as_a_whole_stays_listed() {
        let cache = cache(CAPACITY_BYTES);
        let dir = file(0, 77).handle;
        let mut ticket = cache.begin_listing(&dir);
        let mut builder = ChunkBuilder::default();
        for (name, entry) in [("here", file(0, 1)), ("elsewhere", file(1, 2))] {
            assert!(
                builder.push(&entry.as_ref(name.as_bytes(), entry.handle.as_bytes().len() as u64))
            );
        }
        cache.fill_chunk(0, &mut ticket, &builder.finish(0).expect("entries"));
        cache.finish_listing(0, ticket, true);
        cache.forget_member(1);
        let listed = cache.list(0, &dir, &[]).expect("it is known");
        assert_eq!(listed.iter().map(|listed| listed.missing).collect::<Vec<_>>(), [0b10]);
        cache.forget_member(0);
        assert!(cache.list(0, &dir, &[]).is_none());
    }
}
