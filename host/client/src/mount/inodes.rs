//! Which file each nodeid stands for.
//!
//! A directory that somebody else has moved elsewhere gets another nodeid when it is found there. The
//! kernel keeps one place for each directory inode; where it cannot give up the old one, since
//! something below is open or somebody's working directory, it could not rename the directory by
//! its new name (`__d_unalias` in fs/dcache.c: ESTALE). All nodeids of a file are told of changes.
//!
//! A nodeid is `generation << 32 | slot + 1`: slots are used again, nodeids never. The table holds
//! a file for as long as the kernel holds references to it, so it is as large as the kernel's own
//! inode cache makes it, at a tenth of its memory.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use parking_lot::{Mutex, MutexGuard};
use portcullis_core::{Handle, Timestamp};
use portcullis_fuse::abi::ROOT_ID;
use std::hash::BuildHasher;

/// A file that the kernel knows.
#[derive(Clone, Debug)]
pub(super) struct Inode {
    pub(super) handle: Handle,
    pub(super) ino: u64,
    /// Inode number of the directory it was last found in: what `..` shows.
    pub(super) parent_ino: u64,
    /// Whether it is a directory, which is in one place only.
    pub(super) is_dir: bool,
    /// Target of a symbolic link, which cannot change while the file lives.
    pub(super) target: Option<Box<[u8]>>,
}

/// The table. Its first slot is the root, which is never forgotten.
pub(super) struct Inodes {
    table: Mutex<Table>,
}

/// The table, locked: for many entries at once.
pub(super) struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_handle: HashTable<u32>,
    hasher: FixedState,
}

struct Slot {
    generation: u32,
    nlookup: u64,
    /// `None` where the slot is free.
    inode: Option<Inode>,
    /// The kernel may have cached its content, or its listing.
    has_pages: bool,
    /// What the file was when the kernel's pages of it were known to be good.
    seen: Option<Seen>,
}

/// What tells whether the content of a file is still the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// The connection over which it was told.
    pub(super) epoch: u64,
    pub(super) size_bytes: u64,
    pub(super) mtime: Timestamp,
    pub(super) ctime: Timestamp,
}

impl Inodes {
    pub(super) fn new(root: Inode) -> Self {
        let hasher = FixedState::default();
        let mut by_handle = HashTable::new();
        by_handle.insert_unique(hasher.hash_one(root.handle), 0, |_| 0);
        let slot = Slot { nlookup: 1, inode: Some(root), ..Slot::FREE };
        Self { table: Mutex::new(Table { slots: vec![slot], free: Vec::new(), by_handle, hasher }) }
    }

    /// What a nodeid stands for; `None` where the kernel has forgotten it.
    pub(super) fn get(&self, nodeid: u64) -> Option<Inode> {
        let table = self.lock();
        table.slots[table.slot_of(nodeid)?].inode.clone()
    }

    /// The kernel returns references.
    pub(super) fn forget(&self, nodeid: u64, nlookup: u64) {
        self.lock().forget(nodeid, nlookup);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }
}

impl Slot {
    const FREE: Self =
        Self { generation: 0, nlookup: 0, inode: None, has_pages: false, seen: None };
}

impl Table {
    /// The nodeids of a file that the kernel knows: one, mostly.
    pub(super) fn find(&self, handle: &Handle) -> Vec<u64> {
        let indices = self.indices(handle);
        indices.map(|index| nodeid(index, self.slots[index as usize].generation)).collect()
    }

