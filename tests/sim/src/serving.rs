//! The answering side of sessions, the same for brick and gateway: the real [`Grantor`] with what its
//! driver does around it.

use std::collections::BTreeMap;
use std::sync::Arc;

use portcullis_core::limits::LEASE_MS;
use portcullis_core::watch::{Change, Grantor, Reading, Round, SessionId, Watched};
use portcullis_core::{ChunkBuilder, Status};
use portcullis_wire::message::{Mutated, Mutation};
use portcullis_wire::{Reply, ReplyFrame, Request, codec};

use crate::net::{Conn, What};
use crate::plant::Plant;
use crate::world::{Context, decode_frame};

/// Who waits for the end of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waiter {
    /// A renewal of this connection.
    Renewal(Conn, u64),
    /// Work of the tier, by its number.
    Work(u64),
    /// Nobody: a change that others made on the brick.
    Nobody,
}

/// The session of a connection.
#[derive(Clone, Debug)]
pub struct Served {
    /// Its id.
    pub id: SessionId,
    /// What it watches.
    pub watched: Arc<Watched>,
    /// The client's instance.
    pub client: u128,
}

/// See the module.
#[derive(Debug)]
pub struct Serving {
    /// The state machine.
    pub grantor: Grantor<Waiter>,
    served: BTreeMap<Conn, Served>,
    conns: BTreeMap<SessionId, Conn>,
    clients: BTreeMap<SessionId, u128>,
}

impl Serving {
    /// No sessions; their ids are of this life.
    pub fn new(seed: u64, life: u64) -> Self {
        Self {
            grantor: Grantor::new(seed, life << 32),
            served: BTreeMap::new(),
            conns: BTreeMap::new(),
            clients: BTreeMap::new(),
        }
    }

    /// The session of a connection.
    pub fn of(&self, conn: Conn) -> Option<&Served> {
        self.served.get(&conn)
    }

    /// Begins a session, and ends an earlier one of the same client.
    pub fn attach(
        &mut self,
        cx: &mut Context<'_>,
        conn: Conn,
        client: u128,
        ended: u64,
    ) -> (SessionId, Vec<Waiter>) {
        let mut ended = SessionId(ended);
        let mut may_end = self.clients.get(&ended) == Some(&client);
        if cx.plant == Plant::SessionOfAnotherEnded
            && let Some((&other, _)) = self.clients.iter().find(|(_, other)| **other != client)
        {
            (ended, may_end) = (other, true);
        }
        let waiters = if may_end {
            self.clients.remove(&ended);
            self.conns.remove(&ended);
            self.grantor.end(ended)
        } else {
            Vec::new()
        };
        let now_ms = cx.now_ms();
        let (id, watched) = self.grantor.open(now_ms);
        self.served.insert(conn, Served { id, watched, client });
        self.conns.insert(id, conn);
        self.clients.insert(id, client);
        (id, waiters)
    }

    /// The connection is lost; its session is not.
    pub fn lost(&mut self, conn: Conn) -> Option<Served> {
        let served = self.served.remove(&conn)?;
        self.conns.remove(&served.id);
        Some(served)
    }

    /// Tells everyone who watches but `origin`; whether nobody has to be waited for.
    pub fn change(
        &mut self,
        cx: &mut Context<'_>,
        origin: Option<Conn>,
        changes: &[Change],
        waiter: Waiter,
    ) -> bool {
        let origin = origin.and_then(|conn| self.of(conn)).map(|served| served.id);
        match self.grantor.change(origin, changes, || waiter) {
            Round::Over => true,
            Round::UnderWay(ids) => {
                ids.into_iter().for_each(|id| self.deliver(cx, id));
                false
            }
        }
    }

    /// A session asks for its lease to be renewed: whether it may be answered at once.
    pub fn renew(&mut self, cx: &mut Context<'_>, conn: Conn, call: u64) -> bool {
        let Some(served) = self.served.get(&conn) else { return false };
        let round = self.grantor.renew(cx.now_ms(), served.id, || Waiter::Renewal(conn, call));
        match round {
            Some(Round::Over) => true,
            Some(Round::UnderWay(_)) => cx.plant == Plant::RenewedWhileOwing,
            None => false,
        }
    }

