//! Numbers for what the gateway itself has changed, so that it too is applied once however often it
//! is sent.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use portcullis_core::replay::OpId;

/// Counts the gateway's own operations.
#[derive(Debug)]
pub(crate) struct OwnOps {
    client: u128,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    last: u64,
    under_way: BTreeSet<u64>,
}

/// One of them, under way until it is dropped.
#[derive(Debug)]
pub(crate) struct OwnOp {
    ops: Arc<OwnOps>,
    number: u64,
}

impl OwnOps {
    /// Of the gateway that bricks know by this id.
    pub(crate) fn new(client: u128) -> Arc<Self> {
        Arc::new(Self { client, table: Mutex::default() })
    }

    /// The id.
    pub(crate) fn client(&self) -> u128 {
        self.client
    }

    /// Begins one.
    pub(crate) fn begin(self: &Arc<Self>) -> OwnOp {
        let mut table = self.table.lock();
        table.last += 1;
        let number = table.last;
        table.under_way.insert(number);
        OwnOp { ops: self.clone(), number }
    }
}

impl OwnOp {
    /// How it is named to a brick, before anything of it was sent.
    pub(crate) fn id(&self) -> OpId {
        let table = self.ops.table.lock();
        let oldest = table.under_way.first().copied().unwrap_or(self.number);
        OpId { client: self.ops.client, number: self.number, oldest, life: 0, retry: false }
    }
}

impl Drop for OwnOp {
    fn drop(&mut self) {
        self.ops.table.lock().under_way.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_the_oldest_under_way() {
        let ops = OwnOps::new(7);
        let (first, second) = (ops.begin(), ops.begin());
        assert_eq!((first.id().number, second.id().number, second.id().oldest), (1, 2, 1));
        drop(first);
        assert_eq!(second.id().oldest, 2);
        drop(second);
        let third = ops.begin();
        assert_eq!((third.id().number, third.id().oldest, third.id().client), (3, 3, 7));
    }
}
