//! The brick of the simulation: the tree, watched and changed through the real grantor and replays.
//!
//! Reading and changing take a moment, so that others come between a reading and its watch, and
//! between a change and the word of it.

use std::collections::BTreeMap;

use portcullis_core::replay::{Admission, OpId, Replays};
use portcullis_core::watch::{Change, Reading};
use portcullis_core::{Entry, FileKind, Status};
use portcullis_wire::message::{Mutation, Notices};
use portcullis_wire::{Reply, ReplyFrame, Request, codec};

use crate::net::{Conn, What};
use crate::plant::Plant;
use crate::serving::{Serving, Waiter, failure, renewed, reply};
use crate::tree::{Tree, dir_handle};
use crate::world::{Context, TICK_US, decode_frame};

/// Longest time of most pieces of work, and of one in ten.
const WORK_US_MAX: u64 = 2_000;
/// See [`WORK_US_MAX`].
const SLOW_WORK_US_MAX: u64 = 100_000;
/// Longest time until a change that others made is noticed.
pub const NOTICE_US_MAX: u64 = 500_000;
/// The token of the tick.
const TICK: u64 = 0;

#[derive(Debug)]
enum Work {
    /// A reading is to be watched and answered.
    Read { conn: Conn, call: u64, request: Request, reading: Reading, frames: Vec<ReplyFrame> },
    /// A mutation is to be applied.
    Apply { conn: Conn, call: u64, op: OpId, mutation: Mutation },
    /// It was applied; now it is told.
    Tell { conn: Conn, call: u64, op: OpId, frame: ReplyFrame, reading: Reading },
    /// Everybody knows; now it is answered.
    Reply { conn: Conn, call: u64, op: OpId, frame: ReplyFrame },
    /// Everybody knows what is repeated; now it is answered.
    Repeat { conn: Conn, call: u64, frame: ReplyFrame },
    /// A change that others made is noticed.
    Notice { changes: Vec<Change> },
}

/// See the module.
pub struct Brick {
    tree: Tree,
    serving: Serving,
    replays: Replays<ReplyFrame, (Conn, u64)>,
    work: BTreeMap<u64, Work>,
    last_work: u64,
}

impl Brick {
    /// A brick that begins with this tree.
    pub fn start(cx: &mut Context<'_>, tree: Tree) -> Self {
        let life = cx.net.life(cx.me);
        let serving = Serving::new(life, life);
        if life > 1 && cx.plant != Plant::EarlierLifeForgotten {
            serving.grantor.wait_for_earlier_life(cx.now_ms());
        }
        cx.net.later(cx.me, TICK_US, TICK);
        let (replays, work) = (Replays::new(life), BTreeMap::new());
        Self { tree, serving, replays, work, last_work: TICK }
    }

    /// The tree, which outlives its brick.
    pub fn tree(&mut self) -> &mut Tree {
        &mut self.tree
    }

    /// Somebody changes something on the brick itself.
    pub fn change(&mut self, cx: &mut Context<'_>, mutation: &Mutation) {
        if let Ok((place, _, changes)) = self.tree.apply(mutation) {
            cx.oracle.change(cx.net.now_us, place, self.tree.state(place));
            let notice_us = cx.net.random.u64(0..NOTICE_US_MAX);
            self.later(cx, notice_us, Work::Notice { changes });
        }
    }

    /// A packet arrives.
    pub fn receive(&mut self, cx: &mut Context<'_>, conn: Conn, what: What) {
        match what {
            What::Request { call, frame } => {
                let request = codec::decode_request(&decode_frame(frame)).expect("as encoded");
                self.request(cx, conn, call, request);
            }
            What::Recalled(_) => {
                let waiters = self.serving.recalled(cx, conn, what);
                self.release(cx, waiters);
            }
            What::Lost => drop(self.serving.lost(conn)),
            What::Answer { .. } | What::Recall(_) => {}
        }
    }

    /// A moment has passed.
    pub fn wake(&mut self, cx: &mut Context<'_>, token: u64) {
        if token == TICK {
            cx.net.later(cx.me, TICK_US, TICK);
            let waiters = self.serving.tick(cx);
            return self.release(cx, waiters);
        }
        self.resume(cx, token);
    }

    fn request(&mut self, cx: &mut Context<'_>, conn: Conn, call: u64, request: Request) {
        match request {
            Request::Attach { client, ended, .. } => {
                let (session, waiters) = self.serving.attach(cx, conn, client, ended);
                let attached = attached(session.0, u64::MAX, self.replays.life());
                reply(cx, conn, call, &[attached]);
                self.release(cx, waiters);
            }
            Request::Renew => {
                if self.serving.renew(cx, conn, call) {
                    reply(cx, conn, call, &[renewed(u64::MAX, self.replays.life())]);
                }
            }
            Request::Mutate { op, mutation, .. } => self.mutate(cx, conn, call, op, mutation),
            request => self.read(cx, conn, call, request),
        }
    }

    fn read(&mut self, cx: &mut Context<'_>, conn: Conn, call: u64, request: Request) {
        let reading = self.serving.grantor.read();
        if cx.plant != Plant::WatchAfterReading {
            self.serving.watch_before(conn, &request);
        }
        let frames = self.tree.answer(&request);
        self.work_on(cx, Work::Read { conn, call, request, reading, frames });
    }

