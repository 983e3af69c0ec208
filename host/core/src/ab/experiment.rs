//! The order of things: warm up, both sides alike, warm up, one side each, exchanged, warm up, again.
//!
//! Whoever runs it hands in what was counted now and then ([`Experiment::observe`]) and does what the
//! stage says ([`Experiment::sides`]). A period of measurement ends when it had its requests, or its
//! time. What is counted while a stage warms up is thrown away: until what was held by a half has been
//! replaced eight times since its policy came. FIFO and LRU have nothing left of what was there before
//! after once or twice; S3-FIFO, whose main queue is seldom replaced, hits one to four points less often than
//! one that was always there after two to five times, and about a third of a point less after eight
//! (OLTP, 8,000 entries that FIFO had chosen). What must hold: a period counts nothing from before its
//! policies were at work; what was interrupted is measured anew from its warming up.

use serde::{Deserialize, Serialize};

use super::estimate::{Cell, Estimate};
use super::report::{Glimpse, Report, Verdict};
use super::tally::{Costs, ShardTally};
use crate::limits::{AB_WINDOWS_MAX, CACHE_SHARDS};

/// How often what a half holds has to be replaced before its policy is measured.
const TURNOVERS: u64 = 8;
/// Windows that a period is cut into.
const WINDOWS: u64 = 16;

/// What was agreed before it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Requests of each period of measurement.
    pub period_requests: u64,
    /// How long a period lasts at most, as does warming up.
    pub period_ms_max: u64,
    /// Bytes that the whole cache may hold.
    pub capacity_bytes: u64,
    /// The half that has the candidate first: 0 or 1, drawn by whoever plans.
    pub candidate_first: usize,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Both halves have the incumbent, and fill.
    WarmAlike,
    /// The first period of A/A.
    FirstAlike,
    /// The second one, at once after it.
    SecondAlike,
    /// One half has the candidate.
    WarmFirst,
    /// The first period of A/B.
    First,
    /// The sides have changed.
    WarmSecond,
    /// The second period of A/B.
    Second,
    /// There is nothing more to measure: both halves have the incumbent.
    Done,
}

/// Whose policy a half has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The policy that was active before.
    Incumbent,
    /// The one that is tried.
    Candidate,
}

/// Whose policy each half has.
pub type Sides = [Side; 2];

/// What was counted up to a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Monotonic.
    pub now_ms: u64,
    /// Of each shard.
    pub shards: [ShardTally; CACHE_SHARDS],
    /// Of each half's policy, since any moment: what grows less is counted from 0.
    pub costs: [Costs; 2],
}

/// What was counted in one period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Period {
    stage: Stage,
    shards: Vec<ShardTally>,
    costs: [Costs; 2],
    /// Whether its requests were there before its time was over.
    full: bool,
    /// Whether what the halves hold had been replaced before it began.
    warm: bool,
}

/// A stretch of a period, for the plot.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// The period.
    pub stage: Stage,
    /// Milliseconds since the experiment began.
    pub at_ms: u64,
    /// Of the half with the incumbent (in A/A: the even one), from 0 to 1.
    pub incumbent_hit_ratio: f64,
    /// Of the half with the candidate (in A/A: the odd one).
    pub candidate_hit_ratio: f64,
}

/// A comparison under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    plan: Plan,
    stage: Stage,
    periods: Vec<Period>,
    windows: Vec<Window>,
    /// How long it ran before it was resumed last.
    ran_ms: u64,
    #[serde(skip)]
    running: Option<Running>,
}

/// What is only known while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Running {
    began_ms: u64,
    stage_began: Box<Reading>,
    window_began: Box<Reading>,
    warm: bool,
}

impl Experiment {
    /// One that has not begun: it does with the first reading.
    pub fn new(plan: Plan) -> Self {
        let (periods, windows) = (Vec::new(), Vec::new());
        Self { plan, stage: Stage::WarmAlike, periods, windows, ran_ms: 0, running: None }
    }

    /// What was agreed.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// How far it is.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// The windows so far.
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// Whose policy each half has now.
    pub fn sides(&self) -> Sides {
        let candidate = match self.stage {
            Stage::WarmFirst | Stage::First => self.plan.candidate_first,
            Stage::WarmSecond | Stage::Second => 1 - self.plan.candidate_first,
            _ => return [Side::Incumbent; 2],
        };
        let side = |half| if half == candidate { Side::Candidate } else { Side::Incumbent };
        [side(0), side(1)]
    }

