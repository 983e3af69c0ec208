//! An operation that is asked again is applied once.
//!
//! A client numbers its operations, and whoever applies them keeps each answer until the client
//! says that it has it: with every operation the client names the oldest one that it still waits
//! for. A repetition gets the kept answer, or waits for the one that is being made.
//!
//! Answers do not outlive whoever keeps them. So an operation says in which *life* of the brick it
//! was first asked: where a repetition meets another life, or a client whose answers had to be
//! forgotten, nobody knows whether it was applied, and [`Admission::Unknown`] says so, unless
//! applying it twice does no harm.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::limits::{REPLAYS_MAX, REPLAYS_PER_CLIENT_MAX};

/// Names an operation, whatever way it takes and however often it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OpId {
    /// The client: a random number that it drew when it started.
    pub client: u128,
    /// Counts the client's operations.
    pub number: u64,
    /// The oldest operation whose answer the client does not have yet, at most `number`.
    pub oldest: u64,
    /// The life of the brick that the client knew when it first sent this.
    pub life: u64,
    /// Whether it was sent before, and may have been applied.
    pub retry: bool,
}

/// What is to be done with an operation that has arrived.
#[derive(Debug, PartialEq, Eq)]
pub enum Admission<R> {
    /// Apply it, then call [`Replays::finish`] whatever comes of it.
    Apply,
    /// It was applied; this was the answer.
    Replay(R),
    /// It is being applied; the waiter is handed back by [`Replays::finish`].
    Joined,
    /// Whether it was applied is not known.
    Unknown,
    /// The client has its answer, or names operations that contradict each other.
    Answered,
    /// The client has too many operations without an answer.
    Busy,
}

/// The answers kept. `R` is an answer, `W` whoever waits for one.
#[derive(Debug)]
pub struct Replays<R, W> {
    life: u64,
    clients: HashMap<u128, Client<R, W>>,
    kept: usize,
    /// Counts operations, to know which client was quiet for longest.
    clock: u64,
    /// Clients were forgotten, so one that is not known may have been here before.
    forgot: bool,
}

#[derive(Debug)]
struct Client<R, W> {
    operations: BTreeMap<u64, State<R, W>>,
    oldest: u64,
    used_at: u64,
    /// Earlier answers of this client may have been forgotten.
    partial: bool,
}

#[derive(Debug)]
enum State<R, W> {
    UnderWay(Vec<W>),
    Done(R),
}

impl<R: Clone, W> Replays<R, W> {
    /// Nothing kept yet, in this life of the brick.
    pub fn new(life: u64) -> Self {
        Self { life, clients: HashMap::new(), kept: 0, clock: 0, forgot: false }
    }

    /// The life of the brick.
    pub fn life(&self) -> u64 {
        self.life
    }

    /// An operation arrives. `harmless`: applying it twice leaves what applying it once does.
    pub fn begin(&mut self, op: &OpId, harmless: bool, waiter: impl FnOnce() -> W) -> Admission<R> {
        self.clock += 1;
        let (clock, forgot) = (self.clock, self.forgot);
        let client = self.clients.entry(op.client).or_insert_with(|| Client {
            operations: BTreeMap::new(),
            oldest: 0,
            used_at: clock,
            partial: forgot,
        });
        client.used_at = clock;
        if op.oldest > op.number || op.number < client.oldest {
            return Admission::Answered;
        }
        self.kept -= client.acknowledge(op.oldest);
        match client.operations.get_mut(&op.number) {
            Some(State::Done(reply)) => return Admission::Replay(reply.clone()),
            Some(State::UnderWay(waiters)) => {
                waiters.push(waiter());
                return Admission::Joined;
            }
            None => {}
        }
        let admission = if op.retry && !harmless && (op.life != self.life || client.partial) {
            Admission::Unknown
        } else if client.operations.len() >= REPLAYS_PER_CLIENT_MAX {
            Admission::Busy
        } else {
            client.operations.insert(op.number, State::UnderWay(Vec::new()));
            self.kept += 1;
            Admission::Apply
        };
        self.make_room();
        admission
    }

    /// An operation was applied, or failed. Hands back those who wait for the same answer.
    pub fn finish(&mut self, op: &OpId, reply: R) -> Vec<W> {
        let Some(client) = self.clients.get_mut(&op.client) else { return Vec::new() };
        let has_answer = op.number < client.oldest;
        let Some(state) = client.operations.get_mut(&op.number) else { return Vec::new() };
        let waiters = match std::mem::replace(state, State::Done(reply)) {
            State::UnderWay(waiters) => waiters,
            State::Done(_) => Vec::new(),
        };
        if has_answer {
            client.operations.remove(&op.number);
            self.kept -= 1;
        }
        waiters
    }

    /// An operation was given up before anything was applied: asked again, it is new.
    pub fn abandon(&mut self, op: &OpId) -> Vec<W> {
        let Some(client) = self.clients.get_mut(&op.client) else { return Vec::new() };
        match client.operations.remove(&op.number) {
            Some(State::UnderWay(waiters)) => {
                self.kept -= 1;
                waiters
            }
            Some(done) => {
                client.operations.insert(op.number, done);
                Vec::new()
            }
            None => Vec::new(),
        }
    }

    /// How many operations are kept.
    pub fn kept(&self) -> usize {
        self.kept
    }

