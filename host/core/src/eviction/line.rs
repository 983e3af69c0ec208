//! Residents in one line, from oldest to newest: what LRU and FIFO have in common.
//!
//! What must hold: a resident is in the line, or proposed and in none.

use super::ObjectId;
use super::nodes::{Nodes, Queue};

/// The line.
#[derive(Default)]
pub(super) struct Line {
    nodes: Nodes<Mark>,
    queue: Queue,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    proposed: bool,
}

impl Line {
    /// Residents, proposed ones too.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// A new resident, at the new end.
    pub(super) fn insert(&mut self, id: ObjectId, weight_bytes: u32) {
        // The slot may still hold an object whose removal was never told.
        if let Some(index) = self.nodes.find_slot(id.slot()) {
            self.detach(index);
        }
        if let Some(index) = self.nodes.add(id, weight_bytes, Mark::default()) {
            self.queue.push(&mut self.nodes, index);
        }
    }

    /// Moves a resident to the new end, unless it is proposed: then its host will spare it.
    pub(super) fn renew(&mut self, id: ObjectId) {
        let Some(index) = self.nodes.find(id) else { return };
        if !self.nodes.at(index).state.proposed {
            self.queue.unlink(&mut self.nodes, index);
            self.queue.push(&mut self.nodes, index);
        }
    }

    /// Takes a proposed one back, at the new end.
    pub(super) fn spare(&mut self, id: ObjectId) {
        let Some(index) = self.nodes.find(id) else { return };
        if std::mem::take(&mut self.nodes.at_mut(index).state.proposed) {
            self.queue.push(&mut self.nodes, index);
        }
    }

    /// Forgets a resident.
    pub(super) fn remove(&mut self, id: ObjectId) {
        if let Some(index) = self.nodes.find(id) {
            self.detach(index);
        }
    }

    /// Proposes up to `want` from the old end.
    pub(super) fn propose(&mut self, want: usize) -> Vec<ObjectId> {
        let mut victims = Vec::with_capacity(want.min(self.nodes.len()));
        while victims.len() < want {
            let Some(index) = self.queue.oldest() else { break };
            self.queue.unlink(&mut self.nodes, index);
            self.nodes.at_mut(index).state.proposed = true;
            victims.push(self.nodes.id(index));
        }
        victims
    }

    fn detach(&mut self, index: u32) {
        if !self.nodes.at(index).state.proposed {
            self.queue.unlink(&mut self.nodes, index);
        }
        self.nodes.remove(index);
    }
}
