//! Permissions to make a copy of a directory: given before the home is asked, and no longer good once
//! the directory is sealed or its attributes change here. So no copy comes to be of a directory that
//! was removed meanwhile, nor one with attributes that were meanwhile replaced.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};
use portcullis_core::volume::DirId;

/// Tickets at once; those who have one of before then ask again.
const TICKETS_MAX: usize = 16 * 1024;

/// The tickets of one member.
#[derive(Default)]
pub(crate) struct Tickets(Mutex<Table>);

/// The tickets, which nobody else gives, takes or uses meanwhile.
pub(crate) type Turn<'a> = MutexGuard<'a, Table>;

#[derive(Default)]
pub(crate) struct Table {
    good: HashMap<DirId, u64>,
    last: u64,
}

impl Tickets {
    /// Waits until nobody else is at them.
    pub(crate) fn turn(&self) -> Turn<'_> {
        self.0.lock()
    }
}

impl Table {
    /// Gives one; those given before are good as well.
    pub(crate) fn give(&mut self, id: &DirId) -> u64 {
        if let Some(&good) = self.good.get(id) {
            return good;
        }
        if self.good.len() >= TICKETS_MAX {
            self.good.clear();
        }
        self.last += 1;
        self.good.insert(*id, self.last);
        self.last
    }

    /// Whether one is good.
    pub(crate) fn is_good(&self, id: &DirId, ticket: u64) -> bool {
        self.good.get(id) == Some(&ticket)
    }

    /// None is good any more.
    pub(crate) fn end(&mut self, id: &DirId) {
        self.good.remove(id);
    }
}
