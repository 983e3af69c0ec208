//! What came of the transactions that clients asked for: kept by the coordinator, so that who asks again,
//! of another gateway, is told what came of the first time.
//!
//! A gateway that leads a transaction may be gone before it answers, and what it left is brought to its
//! end by others. So the coordinator keeps by which transaction an operation was committed, until its
//! client has the answer; and where it was not, whoever asks again *takes it over*: from then on
//! only he commits it, however late what was asked before arrives.
//!
//! What must hold: an operation is committed by one transaction; once somebody was told that it is not
//! committed, nobody but him commits it. All of this is in memory but what the intents on disk tell: after
//! a restart, what is in no intent is not known, and what was asked before it is not committed any more, for
//! somebody may have taken it over.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::transaction::TxId;
use crate::limits::{REPLAYS_MAX, REPLAYS_PER_CLIENT_MAX};

/// The operation of a client that a transaction carries out, by the client's own number; see
/// [`OpId`](crate::replay::OpId).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cause {
    /// The client.
    pub client: u128,
    /// Counts its operations.
    pub number: u64,
    /// The oldest operation whose answer the client does not have yet.
    pub oldest: u64,
    /// The life that the coordinator was in when it was asked first; 0 where that is not known.
    pub life: u64,
}

/// What is known of an operation that was asked before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// It was committed by this transaction.
    Committed(TxId),
    /// It is not committed, and whoever asked commits it, or nobody.
    TakenOver,
    /// Nobody knows.
    Unknown,
}

/// The outcomes that one member keeps.
#[derive(Debug)]
pub struct Outcomes {
    /// The life of the member.
    life: u64,
    clients: HashMap<u128, Client>,
    kept: usize,
    /// Counts what was asked, to know which client was quiet for longest.
    clock: u64,
    /// Clients were forgotten, so one that is not known may have been here before.
    forgot: bool,
}

#[derive(Debug)]
struct Client {
    operations: BTreeMap<u64, State>,
    oldest: u64,
    used_at: u64,
    /// Earlier outcomes may have been forgotten.
    is_partial: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Committed(TxId),
    /// Only this transaction commits it, or a later one of the same gateway.
    Of(TxId),
}

impl Outcomes {
    /// Nothing kept yet, in this life of the member.
    pub fn new(life: u64) -> Self {
        Self { life, clients: HashMap::new(), kept: 0, clock: 0, forgot: false }
    }

    /// Whether a transaction may commit an operation: one that was asked for in this life, and was neither
    /// committed nor taken over by another.
    pub fn may_commit(&self, cause: &Cause, tx: TxId) -> bool {
        if cause.life != self.life {
            return false;
        }
        let Some(client) = self.clients.get(&cause.client) else { return true };
        match client.operations.get(&cause.number) {
            Some(State::Committed(by)) => *by == tx,
            Some(State::Of(by)) => by.gateway == tx.gateway && by.number <= tx.number,
            // The client has its answer already.
            None => cause.number >= client.oldest,
        }
    }

    /// Whether this transaction has committed the operation.
    pub fn is_committed(&self, cause: &Cause, tx: TxId) -> bool {
        let client = self.clients.get(&cause.client);
        let state = client.and_then(|client| client.operations.get(&cause.number));
        state == Some(&State::Committed(tx))
    }

    /// A transaction has committed an operation.
    pub fn commit(&mut self, cause: &Cause, tx: TxId) {
        self.enter(cause, State::Committed(tx));
    }

    /// Somebody asks again for an operation, and would commit it by `tx`.
    pub fn take_over(&mut self, cause: &Cause, tx: TxId) -> Before {
        let is_same_life = cause.life == self.life;
        let forgot = self.forgot;
        let client = self.clients.get(&cause.client);
        match client.and_then(|client| client.operations.get(&cause.number)) {
            Some(State::Committed(by)) => return Before::Committed(*by),
            Some(State::Of(_)) => {}
            None => {
                let is_partial = client.map_or(forgot, |client| client.is_partial);
                let has_answer = client.is_some_and(|client| cause.number < client.oldest);
                if !is_same_life || is_partial || has_answer {
                    return Before::Unknown;
                }
            }
        }
        self.enter(cause, State::Of(tx));
        Before::TakenOver
    }

    fn enter(&mut self, cause: &Cause, state: State) {
        self.clock += 1;
        let (clock, is_partial) = (self.clock, self.forgot);
        let client = self.clients.entry(cause.client).or_insert_with(|| Client {
            operations: BTreeMap::new(),
            oldest: 0,
            used_at: clock,
            is_partial,
        });
        client.used_at = clock;
        let before = client.operations.len();
        if cause.oldest > client.oldest {
            client.oldest = cause.oldest.min(cause.number);
            client.operations = client.operations.split_off(&client.oldest);
        }
        if cause.number >= client.oldest {
            client.operations.insert(cause.number, state);
        }
        if client.operations.len() > REPLAYS_PER_CLIENT_MAX {
            client.operations.pop_first();
            client.is_partial = true;
        }
        self.kept = self.kept + client.operations.len() - before;
        self.make_room();
    }

