//! Members, gateways, requests on their way, and what can go wrong, all by one seed.
//!
//! Requests and answers arrive in any order. A session may end at any moment: answers on its way
//! may be lost, and requests of it may still be done, later, though whoever asked believes
//! otherwise. A gateway that dies is followed by another that knows nothing. A member restarts with
//! what it has on disk.
//!
//! The tree follows what members do at the moment they do it; an operation that is done though the
//! tree does not allow it, or that was reported as failed, is a violation.

use std::collections::BTreeMap;

use portcullis_core::replay::OpId;
use portcullis_core::volume::{Ask, Asked, Cause, MemberId, Operation, Place, Told, TxId};
use portcullis_core::{Handle, Status};

use crate::member::{Answer, Applied, Member, Request, Session};
use crate::plant::Plant;
use crate::run::{Batch, Op, Run, Then};
use crate::tree::Tree;

pub(crate) type RunId = usize;
/// An operation that a client asked for, however often and of whomever.
pub(crate) type OutcomeId = usize;

/// A gateway in one of its lives.
pub(crate) struct Gateway {
    pub(crate) id: u128,
    sessions: Vec<Session>,
}

/// A request on its way, or its answer.
pub(crate) struct Flight {
    /// The operation that it belongs to, whoever waits for the answer.
    outcome: Option<OutcomeId>,
    /// The client's own number, where it is an operation by itself.
    op: Option<OpId>,
    /// The member is at it: who asks for the same waits for that.
    is_admitted: bool,
    /// Who waits: the batch of the run, and the place in it.
    waiter: Option<(RunId, u64, usize)>,
    pub(crate) member: MemberId,
    session: Session,
    pub(crate) request: Request,
    at: At,
}

#[derive(Debug)]
enum At {
    Request,
    /// It waits at the member since its state was this.
    Waiting(u64),
    Reply(Told),
}

/// How an operation went.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) op: Op,
    pub(crate) result: Option<Result<(), Status>>,
    pub(crate) is_applied: bool,
    /// The lives that the members had when it was asked first.
    lives: Vec<u64>,
    /// The run that its client waits for.
    run: RunId,
}

struct Under {
    outcome: OutcomeId,
    is_again: bool,
    run: Run,
    gateway: u128,
    batch: u64,
    told: Vec<Option<Told>>,
}

pub(crate) struct World {
    pub(crate) rng: fastrand::Rng,
    /// Which operations it is mostly asked, and for how many names in a directory.
    pub(crate) mix: usize,
    pub(crate) names: usize,
    pub(crate) members: Vec<Member>,
    pub(crate) tree: Tree,
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) gateways: Vec<Gateway>,
    /// Everything that happened, for people, where it is to be kept.
    pub(crate) is_traced: bool,
    pub(crate) trace: Vec<String>,
    flights: Vec<Flight>,
    runs: BTreeMap<RunId, Under>,
    /// Counts what changes at each member.
    states: Vec<u64>,
    last_session: Session,
    last_number: u64,
    /// Sessions of gateways that are gone, not noticed yet.
    lapsing: Vec<(MemberId, Session)>,
    last_run: RunId,
    batches: u64,
    last_batches: usize,
}

impl World {
    pub(crate) fn new(seed: u64, members: u8, root: Handle, plant: Option<Plant>) -> Self {
        let mut world = Self {
            rng: fastrand::Rng::with_seed(seed),
            mix: 0,
            names: 1,
            members: (0..members).map(|id| Member::new(id, &root, plant)).collect(),
            tree: Tree::new(&root),
            outcomes: Vec::new(),
            gateways: Vec::new(),
            is_traced: std::env::var_os("PORTCULLIS_SEED").is_some(),
            trace: Vec::new(),
            flights: Vec::new(),
            runs: BTreeMap::new(),
            states: vec![0; members.into()],
            last_session: 0,
            last_number: 0,
            lapsing: Vec::new(),
            last_run: 0,
            batches: 0,
            last_batches: 0,
        };
        world.new_gateway();
        world
    }

    pub(crate) fn new_gateway(&mut self) {
        let sessions = (0..self.members.len()).map(|member| self.attach(member)).collect();
        let id = self.rng.u128(..);
        self.gateways.push(Gateway { id, sessions });
    }

