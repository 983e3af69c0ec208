//! The gateway of the simulation: the real dentry cache, and around it what a gateway does with
//! a miss, a reply, an invalidation and a lost session.

use std::collections::HashMap;

use bytes::{Bytes, BytesMut};
use portcullis_core::cache::{Answer, CacheConfig, DentryCache, Filled, ListingTicket, Ticket};
use portcullis_core::{Chunk, Handle, Status};
use portcullis_wire::message::Failure;
use portcullis_wire::{Reply, ReplyFrame, Request, codec, frame};

/// A fault planted to prove that the simulator finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// None: the code as it is.
    Nothing,
    /// A reply fills the cache as if it had been asked for when it arrives, so one that is older
    /// than an invalidation comes in after it.
    LateFill,
}

/// Who waits for an answer.
pub type Waiter = (usize, u64);

/// What the gateway wants sent.
#[derive(Debug)]
pub enum Send {
    /// The answer to a client's request.
    Answer(Waiter, Vec<ReplyFrame>),
    /// A call to the brick.
    Call(u64, Request),
}

enum Call {
    One { request: Request, ticket: Ticket },
    Listing { dir: Handle, ticket: ListingTicket, chunks: Vec<Chunk>, waiter: Waiter },
}

/// The gateway.
pub struct Gateway {
    cache: DentryCache<Waiter>,
    calls: HashMap<u64, Call>,
    next_call: u64,
    plant: Plant,
}

impl Gateway {
    /// A gateway with an empty cache.
    pub fn new(seed: u64, plant: Plant) -> Self {
        let config = CacheConfig { capacity_bytes: 1 << 20, max_age_ms: u64::MAX, seed };
        Self { cache: DentryCache::new(config), calls: HashMap::new(), next_call: 1, plant }
    }

    /// A client's request arrives.
    pub fn request(&mut self, waiter: Waiter, frame: Bytes) -> Vec<Send> {
        let request = codec::decode_request(frame).expect("clients send what they encoded");
        match &request {
            Request::Lookup { dir, name } => match self.cache.lookup(0, dir, name, || waiter) {
                Answer::Hit(entry) => answer(waiter, ReplyFrame::Reply(Reply::Entry(entry))),
                Answer::Negative => answer(waiter, failure(Status::NotFound)),
                Answer::Joined => Vec::new(),
                Answer::Lead(ticket) => self.call(|| Call::One { request, ticket }),
                Answer::Busy => answer(waiter, failure(Status::Busy)),
            },
            Request::Getattr { handle } => match self.cache.getattr(0, handle, || waiter) {
                Answer::Hit(attr) => answer(waiter, ReplyFrame::Reply(Reply::Attr(attr))),
                Answer::Joined | Answer::Negative => Vec::new(),
                Answer::Lead(ticket) => self.call(|| Call::One { request, ticket }),
                Answer::Busy => answer(waiter, failure(Status::Busy)),
            },
            Request::List { dir, .. } => match self.cache.list(0, dir) {
                Some(chunks) => listing(waiter, chunks),
                None => {
                    let ticket = self.cache.begin_listing(dir);
                    let dir = *dir;
                    self.call(|| Call::Listing { dir, ticket, chunks: Vec::new(), waiter })
                }
            },
            other => panic!("clients do not ask {other:?}"),
        }
    }

    /// A frame of the brick arrives.
    pub fn reply(&mut self, call: u64, bytes: Bytes) -> Vec<Send> {
        let frame = frame::take(&mut BytesMut::from(bytes)).expect("whole").expect("whole");
        let reply = codec::decode_reply(frame).expect("the brick sends what it encoded");
        match self.calls.remove(&call) {
            Some(Call::One { request, ticket }) => self.reply_one(&request, ticket, reply),
            Some(Call::Listing { dir, ticket, chunks, waiter }) => {
                self.reply_listing(call, dir, ticket, chunks, waiter, reply)
            }
            None => Vec::new(),
        }
    }

    /// The brick says that something changed.
    pub fn invalidate(&mut self, handles: &[Bytes]) {
        for handle in handles {
            self.cache.invalidate(&Handle::new(handle).expect("a handle"));
        }
    }

