//! Every policy at every capacity with every seed, on all processors.
//!
//! What must hold: where a result lies depends on what it is of, and not on when it came.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use portcullis_core::limits::POLICY_THREAD_STACK_BYTES;
use portcullis_replay::{Capacity, Outcome, Pace, Setup, Trace};

use super::subject::Subject;
use crate::error::CliError;

/// What is to be replayed.
pub(super) struct Grid<'a> {
    pub(super) trace: &'a Trace,
    pub(super) subjects: &'a [Subject],
    pub(super) capacities: &'a [Capacity],
    /// Seeds are numbered from 1.
    pub(super) seeds: u64,
    pub(super) pace: Pace,
    pub(super) intervals: usize,
}

/// An outcome, and how long it took.
pub(super) type Timed = (Outcome, Duration);

/// One replay.
struct Job {
    subject: usize,
    capacity: usize,
    seed: u64,
}

impl Grid<'_> {
    /// Replays all of it. The outcomes: subject by subject, capacity by capacity, one a seed.
    pub(super) fn replay(&self) -> Result<Vec<Vec<Timed>>, CliError> {
        let jobs = self.jobs();
        let next_uses = self.trace.next_uses();
        let next_job = AtomicUsize::new(0);
        let done: Mutex<Vec<Option<Result<Timed, CliError>>>> =
            Mutex::new(jobs.iter().map(|_| None).collect());
        let work = || {
            loop {
                let at = next_job.fetch_add(1, Ordering::Relaxed);
                let Some(job) = jobs.get(at) else { break };
                let result = self.play(job, &next_uses);
                if result.is_err() {
                    // Nothing that is left can make up for it.
                    next_job.store(jobs.len(), Ordering::Relaxed);
                }
                done.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(result);
            }
        };
        let threads = thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
        thread::scope(|scope| {
            for _ in 0..threads {
                thread::Builder::new()
                    .stack_size(POLICY_THREAD_STACK_BYTES)
                    .spawn_scoped(scope, work)
                    .map_err(|source| CliError::System { what: "cannot start a thread", source })?;
            }
            Ok::<(), CliError>(())
        })?;
        let mut cells: Vec<Vec<Timed>> = Vec::new();
        cells.resize_with(self.subjects.len() * self.capacities.len(), Vec::new);
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        for (job, result) in jobs.iter().zip(done.drain(..)) {
            if let Some(result) = result {
                cells[job.subject * self.capacities.len() + job.capacity].push(result?);
            }
        }
        Ok(cells)
    }

    /// Tells on standard error how many requests a second each subject was worth, on one processor.
    pub(super) fn tell_times(&self, cells: &[Vec<Timed>]) {
        for (subject, cells) in self.subjects.iter().zip(cells.chunks(self.capacities.len())) {
            let times = || cells.iter().flatten().map(|(_, time)| time.as_secs_f64());
            let requests = (times().count() * self.trace.objects().len()) as f64;
            let rate = requests / times().sum::<f64>().max(f64::MIN_POSITIVE);
            eprintln!("{}: {:.2} million requests/s", subject.named(), rate / 1e6);
        }
    }

    fn jobs(&self) -> Vec<Job> {
        let mut jobs = Vec::new();
        for (subject, known) in self.subjects.iter().enumerate() {
            for capacity in 0..self.capacities.len() {
                let seeds = if known.ignores_seeds() { 1 } else { self.seeds };
                jobs.extend((1..=seeds).map(|seed| Job { subject, capacity, seed }));
            }
        }
        jobs
    }

    fn play(&self, job: &Job, next_uses: &[u32]) -> Result<Timed, CliError> {
        let setup = Setup {
            capacity: self.capacities[job.capacity],
            pace: self.pace,
            seed: job.seed,
            intervals: self.intervals,
        };
        let began = Instant::now();
        let outcome = self.subjects[job.subject].replay(self.trace, next_uses, setup)?;
        Ok((outcome, began.elapsed()))
    }
}
