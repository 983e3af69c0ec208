//! A policy that works as S3-FIFO does, but for one misdeed, which its configuration chooses:
//! `FUNCTION CALL DEED`, as in `on-events 3 panic`, does it in that call and in all that follow.
//! With an empty configuration it does nothing wrong.

use std::collections::VecDeque;
use std::hint::black_box;

use portcullis_core::eviction::s3fifo::S3Fifo;
use portcullis_sdk::{
    Event, EvictionPolicy, Level, ObjectId, Policy, PolicyLimits, log, register_eviction,
};

/// Ids of objects that left or were proposed, of which it makes bad proposals.
const REMEMBERED_MAX: usize = 1024;

/// What it does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deed {
    /// Anywhere: it panics.
    Panic,
    /// It never returns.
    Loop,
    /// It never returns, and calls the host all the time.
    Chatter,
    /// It calls itself until its stack is full.
    Recurse,
    /// It takes memory until there is none.
    Memory,
    /// It writes a thousand long lines.
    Log,
    /// It keeps a copy of whatever it is told.
    Hoard,
    /// In `propose`: ids that were never given out.
    Foreign,
    /// Half of the victims are objects that have left.
    Stale,
    /// Half of the victims were proposed before.
    Repeated,
    /// One victim, however many are wanted.
    One,
    /// None.
    Nothing,
    /// More than were asked for.
    Many,
    /// In `init`: it refuses its configuration, in many words.
    Refuse,
}

impl Deed {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "panic" => Self::Panic,
            "loop" => Self::Loop,
            "chatter" => Self::Chatter,
            "recurse" => Self::Recurse,
            "memory" => Self::Memory,
            "log" => Self::Log,
            "hoard" => Self::Hoard,
            "foreign" => Self::Foreign,
            "stale" => Self::Stale,
            "repeated" => Self::Repeated,
            "one" => Self::One,
            "nothing" => Self::Nothing,
            "many" => Self::Many,
            "refuse" => Self::Refuse,
            _ => return None,
        })
    }

    /// What can be done wrong anywhere.
    #[expect(clippy::panic, reason = "to panic is one of its misdeeds")]
    fn commit(self) {
        match self {
            Self::Panic => panic!("as it was told to"),
            Self::Loop => loop {
                black_box(0);
            },
            Self::Chatter => loop {
                log(Level::Debug, "again");
            },
            Self::Recurse => drop(black_box(deeper(0))),
            Self::Memory => {
                let mut taken = Vec::new();
                loop {
                    taken.push(black_box(vec![1u8; 1 << 20]));
                }
            }
            Self::Log => (0..1_000).for_each(|_| log(Level::Info, &"words ".repeat(1_000))),
            _ => {}
        }
    }
}

/// Small frames, so that the stack of the machine is full before that in memory.
#[expect(unconditional_recursion, reason = "that is the misdeed")]
fn deeper(depth: u64) -> u64 {
    black_box(deeper(black_box(depth + 1))) + depth
}

/// The policy.
pub struct Misdeed {
    policy: S3Fifo,
    function: String,
    /// The first call in which it happens.
    call: u64,
    deed: Option<Deed>,
    batches: u64,
    proposals: u64,
    left: VecDeque<ObjectId>,
    proposed: VecDeque<ObjectId>,
    hoard: Vec<Event>,
}

impl Misdeed {
    /// The deed, where the `call`-th call of `function` is to be one.
    fn deed(&self, function: &str, call: u64) -> Option<Deed> {
        self.deed.filter(|_| self.function == function && call >= self.call)
    }
}

impl Policy for Misdeed {
    const NAME: &str = "misdeed";
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    fn new(limits: PolicyLimits, config: &[u8]) -> Result<Self, String> {
        let config = String::from_utf8_lossy(config).into_owned();
        let words: Vec<&str> = config.split_whitespace().collect();
        let (function, call, deed) = match *words.as_slice() {
            [] => (String::new(), 0, None),
            [function, call, deed] => {
                let call = call.parse().map_err(|_| format!("{call} is no number"))?;
                let parsed = Deed::parse(deed).ok_or_else(|| format!("{deed} is no misdeed"))?;
                (function.to_owned(), call, Some(parsed))
            }
            _ => return Err("it is FUNCTION CALL DEED".to_owned()),
        };
        let policy = S3Fifo::new(limits);
        let (left, proposed) = (VecDeque::new(), VecDeque::new());
        let (batches, proposals, hoard) = (0, 0, Vec::new());
        let misdeed =
            Self { policy, function, call, deed, batches, proposals, left, proposed, hoard };
        match misdeed.deed("init", call) {
            Some(Deed::Refuse) => Err("no\nand \u{1b}[31mno again ".repeat(200)),
            deed => {
                deed.into_iter().for_each(Deed::commit);
                Ok(misdeed)
            }
        }
    }
}

impl EvictionPolicy for Misdeed {
    fn on_events(&mut self, now_ms: u64, events: &[Event]) {
        self.batches += 1;
        match self.deed("on-events", self.batches) {
            Some(Deed::Hoard) => (0..64).for_each(|_| self.hoard.extend(events)),
            deed => deed.into_iter().for_each(Deed::commit),
        }
        for event in events {
            if let Event::Remove { id, .. } = event {
                remember(&mut self.left, *id);
            }
        }
        self.policy.on_events(now_ms, events);
    }

    fn propose(&mut self, now_ms: u64, want: usize) -> Vec<ObjectId> {
        self.proposals += 1;
        let deed = self.deed("propose", self.proposals);
        let bad = match deed {
            Some(Deed::Foreign) => vec![ObjectId::new(u32::MAX, 1)],
            Some(Deed::Stale) => self.left.iter().copied().take(want.div_ceil(2)).collect(),
            Some(Deed::Repeated) => self.proposed.iter().copied().take(want.div_ceil(2)).collect(),
            Some(Deed::Nothing) => return Vec::new(),
            _ => Vec::new(),
        };
        let good = if deed == Some(Deed::One) { 1 } else { want - bad.len() };
        let mut victims = self.policy.propose(now_ms, good);
        victims.iter().for_each(|&id| remember(&mut self.proposed, id));
        if deed == Some(Deed::Many) {
            victims.resize(want + 1, ObjectId::new(0, 1));
        }
        deed.into_iter().for_each(Deed::commit);
        victims.extend(bad);
        victims
    }
}

/// The newest comes first, so that what is told of it is most likely still so.
fn remember(ids: &mut VecDeque<ObjectId>, id: ObjectId) {
    ids.push_front(id);
    ids.truncate(REMEMBERED_MAX);
}

register_eviction!(Misdeed);