    fn mutate(
        &mut self,
        cx: &mut Context<'_>,
        conn: Conn,
        call: u64,
        op: OpId,
        mutation: Mutation,
    ) {
        match self.replays.begin(&op, mutation.is_idempotent(), || (conn, call)) {
            Admission::Apply => {
                self.serving.watch_before(
                    conn,
                    &Request::Mutate { op, caller: Default::default(), mutation: mutation.clone() },
                );
                self.work_on(cx, Work::Apply { conn, call, op, mutation });
            }
            Admission::Replay(frame) => self.repeat(cx, conn, call, frame),
            Admission::Joined => {}
            Admission::Unknown => reply(cx, conn, call, &[failure(Status::InDoubt)]),
            Admission::Answered => reply(cx, conn, call, &[failure(Status::InvalidArgument)]),
            Admission::Busy => reply(cx, conn, call, &[failure(Status::Busy)]),
        }
    }

    fn resume(&mut self, cx: &mut Context<'_>, token: u64) {
        let Some(work) = self.work.remove(&token) else { return };
        match work {
            Work::Read { conn, call, request, reading, mut frames } => {
                let is_true = self.serving.watch_after(conn, reading, &mut frames);
                if cx.plant == Plant::WatchAfterReading {
                    self.serving.watch_before(conn, &request);
                } else if !is_true {
                    return self.read(cx, conn, call, request);
                }
                reply(cx, conn, call, &frames);
            }
            Work::Apply { conn, call, op, mutation } => {
                let reading = self.serving.grantor.read();
                let frame = match self.tree.apply(&mutation) {
                    Ok((place, result, changes)) => {
                        cx.oracle.apply(&op, &mutation, Ok((place, self.tree.state(place))));
                        ReplyFrame::Reply(Reply::Mutated { result, changes, dirs: Vec::new() })
                    }
                    Err(status) => {
                        cx.oracle.apply(&op, &mutation, Err(status));
                        failure(status)
                    }
                };
                self.work_on(cx, Work::Tell { conn, call, op, frame, reading });
            }
            Work::Tell { conn, call, op, mut frame, reading } => {
                self.serving.watch_result(conn, reading, &mut frame);
                let changes = changes_of(&frame);
                if cx.plant == Plant::ReplayBeforeTold {
                    self.finish(cx, &op, &frame);
                }
                let token = self.enter(Work::Reply { conn, call, op, frame });
                let is_over = self.serving.change(cx, Some(conn), &changes, Waiter::Work(token));
                if is_over || cx.plant == Plant::AnswerBeforeAcknowledged {
                    self.resume(cx, token);
                }
            }
            Work::Reply { conn, call, op, frame } => {
                reply(cx, conn, call, std::slice::from_ref(&frame));
                self.finish(cx, &op, &frame);
                if cx.plant == Plant::ReplayDropped {
                    self.replays = Replays::new(self.replays.life());
                }
            }
            Work::Repeat { conn, call, frame } => reply(cx, conn, call, &[frame]),
            Work::Notice { changes } => {
                self.serving.change(cx, None, &changes, Waiter::Nobody);
            }
        }
    }

    fn finish(&mut self, cx: &mut Context<'_>, op: &OpId, frame: &ReplyFrame) {
        for (conn, call) in self.replays.finish(op, frame.clone()) {
            self.repeat(cx, conn, call, frame.clone());
        }
    }

    /// Answers a repetition. The session by which the operation came first was not told, since its
    /// answer was to tell it; where that never arrived, it is told now.
    fn repeat(&mut self, cx: &mut Context<'_>, conn: Conn, call: u64, frame: ReplyFrame) {
        let changes = changes_of(&frame);
        let token = self.enter(Work::Repeat { conn, call, frame });
        let is_over = self.serving.change(cx, Some(conn), &changes, Waiter::Work(token));
        if is_over || matches!(cx.plant, Plant::ReplayBeforeTold | Plant::FirstSessionNotTold) {
            self.resume(cx, token);
        }
    }

    fn release(&mut self, cx: &mut Context<'_>, waiters: Vec<Waiter>) {
        for waiter in waiters {
            match waiter {
                Waiter::Renewal(conn, call) => {
                    if self.serving.of(conn).is_some() {
                        reply(cx, conn, call, &[renewed(u64::MAX, self.replays.life())]);
                    }
                }
                Waiter::Work(token) => self.resume(cx, token),
                Waiter::Nobody => {}
            }
        }
    }

    fn work_on(&mut self, cx: &mut Context<'_>, work: Work) {
        let is_slow = cx.net.random.u8(0..10) == 0;
        let us = cx.net.random.u64(0..if is_slow { SLOW_WORK_US_MAX } else { WORK_US_MAX });
        self.later(cx, us, work);
    }

    fn later(&mut self, cx: &mut Context<'_>, us: u64, work: Work) {
        let token = self.enter(work);
        cx.net.later(cx.me, us, token);
    }

    fn enter(&mut self, work: Work) -> u64 {
        self.last_work += 1;
        self.work.insert(self.last_work, work);
        self.last_work
    }
}

fn changes_of(frame: &ReplyFrame) -> Vec<Change> {
    match frame {
        ReplyFrame::Reply(Reply::Mutated { changes, .. }) => changes.clone(),
        _ => Vec::new(),
    }
}

/// The answer to an attach.
pub fn attached(session: u64, left_ms: u64, life: u64) -> ReplyFrame {
    let ReplyFrame::Reply(Reply::Renewed { lease_ms, .. }) = renewed(left_ms, life) else {
        return failure(Status::Unavailable);
    };
    let root = Entry { handle: dir_handle(0), attr: None, kind: FileKind::Directory, target: None };
    ReplyFrame::Reply(Reply::Attached { root, session, lease_ms, life, notices: Notices::Fanotify })
}
