//! The caching side of a session, the same for gateway and client: the real cache and lease, and
//! around them what is asked, asked again after a lost session, learnt and forgotten.

use std::collections::BTreeMap;

use portcullis_core::Status;
use portcullis_core::cache::{
    Answer, CacheConfig, DentryCache, Filled, Learnt, ListingTicket, MutationStamp, Ticket,
};
use portcullis_core::limits::{LEASE_MS, LEASE_RENEW_MS};
use portcullis_core::watch::{Change, Lease};
use portcullis_wire::message::{Mutated, Mutation};
use portcullis_wire::{Reply, ReplyFrame, Request, codec};

use crate::net::{Conn, Node, What};
use crate::plant::Plant;
use crate::serving::failure;
use crate::world::{Context, decode_frame};

/// What became of something.
#[derive(Debug)]
#[allow(missing_docs, reason = "the fields are what their names say")]
pub enum Happened {
    /// A session began.
    Attached,
    /// The lease was renewed.
    Renewed,
    /// A question is answered.
    Answered { id: u64, frames: Vec<ReplyFrame> },
    /// A mutation, first sent in this life of the brick, is answered; what it changed is forgotten,
    /// what it taught is learnt.
    Mutated { id: u64, life: u64, changes: Vec<Change>, frame: ReplyFrame },
    /// Others changed something, and it is forgotten; to be acknowledged.
    Recalled { conn: Conn, number: u64, changes: Vec<Change> },
    /// The session is lost, and everything forgotten.
    Lost { session: u64 },
}

#[derive(Debug)]
enum Call {
    Attach { sent_ms: u64 },
    Renew { sent_ms: u64 },
    One { id: u64, request: Request, ticket: Option<Ticket> },
    Listing { id: u64, ticket: Option<ListingTicket>, frames: Vec<ReplyFrame> },
    Mutation { id: u64, request: Request, stamp: MutationStamp },
}

/// Something asked and not answered.
#[derive(Debug)]
struct Waiting {
    request: Request,
    /// Of a mutation that was sent: when it was sent first.
    stamp: Option<MutationStamp>,
}

/// See the module.
pub struct Caching {
    upper: Node,
    instance: u128,
    cache: DentryCache<u64>,
    lease: Lease,
    conn: Option<Conn>,
    is_attached: bool,
    session: u64,
    /// A session through which nothing is cached any more, here or by those who ask here.
    pub ended: u64,
    /// Not before then, a new session.
    pub attach_at_ms: u64,
    /// The life of the brick as told last.
    pub life: u64,
    renew_at_ms: u64,
    calls: BTreeMap<u64, Call>,
    last_call: u64,
    waiting: BTreeMap<u64, Waiting>,
}

impl Caching {
    /// Nothing cached; asks `upper`.
    pub fn new(upper: Node, instance: u128, seed: u64) -> Self {
        let config = CacheConfig { capacity_bytes: 1 << 20, max_age_ms: u64::MAX, seed };
        Self {
            upper,
            instance,
            cache: DentryCache::new(config),
            lease: Lease::default(),
            conn: None,
            is_attached: false,
            session: 0,
            ended: 0,
            attach_at_ms: 0,
            life: 0,
            renew_at_ms: 0,
            calls: BTreeMap::new(),
            last_call: 0,
            waiting: BTreeMap::new(),
        }
    }

    /// Whether there is a session.
    pub fn is_attached(&self) -> bool {
        self.is_attached
    }

    /// What is left of the lease.
    pub fn left_ms(&self, now_ms: u64) -> u64 {
        self.lease.left_ms(now_ms)
    }

    /// Answers that came from the cache alone.
    pub fn hits(&self) -> u64 {
        let counters = self.cache.counters();
        counters.lookup_hits + counters.negative_hits + counters.list_hits + counters.getattr_hits
    }

