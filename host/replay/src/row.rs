//! What is shown of a policy at one capacity: the outcomes of all its seeds, folded.

use serde::Serialize;

use crate::capacity::Capacity;
use crate::outcome::{Counts, Outcome};
use crate::trace::Live;

/// What the row of what really happened is called.
pub const LIVE_NAME: &str = "live";

/// A row. Serialised it is one JSON object; its fields are part of what the command promises.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The trace, as it was named.
    pub trace: String,
    /// The policy, as it was named.
    pub policy: String,
    /// `native`, `wasm`, or `reference` for what no policy can be.
    pub kind: &'static str,
    /// SHA-256 of the component in hexadecimal, empty where it is none.
    pub digest: String,
    /// Entries or bytes.
    pub capacity: u64,
    /// Which of them.
    pub unit: &'static str,
    /// Requests of the trace.
    pub requests: u64,
    /// Hits with the first seed.
    pub hits: u64,
    /// The least hits with any seed.
    pub hits_min: u64,
    /// The most.
    pub hits_max: u64,
    /// Hits of requests with the first seed, from 0 to 1.
    pub hit_ratio: f64,
    /// With the seed that has least.
    pub hit_ratio_min: f64,
    /// With the seed that has most.
    pub hit_ratio_max: f64,
    /// Requests answered from behind the cache, with the first seed.
    pub backend_calls: u64,
    /// Bytes asked for; absent where the trace does not tell sizes, like the next two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Bytes of the hits, with the first seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hit_bytes: Option<u64>,
    /// Those of these, from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub byte_hit_ratio: Option<f64>,
    /// Seeds it was replayed with.
    pub seeds: usize,
    /// Of the first seed, as in [`Outcome`], like all that follows.
    pub refused: u64,
    /// Objects that left at the policy's word.
    pub evicted: u64,
    /// Objects that left at the host's own choice.
    pub shortfall: u64,
    /// Victims that stayed, since they were used after they were proposed.
    pub spared: u64,
    /// Hits that the policy was not told of.
    pub dropped: u64,
    /// Proposals that were of no use.
    pub useless: u64,
    /// How it differs from the baseline; absent where it is the baseline, or there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
    /// Hits of each interval, in order.
    pub interval_hits: Vec<u64>,
    /// The capacity, for whoever shows it.
    #[serde(skip)]
    pub shown_capacity: Capacity,
}

/// What a row is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The policy, as it was named.
    pub policy: String,
    /// `native`, `wasm` or `reference`.
    pub kind: &'static str,
    /// SHA-256 of the component in hexadecimal, or empty.
    pub digest: String,
}

impl Row {
    /// What really happened while the trace was recorded.
    pub fn live(trace: &str, live: &Live) -> Option<Self> {
        let outcome = Outcome { total: live.objects, ..Outcome::default() };
        let policy = format!("{LIVE_NAME} ({})", live.policy);
        let subject = Subject { policy, kind: "reference", digest: String::new() };
        let capacity = Capacity::Bytes(live.capacity_bytes);
        Self::fold(trace, &subject, capacity, &[outcome], false)
    }

    /// Folds the outcomes of one policy at one capacity, one a seed. `None` where there is none.
    pub fn fold(
        trace: &str,
        subject: &Subject,
        capacity: Capacity,
        outcomes: &[Outcome],
        has_sizes: bool,
    ) -> Option<Self> {
        let first = outcomes.first()?;
        let total = &first.total;
        let hits = || outcomes.iter().map(|outcome| outcome.total.hits);
        let (hits_min, hits_max) = (hits().min()?, hits().max()?);
        let ratio = |hits: u64| Counts { hits, ..*total }.hit_ratio();
        Some(Self {
            trace: trace.to_owned(),
            policy: subject.policy.clone(),
            kind: subject.kind,
            digest: subject.digest.clone(),
            capacity: capacity.amount(),
            unit: capacity.unit(),
            requests: total.requests,
            hits: total.hits,
            hits_min,
            hits_max,
            hit_ratio: total.hit_ratio(),
            hit_ratio_min: ratio(hits_min),
            hit_ratio_max: ratio(hits_max),
            backend_calls: total.misses(),
            bytes: has_sizes.then_some(total.bytes),
            hit_bytes: has_sizes.then_some(total.hit_bytes),
            byte_hit_ratio: has_sizes.then(|| total.byte_hit_ratio()),
            seeds: outcomes.len(),
            refused: first.refused,
            evicted: first.evicted,
            shortfall: first.shortfall,
            spared: first.spared,
            dropped: first.dropped,
            useless: first.useless,
            difference: None,
            interval_hits: first.intervals.iter().map(|counts| counts.hits).collect(),
            shown_capacity: capacity,
        })
    }
}

