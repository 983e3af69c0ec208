//! The loop: clients ask, the brick changes, sessions are lost, messages arrive; all by one seed.

use std::collections::HashMap;

use bytes::Bytes;
use fastrand::Rng;
use portcullis_wire::{Request, codec};

use crate::brick::{Brick, DIRS, NAMES, dir_handle, file_handle, name_of};
use crate::gateway::{Gateway, Plant, Send};
use crate::net::{Message, Net, Weather};
use crate::oracle::{Asked, Oracle};

/// Clients.
const CLIENTS: usize = 3;
/// Things that happen by themselves in one run: requests, changes, lost sessions.
const STEPS: usize = 400;
/// Longest pause between two of them.
const PAUSE_US_MAX: u64 = 300;

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What was wrong, empty if nothing.
    pub violations: Vec<String>,
    /// Answers judged.
    pub answers: u64,
    /// Requests that the cache answered alone.
    pub hits: u64,
    /// Fingerprint of every message: equal for equal runs.
    pub fingerprint: u64,
}

/// One run.
pub struct World {
    random: Rng,
    net: Net,
    brick: Brick,
    gateway: Gateway,
    oracle: Oracle,
    now_us: u64,
    session: u64,
    asked: HashMap<(usize, u64), Asked>,
    next_request: u64,
    next_change: u64,
    /// When the last frame of a call to the gateway arrives: frames of one stream keep their order.
    stream_us: HashMap<u64, u64>,
    outcome: Outcome,
    verbose: bool,
}

impl World {
    /// A run by `seed`, with a fault planted or not; `verbose` prints each message.
    pub fn new(seed: u64, plant: Plant, verbose: bool) -> Self {
        let mut random = Rng::with_seed(seed);
        let weather = Weather {
            delay_us_min: 10,
            delay_us_max: random.u64(50..2_000),
            loss_percent: random.u8(0..20),
            resend_us: 5_000,
        };
        Self {
            net: Net::new(weather),
            brick: Brick::default(),
            gateway: Gateway::new(seed, plant),
            oracle: Oracle::default(),
            now_us: 0,
            session: 1,
            asked: HashMap::new(),
            next_request: 1,
            next_change: 1,
            stream_us: HashMap::new(),
            outcome: Outcome { violations: Vec::new(), answers: 0, hits: 0, fingerprint: 0 },
            random,
            verbose,
        }
    }

    /// Runs to the end: every request must have its answer.
    pub fn run(mut self) -> Outcome {
        let mut next_step_us = 0;
        let mut steps = 0;
        loop {
            match self.net.next_at_us() {
                Some(at_us) if steps == STEPS || at_us <= next_step_us => {
                    self.now_us = at_us;
                    self.deliver();
                }
                _ if steps < STEPS => {
                    self.now_us = next_step_us;
                    next_step_us += self.random.u64(0..=PAUSE_US_MAX);
                    steps += 1;
                    self.step();
                }
                _ => break,
            }
        }
        for (waiter, asked) in std::mem::take(&mut self.asked) {
            self.violation(format!("{waiter:?} never got an answer to {:?}", asked.request));
        }
        self.outcome.hits = self.gateway.hits();
        self.outcome
    }

    fn step(&mut self) {
        match self.random.u8(0..100) {
            0..70 => self.ask(),
            70..99 => self.change(),
            _ => self.lose_session(),
        }
    }

    fn ask(&mut self) {
        let (dir, name) = (self.random.usize(0..DIRS), self.random.usize(0..NAMES));
        let (request, name) = match self.random.u8(0..4) {
            0 => (Request::List { dir: dir_handle(dir), after: Vec::new() }, None),
            1 => (Request::Getattr { handle: file_handle(dir, name) }, Some(name)),
            _ => (Request::Lookup { dir: dir_handle(dir), name: name_of(name) }, Some(name)),
        };
        let client = self.random.usize(0..CLIENTS);
        let number = self.next_request;
        self.next_request += 1;
        let frame = codec::encode_request(&request).expect("a small request");
        self.asked.insert((client, number), self.oracle.ask(request, dir, name));
        self.send(Message::ToGateway { client, request: number, frame });
    }