    fn attach(&mut self, member: usize) -> Session {
        self.last_session += 1;
        self.members[member].sessions.insert(self.last_session);
        self.last_session
    }

    pub(crate) fn tx(&mut self, gateway: usize) -> TxId {
        self.last_number += 1;
        TxId { gateway: self.gateways[gateway].id, number: self.last_number }
    }

    pub(crate) fn begin(&mut self, gateway: usize, op: Op) -> OutcomeId {
        let id = self.outcomes.len();
        if self.is_traced {
            self.trace.push(format!("{id} by {gateway}: {op:?}"));
        }
        let lives = self.members.iter().map(|member| member.life).collect();
        let (op, result, is_applied) = (op.clone(), None, false);
        self.outcomes.push(Outcome { op: op.clone(), result, is_applied, lives, run: 0 });
        self.lead(gateway, id, op, false);
        id
    }

    /// A client that has no answer asks again, of this gateway.
    pub(crate) fn begin_again(&mut self, gateway: usize, id: OutcomeId) {
        let tx = self.tx(gateway);
        let mut op = self.outcomes[id].op.clone();
        match &mut op {
            Op::Volume(Operation::Unlink { tx: of, .. } | Operation::Rmdir { tx: of, .. }) => {
                *of = tx
            }
            Op::Volume(
                Operation::Link { tx: of, link, .. } | Operation::Rename { tx: of, link, .. },
            ) => (*of, *link) = (tx, self.rng.u128(..)),
            _ => {}
        }
        if self.is_traced {
            self.trace.push(format!("{id} again by {gateway}: {op:?}"));
        }
        self.lead(gateway, id, op, true);
    }

    /// Operations whose clients wait and may ask again: of gateways that are gone, or of any.
    pub(crate) fn waiting(&self, is_any: bool) -> Vec<OutcomeId> {
        let is_asked = |op: &Op| match op {
            Op::Create(_) => true,
            Op::Chmod { .. } => false,
            Op::Volume(operation) => !matches!(
                operation,
                Operation::Redo { .. } | Operation::EnsureCopy { .. } | Operation::Complete { .. }
            ),
        };
        let may = |(_, outcome): &(OutcomeId, &Outcome)| {
            let is_led = self.runs.contains_key(&outcome.run);
            outcome.result.is_none() && is_asked(&outcome.op) && (is_any || !is_led)
        };
        self.outcomes.iter().enumerate().filter(may).map(|(id, _)| id).collect()
    }

    fn lead(&mut self, gateway: usize, outcome: OutcomeId, op: Op, is_again: bool) {
        self.last_batches = 0;
        self.last_run += 1;
        let (id, gateway) = (self.last_run, self.gateways[gateway].id);
        self.outcomes[outcome].run = id;
        let coordinator = match &op {
            Op::Volume(operation) => operation.coordinator(),
            _ => None,
        };
        let life = coordinator.map(|at| self.outcomes[outcome].lives[usize::from(at)]);
        let life = life.unwrap_or(0);
        let cause = Cause { client: outcome as u128, number: 1, oldest: 1, life };
        let (run, then) = Run::begin(op, Asked { cause, is_again });
        let under = Under { outcome, is_again, run, gateway, batch: 0, told: Vec::new() };
        self.runs.insert(id, under);
        self.go_on(id, then);
    }

    fn go_on(&mut self, id: RunId, then: Then) {
        let (gateway, outcome) = (self.runs[&id].gateway, self.runs[&id].outcome);
        match then {
            Then::Ask(batch) if batch.is_empty() => {
                let then = self.runs.get_mut(&id).expect("it runs").run.told(Vec::new());
                self.go_on(id, then);
            }
            Then::Ask(batch) => {
                self.batches += 1;
                self.last_batches += 1;
                let under = self.runs.get_mut(&id).expect("it runs");
                (under.batch, under.told) = (self.batches, vec![None; batch.len()]);
                let (waiter, is_again) = ((id, under.batch), under.is_again);
                self.send(gateway, (outcome, is_again), Some(waiter), batch);
            }
            Then::End { result, after } => {
                if self.is_traced {
                    self.trace.push(format!("{outcome} ends: {result:?}"));
                }
                self.runs.remove(&id);
                // Nobody waits for one whose client has asked somebody else since.
                if self.outcomes[outcome].run == id {
                    self.end(outcome, result);
                }
                self.send(gateway, (outcome, false), None, after);
            }
        }
    }