    /// A session acknowledges.
    pub fn recalled(&mut self, cx: &mut Context<'_>, conn: Conn, what: What) -> Vec<Waiter> {
        let What::Recalled(bytes) = what else { return Vec::new() };
        let number = codec::decode_recalled(&decode_frame(bytes)).expect("as it was encoded");
        let Some(id) = self.of(conn).map(|served| served.id) else { return Vec::new() };
        let waiters = self.grantor.told(id, number);
        self.deliver(cx, id);
        waiters
    }

    /// Ends what is over.
    pub fn tick(&mut self, cx: &mut Context<'_>) -> Vec<Waiter> {
        let (over, waiters) = self.grantor.expire(cx.now_ms());
        for id in over {
            self.clients.remove(&id);
            if let Some(conn) = self.conns.remove(&id) {
                self.served.remove(&conn);
                cx.net.lose(conn, [50_000; 2]);
            }
        }
        waiters
    }

    /// Watches what is known of an answer before it is read.
    pub fn watch_before(&self, conn: Conn, request: &Request) {
        let Some(served) = self.of(conn) else { return };
        match request {
            Request::Lookup { dir, .. } | Request::List { dir, .. } => {
                served.watched.watch_names(dir);
            }
            Request::Getattr { handle } => served.watched.watch_attr(handle),
            Request::Mutate { mutation, .. } => match mutation {
                Mutation::Mknod { dir, .. } | Mutation::Unlink { dir, .. } => {
                    served.watched.watch_names(dir);
                }
                Mutation::Setattr { handle, .. } => served.watched.watch_attr(handle),
                _ => {}
            },
            _ => {}
        }
    }

    /// Watches the files that an answer tells of. A listing loses the attributes that changed since
    /// it was read; `false` where the answer has to be read again.
    pub fn watch_after(&self, conn: Conn, reading: Reading, frames: &mut [ReplyFrame]) -> bool {
        let Some(served) = self.of(conn) else { return true };
        frames.iter_mut().all(|frame| match frame {
            ReplyFrame::Reply(Reply::Entry(entry)) => {
                served.watched.watch_attr(&entry.handle);
                !self.grantor.attr_changed_since(reading, &entry.handle)
            }
            ReplyFrame::Chunk(chunk) => {
                let mut builder = ChunkBuilder::default();
                for mut entry in chunk.entries() {
                    served.watched.watch_attr(&entry.handle);
                    if self.grantor.attr_changed_since(reading, &entry.handle) {
                        entry.attr = None;
                    }
                    assert!(builder.push(&entry), "it is one of a chunk");
                }
                *chunk = builder.finish(0).expect("as many entries as before");
                true
            }
            _ => true,
        })
    }

    /// As [`Serving::watch_after`], of a mutation that was applied after `reading`: attributes that
    /// others changed meanwhile do not travel. Call it before its own changes are told.
    pub fn watch_result(&self, conn: Conn, reading: Reading, frame: &mut ReplyFrame) {
        let Some(served) = self.of(conn) else { return };
        if let ReplyFrame::Reply(Reply::Mutated { result: Mutated::Entry(entry), .. }) = frame {
            served.watched.watch_attr(&entry.handle);
            if self.grantor.attr_changed_since(reading, &entry.handle) {
                entry.attr = None;
            }
        }
    }

    fn deliver(&mut self, cx: &mut Context<'_>, id: SessionId) {
        let Some(&conn) = self.conns.get(&id) else { return };
        while let Some(tell) = self.grantor.next_tell(id) {
            let frame = codec::encode_recall(&tell).expect("a small tell");
            cx.net.send(conn, false, What::Recall(frame));
        }
    }
}

/// Sends an answer.
pub fn reply(cx: &mut Context<'_>, conn: Conn, call: u64, frames: &[ReplyFrame]) {
    for frame in frames {
        let frame = codec::encode_reply(frame).expect("a small reply");
        cx.net.send(conn, false, What::Answer { call, frame });
    }
}

/// The answer to a renewal.
pub fn renewed(left_ms: u64, life: u64) -> ReplyFrame {
    ReplyFrame::Reply(Reply::Renewed { lease_ms: left_ms.min(LEASE_MS) as u32, life })
}

/// A failure without a sentence.
pub fn failure(status: Status) -> ReplyFrame {
    ReplyFrame::Failure(status.into())
}
