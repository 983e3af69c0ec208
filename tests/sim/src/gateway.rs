//! The gateway of the simulation: a caching side towards the brick, an answering side towards its
//! clients, and what passes between the two.

use std::collections::BTreeMap;

use bytes::Bytes;
use portcullis_core::limits::LEASE_MS;
use portcullis_core::watch::{Change, Reading};
use portcullis_wire::{ReplyFrame, Request, codec};

use crate::brick::attached;
use crate::caching::{Caching, Happened};
use crate::net::{Conn, Node, What};
use crate::plant::Plant;
use crate::serving::{Serving, Waiter, renewed, reply};
use crate::world::{Context, TICK_US, decode_frame};

/// Longest time of one piece of work.
const WORK_US_MAX: u64 = 2_000;
/// How long a gateway that lost its session waits for its clients to forget, before it begins
/// another that does not end the first.
const LOSS_TOLD_MS: u64 = 1000;
/// How often, of 256 ticks, a mutation under way is sent once more: only from here, since what was
/// sent on a connection to the brick arrives in this life of the brick or never.
const REPEAT_OF_256: u8 = 8;
/// The token of the tick.
const TICK: u64 = 0;

/// What a client asked.
#[derive(Debug)]
struct Asked {
    conn: Conn,
    call: u64,
    client: u128,
    request: Request,
    reading: Reading,
}

#[derive(Debug)]
enum Work {
    /// An answer is to be watched and passed on.
    Finish { id: u64, frames: Vec<ReplyFrame> },
    /// The other clients know of a mutation: it is answered.
    MutationTold { conn: Conn, call: u64, frame: ReplyFrame },
    /// The clients know what the brick told: it is acknowledged.
    RecallTold { conn: Conn, number: u64 },
    /// The clients know that a session is lost.
    LossTold { session: u64 },
}

/// See the module.
pub struct Gateway {
    serving: Serving,
    caching: Caching,
    asked: BTreeMap<u64, Asked>,
    last_id: u64,
    /// Clients that wait for a session of this gateway.
    attaching: Vec<(Conn, u64, u128, u64)>,
    work: BTreeMap<u64, Work>,
    last_work: u64,
}

impl Gateway {
    /// A gateway that knows nothing.
    pub fn start(cx: &mut Context<'_>) -> Self {
        cx.net.later(cx.me, TICK_US, TICK);
        let (instance, seed) = (cx.net.random.u128(1..), cx.net.random.u64(..));
        Self {
            serving: Serving::new(seed, cx.net.life(cx.me)),
            caching: Caching::new(Node::Brick, instance, seed),
            asked: BTreeMap::new(),
            last_id: 0,
            attaching: Vec::new(),
            work: BTreeMap::new(),
            last_work: TICK,
        }
    }

    /// Answers that came from the cache alone.
    pub fn hits(&self) -> u64 {
        self.caching.hits()
    }

    /// A packet arrives, from the brick or from a client.
    pub fn receive(&mut self, cx: &mut Context<'_>, conn: Conn, to_upper: bool, what: What) {
        if !to_upper {
            let happened = self.caching.receive(cx, conn, what);
            return self.happened(cx, happened);
        }
        match what {
            What::Request { call, frame } => self.request(cx, conn, call, frame),
            What::Recalled(_) => {
                let waiters = self.serving.recalled(cx, conn, what);
                self.release(cx, waiters);
            }
            What::Lost => {
                self.serving.lost(conn);
                self.attaching.retain(|(attaching, ..)| *attaching != conn);
                self.give_up(|asked| asked.conn == conn);
            }
            What::Answer { .. } | What::Recall(_) => {}
        }
    }

    /// A moment has passed.
    pub fn wake(&mut self, cx: &mut Context<'_>, token: u64) {
        if token != TICK {
            return self.resume(cx, token);
        }
        cx.net.later(cx.me, TICK_US, TICK);
        let waiters = self.serving.tick(cx);
        self.release(cx, waiters);
        self.caching.tick(cx);
        let is_mutation = |asked: &Asked| matches!(asked.request, Request::Mutate { .. });
        let mutations = self.asked.iter().filter(|(_, asked)| is_mutation(asked));
        for id in mutations.map(|(&id, _)| id).collect::<Vec<_>>() {
            if cx.net.random.u8(..) < REPEAT_OF_256 {
                self.caching.repeat(cx, id);
            }
        }
    }

    fn request(&mut self, cx: &mut Context<'_>, conn: Conn, call: u64, frame: Bytes) {
        match codec::decode_request(&decode_frame(frame)).expect("as it was encoded") {
            Request::Attach { client, ended, .. } => {
                // An original that was never sent must not follow its repetition.
                self.give_up(|asked| asked.client == client);
                self.attaching.push((conn, call, client, ended));
                self.attach(cx);
            }
            Request::Renew => {
                if self.serving.renew(cx, conn, call) {
                    let left_ms = self.left_ms(cx);
                    reply(cx, conn, call, &[renewed(left_ms, self.caching.life)]);
                }
            }
            request => {
                let Some(client) = self.serving.of(conn).map(|served| served.client) else {
                    return;
                };
                self.last_id += 1;
                let reading = self.serving.grantor.read();
                let asked = Asked { conn, call, client, request, reading };
                self.asked.insert(self.last_id, asked);
                self.ask(cx, self.last_id);
            }
        }
    }

