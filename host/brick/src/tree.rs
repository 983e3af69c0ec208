//! One export with all that belongs to it, and what has to be done for it now and then.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use portcullis_core::replay::Replays;
use portcullis_core::volume::Outcomes;
use portcullis_core::watch::{Change, SessionId};
use portcullis_transport::{Recaller, WatchSession, Watching};
use portcullis_wire::message::Failure;
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;

use crate::descriptors::Descriptors;
use crate::direct::{Direct, DirectCounters};
use crate::handles::Handles;
use crate::lease_note::LeaseNote;
use crate::locks::Locks;
use crate::mutate::Mutator;
use crate::mutations::Applied;
use crate::orphans::Orphans;
use crate::workers::Workers;

/// How often it is looked whether something was kept for long enough.
const TICK_MS: u64 = 1000;

/// See the module.
pub(crate) struct Tree {
    pub(crate) handles: Arc<Handles>,
    pub(crate) orphans: Arc<Orphans>,
    pub(crate) mutator: Mutator,
    pub(crate) locks: Arc<Locks>,
    pub(crate) watching: Arc<Watching>,
    /// For what clients hold open.
    pub(crate) descriptors: Arc<Descriptors>,
    pub(crate) direct: Arc<Direct>,
    pub(crate) replays: Mutex<Replays<Applied, oneshot::Sender<()>>>,
    /// What came of operations on several bricks that this one coordinated.
    pub(crate) outcomes: Mutex<Outcomes>,
    pub(crate) workers: Workers,
    /// A brick becomes a member of a volume once.
    pub(crate) joining: Mutex<()>,
    lease_note: LeaseNote,
    /// Whose each session is.
    clients: Mutex<HashMap<SessionId, u128>>,
}

impl Tree {
    /// The export of `handles`; within a tokio runtime, which it uses until it is dropped.
    pub(crate) fn new(handles: Handles, counters: Arc<DirectCounters>, polling: bool) -> Arc<Self> {
        let handles = Arc::new(handles);
        let orphans = Orphans::new(handles.clone());
        let descriptors = Descriptors::of_process();
        let watching = Watching::start();
        let (lease_note, left) = LeaseNote::find(handles.export().stat());
        if left {
            watching.wait_for_earlier_life();
        }
        let life = RandomState::new().hash_one(Instant::now());
        let mut outcomes = Outcomes::new(life);
        if let Some(member) = handles.member() {
            member.recover_outcomes(&mut outcomes);
        }
        let tree = Arc::new(Self {
            outcomes: Mutex::new(outcomes),
            mutator: Mutator::new(handles.clone(), orphans.clone()),
            locks: Arc::new(Locks::new(handles.clone(), descriptors.clone())),
            direct: Direct::start(handles.clone(), watching.clone(), counters, polling),
            replays: Mutex::new(Replays::new(life)),
            workers: Workers::default(),
            joining: Mutex::default(),
            lease_note,
            descriptors,
            clients: Mutex::default(),
            handles,
            orphans,
            watching,
        });
        tokio::spawn(tick(Arc::downgrade(&tree)));
        tree
    }

    /// Another number after each start of the brick.
    pub(crate) fn life(&self) -> u64 {
        self.replays.lock().life()
    }

    /// Begins a session of a client. Blocks.
    pub(crate) fn begin(&self, recaller: Recaller, client: u128) -> WatchSession {
        let opened = self.lease_note.with(|| self.watching.open(recaller));
        self.clients.lock().insert(opened.id, client);
        opened
    }

    /// The brick is about to end: where nobody holds a lease, the next one need not wait.
    pub(crate) async fn forget_leases(self: Arc<Self>) {
        let workers = self.workers.clone();
        let forget = move || {
            self.lease_note.clear_if(|| self.watching.grantor().sessions() == 0);
            Ok(())
        };
        // It fails only where the runtime ends already.
        let _ = workers.run(forget).await;
    }

    /// Ends an earlier session of a client, through which it caches nothing any more; that of
    /// another client stays.
    pub(crate) fn end_earlier(&self, session: SessionId, client: u128) {
        let is_own = self.clients.lock().get(&session) == Some(&client);
        if is_own {
            self.watching.end(session);
        }
    }

    /// Lets go of what was kept for those who did not come back. Blocks.
    fn sweep(&self) -> Result<(), Failure> {
        let now = Instant::now();
        self.mutator.sweep(now);
        self.orphans.sweep(now);
        self.locks.sweep(now);
        if let Some(member) = self.handles.member() {
            member.holds().sweep(now);
        }
        let sessions = || self.watching.grantor().sessions();
        self.lease_note.clear_if(|| sessions() == 0);
        if sessions() == 0 {
            self.direct.forget_all();
            // One that began meanwhile may rely on what was just forgotten.
            if sessions() > 0 {
                drop(self.watching.begin_change(None, &[Change::All]));
            }
        }
        let grantor = self.watching.grantor();
        self.clients.lock().retain(|&session, _| grantor.is_open(session));
        Ok(())
    }
}

async fn tick(tree: Weak<Tree>) {
    let mut ticks = tokio::time::interval(Duration::from_millis(TICK_MS));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(tree) = tree.upgrade() else { return };
        let swept = tree.clone();
        // It fails only where the brick stops.
        let _ = tree.workers.run(move || swept.sweep()).await;
    }
}
