//! The objects in a replayed cache: which there are, under which ids, and what they weigh.
//!
//! Slots are used densely and again, with another generation each time, as a gateway does. What must
//! hold: an object has a slot exactly while it is resident; `used_bytes` is the sum of the weights.

use portcullis_core::eviction::ObjectId;

/// No slot: the object is not resident.
const NIL: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Resident {
    /// Its number in the trace.
    pub(crate) object: u32,
    pub(crate) generation: u32,
    pub(crate) weight_bytes: u32,
    live: bool,
}

/// The residents.
#[derive(Debug)]
pub(crate) struct Residents {
    slots: Vec<Resident>,
    free: Vec<u32>,
    /// The slot of each object of the trace.
    slot_of: Vec<u32>,
    used_bytes: u64,
    /// Where the host's own choice goes on.
    hand: usize,
}

impl Residents {
    /// None of so many objects is resident.
    pub(crate) fn new(objects: usize) -> Self {
        let slot_of = vec![NIL; objects];
        Self { slots: Vec::new(), free: Vec::new(), slot_of, used_bytes: 0, hand: 0 }
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The slot of an object, if it is resident.
    #[inline]
    pub(crate) fn slot(&self, object: u32) -> Option<u32> {
        let slot = self.slot_of[object as usize];
        (slot != NIL).then_some(slot)
    }

    /// The id of what is in `slot`.
    #[inline]
    pub(crate) fn id(&self, slot: u32) -> ObjectId {
        ObjectId::new(slot, self.slots[slot as usize].generation)
    }

    /// Whether `id` is that of a resident.
    pub(crate) fn is_live(&self, id: ObjectId) -> bool {
        let resident = self.slots.get(id.slot() as usize);
        resident.is_some_and(|resident| resident.live && resident.generation == id.generation())
    }

    /// Takes an object in that is not resident.
    pub(crate) fn insert(&mut self, object: u32, weight_bytes: u32) -> ObjectId {
        let mut resident = Resident { object, generation: 1, weight_bytes, live: true };
        let slot = match self.free.pop() {
            Some(slot) => {
                // A trace has fewer requests than there are generations.
                resident.generation = self.slots[slot as usize].generation + 1;
                self.slots[slot as usize] = resident;
                slot
            }
            None => {
                self.slots.push(resident);
                (self.slots.len() - 1) as u32
            }
        };
        self.slot_of[object as usize] = slot;
        self.used_bytes += u64::from(weight_bytes);
        ObjectId::new(slot, resident.generation)
    }

    /// Puts a resident out.
    pub(crate) fn remove(&mut self, id: ObjectId) {
        let resident = &mut self.slots[id.slot() as usize];
        resident.live = false;
        self.slot_of[resident.object as usize] = NIL;
        self.used_bytes -= u64::from(resident.weight_bytes);
        self.free.push(id.slot());
    }

    /// The next resident for which `spares` says no, from where the last search ended: the host's own
    /// choice. `None` where there is none left after two rounds.
    pub(crate) fn sweep(&mut self, mut spares: impl FnMut(u32) -> bool) -> Option<ObjectId> {
        for _ in 0..2 * self.slots.len() {
            let slot = self.hand % self.slots.len();
            self.hand = slot + 1;
            if self.slots[slot].live && !spares(slot as u32) {
                return Some(self.id(slot as u32));
            }
        }
        None
    }
}