    /// The session with the brick is lost: what was learnt through it is forgotten, and calls
    /// under way fail.
    pub fn lose_session(&mut self) -> Vec<Send> {
        self.cache.invalidate_all();
        let mut calls: Vec<_> = self.calls.drain().collect();
        calls.sort_by_key(|&(call, _)| call);
        calls
            .into_iter()
            .flat_map(|(_, call)| match call {
                Call::One { ticket, .. } => {
                    let waiters = self.cache.fill(0, ticket, &Filled::Failed);
                    answers(waiters, &failure(Status::Unavailable))
                }
                Call::Listing { ticket, waiter, .. } => {
                    self.cache.abandon_listing(ticket);
                    answer(waiter, failure(Status::Unavailable))
                }
            })
            .collect()
    }

    /// Requests that the cache answered alone.
    pub fn hits(&self) -> u64 {
        let counters = self.cache.counters();
        counters.lookup_hits + counters.negative_hits + counters.list_hits + counters.getattr_hits
    }

    fn call(&mut self, call: impl FnOnce() -> Call) -> Vec<Send> {
        let number = self.next_call;
        self.next_call += 1;
        let call = call();
        let request = match &call {
            Call::One { request, .. } => request.clone(),
            Call::Listing { dir, .. } => Request::List { dir: *dir, after: Vec::new() },
        };
        self.calls.insert(number, call);
        vec![Send::Call(number, request)]
    }

    fn reply_one(&mut self, request: &Request, ticket: Ticket, reply: ReplyFrame) -> Vec<Send> {
        let filled = match &reply {
            ReplyFrame::Reply(Reply::Entry(entry)) => Filled::Entry(entry.clone()),
            ReplyFrame::Reply(Reply::Attr(attr)) => Filled::Attr(*attr),
            ReplyFrame::Failure(failure)
                if failure.status == Status::NotFound
                    && matches!(request, Request::Lookup { .. }) =>
            {
                Filled::Absent
            }
            _ => Filled::Failed,
        };
        let waiters = match self.plant {
            Plant::Nothing => self.cache.fill(0, ticket, &filled),
            Plant::LateFill => self.fill_late(request, ticket, &filled),
        };
        answers(waiters, &reply)
    }

    /// The planted fault: a ticket as of now takes the place of the one it was asked with.
    fn fill_late(&mut self, request: &Request, ticket: Ticket, filled: &Filled) -> Vec<Waiter> {
        let waiters = self.cache.fill(0, ticket, &Filled::Failed);
        if let Request::Lookup { dir, name } = request
            && let Answer::Lead(now) = self.cache.lookup(0, dir, name, || (usize::MAX, 0))
        {
            self.cache.fill(0, now, filled);
        }
        waiters
    }

    fn reply_listing(
        &mut self,
        call: u64,
        dir: Handle,
        mut ticket: ListingTicket,
        mut chunks: Vec<Chunk>,
        waiter: Waiter,
        reply: ReplyFrame,
    ) -> Vec<Send> {
        match reply {
            ReplyFrame::Chunk(chunk) => {
                self.cache.fill_chunk(0, &mut ticket, &chunk);
                chunks.push(chunk);
                self.calls.insert(call, Call::Listing { dir, ticket, chunks, waiter });
                Vec::new()
            }
            ReplyFrame::End { complete } => {
                self.cache.finish_listing(0, ticket, complete);
                listing(waiter, chunks)
            }
            other => {
                self.cache.abandon_listing(ticket);
                answer(waiter, other)
            }
        }
    }
}

fn failure(status: Status) -> ReplyFrame {
    ReplyFrame::Failure(Failure::from(status))
}

fn answer(waiter: Waiter, frame: ReplyFrame) -> Vec<Send> {
    vec![Send::Answer(waiter, vec![frame])]
}

fn answers(waiters: Vec<Waiter>, frame: &ReplyFrame) -> Vec<Send> {
    waiters.into_iter().map(|waiter| Send::Answer(waiter, vec![frame.clone()])).collect()
}

fn listing(waiter: Waiter, chunks: Vec<Chunk>) -> Vec<Send> {
    let mut frames: Vec<_> = chunks.into_iter().map(ReplyFrame::Chunk).collect();
    frames.push(ReplyFrame::End { complete: true });
    vec![Send::Answer(waiter, frames)]
}