    fn indices(&self, handle: &Handle) -> impl Iterator<Item = u32> + use<'_> {
        let (hash, handle) = (self.hasher.hash_one(handle), *handle);
        let is_it = move |slot: &Slot| slot.inode.as_ref().is_some_and(|i| i.handle == handle);
        let found = self.by_handle.iter_hash(hash).copied();
        found.filter(move |&index| is_it(&self.slots[index as usize]))
    }

    /// The kernel itself has moved a file from one of two directories, by inode number, to the
    /// other.
    pub(super) fn moved(&mut self, handle: &Handle, [one, other]: [u64; 2]) {
        let indices: Vec<u32> = self.indices(handle).collect();
        for index in indices {
            match &mut self.slots[index as usize].inode {
                Some(inode) if inode.parent_ino == one => inode.parent_ino = other,
                Some(inode) if inode.parent_ino == other => inode.parent_ino = one,
                _ => {}
            }
        }
    }

    /// The files that the kernel knows.
    pub(super) fn len(&self) -> usize {
        self.by_handle.len()
    }

    /// Their nodeids.
    pub(super) fn nodeids(&self) -> Vec<u64> {
        let used = self.slots.iter().enumerate().filter(|(_, slot)| slot.inode.is_some());
        used.map(|(index, slot)| nodeid(index as u32, slot.generation)).collect()
    }

    /// A file is opened so that the kernel caches its content; answers whether what it has cached
    /// is still good.
    pub(super) fn opened(&mut self, nodeid: u64, seen: Seen) -> bool {
        let Some(index) = self.slot_of(nodeid) else { return false };
        let slot = &mut self.slots[index];
        slot.has_pages = true;
        slot.seen.replace(seen) == Some(seen)
    }

    /// A directory is opened so that the kernel caches its listing.
    pub(super) fn listed(&mut self, nodeid: u64) {
        if let Some(index) = self.slot_of(nodeid) {
            self.slots[index].has_pages = true;
        }
    }

    /// The listing of a directory is to be dropped of which nothing is known; answers whether the
    /// kernel may have cached any of it since it was opened last.
    pub(super) fn forget_listing(&mut self, nodeid: u64) -> bool {
        let Some(index) = self.slot_of(nodeid) else { return false };
        std::mem::take(&mut self.slots[index].has_pages)
    }

    /// Whether it stands for a directory.
    pub(super) fn is_dir(&self, nodeid: u64) -> bool {
        let slot = self.slot_of(nodeid).map(|index| &self.slots[index]);
        slot.and_then(|slot| slot.inode.as_ref()).is_some_and(|inode| inode.is_dir)
    }

    /// The content of a file is to be forgotten; answers whether the kernel may have any of it.
    pub(super) fn forget_content(&mut self, nodeid: u64) -> bool {
        let Some(index) = self.slot_of(nodeid) else { return false };
        self.slots[index].seen = None;
        self.slots[index].has_pages
    }

    /// Whether the kernel may have cached content of a file.
    pub(super) fn has_pages(&self, nodeid: u64) -> bool {
        self.slot_of(nodeid).is_some_and(|index| self.slots[index].has_pages)
    }

    /// Counts one reference to a file and answers its nodeid; `None` where there are too many
    /// files.
    pub(super) fn reference(&mut self, inode: Inode) -> Option<u64> {
        let Self { slots, by_handle, hasher, free } = self;
        let hash = hasher.hash_one(inode.handle);
        let is_same = |index: u32| {
            let known = slots[index as usize].inode.as_ref();
            known.is_some_and(|known| {
                let is_elsewhere = inode.is_dir && known.parent_ino != inode.parent_ino;
                known.handle == inode.handle && (index == 0 || !is_elsewhere)
            })
        };
        if let Some(&index) = by_handle.find(hash, |&index| is_same(index)) {
            let slot = &mut slots[index as usize];
            slot.nlookup += 1;
            if let Some(known) = &mut slot.inode {
                known.ino = inode.ino;
                known.parent_ino = if index == 0 { inode.ino } else { inode.parent_ino };
                known.target = inode.target.or(known.target.take());
            }
            return Some(nodeid(index, slot.generation));
        }
        let index = match free.pop() {
            Some(index) => index,
            None => {
                // The last number is left out: `slot + 1` has to fit.
                let index = u32::try_from(slots.len()).ok().filter(|&index| index < u32::MAX)?;
                slots.push(Slot::FREE);
                index
            }
        };
        let slot = &mut slots[index as usize];
        slot.nlookup = 1;
        slot.inode = Some(inode);
        (slot.has_pages, slot.seen) = (false, None);
        let generation = slot.generation;
        by_handle.insert_unique(hash, index, |&other| {
            slots[other as usize].inode.as_ref().map_or(0, |inode| hasher.hash_one(inode.handle))
        });
        Some(nodeid(index, generation))
    }

    pub(super) fn forget(&mut self, nodeid: u64, nlookup: u64) {
        if nodeid == ROOT_ID {
            return;
        }
        let Some(index) = self.slot_of(nodeid) else {
            tracing::warn!(nodeid, "the kernel forgets a file it does not know");
            return;
        };
        let slot = &mut self.slots[index];
        slot.nlookup = slot.nlookup.saturating_sub(nlookup);
        if slot.nlookup > 0 {
            return;
        }
        if let Some(inode) = slot.inode.take() {
            slot.generation = slot.generation.wrapping_add(1);
            let hash = self.hasher.hash_one(inode.handle);
            if let Ok(entry) = self.by_handle.find_entry(hash, |&at| at as usize == index) {
                entry.remove();
            }
            self.free.push(index as u32);
        }
    }

    /// The slot of a nodeid that is in use.
    fn slot_of(&self, nodeid: u64) -> Option<usize> {
        let index = (nodeid as u32).checked_sub(1)? as usize;
        let slot = self.slots.get(index)?;
        (slot.generation == (nodeid >> 32) as u32 && slot.inode.is_some()).then_some(index)
    }
}