    /// Asks the cache, or the brick.
    fn ask(&mut self, cx: &mut Context<'_>, id: u64) {
        let Some(asked) = self.asked.get_mut(&id) else { return };
        asked.reading = self.serving.grantor.read();
        self.serving.watch_before(asked.conn, &asked.request);
        let request = asked.request.clone();
        let happened = self.caching.ask(cx, id, request);
        self.happened(cx, happened);
    }

    fn attach(&mut self, cx: &mut Context<'_>) {
        if !self.caching.is_attached() {
            return;
        }
        for (conn, call, client, ended) in std::mem::take(&mut self.attaching) {
            let (session, waiters) = self.serving.attach(cx, conn, client, ended);
            let attached = attached(session.0, self.left_ms(cx), self.caching.life);
            reply(cx, conn, call, &[attached]);
            self.release(cx, waiters);
        }
    }

    /// What a client may be given.
    fn left_ms(&self, cx: &mut Context<'_>) -> u64 {
        match cx.plant {
            Plant::FullLeaseOfGateway => LEASE_MS,
            _ => self.caching.left_ms(cx.now_ms()),
        }
    }

    /// Nobody waits for these any more. A mutation that was sent is followed to its answer all the
    /// same, since the brick tells everybody else of it, but not this gateway.
    fn give_up(&mut self, is_over: impl Fn(&Asked) -> bool) {
        let over = |(&id, asked): (&u64, &Asked)| is_over(asked).then_some(id);
        for id in self.asked.iter().filter_map(over).collect::<Vec<_>>() {
            self.asked.remove(&id);
            self.caching.abandon(id);
        }
    }

    fn happened(&mut self, cx: &mut Context<'_>, happened: Vec<Happened>) {
        for happened in happened {
            match happened {
                Happened::Attached => {
                    self.bound_leases(cx);
                    self.attach(cx);
                }
                Happened::Renewed => self.bound_leases(cx),
                Happened::Answered { id, frames } => {
                    let us = cx.net.random.u64(0..WORK_US_MAX);
                    let token = self.enter(Work::Finish { id, frames });
                    cx.net.later(cx.me, us, token);
                }
                Happened::Mutated { id, changes, frame, .. } => {
                    self.mutated(cx, id, &changes, frame);
                }
                Happened::Recalled { conn, number, changes } => {
                    let token = self.enter(Work::RecallTold { conn, number });
                    let is_over = self.serving.change(cx, None, &changes, Waiter::Work(token));
                    if is_over || cx.plant == Plant::RecalledBeforeClients {
                        self.resume(cx, token);
                    }
                }
                Happened::Lost { session } => {
                    self.caching.attach_at_ms = cx.now_ms() + LOSS_TOLD_MS;
                    let token = self.enter(Work::LossTold { session });
                    if self.serving.change(cx, None, &[Change::All], Waiter::Work(token)) {
                        self.resume(cx, token);
                    }
                }
            }
        }
    }

    fn mutated(
        &mut self,
        cx: &mut Context<'_>,
        id: u64,
        changes: &[Change],
        mut frame: ReplyFrame,
    ) {
        let asked = self.asked.remove(&id);
        let origin = asked.as_ref().map(|asked| asked.conn);
        let told = asked.map(|Asked { conn, call, reading, .. }| {
            self.serving.watch_result(conn, reading, &mut frame);
            Work::MutationTold { conn, call, frame }
        });
        let token = told.map(|told| self.enter(told));
        let waiter = token.map_or(Waiter::Nobody, Waiter::Work);
        let is_over = cx.plant == Plant::OwnClientsNotTold
            || self.serving.change(cx, origin, changes, waiter);
        if let Some(token) = token
            && is_over
        {
            self.resume(cx, token);
        }
    }

    fn bound_leases(&mut self, cx: &mut Context<'_>) {
        let now_ms = cx.now_ms();
        self.serving.grantor.bound_leases(now_ms + self.caching.left_ms(now_ms));
    }

    fn resume(&mut self, cx: &mut Context<'_>, token: u64) {
        let Some(work) = self.work.remove(&token) else { return };
        match work {
            Work::Finish { id, mut frames } => {
                let Some(asked) = self.asked.get(&id) else { return };
                let is_true = self.serving.watch_after(asked.conn, asked.reading, &mut frames);
                if !is_true && cx.plant != Plant::WatchAfterReading {
                    return self.ask(cx, id);
                }
                reply(cx, asked.conn, asked.call, &frames);
                self.asked.remove(&id);
            }
            Work::MutationTold { conn, call, frame } => reply(cx, conn, call, &[frame]),
            Work::RecallTold { conn, number } => {
                let frame = codec::encode_recalled(number).expect("a number");
                cx.net.send(conn, true, What::Recalled(frame));
            }
            Work::LossTold { session } => {
                if session != 0 && !self.caching.is_attached() {
                    self.caching.ended = session;
                    self.caching.attach_at_ms = cx.now_ms();
                }
            }
        }
    }

    fn release(&mut self, cx: &mut Context<'_>, waiters: Vec<Waiter>) {
        for waiter in waiters {
            match waiter {
                Waiter::Renewal(conn, call) => {
                    if self.serving.of(conn).is_some() {
                        let left_ms = self.left_ms(cx);
                        reply(cx, conn, call, &[renewed(left_ms, self.caching.life)]);
                    }
                }
                Waiter::Work(token) => self.resume(cx, token),
                Waiter::Nobody => {}
            }
        }
    }

    fn enter(&mut self, work: Work) -> u64 {
        self.last_work += 1;
        self.work.insert(self.last_work, work);
        self.last_work
    }
}