    fn change(&mut self) {
        let (dir, name) = (self.random.usize(0..DIRS), self.random.usize(0..NAMES));
        let change = self.next_change;
        self.next_change += 1;
        let exists = self.brick.has(dir, name);
        let remove = exists && self.random.u8(0..3) == 0;
        let state = (!remove).then_some(change);
        self.brick.change(dir, name, state);
        self.oracle.change(change, dir, name, state);
        // A name that comes or goes concerns its directory too; new attributes, the file alone.
        let mut handles = vec![file_handle(dir, name)];
        if remove || !exists {
            handles.push(dir_handle(dir));
        }
        let handles =
            handles.iter().map(|handle| Bytes::copy_from_slice(handle.as_bytes())).collect();
        self.send(Message::Invalidate { session: self.session, change, handles });
    }

    fn lose_session(&mut self) {
        self.session += 1;
        let sends = self.gateway.lose_session();
        self.obey(sends);
        // The brick counts a lost session's watches as told: the gateway has forgotten all of it.
        for change in 1..self.next_change {
            self.oracle.acknowledge(change);
        }
    }

    fn deliver(&mut self) {
        let Some(message) = self.net.receive() else { return };
        self.note(&message);
        match message {
            Message::ToGateway { client, request, frame } => {
                let sends = self.gateway.request((client, request), frame);
                self.obey(sends);
            }
            Message::ToClient { client, request, frames } => {
                self.outcome.answers += 1;
                match self.asked.remove(&(client, request)) {
                    Some(asked) => {
                        if let Err(violation) = self.oracle.judge(&asked, &frames) {
                            self.violation(violation);
                        }
                    }
                    None => self.violation(format!("a second answer to request {request}")),
                }
            }
            Message::ToBrick { session, call, frame } if session == self.session => {
                for frame in self.brick.answer(frame) {
                    let after_us = self.stream_us.get(&call).copied().unwrap_or(0).max(self.now_us);
                    let message = Message::FromBrick { session, call, frame };
                    let at_us = self.net.send(&mut self.random, after_us, message);
                    self.stream_us.insert(call, at_us);
                }
            }
            Message::FromBrick { session, call, frame } if session == self.session => {
                let sends = self.gateway.reply(call, frame);
                self.obey(sends);
            }
            Message::Invalidate { session, change, handles } if session == self.session => {
                self.gateway.invalidate(&handles);
                self.send(Message::Acknowledge { session, change });
            }
            Message::Acknowledge { change, .. } => self.oracle.acknowledge(change),
            Message::ToBrick { .. } | Message::FromBrick { .. } | Message::Invalidate { .. } => {}
        }
    }

    fn obey(&mut self, sends: Vec<Send>) {
        for send in sends {
            let message = match send {
                Send::Answer((client, request), frames) => Message::ToClient {
                    client,
                    request,
                    frames: frames
                        .iter()
                        .map(|frame| codec::encode_reply(frame).expect("a small reply"))
                        .collect(),
                },
                Send::Call(call, request) => Message::ToBrick {
                    session: self.session,
                    call,
                    frame: codec::encode_request(&request).expect("a small request"),
                },
            };
            self.send(message);
        }
    }

    fn send(&mut self, message: Message) {
        self.net.send(&mut self.random, self.now_us, message);
    }

    fn note(&mut self, message: &Message) {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        (self.outcome.fingerprint, self.now_us, format!("{message:?}")).hash(&mut hasher);
        self.outcome.fingerprint = hasher.finish();
        if self.verbose {
            println!("{:>9} us  {message:?}", self.now_us);
        }
    }

    fn violation(&mut self, violation: String) {
        if self.verbose {
            println!("{:>9} us  VIOLATION: {violation}", self.now_us);
        }
        self.outcome.violations.push(violation);
    }
}
