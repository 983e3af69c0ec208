//! A client of the simulation: a caching side, and programs that ask through it.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_core::replay::OpId;
use portcullis_wire::message::{Caller, Mutation};
use portcullis_wire::{Request, codec};

use crate::caching::{Caching, Happened};
use crate::net::{Conn, Node, What};
use crate::world::{Context, TICK_US};

/// Longest time until a client that is connected again tries to attach.
const AGAIN_MS_MAX: u64 = 200;
/// Longest time for which a client that is stuck acknowledges nothing.
const STUCK_US_MAX: u64 = 7_000_000;
/// The token of the tick.
const TICK: u64 = 0;

/// See the module.
pub struct Client {
    caching: Caching,
    instance: u128,
    last_number: u64,
    /// Mutations without an answer: by what was asked, and their numbers.
    mutations: BTreeMap<u64, u64>,
    numbers: BTreeSet<u64>,
    /// What is to be acknowledged later.
    recalled: BTreeMap<u64, (Conn, u64)>,
    last_token: u64,
    /// Chance, out of 100, that it acknowledges late.
    stuck_percent: u8,
}

impl Client {
    /// A client that knows nothing.
    pub fn start(cx: &mut Context<'_>, gateway: Node, stuck_percent: u8) -> Self {
        cx.net.later(cx.me, TICK_US, TICK);
        let (instance, seed) = (cx.net.random.u128(1..), cx.net.random.u64(..));
        Self {
            caching: Caching::new(gateway, instance, seed),
            instance,
            last_number: 0,
            mutations: BTreeMap::new(),
            numbers: BTreeSet::new(),
            recalled: BTreeMap::new(),
            last_token: TICK,
            stuck_percent,
        }
    }

    /// Answers that came from the cache alone.
    pub fn hits(&self) -> u64 {
        self.caching.hits()
    }

    /// A program asks.
    pub fn ask(&mut self, cx: &mut Context<'_>, id: u64, request: Request) {
        let happened = self.caching.ask(cx, id, request);
        self.happened(cx, happened);
    }

    /// A program changes something; answers what names the operation.
    pub fn mutate(&mut self, cx: &mut Context<'_>, id: u64, mutation: Mutation) {
        self.last_number += 1;
        let number = self.last_number;
        self.numbers.insert(number);
        self.mutations.insert(id, number);
        let oldest = self.numbers.first().copied().unwrap_or(number);
        // The life is that of the session when it is sent.
        let op = OpId { client: self.instance, number, oldest, life: 0, retry: false };
        cx.oracle.begin(id, &op);
        let request = Request::Mutate { op, caller: Caller::ROOT, mutation };
        self.ask(cx, id, request);
    }

    /// A packet arrives.
    pub fn receive(&mut self, cx: &mut Context<'_>, conn: Conn, what: What) {
        let happened = self.caching.receive(cx, conn, what);
        self.happened(cx, happened);
    }

    /// A moment has passed.
    pub fn wake(&mut self, cx: &mut Context<'_>, token: u64) {
        if token != TICK {
            if let Some((conn, number)) = self.recalled.remove(&token) {
                acknowledge(cx, conn, number);
            }
            return;
        }
        cx.net.later(cx.me, TICK_US, TICK);
        self.caching.tick(cx);
    }

    fn happened(&mut self, cx: &mut Context<'_>, happened: Vec<Happened>) {
        for happened in happened {
            match happened {
                Happened::Attached | Happened::Renewed => {}
                Happened::Answered { id, frames } => cx.oracle.answer(cx.net.now_us, id, &frames),
                Happened::Mutated { id, life, frame, .. } => {
                    if let Some(number) = self.mutations.remove(&id) {
                        self.numbers.remove(&number);
                        cx.oracle.mutated(cx.net.now_us, id, life, &frame);
                    }
                }
                Happened::Recalled { conn, number, .. } => {
                    if cx.net.random.u8(0..100) >= self.stuck_percent {
                        acknowledge(cx, conn, number);
                        continue;
                    }
                    self.last_token += 1;
                    self.recalled.insert(self.last_token, (conn, number));
                    let us = cx.net.random.u64(0..STUCK_US_MAX);
                    cx.net.later(cx.me, us, self.last_token);
                }
                Happened::Lost { session } => {
                    if session != 0 {
                        self.caching.ended = session;
                    }
                    let again_ms = cx.net.random.u64(0..AGAIN_MS_MAX);
                    self.caching.attach_at_ms = cx.now_ms() + again_ms;
                }
            }
        }
    }
}

fn acknowledge(cx: &mut Context<'_>, conn: Conn, number: u64) {
    let frame = codec::encode_recalled(number).expect("a number");
    if cx.net.random.u8(0..20) == 0 {
        cx.net.send(conn, true, What::Recalled(frame.clone()));
    }
    cx.net.send(conn, true, What::Recalled(frame));
}