    /// It was interrupted, and the cache is empty: what was being measured is measured anew.
    pub fn resume(&mut self) {
        self.running = None;
        self.stage = match self.stage {
            Stage::FirstAlike | Stage::SecondAlike => Stage::WarmAlike,
            Stage::First => Stage::WarmFirst,
            Stage::Second => Stage::WarmSecond,
            stage => stage,
        };
        let stage = self.stage;
        self.periods.retain(|period| period.stage < stage);
        self.windows.retain(|window| window.stage < stage);
    }

    /// Takes in what was counted up to now; `true` where a new stage begins with it, and the policies
    /// may have to change.
    pub fn observe(&mut self, reading: &Reading) -> bool {
        let Some(running) = &mut self.running else {
            self.running = Some(Running {
                began_ms: reading.now_ms,
                stage_began: Box::new(reading.clone()),
                window_began: Box::new(reading.clone()),
                warm: false,
            });
            return false;
        };
        let in_stage_ms = reading.now_ms.saturating_sub(running.stage_began.now_ms);
        let late = in_stage_ms >= self.plan.period_ms_max;
        let counted = between(&running.stage_began, reading);
        let full = match self.stage {
            Stage::Done => return false,
            Stage::WarmAlike | Stage::WarmFirst | Stage::WarmSecond => {
                running.warm = is_turned_over(&counted, self.plan.capacity_bytes);
                running.warm
            }
            Stage::FirstAlike | Stage::SecondAlike | Stage::First | Stage::Second => {
                let requests = |half: usize| of_half(&counted, half).requests;
                requests(0) + requests(1) >= self.plan.period_requests
            }
        };
        self.note_window(reading, full || late);
        if !full && !late {
            return false;
        }
        self.end_stage(reading, &counted, full);
        true
    }

    fn end_stage(&mut self, reading: &Reading, counted: &[ShardTally], full: bool) {
        let Some(running) = &mut self.running else { return };
        let next = match self.stage {
            Stage::WarmAlike => Stage::FirstAlike,
            Stage::FirstAlike => Stage::SecondAlike,
            Stage::SecondAlike => Stage::WarmFirst,
            Stage::WarmFirst => Stage::First,
            Stage::First => Stage::WarmSecond,
            Stage::WarmSecond => Stage::Second,
            Stage::Second | Stage::Done => Stage::Done,
        };
        if !matches!(self.stage, Stage::WarmAlike | Stage::WarmFirst | Stage::WarmSecond) {
            let costs =
                [0, 1].map(|half| reading.costs[half].since(&running.stage_began.costs[half]));
            let (stage, warm) = (self.stage, running.warm);
            self.periods.push(Period { stage, shards: counted.to_vec(), costs, full, warm });
        }
        self.stage = next;
        (*running.stage_began).clone_from(reading);
        (*running.window_began).clone_from(reading);
    }

    /// Closes a window where it has its share of the period's requests, or the period ends.
    fn note_window(&mut self, reading: &Reading, ends: bool) {
        let sides = self.sides();
        let Some(running) = &mut self.running else { return };
        if matches!(self.stage, Stage::WarmAlike | Stage::WarmFirst | Stage::WarmSecond) {
            return;
        }
        let counted = between(&running.window_began, reading);
        let halves = [of_half(&counted, 0), of_half(&counted, 1)];
        let requests = halves[0].requests + halves[1].requests;
        if requests == 0 || (!ends && requests < self.plan.period_requests / WINDOWS) {
            return;
        }
        let candidate = usize::from(sides[0] != Side::Candidate);
        if self.windows.len() < AB_WINDOWS_MAX {
            self.windows.push(Window {
                stage: self.stage,
                at_ms: self.ran_ms + reading.now_ms.saturating_sub(running.began_ms),
                incumbent_hit_ratio: halves[1 - candidate].hit_ratio(),
                candidate_hit_ratio: halves[candidate].hit_ratio(),
            });
        }
        (*running.window_began).clone_from(reading);
    }