    /// Connects, renews; at least every few hundred milliseconds.
    pub fn tick(&mut self, cx: &mut Context<'_>) {
        let now_ms = cx.now_ms();
        if self.conn.is_none() && now_ms >= self.attach_at_ms {
            self.conn = Some(cx.net.open(cx.me, self.upper));
            self.lease = Lease::default();
            let request = Request::Attach { watch: true, client: self.instance, ended: self.ended };
            self.call(cx, &request, Call::Attach { sent_ms: now_ms });
        }
        if self.is_attached && now_ms >= self.renew_at_ms {
            // The next one follows the answer to this, or is sent when that does not come.
            self.renew_at_ms = now_ms + LEASE_MS;
            self.call(cx, &Request::Renew, Call::Renew { sent_ms: now_ms });
        }
    }

    /// Asks something; an answer from the cache comes at once.
    pub fn ask(&mut self, cx: &mut Context<'_>, id: u64, request: Request) -> Vec<Happened> {
        self.waiting.insert(id, Waiting { request, stamp: None });
        self.proceed(cx, id)
    }

    /// Nobody waits for this any more. What was not sent yet never will be.
    pub fn abandon(&mut self, id: u64) {
        self.waiting.remove(&id);
    }

    /// A mutation that was sent is sent once more, as whoever is impatient does.
    pub fn repeat(&mut self, cx: &mut Context<'_>, id: u64) {
        if self.is_attached && self.waiting.get(&id).is_some_and(|waiting| waiting.stamp.is_some())
        {
            self.send_mutation(cx, id);
        }
    }

    /// Something arrives on a connection to the upper side.
    pub fn receive(&mut self, cx: &mut Context<'_>, conn: Conn, what: What) -> Vec<Happened> {
        if self.conn != Some(conn) {
            return Vec::new();
        }
        match what {
            What::Answer { call, frame } => {
                let reply = codec::decode_reply(decode_frame(frame)).expect("as it was encoded");
                match self.calls.remove(&call) {
                    Some(pending) => self.answer(cx, call, pending, reply),
                    None => Vec::new(),
                }
            }
            What::Recall(bytes) => {
                let tell = codec::decode_recall(&decode_frame(bytes)).expect("as it was encoded");
                self.cache.forget(&tell.changes);
                vec![Happened::Recalled { conn, number: tell.number, changes: tell.changes }]
            }
            What::Lost => vec![self.lose(cx)],
            What::Request { .. } | What::Recalled(_) => Vec::new(),
        }
    }

    fn lose(&mut self, cx: &mut Context<'_>) -> Happened {
        self.conn = None;
        self.is_attached = false;
        self.lease = Lease::default();
        if cx.plant != Plant::LostSessionKept {
            self.cache.invalidate_all();
        }
        for (_, call) in std::mem::take(&mut self.calls) {
            match call {
                Call::One { ticket: Some(ticket), .. } => {
                    // Whoever waits asks again when there is a session.
                    self.cache.fill(0, ticket, &Filled::Failed);
                }
                Call::Listing { ticket: Some(ticket), .. } => self.cache.abandon_listing(ticket),
                _ => {}
            }
        }
        Happened::Lost { session: std::mem::take(&mut self.session) }
    }

    /// Answers from the cache, or asks.
    fn proceed(&mut self, cx: &mut Context<'_>, id: u64) -> Vec<Happened> {
        let Some(waiting) = self.waiting.get(&id) else { return Vec::new() };
        if !self.is_attached {
            return Vec::new();
        }
        let request = waiting.request.clone();
        if matches!(request, Request::Mutate { .. }) {
            self.send_mutation(cx, id);
            return Vec::new();
        }
        let now_ms = cx.now_ms();
        let holds = self.lease.holds(now_ms);
        let cached = match &request {
            Request::Lookup { dir, name } if holds => {
                match self.cache.lookup(now_ms, dir, name, || id) {
                    Answer::Hit(entry) => Some(vec![ReplyFrame::Reply(Reply::Entry(entry))]),
                    Answer::Negative => Some(vec![failure(Status::NotFound)]),
                    Answer::Joined => return Vec::new(),
                    Answer::Lead(ticket) => return self.send_one(cx, id, request, Some(ticket)),
                    Answer::Busy => None,
                }
            }
            Request::Getattr { handle } if holds => {
                match self.cache.getattr(now_ms, handle, || id) {
                    Answer::Hit(attr) => Some(vec![ReplyFrame::Reply(Reply::Attr(attr))]),
                    Answer::Joined => return Vec::new(),
                    Answer::Lead(ticket) => return self.send_one(cx, id, request, Some(ticket)),
                    Answer::Negative | Answer::Busy => None,
                }
            }
            Request::List { dir, .. } => {
                let chunks = if holds { self.cache.list(now_ms, dir, &[]) } else { None };
                let Some(chunks) = chunks else {
                    let ticket = holds.then(|| self.cache.begin_listing(dir));
                    self.call(cx, &request, Call::Listing { id, ticket, frames: Vec::new() });
                    return Vec::new();
                };
                let chunks = chunks.into_iter().map(|listed| ReplyFrame::Chunk(listed.chunk));
                Some(chunks.chain([ReplyFrame::End { complete: true }]).collect())
            }
            _ => None,
        };
        match cached {
            Some(frames) => {
                self.waiting.remove(&id);
                vec![Happened::Answered { id, frames }]
            }
            None => self.send_one(cx, id, request, None),
        }
    }