    fn end(&mut self, id: OutcomeId, result: Result<(), Status>) {
        let outcome = &mut self.outcomes[id];
        outcome.result = Some(result);
        let may_do_nothing = matches!(
            outcome.op,
            Op::Volume(
                Operation::Rename { .. } | Operation::Redo { .. } | Operation::EnsureCopy { .. }
            )
        );
        match result {
            Ok(()) => assert!(outcome.is_applied || may_do_nothing, "{id} is done and was not"),
            Err(Status::InDoubt) => {}
            Err(status) => {
                let trace = self.trace.join("\n");
                assert!(!outcome.is_applied, "{id} failed with {status} and was done\n{trace}");
            }
        }
    }

    fn send(
        &mut self,
        gateway: u128,
        (outcome, is_again): (OutcomeId, bool),
        waiter: Option<(RunId, u64)>,
        batch: Batch,
    ) {
        let sessions = self.gateways.iter().find(|other| other.id == gateway);
        let sessions = sessions.map(|gateway| gateway.sessions.clone());
        for (slot, (member, request)) in batch.into_iter().enumerate() {
            let session = sessions.as_ref().map_or(0, |sessions| sessions[usize::from(member)]);
            let waiter = waiter.map(|(run, batch)| (run, batch, slot));
            let op = is_whole(&request).then(|| OpId {
                client: outcome as u128,
                number: 1,
                oldest: 1,
                life: self.outcomes[outcome].lives[usize::from(member)],
                retry: is_again,
            });
            let (outcome, is_admitted, at) = (Some(outcome), false, At::Request);
            self.flights.push(Flight {
                outcome,
                op,
                is_admitted,
                waiter,
                member,
                session,
                request,
                at,
            });
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.flights.is_empty() && self.runs.is_empty()
    }

    /// How many batches of requests the last operation took, whose end it waited for.
    pub(crate) fn batches_of_last(&self) -> usize {
        self.last_batches
    }

    pub(crate) fn under_way(&self) -> usize {
        self.runs.len()
    }

    /// Lets one request or answer arrive; `false` where nothing can.
    pub(crate) fn deliver(&mut self) -> bool {
        let can = |flight: &Flight| match flight.at {
            At::Waiting(state) => self.states[usize::from(flight.member)] != state,
            _ => true,
        };
        let able: Vec<usize> =
            (0..self.flights.len()).filter(|&index| can(&self.flights[index])).collect();
        let Some(&index) = self.rng.choice(&able) else { return false };
        self.arrive(index);
        true
    }

    fn arrive(&mut self, index: usize) {
        let flight = &mut self.flights[index];
        let member = usize::from(flight.member);
        if let At::Reply(told) = &flight.at {
            let (told, waiter) = (told.clone(), flight.waiter);
            self.flights.swap_remove(index);
            self.hand_over(waiter, told);
            return;
        }
        if !self.members[member].is_up {
            flight.at = At::Reply(Told::Lost);
            return;
        }
        if let Some(op) = flight.op.filter(|_| !flight.is_admitted) {
            match self.members[member].admit(&op) {
                None => flight.is_admitted = true,
                Some(Answer::Told(told, _)) => return flight.at = At::Reply(told),
                Some(Answer::Wait) => return flight.at = At::Waiting(self.states[member]),
            }
        }
        let op = flight.op.as_ref();
        match self.members[member].answer(&flight.request, flight.session, op) {
            Answer::Wait => flight.at = At::Waiting(self.states[member]),
            Answer::Told(told, applied) => {
                if self.is_traced {
                    self.trace.push(format!("  {member} {:?} -> {told:?}", flight.request));
                }
                flight.at = At::Reply(told);
                let outcome = flight.outcome;
                self.states[member] += 1;
                self.apply(outcome, applied);
            }
        }
    }

    fn hand_over(&mut self, waiter: Option<(RunId, u64, usize)>, told: Told) {
        let Some((id, batch, slot)) = waiter else { return };
        let Some(under) = self.runs.get_mut(&id).filter(|under| under.batch == batch) else {
            return;
        };
        under.told[slot] = Some(told);
        if under.told.iter().all(Option::is_some) {
            let told = std::mem::take(&mut under.told).into_iter().flatten().collect();
            let then = under.run.told(told);
            self.go_on(id, then);
        }
    }

    /// What an operation does is done now: it has to be what the tree allows.
    fn apply(&mut self, outcome: Option<OutcomeId>, applied: Applied) {
        let (Some(id), true) = (outcome, applied != Applied::No) else { return };
        let outcome = &mut self.outcomes[id];
        if self.is_traced {
            self.trace.push(format!("{id} is done"));
        }
        assert!(!outcome.is_applied, "{id} is done a second time");
        let may_be = matches!(outcome.result, None | Some(Err(Status::InDoubt)));
        let trace = self.trace.join("\n");
        assert!(may_be, "{id} is done after it ended: {:?}\n{trace}", outcome.result);
        outcome.is_applied = true;
        let done = match (&outcome.op, applied) {
            (Op::Create(place), Applied::Created(file)) => self.tree.create(place, file),
            (Op::Chmod { id, mode, .. }, _) => {
                // One that was just removed may still take it, as one that is open does.
                let dir = self.tree.dirs.get_mut(&crate::tree::key(&id.handle()));
                dir.into_iter().for_each(|dir| dir.mode = *mode);
                Ok(())
            }
            (Op::Volume(operation), _) => apply(&mut self.tree, operation),
            (op, _) => panic!("{op:?} made a file"),
        };
        assert_eq!(done, Ok(()), "{id} is done: {:?}", outcome.op);
    }

    /// A request that waits is refused after a while; `false` where none waits.
    pub(crate) fn time_out(&mut self) -> bool {
        // Whoever asks for what somebody is at waits for that.
        let waits = |flight: &Flight| {
            matches!(flight.at, At::Waiting(_)) && (flight.op.is_none() || flight.is_admitted)
        };
        let waiting: Vec<usize> =
            (0..self.flights.len()).filter(|&index| waits(&self.flights[index])).collect();
        let Some(&index) = self.rng.choice(&waiting) else { return false };
        let Flight { op, member, .. } = self.flights[index];
        let refused = Told::Failed(Status::InUse);
        if let Some(op) = op {
            let member = usize::from(member);
            self.members[member].finish_op(&op, &refused);
            self.states[member] += 1;
        }
        self.flights[index].at = At::Reply(refused);
        true
    }

    /// A member lets go of what was held for long.
    pub(crate) fn expire(&mut self, member: usize) {
        let holds = &mut self.members[member].holds;
        if !holds.is_empty() {
            holds.swap_remove(self.rng.usize(..holds.len()));
            self.states[member] += 1;
        }
    }

    /// The session between a gateway and a member ends, and another begins.
    pub(crate) fn lose_session(&mut self, gateway: usize, member: usize) {
        let old = self.gateways[gateway].sessions[member];
        if self.is_traced {
            self.trace.push(format!("gateway {gateway} loses its session with {member}"));
        }
        self.end_session(member, old);
        self.gateways[gateway].sessions[member] = self.attach(member);
    }

    fn end_session(&mut self, member: usize, session: Session) {
        self.members[member].end_session(session);
        self.states[member] += 1;
        for index in 0..self.flights.len() {
            if self.flights[index].session == session {
                self.cut(index, true);
            }
        }
    }

    /// A request loses its connection: it may never arrive, or later, or its answer is lost.
    fn cut(&mut self, index: usize, may_arrive: bool) {
        let is_dropped = self.rng.bool() || !may_arrive;
        let flight = &mut self.flights[index];
        // What a member is at it goes on with, but for a restart.
        let is_dropped = is_dropped && !(flight.is_admitted && may_arrive);
        match flight.at {
            At::Reply(_) if is_dropped => flight.at = At::Reply(Told::Lost),
            At::Reply(_) => {}
            _ if is_dropped => flight.at = At::Reply(Told::Lost),
            _ => {
                let waiter = flight.waiter.take();
                let (outcome, op, member) = (flight.outcome, flight.op, flight.member);
                let (session, request) = (0, flight.request.clone());
                let at = At::Reply(Told::Lost);
                self.flights.push(Flight {
                    outcome,
                    op,
                    is_admitted: false,
                    waiter,
                    member,
                    session,
                    request,
                    at,
                });
            }
        }
    }

    /// A member restarts: it is gone for a while, or back at once.
    pub(crate) fn restart(&mut self, member: usize, is_up: bool) {
        if self.is_traced {
            self.trace.push(format!("member {member} restarts, up: {is_up}"));
        }
        self.members[member].restart();
        self.members[member].is_up = is_up;
        self.states[member] += 1;
        for index in 0..self.flights.len() {
            if usize::from(self.flights[index].member) == member {
                self.cut(index, false);
            }
        }
        for gateway in 0..self.gateways.len() {
            self.gateways[gateway].sessions[member] = self.attach(member);
        }
        self.lapsing.retain(|(of, _)| usize::from(*of) != member);
    }

    /// A gateway dies; its sessions end when the members notice.
    pub(crate) fn kill_gateway(&mut self, gateway: usize) {
        if self.is_traced {
            self.trace.push(format!("gateway {gateway} dies"));
        }
        let Gateway { id, sessions } = self.gateways.remove(gateway);
        self.runs.retain(|_, under| under.gateway != id);
        let sessions = sessions.into_iter().enumerate();
        self.lapsing.extend(sessions.map(|(member, session)| (member as MemberId, session)));
    }

    /// A member notices that a gateway is gone; `false` where none is.
    pub(crate) fn lapse(&mut self) -> bool {
        if self.lapsing.is_empty() {
            return false;
        }
        let index = self.rng.usize(..self.lapsing.len());
        let (member, session) = self.lapsing.swap_remove(index);
        self.end_session(member.into(), session);
        true
    }

    /// A gateway brings to an end what it finds on a member: what nobody leads any more, or
    /// anything.
    pub(crate) fn redo(&mut self, gateway: usize, member: usize, is_eager: bool) -> bool {
        if !self.members[member].is_up {
            return false;
        }
        let found = self.members[member].unfinished().into_iter();
        let unfinished: Vec<_> = found
            .filter(|(unfinished, is_orphan)| {
                *is_orphan || is_eager || self.is_left(unfinished.tx())
            })
            .map(|(unfinished, _)| unfinished)
            .collect();
        if unfinished.is_empty() {
            return false;
        }
        let operation = Operation::Redo { member: member as MemberId, unfinished };
        self.begin(gateway, Op::Volume(operation));
        true
    }

    /// Whether a transaction is of a living gateway that does not lead it any more.
    fn is_left(&self, tx: TxId) -> bool {
        let leads = |under: &Under| match &under.run.op {
            Op::Chmod { tx: led, .. } => *led == tx,
            Op::Volume(
                Operation::Unlink { tx: led, .. }
                | Operation::Rmdir { tx: led, .. }
                | Operation::Link { tx: led, .. }
                | Operation::Rename { tx: led, .. },
            ) => *led == tx,
            _ => false,
        };
        !self.runs.values().any(leads)
    }

    pub(crate) fn place(&self, dir: &Handle, name: &str) -> Place {
        Place { dir: *dir, name: name.as_bytes().to_vec() }
    }
}

/// Whether a request may be an operation by itself, whose answer a member keeps.
fn is_whole(request: &Request) -> bool {
    match request {
        Request::Create(_) => true,
        Request::Setattr(..) => false,
        Request::Ask(ask) => matches!(
            ask,
            Ask::Mkdir { .. }
                | Ask::Unlink { .. }
                | Ask::Rmdir { .. }
                | Ask::Rename { .. }
                | Ask::Link { .. }
        ),
    }
}

/// What an operation does to the tree.
pub(crate) fn apply(tree: &mut Tree, operation: &Operation) -> Result<(), Status> {
    match operation {
        Operation::Mkdir { place, mode, id } => tree.mkdir(place, *id, *mode),
        Operation::Unlink { place, .. } => tree.unlink(place),
        Operation::Rmdir { place, .. } => tree.rmdir(place),
        Operation::Link { handle, place, .. } => tree.link(handle, place),
        Operation::Rename { from, to, flags, .. } => tree.rename(from, to, *flags),
        other => panic!("{other:?} does nothing to the tree"),
    }
}
