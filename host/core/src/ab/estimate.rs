//! The difference between two policies that changed sides, with its confidence interval.
//!
//! A crossover in two periods. In each period the ratio (misses of requests, say) of the half that has
//! the candidate is compared with that of the other half, so what differs between the periods cancels;
//! the mean of the two differences is the estimate, so what differs between the halves cancels, too.
//! The variance is that of the shards, by the jackknife: what the estimate would be without each of
//! them (Cochran, "Sampling Techniques", 3rd ed. 1977, ch. 6). Where few shards have most of the traffic
//! there are fewer than 64 opinions: the degrees of freedom are those that the fourth moments leave
//! (after Satterthwaite, Biometrics Bulletin 2(6), 1946).

use serde::{Deserialize, Serialize};

use crate::limits::CACHE_SHARDS;

/// A difference, candidate less incumbent, in the unit of the ratio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// With the incumbent: the mean of its two ratios.
    pub incumbent: f64,
    /// With the candidate.
    pub candidate: f64,
    /// The difference.
    pub difference: f64,
    /// Half of the 95 % interval around it.
    pub interval_95: f64,
    /// Shards' worth of independent opinion behind the interval.
    pub freedom: f64,
}

/// What a ratio is of, for one shard in one period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cell {
    /// Above the line.
    pub part: f64,
    /// Below it.
    pub whole: f64,
}

impl Estimate {
    /// Of two periods of 64 shards. In the first the half `candidate_first` (0: even shards) has the
    /// candidate, in the second the other one. `None` where a half had nothing in a period, or no more
    /// than one shard of it had.
    pub fn crossover(periods: [&[Cell; CACHE_SHARDS]; 2], candidate_first: usize) -> Option<Self> {
        let mut shares = [0.0; CACHE_SHARDS];
        let mut ratios = [[0.0; 2]; 2];
        for (period, cells) in periods.into_iter().enumerate() {
            for half in 0..2 {
                let is_candidate = (half == candidate_first) == (period == 0);
                let of_half =
                    || (half..CACHE_SHARDS).step_by(2).map(|shard| (shard, &cells[shard]));
                let whole: f64 = of_half().map(|(_, cell)| cell.whole).sum();
                let part: f64 = of_half().map(|(_, cell)| cell.part).sum();
                if whole <= 0.0 {
                    return None;
                }
                let ratio = part / whole;
                ratios[period][usize::from(is_candidate)] = ratio;
                let sign = if is_candidate { 0.5 } else { -0.5 };
                for (shard, cell) in of_half() {
                    let others = whole - cell.whole;
                    if others <= 0.0 {
                        return None;
                    }
                    shares[shard] += sign * (cell.part - ratio * cell.whole) / others;
                }
            }
        }
        let mean = |side: usize| (ratios[0][side] + ratios[1][side]) / 2.0;
        let of_half = (CACHE_SHARDS / 2) as f64;
        let (scale, all) = ((of_half - 1.0) / of_half, (CACHE_SHARDS - 2) as f64);
        Some(Self::from_shares([mean(0), mean(1)], &shares, scale, all))
    }

    /// Of two policies that had the same requests, by part of the directories. `None` where no more than
    /// one part had any.
    pub fn paired(
        incumbent: &[Cell; CACHE_SHARDS],
        candidate: &[Cell; CACHE_SHARDS],
    ) -> Option<Self> {
        let sum = |cells: &[Cell; CACHE_SHARDS]| {
            let add = |(part, whole), cell: &Cell| (part + cell.part, whole + cell.whole);
            cells.iter().fold((0.0, 0.0), add)
        };
        let ((old, whole), (new, _)) = (sum(incumbent), sum(candidate));
        if whole <= 0.0 {
            return None;
        }
        let (old, new) = (old / whole, new / whole);
        let mut shares = [0.0; CACHE_SHARDS];
        for (share, (ours, theirs)) in shares.iter_mut().zip(candidate.iter().zip(incumbent)) {
            let others = whole - theirs.whole;
            if others <= 0.0 {
                return None;
            }
            *share = (ours.part - theirs.part - (new - old) * theirs.whole) / others;
        }
        let count = CACHE_SHARDS as f64;
        Some(Self::from_shares([old, new], &shares, (count - 1.0) / count, count - 1.0))
    }

    /// With the variance that the shares leave, times `scale`, and at most so much freedom.
    fn from_shares([incumbent, candidate]: [f64; 2], shares: &[f64], scale: f64, all: f64) -> Self {
        let squares: f64 = shares.iter().map(|share| share.powi(2)).sum();
        let fourths: f64 = shares.iter().map(|share| share.powi(4)).sum();
        // A normal share's fourth moment is three times the square of its second.
        let freedom = if fourths > 0.0 {
            (3.0 * squares.powi(2) / fourths - 2.0).clamp(1.0, all)
        } else {
            all
        };
        let interval_95 = student_97_5(freedom) * (squares * scale).sqrt();
        let difference = candidate - incumbent;
        Self { incumbent, candidate, difference, interval_95, freedom }
    }