    fn send_one(
        &mut self,
        cx: &mut Context<'_>,
        id: u64,
        request: Request,
        ticket: Option<Ticket>,
    ) -> Vec<Happened> {
        let call = Call::One { id, request: request.clone(), ticket };
        self.call(cx, &request, call);
        Vec::new()
    }

    fn send_mutation(&mut self, cx: &mut Context<'_>, id: u64) {
        let (life, cache) = (self.life, &self.cache);
        let Some(Waiting { request, stamp }) = self.waiting.get_mut(&id) else { return };
        let Request::Mutate { op, .. } = request else { return };
        if stamp.is_some() {
            op.retry = true;
        } else if op.life == 0 {
            op.life = life;
        }
        let stamp = *stamp.get_or_insert_with(|| cache.begin_mutation());
        let request = request.clone();
        self.call(cx, &request.clone(), Call::Mutation { id, request, stamp });
    }

    fn call(&mut self, cx: &mut Context<'_>, request: &Request, call: Call) {
        let Some(conn) = self.conn else { return };
        self.last_call += 1;
        self.calls.insert(self.last_call, call);
        let frame = codec::encode_request(request).expect("a small request");
        cx.net.send(conn, true, What::Request { call: self.last_call, frame });
    }

    fn answer(
        &mut self,
        cx: &mut Context<'_>,
        number: u64,
        call: Call,
        reply: ReplyFrame,
    ) -> Vec<Happened> {
        match call {
            Call::Attach { sent_ms } => self.attached(cx, sent_ms, &reply),
            Call::Renew { sent_ms } => {
                if let ReplyFrame::Reply(Reply::Renewed { lease_ms, life }) = reply {
                    self.life = life;
                    self.renew_at_ms = cx.now_ms() + LEASE_RENEW_MS;
                    self.renewed(cx, sent_ms, lease_ms);
                }
                vec![Happened::Renewed]
            }
            Call::One { id, request, ticket } => {
                let ids = match ticket {
                    Some(ticket) => self.fill(cx, &request, ticket, &reply),
                    None => vec![id],
                };
                let asked = ids.into_iter().filter(|id| self.waiting.remove(id).is_some());
                let answered =
                    asked.map(|id| Happened::Answered { id, frames: vec![reply.clone()] });
                answered.collect()
            }
            Call::Listing { id, mut ticket, mut frames } => {
                let now_ms = cx.now_ms();
                if let (ReplyFrame::Chunk(chunk), Some(ticket)) = (&reply, &mut ticket) {
                    self.cache.fill_chunk(now_ms, ticket, chunk);
                }
                let is_chunk = matches!(reply, ReplyFrame::Chunk(_));
                frames.push(reply);
                if is_chunk {
                    self.calls.insert(number, Call::Listing { id, ticket, frames });
                    return Vec::new();
                }
                match (ticket, frames.last()) {
                    (Some(ticket), Some(ReplyFrame::End { complete })) => {
                        self.cache.finish_listing(now_ms, ticket, *complete);
                    }
                    (Some(ticket), _) => self.cache.abandon_listing(ticket),
                    (None, _) => {}
                }
                let is_asked = self.waiting.remove(&id).is_some();
                is_asked.then_some(Happened::Answered { id, frames }).into_iter().collect()
            }
            Call::Mutation { id, request, stamp } => {
                self.waiting.remove(&id);
                let changes = match &reply {
                    ReplyFrame::Reply(Reply::Mutated { result, changes, .. }) => {
                        let learnt = learnt(cx.plant, &request, result);
                        self.cache.learn(cx.now_ms(), stamp, changes, learnt.as_slice());
                        changes.clone()
                    }
                    _ => Vec::new(),
                };
                let life = match &request {
                    Request::Mutate { op, .. } => op.life,
                    _ => 0,
                };
                vec![Happened::Mutated { id, life, changes, frame: reply }]
            }
        }
    }