fn nodeid(index: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | (u64::from(index) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inode(n: u64) -> Inode {
        let handle = Handle::new(&n.to_le_bytes()).unwrap();
        Inode { handle, ino: n, parent_ino: 1, is_dir: false, target: None }
    }

    fn table() -> Inodes {
        Inodes::new(inode(1))
    }

    #[test]
    fn the_root_has_nodeid_one_and_stays() {
        let inodes = table();
        inodes.forget(ROOT_ID, u64::MAX);
        assert_eq!(inodes.get(ROOT_ID).unwrap().ino, 1);
        assert_eq!(inodes.lock().reference(inode(1)), Some(ROOT_ID));
    }

    #[test]
    fn a_file_lives_until_its_last_reference_is_returned() {
        let inodes = table();
        let first = inodes.lock().reference(inode(2)).unwrap();
        assert_eq!(inodes.lock().reference(inode(2)), Some(first));
        inodes.forget(first, 1);
        assert!(inodes.get(first).is_some());
        inodes.forget(first, 1);
        assert!(inodes.get(first).is_none());
    }

    #[test]
    fn a_nodeid_is_never_used_again() {
        let inodes = table();
        let mut seen = std::collections::HashSet::from([ROOT_ID]);
        for n in 0..1000 {
            // Some stay, so that slots are taken out of order.
            let nodeid = inodes.lock().reference(inode(2 + n)).unwrap();
            assert!(seen.insert(nodeid), "{nodeid:#x} twice");
            if n % 3 != 0 {
                inodes.forget(nodeid, 1);
                assert!(inodes.get(nodeid).is_none());
            }
        }
        assert!(inodes.lock().slots.len() < 400, "slots are used again");
        for nodeid in seen {
            if let Some(found) = inodes.get(nodeid) {
                assert_eq!(inodes.lock().reference(found), Some(nodeid));
            }
        }
    }

    #[test]
    fn a_directory_found_elsewhere_has_another_nodeid_unless_the_kernel_moved_it() {
        let inodes = table();
        let dir = |parent_ino| Inode { is_dir: true, parent_ino, ..inode(2) };
        let first = inodes.lock().reference(dir(1)).unwrap();
        assert_eq!(inodes.lock().reference(dir(1)), Some(first));
        let second = inodes.lock().reference(dir(7)).unwrap();
        assert_ne!(first, second);
        let mut both = inodes.lock().find(&dir(1).handle);
        both.sort_unstable();
        assert_eq!(both, [first.min(second), first.max(second)]);
        inodes.forget(first, 2);
        assert_eq!(inodes.lock().find(&dir(1).handle), [second]);
        inodes.lock().moved(&dir(1).handle, [9, 7]);
        assert_eq!(inodes.lock().reference(dir(9)), Some(second));
        let file = inodes.lock().reference(inode(3)).unwrap();
        assert_eq!(inodes.lock().reference(Inode { parent_ino: 7, ..inode(3) }), Some(file));
    }

    #[test]
    fn a_target_once_known_is_kept() {
        let inodes = table();
        let link = Inode { target: Some(b"there".as_slice().into()), ..inode(2) };
        let nodeid = inodes.lock().reference(link).unwrap();
        inodes.lock().reference(inode(2)).unwrap();
        assert_eq!(inodes.get(nodeid).unwrap().target.as_deref(), Some(b"there".as_slice()));
    }

    #[test]
    fn content_is_good_while_the_file_is_the_same_and_nothing_was_forgotten() {
        let inodes = table();
        let mut table = inodes.lock();
        let file = table.reference(inode(2)).unwrap();
        let time = Timestamp::default();
        let seen = Seen { epoch: 1, size_bytes: 5, mtime: time, ctime: time };
        assert!(!table.has_pages(file) && !table.forget_content(file));
        assert!(!table.opened(file, seen) && table.opened(file, seen));
        assert!(!table.opened(file, Seen { size_bytes: 6, ..seen }));
        assert!(!table.opened(file, Seen { epoch: 2, ..seen }));
        assert!(table.opened(file, Seen { epoch: 2, ..seen }));
        assert!(table.forget_content(file) && !table.opened(file, Seen { epoch: 2, ..seen }));
        table.forget(file, 1);
        assert!(!table.has_pages(file));
    }

    #[test]
    fn a_file_is_found_by_its_handle_while_the_kernel_knows_it() {
        let inodes = table();
        let mut table = inodes.lock();
        let file = table.reference(inode(2)).unwrap();
        assert_eq!(table.find(&inode(2).handle), [file]);
        assert_eq!((table.len(), table.nodeids()), (2, vec![ROOT_ID, file]));
        table.forget(file, 1);
        assert!(table.find(&inode(2).handle).is_empty());
        assert_eq!((table.len(), table.nodeids()), (1, vec![ROOT_ID]));
    }

    #[test]
    fn nodeids_the_kernel_makes_up_are_harmless() {
        let inodes = table();
        for nodeid in [0, 2, 1 << 32, u64::MAX, 1 << 32 | 1] {
            assert!(inodes.get(nodeid).is_none(), "{nodeid:#x}");
            inodes.forget(nodeid, 1);
        }
        assert!(inodes.get(ROOT_ID).is_some());
    }
}