    /// Whether the 99.9 % interval leaves 0 out. The 95 % one would do so in one of 20 comparisons of a
    /// policy with itself.
    pub fn shows_difference(&self) -> bool {
        // The quotient of the two quantiles of Student's distribution, to 5 % from 4 degrees on.
        self.difference.abs() > self.interval_95 * (1.68 + 5.0 / self.freedom)
    }

    /// In points (hundredths), and as a gain where the ratio is of misses: the other way round.
    pub fn as_gain_in_points(&self) -> Self {
        Self {
            incumbent: 100.0 * (1.0 - self.incumbent),
            candidate: 100.0 * (1.0 - self.candidate),
            difference: -100.0 * self.difference,
            interval_95: 100.0 * self.interval_95,
            freedom: self.freedom,
        }
    }
}

/// The 97.5 % quantile of Student's distribution: exact for one and two degrees of freedom, its
/// expansion in between and beyond (good to 1 % from 3 on).
fn student_97_5(freedom: f64) -> f64 {
    if freedom <= 1.0 {
        return 12.706;
    }
    if freedom < 2.0 {
        return 12.706 + (freedom - 1.0) * (4.303 - 12.706);
    }
    if freedom < 3.0 {
        return 4.303 + (freedom - 2.0) * (3.182 - 4.303);
    }
    let z: f64 = 1.959_964;
    z + (z.powi(3) + z) / (4.0 * freedom)
        + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * freedom.powi(2))
        + (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z)
            / (384.0 * freedom.powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shard `s` has `100 + s` requests in the first period and twice that in the second, and misses
    /// a share that depends on period, half and policy.
    fn cells(miss: impl Fn(usize, usize) -> f64) -> [[Cell; CACHE_SHARDS]; 2] {
        [0, 1].map(|period| {
            std::array::from_fn(|shard| {
                let whole = (100 + shard) as f64 * (period + 1) as f64;
                Cell { part: whole * miss(period, shard), whole }
            })
        })
    }

    /// Halves that differ by 10 points and periods that differ by 20 leave a difference of 3 as it is.
    /// An estimate that forgets the exchange shows 13 or -7, one that pools the periods something else.
    #[test]
    fn what_halves_and_periods_differ_by_cancels() {
        for first in [0, 1] {
            let cells = cells(|period, shard| {
                let has_candidate = (shard % 2 == first) == (period == 0);
                let own = if has_candidate { 0.03 } else { 0.0 };
                0.2 + 0.1 * (shard % 2) as f64 + 0.2 * period as f64 + own
            });
            let estimate = Estimate::crossover([&cells[0], &cells[1]], first).expect("traffic");
            assert!((estimate.difference - 0.03).abs() < 1e-9, "{estimate:?}");
            assert!(estimate.interval_95 < 1e-9, "all shards agree: {estimate:?}");
            let gain = estimate.as_gain_in_points();
            assert!((gain.difference + 3.0).abs() < 1e-6 && gain.candidate < gain.incumbent);
        }
    }

    /// One shard that differs is no difference of the policies.
    #[test]
    fn one_loud_shard_shows_nothing() {
        let cells = cells(|period, shard| if shard == 6 && period == 1 { 0.9 } else { 0.2 });
        let estimate = Estimate::crossover([&cells[0], &cells[1]], 0).expect("traffic");
        assert!(!estimate.shows_difference(), "{estimate:?}");
        assert!(estimate.freedom < 3.0, "{estimate:?}");
    }

    /// Half of the misses leave in every part: known without doubt, though parts differ tenfold.
    #[test]
    fn pairs_of_the_same_requests_differ_by_what_they_differ() {
        let old: [Cell; CACHE_SHARDS] = std::array::from_fn(|part| {
            let whole = 100.0 * (part % 10 + 1) as f64;
            Cell { part: 0.4 * whole, whole }
        });
        let new = old.map(|cell| Cell { part: cell.part / 2.0, ..cell });
        let estimate = Estimate::paired(&old, &new).expect("requests").as_gain_in_points();
        assert!((estimate.difference - 20.0).abs() < 1e-9 && estimate.interval_95 < 1e-6);
        let mut loud = old;
        loud[3].part = 0.0;
        let estimate = Estimate::paired(&old, &loud).expect("requests");
        assert!(!estimate.shows_difference(), "{estimate:?}");
        assert_eq!(Estimate::paired(&[Cell::default(); 64], &[Cell::default(); 64]), None);
    }

    #[test]
    fn a_half_without_traffic_gives_no_estimate() {
        let mut cells = cells(|_, _| 0.1);
        for shard in (1..CACHE_SHARDS).step_by(2) {
            cells[1][shard].whole = 0.0;
        }
        assert_eq!(Estimate::crossover([&cells[0], &cells[1]], 0), None);
    }

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, quantile) in
            [(1.0, 12.706), (2.0, 4.303), (3.0, 3.182), (5.0, 2.571), (10.0, 2.228), (62.0, 1.999)]
        {
            let is = student_97_5(freedom);
            assert!((is / quantile - 1.0).abs() < 0.012, "{freedom}: {is}");
        }
    }
}
