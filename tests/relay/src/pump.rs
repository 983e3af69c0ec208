//! The thread of a direction. It receives what has come, decides about it, and sends what is due;
//! between that it waits in ppoll(2), whose timer is as fine as the machine's.

use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::clients::Routes;
use crate::conditions::{Conditions, Direction};
use crate::counters::Counts;
use crate::flight::{Datagram, Flight};
use crate::schedule::{Schedule, Verdict};
use crate::socket::Received;
use crate::train::Train;

/// How much later than asked the kernel may wake the thread, at least (it adds a thousandth of the
/// wait): otherwise it takes 50 us.
const TIMER_SLACK_NS: NonZeroU64 = NonZeroU64::MIN;
/// Nanoseconds of a second.
const NS_PER_S: u64 = 1_000_000_000;

/// What the handle and the thread of a direction share.
#[derive(Debug)]
pub(crate) struct Lane {
    seed: u64,
    direction: Direction,
    pub(crate) conditions: Mutex<Conditions>,
    pub(crate) counts: Counts,
    pub(crate) wake: Wake,
}

impl Lane {
    pub(crate) fn new(seed: u64, direction: Direction) -> Self {
        let (conditions, counts) = (Mutex::default(), Counts::default());
        Self { seed, direction, conditions, counts, wake: Wake::new() }
    }
}

/// Ends a wait in another thread.
#[derive(Debug)]
pub(crate) struct Wake(OwnedFd);

impl Wake {
    fn new() -> Self {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Self(eventfd(0, flags).expect("an eventfd"))
    }

    pub(crate) fn wake(&self) {
        // Full: it was woken often enough.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    fn reset(&self) {
        // Nothing there to reset is as good.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

/// See the module.
pub(crate) struct Pump {
    lane: Arc<Lane>,
    is_over: Arc<AtomicBool>,
    began: Instant,
    schedule: Schedule,
    flight: Flight,
    train: Train,
    /// One more than the number of the latest that was passed on.
    passed: u64,
}

impl Pump {
    pub(crate) fn new(lane: &Arc<Lane>, is_over: &Arc<AtomicBool>, began: Instant) -> Self {
        Self {
            lane: lane.clone(),
            is_over: is_over.clone(),
            began,
            schedule: Schedule::new(lane.seed, lane.direction),
            flight: Flight::default(),
            train: Train::default(),
            passed: 0,
        }
    }

    /// Passes datagrams on until the relay is over.
    pub(crate) fn run(mut self, mut routes: impl Routes) {
        // Without it delays are longer by some 50 us.
        let _ = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NS));
        let mut received = Received::new();
        let mut ready = Vec::new();
        while !self.is_over.load(Ordering::SeqCst) {
            self.send_due();
            self.wait(&mut routes, &mut ready);
            for &source in &ready {
                let Some(socket) = routes.sources().get(source).cloned() else { continue };
                received.fill(&socket);
                self.take_in(&mut routes, source, &received);
            }
        }
    }

    /// Waits until something comes or is due; `ready` are the sources where something came.
    fn wait(&self, routes: &mut impl Routes, ready: &mut Vec<usize>) {
        let timeout = self.flight.next_at_ns().map(|at_ns| {
            let left_ns = at_ns.saturating_sub(self.now_ns());
            Timespec { tv_sec: (left_ns / NS_PER_S) as i64, tv_nsec: (left_ns % NS_PER_S) as i64 }
        });
        let sources = routes.sources().iter().map(|socket| socket.as_fd());
        let fds = std::iter::once(self.lane.wake.0.as_fd()).chain(sources);
        let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        ready.clear();
        // A signal: the next round waits again.
        if poll(&mut fds, timeout.as_ref()).is_err() {
            return;
        }
        let mut has_come = fds.iter().map(|fd| !fd.revents().is_empty());
        if has_come.next() == Some(true) {
            self.lane.wake.reset();
        }
        ready.extend(has_come.enumerate().filter(|(_, come)| *come).map(|(source, _)| source));
    }

    /// Decides about what came.
    fn take_in(&mut self, routes: &mut impl Routes, source: usize, received: &Received) {
        let now_ns = self.now_ns();
        let conditions = *self.lane.conditions.lock();
        for (piece, meta) in received.pieces() {
            let Some((via, to)) = routes.route(source, meta.addr) else { continue };
            // One copy for the whole train, whose parts share it.
            let piece = Bytes::copy_from_slice(piece);
            let stride = meta.stride.max(1);
            let packets = piece.len().div_ceil(stride).max(1);
            self.lane.counts.received(packets as u64, piece.len() as u64);
            for nth in 0..packets {
                let from = nth * stride;
                let bytes = piece.slice(from..(from + stride).min(piece.len()));
                let verdict = self.schedule.admit(&conditions, now_ns, bytes.len() as u64);
                match verdict {
                    Verdict::Due { at_ns, number } if self.flight.has_room(bytes.len()) => {
                        let (via, ecn) = (via.clone(), meta.ecn);
                        self.flight.push(Datagram { at_ns, number, bytes, ecn, via, to });
                    }
                    Verdict::Due { .. } | Verdict::Overflowed => self.lane.counts.overflowed(),
                    Verdict::Lost => self.lane.counts.lost(),
                    Verdict::Cut => self.lane.counts.cut(),
                }
            }
        }
    }

    /// Sends what is due.
    fn send_due(&mut self) {
        let now_ns = self.now_ns();
        let is_cut = self.lane.conditions.lock().cut;
        while let Some(datagram) = self.flight.pop_due(now_ns) {
            if is_cut {
                self.lane.counts.cut();
                continue;
            }
            if datagram.number < self.passed {
                self.lane.counts.reordered();
            }
            self.passed = self.passed.max(datagram.number + 1);
            self.train.push(&datagram, &self.lane.counts);
        }
        self.train.leave(&self.lane.counts);
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }
}