/// By how much one policy's hit ratio is above another's, in points (hundredths of all requests).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Over the whole trace, each with its first seed.
    pub points: f64,
    /// Half of the 95 % interval around the mean of the intervals' differences, each interval being
    /// compared with the same one of the other policy. Intervals that follow one another are not
    /// independent, so take it for a measure of how even the difference is.
    pub interval_95: f64,
}

impl Difference {
    /// Of `outcome` from `baseline`. The two are of the same trace and intervals.
    pub fn between(outcome: &Outcome, baseline: &Outcome) -> Self {
        let points = 100.0 * (outcome.total.hit_ratio() - baseline.total.hit_ratio());
        let pairs = outcome.intervals.iter().zip(&baseline.intervals);
        let differences: Vec<f64> =
            pairs.map(|(ours, theirs)| 100.0 * (ours.hit_ratio() - theirs.hit_ratio())).collect();
        Self { points, interval_95: half_width_95(&differences) }
    }
}

/// Half of the 95 % confidence interval of the mean by Student's distribution, whose quantile is
/// taken from the first terms of its expansion (good to 0.5 % from 4 values on). 0 for fewer than two.
fn half_width_95(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let freedom = count - 1.0;
    let z: f64 = 1.959_964;
    let quantile = z
        + (z.powi(3) + z) / (4.0 * freedom)
        + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * freedom.powi(2))
        + (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z)
            / (384.0 * freedom.powi(3));
    quantile * (squares / freedom / count).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(intervals: &[(u64, u64)]) -> Outcome {
        let counts = |&(requests, hits)| Counts { requests, hits, ..Counts::default() };
        let mut total = Counts::default();
        for (requests, hits) in intervals {
            total.requests += requests;
            total.hits += hits;
        }
        Outcome { total, intervals: intervals.iter().map(counts).collect(), ..Outcome::default() }
    }

    #[test]
    fn seeds_are_folded_into_least_and_most() {
        let outcomes = [outcome(&[(100, 30)]), outcome(&[(100, 25)]), outcome(&[(100, 45)])];
        let subject = Subject { policy: "lru".into(), kind: "native", digest: String::new() };
        let capacity = Capacity::Entries(10);
        let row = Row::fold("t", &subject, capacity, &outcomes, false).expect("three outcomes");
        assert_eq!((row.hits, row.hits_min, row.hits_max, row.seeds), (30, 25, 45, 3));
        assert_eq!((row.hit_ratio, row.hit_ratio_min, row.backend_calls), (0.3, 0.25, 70));
        let json = serde_json::to_value(&row).expect("JSON");
        assert_eq!((&json["unit"], &json["capacity"]), (&"entries".into(), &10.into()));
        assert!(json.get("bytes").is_none() && json.get("shown_capacity").is_none());
    }

    /// Differences of 1, 2, 3 and 6 points: mean 3, standard deviation sqrt(14/3), quantile for three
    /// degrees of freedom 3.1824.
    #[test]
    fn intervals_are_compared_in_pairs() {
        let ours = outcome(&[(100, 51), (100, 22), (100, 83), (100, 16)]);
        let theirs = outcome(&[(100, 50), (100, 20), (100, 80), (100, 10)]);
        let difference = Difference::between(&ours, &theirs);
        assert!((difference.points - 3.0).abs() < 1e-9);
        let expected = 3.1824 * (14.0_f64 / 3.0).sqrt() / 2.0;
        assert!((difference.interval_95 / expected - 1.0).abs() < 0.01, "{difference:?}");
        assert_eq!(Difference::between(&ours, &ours), Difference { points: 0.0, interval_95: 0.0 });
    }
}