    /// What it has shown so far.
    pub fn report(&self) -> Report {
        let alike = self.compare(Stage::FirstAlike, Stage::SecondAlike, hits);
        let hit_ratio = self.compare(Stage::First, Stage::Second, hits);
        let plain = |cell: fn(&ShardTally) -> Cell| self.compare(Stage::First, Stage::Second, cell);
        let requests = self.smallest_side();
        let warm = self.periods.iter().all(|period| period.warm);
        Report {
            stage: self.stage,
            verdict: Verdict::of(self.stage, alike.as_ref(), hit_ratio.as_ref(), requests),
            alike: alike.map(|estimate| estimate.as_gain_in_points()),
            so_far: match self.stage {
                Stage::Done => Vec::new(),
                _ => [Stage::First, Stage::Second]
                    .iter()
                    .filter_map(|&it| self.glimpse(it))
                    .collect(),
            },
            hit_ratio: hit_ratio.map(|estimate| estimate.as_gain_in_points()),
            bytes_per_request: plain(|tally| Cell {
                part: tally.filled_bytes as f64,
                whole: tally.requests as f64,
            }),
            wait_us_per_request: plain(|tally| Cell {
                part: tally.waited_us as f64,
                whole: tally.requests as f64,
            }),
            cpu_ns_per_event: self.cpu_ns_per_event(),
            requests: self.requests(),
            smallest_side_requests: requests,
            all_periods_full: self.periods.iter().all(|period| period.full),
            all_periods_warm: warm,
        }
    }

    /// What the windows of a period have shown, of which each has the same number of requests.
    fn glimpse(&self, stage: Stage) -> Option<Glimpse> {
        let windows = self.windows.iter().filter(|window| window.stage == stage);
        let count = windows.clone().count();
        if count == 0 {
            return None;
        }
        let mean =
            |of: fn(&Window) -> f64| 100.0 * windows.clone().map(of).sum::<f64>() / count as f64;
        let is_over = self.periods.iter().any(|period| period.stage == stage);
        Some(Glimpse {
            stage,
            measured_percent: if is_over {
                100
            } else {
                (100 * count as u32 / WINDOWS as u32).min(99)
            },
            incumbent: mean(|window| window.incumbent_hit_ratio),
            candidate: mean(|window| window.candidate_hit_ratio),
        })
    }

    fn compare(
        &self,
        first: Stage,
        second: Stage,
        cell: fn(&ShardTally) -> Cell,
    ) -> Option<Estimate> {
        let cells = |stage| -> Option<[Cell; CACHE_SHARDS]> {
            let period = self.periods.iter().find(|period| period.stage == stage)?;
            let shards: &[ShardTally; CACHE_SHARDS] = period.shards.as_slice().try_into().ok()?;
            Some(std::array::from_fn(|shard| cell(&shards[shard])))
        };
        Estimate::crossover([&cells(first)?, &cells(second)?], self.plan.candidate_first)
    }

    /// Requests measured of A/B.
    fn requests(&self) -> u64 {
        let measured = self.periods.iter().filter(|period| period.stage >= Stage::First);
        measured.flat_map(|period| &period.shards).map(|tally| tally.requests).sum()
    }

    /// The fewest requests that a side had in a period of A/B.
    fn smallest_side(&self) -> u64 {
        let measured = self.periods.iter().filter(|period| period.stage >= Stage::First);
        let sides =
            measured.flat_map(|period| [0, 1].map(|half| of_half(&period.shards, half).requests));
        sides.min().unwrap_or(0)
    }

    /// Of the incumbent and the candidate; `None` where nothing was told to one of them.
    fn cpu_ns_per_event(&self) -> Option<[f64; 2]> {
        let mut sums = [Costs::default(); 2];
        for period in &self.periods {
            let candidate = match period.stage {
                Stage::First => self.plan.candidate_first,
                Stage::Second => 1 - self.plan.candidate_first,
                _ => continue,
            };
            sums[0].add(&period.costs[1 - candidate]);
            sums[1].add(&period.costs[candidate]);
        }
        let each =
            |sum: Costs| (sum.events > 0).then(|| sum.cpu_us as f64 * 1e3 / sum.events as f64);
        Some([each(sums[0])?, each(sums[1])?])
    }
}

fn hits(tally: &ShardTally) -> Cell {
    Cell { part: tally.missed as f64, whole: tally.requests as f64 }
}

fn between(from: &Reading, to: &Reading) -> Vec<ShardTally> {
    to.shards.iter().zip(&from.shards).map(|(now, then)| now.since(then)).collect()
}

fn of_half(shards: &[ShardTally], half: usize) -> ShardTally {
    let mut sum = ShardTally::default();
    shards.iter().skip(half).step_by(2).for_each(|tally| sum.add(tally));
    sum
}

/// Whether both halves had what they hold replaced as often as it takes.
fn is_turned_over(counted: &[ShardTally], capacity_bytes: u64) -> bool {
    let filled = |half| of_half(counted, half).filled_weight_bytes;
    filled(0).min(filled(1)) >= TURNOVERS * (capacity_bytes / 2)
}