    fn attached(
        &mut self,
        cx: &mut Context<'_>,
        sent_ms: u64,
        reply: &ReplyFrame,
    ) -> Vec<Happened> {
        let ReplyFrame::Reply(Reply::Attached { session, lease_ms, life, .. }) = reply else {
            return Vec::new();
        };
        self.is_attached = true;
        self.session = *session;
        self.life = *life;
        self.ended = 0;
        self.renew_at_ms = cx.now_ms() + LEASE_RENEW_MS;
        self.renewed(cx, sent_ms, *lease_ms);
        let mut happened = vec![Happened::Attached];
        for id in self.waiting.keys().copied().collect::<Vec<_>>() {
            happened.extend(self.proceed(cx, id));
        }
        happened
    }

    fn renewed(&mut self, cx: &mut Context<'_>, sent_ms: u64, lease_ms: u32) {
        let from_ms = if cx.plant == Plant::LeaseFromAnswer { cx.now_ms() } else { sent_ms };
        self.lease.renewed(from_ms, lease_ms);
    }

    /// Fills the cache; gives back who waits.
    fn fill(
        &mut self,
        cx: &mut Context<'_>,
        request: &Request,
        ticket: Ticket,
        reply: &ReplyFrame,
    ) -> Vec<u64> {
        let is_lookup = matches!(request, Request::Lookup { .. });
        let filled = match reply {
            ReplyFrame::Reply(Reply::Entry(entry)) => Filled::Entry(entry.clone()),
            ReplyFrame::Reply(Reply::Attr(attr)) => Filled::Attr(*attr),
            ReplyFrame::Failure(failure) if failure.status == Status::NotFound && is_lookup => {
                Filled::Absent
            }
            _ => Filled::Failed,
        };
        let now_ms = cx.now_ms();
        if cx.plant != Plant::LateFill {
            return self.cache.fill(now_ms, ticket, &filled);
        }
        // A ticket as of now takes the place of the one it was asked with.
        let waiters = self.cache.fill(now_ms, ticket, &Filled::Failed);
        if let Request::Lookup { dir, name } = request
            && let Answer::Lead(now) = self.cache.lookup(now_ms, dir, name, || 0)
        {
            self.cache.fill(now_ms, now, &filled);
        }
        waiters
    }
}

/// What a mutation teaches. What a repetition is answered was true when it was applied, and what
/// others changed since was perhaps told before this session began: it teaches nothing.
fn learnt(plant: Plant, request: &Request, result: &Mutated) -> Option<Learnt> {
    let Request::Mutate { mutation, op, .. } = request else { return None };
    if op.retry && plant != Plant::ReplayTeaches {
        return None;
    }
    match (mutation, result) {
        (Mutation::Mknod { dir, name, .. }, Mutated::Entry(entry)) => {
            Some(Learnt::Entry { dir: *dir, name: name.clone(), entry: entry.clone() })
        }
        (Mutation::Unlink { dir, name }, Mutated::Done) => {
            Some(Learnt::Absent { dir: *dir, name: name.clone() })
        }
        (Mutation::Setattr { handle, .. }, Mutated::Attr(attr)) => {
            Some(Learnt::Attr { handle: *handle, attr: *attr })
        }
        _ => None,
    }
}