    /// Forgets clients that were quiet for longest and have nothing under way, where there are too
    /// many answers and clients: an eighth of them at once, since finding them takes a while.
    fn make_room(&mut self) {
        let mut taken = self.kept + self.clients.len();
        if taken <= REPLAYS_MAX {
            return;
        }
        let idle = self.clients.iter().filter(|(_, client)| client.is_idle());
        let mut quiet: Vec<_> = idle.map(|(&id, client)| (client.used_at, id)).collect();
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

impl<R, W> Client<R, W> {
    /// Lets go of the answers before `oldest`; answers how many.
    fn acknowledge(&mut self, oldest: u64) -> usize {
        if oldest <= self.oldest {
            return 0;
        }
        self.oldest = oldest;
        let before = self.operations.len();
        // What is still under way is kept: somebody waits for it.
        self.operations
            .retain(|&number, state| number >= oldest || matches!(state, State::UnderWay(_)));
        before - self.operations.len()
    }

    fn is_idle(&self) -> bool {
        self.operations.values().all(|state| matches!(state, State::Done(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: u64 = 5;

    fn op(client: u128, number: u64, oldest: u64) -> OpId {
        OpId { client, number, oldest, life: LIFE, retry: false }
    }

    fn retry(op: OpId) -> OpId {
        OpId { retry: true, ..op }
    }

    fn begin(replays: &mut Replays<u64, u8>, op: &OpId) -> Admission<u64> {
        replays.begin(op, false, || 1)
    }

    #[test]
    fn a_repetition_gets_the_answer_of_the_first() {
        let mut replays = Replays::new(LIFE);
        let first = op(1, 1, 1);
        assert_eq!(begin(&mut replays, &first), Admission::Apply);
        assert_eq!(begin(&mut replays, &retry(first)), Admission::Joined);
        assert_eq!(replays.finish(&first, 42), [1]);
        assert_eq!(begin(&mut replays, &retry(first)), Admission::Replay(42));
        assert_eq!(begin(&mut replays, &op(2, 1, 1)), Admission::Apply, "another client");
    }

    #[test]
    fn an_answer_is_let_go_when_the_client_has_it() {
        let mut replays = Replays::new(LIFE);
        for number in 1..=3 {
            let op = op(1, number, 1);
            assert_eq!(begin(&mut replays, &op), Admission::Apply);
            replays.finish(&op, number);
        }
        assert_eq!(replays.kept(), 3);
        assert_eq!(begin(&mut replays, &op(1, 4, 3)), Admission::Apply);
        assert_eq!(replays.kept(), 2);
        assert_eq!(begin(&mut replays, &retry(op(1, 2, 1))), Admission::Answered, "long underway");
        assert_eq!(begin(&mut replays, &retry(op(1, 3, 1))), Admission::Replay(3));
        assert_eq!(begin(&mut replays, &op(1, 5, 6)), Admission::Answered, "a contradiction");
    }

    #[test]
    fn what_is_still_under_way_is_let_go_when_it_ends() {
        let mut replays = Replays::new(LIFE);
        assert_eq!(begin(&mut replays, &op(1, 1, 1)), Admission::Apply);
        assert_eq!(begin(&mut replays, &retry(op(1, 1, 1))), Admission::Joined);
        assert_eq!(begin(&mut replays, &op(1, 2, 2)), Admission::Apply, "it gave the first one up");
        assert_eq!(replays.kept(), 2);
        assert_eq!(replays.finish(&op(1, 1, 1), 42), [1]);
        assert_eq!(replays.kept(), 1);
        assert_eq!(begin(&mut replays, &retry(op(1, 1, 1))), Admission::Answered);
    }

    #[test]
    fn clients_that_never_apply_anything_are_bounded_too() {
        let mut replays = Replays::<u64, u8>::new(LIFE);
        for client in 0..2 * REPLAYS_MAX as u128 {
            let of_another_life = OpId { life: LIFE - 1, ..retry(op(client, 1, 1)) };
            assert_eq!(begin(&mut replays, &of_another_life), Admission::Unknown);
        }
        assert!(replays.clients.len() <= REPLAYS_MAX);
    }

    #[test]
    fn in_another_life_only_what_does_no_harm_is_applied_again() {
        let mut replays = Replays::<u64, u8>::new(LIFE + 1);
        assert_eq!(begin(&mut replays, &retry(op(1, 1, 1))), Admission::Unknown);
        assert_eq!(replays.begin(&retry(op(1, 1, 1)), true, || 1), Admission::Apply);
        assert_eq!(begin(&mut replays, &op(1, 2, 1)), Admission::Apply, "sent for the first time");
    }

    #[test]
    fn what_was_never_applied_may_be_asked_again() {
        let mut replays = Replays::<u64, u8>::new(LIFE);
        assert_eq!(begin(&mut replays, &op(1, 1, 1)), Admission::Apply);
        assert!(replays.abandon(&op(1, 1, 1)).is_empty());
        assert_eq!(begin(&mut replays, &retry(op(1, 1, 1))), Admission::Apply);
        assert_eq!(replays.kept(), 1);
    }

    #[test]
    fn answers_are_bounded_and_whom_they_were_forgotten_of_is_told() {
        let mut replays = Replays::new(LIFE);
        let per_client = REPLAYS_PER_CLIENT_MAX as u64;
        let clients = (REPLAYS_MAX / REPLAYS_PER_CLIENT_MAX) as u128;
        for client in 0..clients {
            for number in 1..=per_client {
                let op = op(client, number, 1);
                assert_eq!(begin(&mut replays, &op), Admission::Apply);
                replays.finish(&op, number);
            }
        }
        let last = clients - 1;
        assert_eq!(begin(&mut replays, &op(last, per_client + 1, 1)), Admission::Busy);
        assert_eq!(begin(&mut replays, &op(clients, 1, 1)), Admission::Apply);
        assert!(replays.kept() <= REPLAYS_MAX);
        assert_eq!(begin(&mut replays, &retry(op(0, 7, 1))), Admission::Unknown, "the quiet one");
        assert_eq!(begin(&mut replays, &retry(op(last, 7, 1))), Admission::Replay(7));
    }
}
