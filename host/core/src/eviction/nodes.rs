//! The residents of a native policy: a table of nodes found by slot, and queues linked through
//! them. What a policy keeps for each resident is the node's state.
//!
//! Nodes live in pages, so the table grows by a page at a time and returns a page when it is
//! empty; hosts use slots densely, be it from zero up or in several ranges. A node's index is its
//! page's place and its offset there: queues link indices, and only an id from outside costs a
//! look into the directory. What must hold: an index handed out is that of a present node until
//! it is removed.

use std::mem::size_of;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::ObjectId;

/// Slots of a page, a power of two.
const PAGE_SLOTS: u32 = 256;
const OFFSET_BITS: u32 = PAGE_SLOTS.trailing_zeros();
/// No node: the end of a queue.
const NIL: u32 = u32::MAX;

/// In place of the older neighbour: the slot is not in use. No index is this high.
const ABSENT: u32 = NIL - 1;

/// A resident object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<S> {
    generation: u32,
    newer: u32,
    older: u32,
    pub(super) weight_bytes: u32,
    pub(super) state: S,
}

impl<S: Default> Node<S> {
    fn absent() -> Self {
        let state = S::default();
        Self { generation: 0, newer: NIL, older: ABSENT, weight_bytes: 0, state }
    }
}

struct Page<S> {
    /// Upper bits of the slots in it.
    number: u32,
    present: u32,
    nodes: Box<[Node<S>]>,
}

/// The table.
pub(super) struct Nodes<S> {
    /// From a page's number to its place in `pages`.
    directory: HashMap<u32, u32, FixedState>,
    pages: Vec<Page<S>>,
    /// Places in `pages` whose page was returned.
    vacant: Vec<u32>,
    len: usize,
}

impl<S> Default for Nodes<S> {
    fn default() -> Self {
        Self { directory: HashMap::default(), pages: Vec::new(), vacant: Vec::new(), len: 0 }
    }
}

impl<S: Copy + Default> Nodes<S> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The index of `id`, if that object is here, and not another use of its slot.
    pub(super) fn find(&self, id: ObjectId) -> Option<u32> {
        self.find_slot(id.slot()).filter(|&index| self.at(index).generation == id.generation())
    }

    /// The index of whatever object is in `slot`.
    pub(super) fn find_slot(&self, slot: u32) -> Option<u32> {
        let place = *self.directory.get(&(slot >> OFFSET_BITS))?;
        let index = (place << OFFSET_BITS) | (slot % PAGE_SLOTS);
        (self.at(index).older != ABSENT).then_some(index)
    }

    /// Adds a node where there was none, in no queue. `None` only beyond 2^32 slots of pages.
    pub(super) fn add(&mut self, id: ObjectId, weight_bytes: u32, state: S) -> Option<u32> {
        let number = id.slot() >> OFFSET_BITS;
        let place = match self.directory.get(&number) {
            Some(&place) => place,
            None => self.add_page(number)?,
        };
        let index = (place << OFFSET_BITS) | (id.slot() % PAGE_SLOTS);
        let generation = id.generation();
        *self.at_mut(index) = Node { generation, newer: NIL, older: NIL, weight_bytes, state };
        self.pages[place as usize].present += 1;
        self.len += 1;
        Some(index)
    }

    /// Removes a node that is in no queue.
    pub(super) fn remove(&mut self, index: u32) -> Node<S> {
        let node = std::mem::replace(self.at_mut(index), Node::absent());
        let place = index >> OFFSET_BITS;
        let page = &mut self.pages[place as usize];
        page.present -= 1;
        self.len -= 1;
        if page.present == 0 {
            page.nodes = Box::default();
            self.directory.remove(&page.number);
            self.vacant.push(place);
        }
        node
    }

    /// The id of the node at `index`.
    pub(super) fn id(&self, index: u32) -> ObjectId {
        let page = &self.pages[(index >> OFFSET_BITS) as usize];
        let slot = (page.number << OFFSET_BITS) | (index % PAGE_SLOTS);
        ObjectId::new(slot, self.at(index).generation)
    }

    pub(super) fn at(&self, index: u32) -> &Node<S> {
        &self.pages[(index >> OFFSET_BITS) as usize].nodes[(index % PAGE_SLOTS) as usize]
    }

    pub(super) fn at_mut(&mut self, index: u32) -> &mut Node<S> {
        &mut self.pages[(index >> OFFSET_BITS) as usize].nodes[(index % PAGE_SLOTS) as usize]
    }

    /// Bytes the table takes: exact but for the directory's own overhead.
    pub(super) fn memory_bytes(&self) -> usize {
        self.directory.len() * PAGE_SLOTS as usize * size_of::<Node<S>>()
            + self.pages.capacity() * size_of::<Page<S>>()
            + self.directory.capacity() * (2 * size_of::<u32>() + 1)
            + self.vacant.capacity() * size_of::<u32>()
    }

    fn add_page(&mut self, number: u32) -> Option<u32> {
        let nodes = vec![Node::absent(); PAGE_SLOTS as usize].into_boxed_slice();
        let page = Page { number, present: 0, nodes };
        let place = match self.vacant.pop() {
            Some(place) => {
                self.pages[place as usize] = page;
                place
            }
            None => {
                // The last page is left out: its last indices would be `NIL` and `ABSENT`.
                let place = u32::try_from(self.pages.len()).ok()?;
                if place >= NIL >> OFFSET_BITS {
                    return None;
                }
                self.pages.push(page);
                place
            }
        };
        self.directory.insert(number, place);
        Some(place)
    }
}

/// A queue of nodes, from oldest to newest.
pub(super) struct Queue {
    oldest: u32,
    newest: u32,
    bytes: u64,
}

impl Default for Queue {
    fn default() -> Self {
        Self { oldest: NIL, newest: NIL, bytes: 0 }
    }
}

impl Queue {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NIL).then_some(self.oldest)
    }

    /// The one after the node at `index`, on the way from the oldest to the newest.
    pub(super) fn newer<S: Copy + Default>(&self, nodes: &Nodes<S>, index: u32) -> Option<u32> {
        let newer = nodes.at(index).newer;
        (newer != NIL).then_some(newer)
    }

    /// Puts a node that is in no queue at the new end.
    pub(super) fn push<S: Copy + Default>(&mut self, nodes: &mut Nodes<S>, index: u32) {
        let older = self.newest;
        let node = nodes.at_mut(index);
        node.newer = NIL;
        node.older = older;
        self.bytes += u64::from(node.weight_bytes);
        self.newest = index;
        if older == NIL {
            self.oldest = index;
        } else {
            nodes.at_mut(older).newer = index;
        }
    }

    /// Takes a node of this queue out of it.
    pub(super) fn unlink<S: Copy + Default>(&mut self, nodes: &mut Nodes<S>, index: u32) {
        let Node { newer, older, weight_bytes, .. } = *nodes.at(index);
        self.bytes -= u64::from(weight_bytes);
        if older == NIL {
            self.oldest = newer;
        } else {
            nodes.at_mut(older).newer = newer;
        }
        if newer == NIL {
            self.newest = older;
        } else {
            nodes.at_mut(newer).older = older;
        }
    }
}
