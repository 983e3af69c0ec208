//! The numbers by which a brick knows this client's operations, so that one that is asked again is
//! applied once ([`portcullis_core::replay`]).

use std::collections::BTreeSet;

use parking_lot::Mutex;
use portcullis_core::replay::OpId;

/// The operations of one client.
#[derive(Debug)]
pub(crate) struct Operations {
    client: u128,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    /// Those whose answer is not there yet.
    unanswered: BTreeSet<u64>,
}

/// One operation. Dropping it says that its answer is there, or not waited for any longer.
#[derive(Debug)]
pub(crate) struct Operation<'a> {
    operations: &'a Operations,
    number: u64,
}

impl Operations {
    pub(crate) fn new(client: u128) -> Self {
        Self { client, state: Mutex::default() }
    }

    /// The random number that names this client.
    pub(crate) fn client(&self) -> u128 {
        self.client
    }

    /// Begins an operation.
    pub(crate) fn begin(&self) -> Operation<'_> {
        let mut state = self.state.lock();
        state.last += 1;
        let number = state.last;
        state.unanswered.insert(number);
        Operation { operations: self, number }
    }
}

impl Operation<'_> {
    /// How to name it now. `life` is the brick's as it was known when this was sent first.
    pub(crate) fn id(&self, life: u64, retry: bool) -> OpId {
        let oldest = self.operations.state.lock().unanswered.first().copied();
        OpId {
            client: self.operations.client,
            number: self.number,
            oldest: oldest.unwrap_or(self.number),
            life,
            retry,
        }
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        self.operations.state.lock().unanswered.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_the_oldest_without_an_answer() {
        let operations = Operations::new(7);
        let first = operations.begin();
        let second = operations.begin();
        assert_eq!((first.id(3, false).number, second.id(3, false).number), (1, 2));
        assert_eq!(
            second.id(3, true),
            OpId { client: 7, number: 2, oldest: 1, life: 3, retry: true }
        );
        drop(first);
        assert_eq!(second.id(3, false).oldest, 2);
        drop(second);
        assert_eq!(operations.begin().id(3, false).oldest, 3);
    }
}
