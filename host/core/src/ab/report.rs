//! What a comparison has shown, in numbers and in words.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::estimate::Estimate;
use super::experiment::Stage;
use crate::limits::AB_SIDE_REQUESTS_MIN;

/// An interval wider than this to either side says too little, in points.
const INTERVAL_POINTS_MAX: f64 = 5.0;
/// Degrees of freedom below which an interval is not believed.
const FREEDOM_MIN: f64 = 3.0;

/// What it comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is not through.
    UnderWay,
    /// The candidate hits more.
    Better,
    /// The candidate hits less.
    Worse,
    /// No difference shown.
    NoDifference,
    /// There was not enough traffic to tell, or too few directories had all of it.
    TooLittleTraffic,
    /// The halves differed while both had the incumbent: the traffic is too uneven to compare on.
    Uneven,
}

impl Verdict {
    /// Of the estimates of misses of requests, in A/A and A/B; `requests` are those of the smallest
    /// side.
    pub(super) fn of(
        stage: Stage,
        alike: Option<&Estimate>,
        found: Option<&Estimate>,
        requests: u64,
    ) -> Self {
        if stage != Stage::Done {
            return Verdict::UnderWay;
        }
        let Some(found) = found else { return Verdict::TooLittleTraffic };
        let is_vague = 100.0 * found.interval_95 > INTERVAL_POINTS_MAX;
        if requests < AB_SIDE_REQUESTS_MIN || found.freedom < FREEDOM_MIN || is_vague {
            return Verdict::TooLittleTraffic;
        }
        if !found.shows_difference() {
            return Verdict::NoDifference;
        }
        // Twice the interval: what only one run in ten thousand has by chance.
        if alike.is_some_and(|alike| alike.difference.abs() > 2.0 * alike.interval_95) {
            return Verdict::Uneven;
        }
        if found.difference < 0.0 { Verdict::Better } else { Verdict::Worse }
    }

    /// In a few words.
    pub const fn words(self) -> &'static str {
        match self {
            Verdict::UnderWay => "not through yet",
            Verdict::Better => "the candidate is better",
            Verdict::Worse => "the candidate is worse",
            Verdict::NoDifference => "no difference shown",
            Verdict::TooLittleTraffic => "too little traffic to tell",
            Verdict::Uneven => "the halves differ under the same policy: not to be told here",
        }
    }
}

/// What was seen in a period of A/B while the comparison is not through: no estimate, for what the halves
/// differ by is in it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Glimpse {
    /// The period.
    pub stage: Stage,
    /// What share of its requests is there, in percent.
    pub measured_percent: u32,
    /// Hit ratio of the half with the incumbent, in percent.
    pub incumbent: f64,
    /// Of the half with the candidate.
    pub candidate: f64,
}

/// What a comparison has shown. Differences are candidate less incumbent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// How far it is.
    pub stage: Stage,
    /// What it comes to.
    pub verdict: Verdict,
    /// A/A: hit ratios in points (hundredths of all requests), the sides named as in A/B.
    pub alike: Option<Estimate>,
    /// Of each period of A/B that has begun, where there is no estimate yet.
    pub so_far: Vec<Glimpse>,
    /// A/B: hit ratios in points. A request that is no hit is a call to a brick.
    pub hit_ratio: Option<Estimate>,
    /// Bytes from bricks for each request.
    pub bytes_per_request: Option<Estimate>,
    /// Microseconds that each request waited for bricks, in the mean.
    pub wait_us_per_request: Option<Estimate>,
    /// CPU time of the policy for each event, in nanoseconds: incumbent and candidate.
    pub cpu_ns_per_event: Option<[f64; 2]>,
    /// Requests measured in A/B.
    pub requests: u64,
    /// The fewest requests of a side in a period.
    pub smallest_side_requests: u64,
    /// Whether each period had its requests before its time was over.
    pub all_periods_full: bool,
    /// Whether what each half held was replaced before it was measured.
    pub all_periods_warm: bool,
}

impl Report {
    /// For people, a line each.
    pub fn words(&self) -> String {
        format!("{}\n{}", self.verdict.words(), self.figures())
    }

    /// What [`Report::words`] says after the verdict.
    pub fn figures(&self) -> String {
        let mut text = self.what_is_known_so_far();
        let mut line = |name: &str, estimate: &Option<Estimate>, unit: &str| {
            let Some(Estimate { incumbent, candidate, difference, interval_95, .. }) = estimate
            else {
                return;
            };
            let _ = writeln!(
                text,
                "  {name:<26} {incumbent:>9.2} -> {candidate:>9.2}  difference {difference:+.2} ± \
                 {interval_95:.2} {unit}"
            );
        };
        line("hit ratio, %", &self.hit_ratio, "points");
        line("bytes from bricks/request", &self.bytes_per_request, "bytes");
        line("wait for bricks/request", &self.wait_us_per_request, "us");
        line("A/A: hit ratio, %", &self.alike, "points");
        if let Some([incumbent, candidate]) = self.cpu_ns_per_event {
            let _ = writeln!(
                text,
                "  {:<26} {incumbent:>9.0} -> {candidate:>9.0}  ns of CPU",
                "policy/event"
            );
        }
        let _ = writeln!(
            text,
            "  {:<26} {:>9} measured, {} on the smallest side of a period",
            "requests", self.requests, self.smallest_side_requests
        );
        if !self.all_periods_full {
            text.push_str("  a period ended by its time, before it had all of its requests\n");
        }
        if !self.all_periods_warm {
            text.push_str(
                "  a period began before what the cache held had been replaced eight times: what is hardly \
                 ever evicted tells little of eviction\n",
            );
        }
        text
    }

    /// Of one that is not through, in words; nothing of one that is.
    fn what_is_known_so_far(&self) -> String {
        let mut text = String::new();
        if self.verdict != Verdict::UnderWay {
            return text;
        }
        for glimpse in &self.so_far {
            let Glimpse { stage, measured_percent, incumbent, candidate } = glimpse;
            let which = if *stage == Stage::First { "first" } else { "second" };
            let _ = writeln!(
                text,
                "  {which} period, {measured_percent} % of it: hit ratio {incumbent:.2} -> \
                 {candidate:.2} %, {:+.2} points",
                candidate - incumbent
            );
        }
        text.push_str(match (&self.so_far[..], &self.alike) {
            ([_, _], _) => {
                "  each policy was on each half, but not for as long: what is left over of what the \
                 halves differ by is in the mean of the two, and how much is not known\n"
            }
            ([_], _) => {
                "  the policies have not changed halves: what the halves differ by is in that \
                 difference, and how much is not known\n"
            }
            (_, Some(_)) => {
                "  so far both halves had the active policy: of the candidate nothing is known\n"
            }
            (_, None) => "  nothing was measured to its end so far\n",
        });
        text
    }
}
