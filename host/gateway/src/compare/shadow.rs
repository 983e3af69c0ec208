//! A shadow: what two policies would keep, on caches of keys alone, of a sample of the directories.
//!
//! It lives on a thread of its own, from what the tap tells. What must hold: it never holds up a
//! request; a policy that fails ends the shadow and nothing else.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use portcullis_core::ab::{Contender, Estimate, Progress, ShadowReport};
use portcullis_core::cache::{Listener, TapNames};
use portcullis_core::eviction::Class;
use portcullis_core::limits::{POLICY_THREAD_STACK_BYTES, TAP_RESIDENTS_MAX};
use portcullis_core::trace::{Operation, Record, What};
use portcullis_policy::{Fault, GhostCache, LoadedPolicy, Touch};
use portcullis_wire::message::Failure;

use crate::volume::{Volume, Waiter};

/// How often what waits is looked at.
const TURN: Duration = Duration::from_millis(20);
/// Counting begins after this part of the time, also where nothing was replaced by then.
const FILLING_PART: u32 = 3;

/// A shadow, under way or ended. Dropping it ends it.
pub(super) struct Shadow {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    report: Mutex<ShadowReport>,
    stop: AtomicBool,
}

/// Listens to one directory in `sample`.
pub(super) fn listen(volume: &Volume, sample: u32) -> Result<Listener<Waiter>, Failure> {
    volume.listen(TapNames::Left, sample.into())
}

impl Shadow {
    /// Starts one of the incumbent and the candidate.
    pub(super) fn start(
        listener: Listener<Waiter>,
        policies: [LoadedPolicy; 2],
        capacity_bytes: u64,
        sample: u32,
        for_ms: u64,
    ) -> io::Result<Self> {
        let [incumbent, candidate] = [&policies[0], &policies[1]].map(|policy| Contender {
            name: policy.name().to_owned(),
            digest: policy.digest().to_owned(),
        });
        let report = ShadowReport {
            incumbent,
            candidate,
            sample,
            capacity_bytes,
            for_ms,
            ..ShadowReport::default()
        };
        let shared = Arc::new(Shared { report: Mutex::new(report), stop: AtomicBool::new(false) });
        let ghosts = policies.map(|policy| GhostCache::new(policy, capacity_bytes));
        let work = Work {
            listener,
            ghosts,
            shared: shared.clone(),
            began: Instant::now(),
            counting: false,
            live: (0, 0),
            lost: 0,
        };
        let thread = thread::Builder::new()
            .name("shadow".into())
            .stack_size(POLICY_THREAD_STACK_BYTES)
            .spawn(move || work.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// What it has shown so far.
    pub(super) fn report(&self) -> ShadowReport {
        self.shared.report.lock().clone()
    }

    pub(super) fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Ends it, soon.
    pub(super) fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            // It ends in an error only where it panicked, which it does not.
            let _ = thread.join();
        }
    }
}

struct Work {
    listener: Listener<Waiter>,
    /// The incumbent's and the candidate's.
    ghosts: [GhostCache; 2],
    shared: Arc<Shared>,
    began: Instant,
    counting: bool,
    /// Uses counted, and those of them that the cache itself had.
    live: (u64, u64),
    lost: u64,
}

impl Work {
    fn run(mut self) {
        let mut bytes = Vec::new();
        self.listener.residents(TAP_RESIDENTS_MAX, &mut bytes);
        let for_ms = self.shared.report.lock().for_ms;
        loop {
            if let Err((at, fault)) = self.take_in(&bytes) {
                let who = self.ghosts[at].policy().name();
                let progress = Progress::Failed(format!("{who} {fault}"));
                return self.tell(progress);
            }
            if self.shared.stop.load(Ordering::Relaxed) {
                return self.tell(Progress::Stopped);
            }
            let elapsed = self.began.elapsed();
            if elapsed >= Duration::from_millis(for_ms) {
                return self.tell(Progress::Over);
            }
            self.begin_counting(elapsed, Duration::from_millis(for_ms));
            self.tell(if self.counting { Progress::Counting } else { Progress::Filling });
            thread::park_timeout(TURN);
            bytes.clear();
            self.listener.take(&mut bytes);
        }
    }

    /// Counts from the moment on at which what both hold was replaced once.
    fn begin_counting(&mut self, elapsed: Duration, whole: Duration) {
        if self.counting {
            return;
        }
        // Once to fill, once to replace.
        let warm = self.ghosts.iter().all(|ghost| ghost.turnovers() >= 2.0);
        if !warm && elapsed < whole / FILLING_PART {
            return;
        }
        self.counting = true;
        self.live = (0, 0);
        self.ghosts.iter_mut().for_each(GhostCache::clear_counts);
        self.shared.report.lock().warm = warm;
    }

    /// Tells both of whole records; which of them failed, and how.
    fn take_in(&mut self, bytes: &[u8]) -> Result<(), (usize, Fault)> {
        let mut at = 0;
        while let Ok(Some((record, len))) = Record::take(&bytes[at..]) {
            at += len;
            self.take_one(&record)?;
        }
        Ok(())
    }

    fn take_one(&mut self, record: &Record<'_>) -> Result<(), (usize, Fault)> {
        let is_hit = record.what == What::Hit;
        let counted = match record.what {
            What::Hit => true,
            What::Came => {
                record.class != Class::Prefetched && record.operation != Operation::Change
            }
            What::Resident => false,
            What::Left => {
                return self.both(|ghost| ghost.forget(record.now_ms.into(), record.key));
            }
            What::Lost => {
                self.lost += record.key;
                return Ok(());
            }
            What::Absent | What::Missed | What::Joined => return Ok(()),
        };
        if counted {
            self.live.0 += 1;
            self.live.1 += u64::from(is_hit);
        }
        let Record { key, dir, class, weight_bytes, .. } = *record;
        // Directories of a sample have hashes with something in common: mixed, they have not.
        let dir = dir.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let touch = Touch { key, dir, class, weight_bytes, counted };
        self.both(|ghost| ghost.touch(record.now_ms.into(), touch))
    }

    fn both(
        &mut self,
        mut tell: impl FnMut(&mut GhostCache) -> Result<(), Fault>,
    ) -> Result<(), (usize, Fault)> {
        for (at, ghost) in self.ghosts.iter_mut().enumerate() {
            tell(ghost).map_err(|fault| (at, fault))?;
        }
        Ok(())
    }

    fn tell(&self, progress: Progress) {
        let [incumbent, candidate] = &self.ghosts;
        let (requests, hits) = if self.counting { self.live } else { (0, 0) };
        let estimate = match self.counting {
            true => Estimate::paired(incumbent.cells(), candidate.cells()),
            false => None,
        };
        let mut report = self.shared.report.lock();
        report.progress = progress;
        report.elapsed_ms = self.began.elapsed().as_millis() as u64;
        report.requests = requests;
        report.live_hit_percent = 100.0 * hits as f64 / requests.max(1) as f64;
        report.hit_ratio = estimate.map(|estimate| estimate.as_gain_in_points());
        report.lost = self.lost;
        report.objects = [incumbent, candidate].map(|ghost| ghost.objects() as u64);
        report.shortfall = [incumbent, candidate].map(|ghost| ghost.shortfall());
    }
}