    /// Forgets clients that were quiet for longest, where too much is kept: an eighth at once, since
    /// finding them takes a while.
    fn make_room(&mut self) {
        let mut taken = self.kept + self.clients.len();
        if taken <= REPLAYS_MAX {
            return;
        }
        let mut quiet: Vec<_> =
            self.clients.iter().map(|(&id, client)| (client.used_at, id)).collect();
        quiet.sort_unstable();
        for (_, id) in quiet {
            if taken <= REPLAYS_MAX / 8 * 7 {
                return;
            }
            if let Some(client) = self.clients.remove(&id) {
                self.kept -= client.operations.len();
                taken -= client.operations.len() + 1;
                self.forgot = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TxId = TxId { gateway: 1, number: 5 };
    const B: TxId = TxId { gateway: 2, number: 5 };

    const LIFE: u64 = 3;

    fn cause(number: u64) -> Cause {
        Cause { client: 9, number, oldest: 1, life: LIFE }
    }

    fn of_another_life(cause: Cause) -> Cause {
        Cause { life: LIFE - 1, ..cause }
    }

    fn later(tx: TxId) -> TxId {
        TxId { number: tx.number + 1, ..tx }
    }

    #[test]
    fn what_was_committed_is_told_to_whoever_asks_again() {
        let mut outcomes = Outcomes::new(LIFE);
        assert!(outcomes.may_commit(&cause(1), A));
        outcomes.commit(&cause(1), A);
        assert!(outcomes.is_committed(&cause(1), A) && !outcomes.is_committed(&cause(1), B));
        for cause in [cause(1), of_another_life(cause(1))] {
            assert_eq!(outcomes.take_over(&cause, B), Before::Committed(A));
        }
        assert!(!outcomes.may_commit(&cause(1), B), "once");
    }

    #[test]
    fn what_was_taken_over_is_committed_by_nobody_else() {
        let mut outcomes = Outcomes::new(LIFE);
        assert_eq!(outcomes.take_over(&cause(1), B), Before::TakenOver);
        assert!(!outcomes.may_commit(&cause(1), A), "it comes late");
        assert!(outcomes.may_commit(&cause(1), B));
        assert!(outcomes.may_commit(&cause(1), later(B)), "it began anew");
        // Somebody else asks again, and then again the first.
        assert_eq!(outcomes.take_over(&cause(1), A), Before::TakenOver);
        assert!(!outcomes.may_commit(&cause(1), later(B)));
        outcomes.commit(&cause(1), A);
        assert_eq!(outcomes.take_over(&cause(1), B), Before::Committed(A));
    }

    #[test]
    fn what_a_restart_forgot_is_not_known() {
        let mut outcomes = Outcomes::new(LIFE);
        let earlier = of_another_life(cause(1));
        assert_eq!(outcomes.take_over(&earlier, B), Before::Unknown);
        assert!(!outcomes.may_commit(&earlier, A), "somebody may have taken it over");
        assert!(outcomes.may_commit(&cause(1), A));
    }

    #[test]
    fn what_a_client_has_the_answer_to_is_let_go_of_and_committed_by_nobody() {
        let mut outcomes = Outcomes::new(LIFE);
        assert_eq!(outcomes.take_over(&cause(1), B), Before::TakenOver);
        outcomes.commit(&Cause { oldest: 2, ..cause(2) }, B);
        assert_eq!(outcomes.kept, 1);
        assert!(!outcomes.may_commit(&cause(1), A), "it comes very late");
        assert_eq!(outcomes.take_over(&cause(1), A), Before::Unknown);
    }

    #[test]
    fn outcomes_are_bounded_and_what_was_forgotten_is_not_known() {
        let mut outcomes = Outcomes::new(LIFE);
        for client in 0..REPLAYS_MAX as u128 {
            outcomes.commit(&Cause { client, ..cause(1) }, A);
        }
        assert!(outcomes.kept + outcomes.clients.len() <= REPLAYS_MAX);
        let first = Cause { client: 0, ..cause(1) };
        assert_eq!(outcomes.take_over(&first, B), Before::Unknown);
        for number in 1..=REPLAYS_PER_CLIENT_MAX as u64 + 1 {
            outcomes.commit(&cause(number), A);
        }
        assert_eq!(outcomes.take_over(&cause(1), B), Before::Unknown);
        assert_eq!(outcomes.take_over(&cause(2), B), Before::Committed(A));
    }
}
