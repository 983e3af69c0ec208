//! What happens to a datagram, and when it is due: decided as it comes, from its number, its size
//! and the time, without I/O.
//!
//! The rate is held as virtual scheduling does it (GCRA, ITU-T I.371): `free_at` is when all that
//! was let in will have left at the rate; a datagram leaves at once while that is no further ahead
//! than a burst takes.

use crate::conditions::{Conditions, Direction};

/// A seed for every datagram, from that of the relay.
const SEED_STEP: u64 = 0x9E37_79B9_7F4A_7C15;
/// Nanoseconds of a microsecond.
const NS_PER_US: u64 = 1_000;
/// Nanoseconds of a second.
const NS_PER_S: u128 = 1_000_000_000;
/// A whole, in parts of a million.
const MILLION: u32 = 1_000_000;
/// The longest time that anything is put off: a thousand days in nanoseconds. Keeps sums far from
/// their limits whatever the conditions say.
const PUT_OFF_NS_MAX: u64 = 1_000 * 86_400 * 1_000_000_000;

/// The decisions of one direction.
#[derive(Debug)]
pub(crate) struct Schedule {
    seed: u64,
    /// Datagrams that came.
    number: u64,
    /// When all that was let in will have left.
    free_at_ns: u64,
    /// When the last one is due that may not be overtaken.
    ordered_ns: u64,
}

/// What happens to a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is passed on at this time. `number` says how many came before it.
    Due { at_ns: u64, number: u64 },
    /// It is dropped by chance.
    Lost,
    /// It is dropped because too many bytes wait.
    Overflowed,
    /// It is dropped because everything is.
    Cut,
}

/// What chance says of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Chance {
    lost: bool,
    held_back: bool,
    jitter_us: u64,
}

impl Schedule {
    pub(crate) fn new(seed: u64, direction: Direction) -> Self {
        let seed = match direction {
            Direction::Up => seed,
            Direction::Down => !seed,
        };
        Self { seed, number: 0, free_at_ns: 0, ordered_ns: 0 }
    }

    /// Decides about a datagram that comes at `now_ns`.
    pub(crate) fn admit(
        &mut self,
        conditions: &Conditions,
        now_ns: u64,
        len_bytes: u64,
    ) -> Verdict {
        let number = self.number;
        self.number += 1;
        if conditions.cut {
            return Verdict::Cut;
        }
        let chance = chance(self.seed, number, conditions);
        if chance.lost {
            return Verdict::Lost;
        }
        let Some(leaves_ns) = self.take_turn(conditions, now_ns, len_bytes) else {
            return Verdict::Overflowed;
        };
        let mut at_ns = leaves_ns + put_off_ns(conditions.delay_us);
        if chance.held_back {
            at_ns += put_off_ns(conditions.reorder_us);
        } else if conditions.jitter_us > 0 {
            at_ns += put_off_ns(chance.jitter_us);
        } else {
            // Also where the delay became less meanwhile.
            at_ns = at_ns.max(self.ordered_ns);
            self.ordered_ns = at_ns;
        }
        Verdict::Due { at_ns, number }
    }

    /// When a datagram leaves the queue; `None` where it has no room there.
    fn take_turn(&mut self, conditions: &Conditions, now_ns: u64, len_bytes: u64) -> Option<u64> {
        let Some(rate) = conditions.rate_bytes_per_s else { return Some(now_ns) };
        let rate = u128::from(rate.max(1));
        let takes_ns = |bytes: u64| {
            let ns = u128::from(bytes) * NS_PER_S / rate;
            u64::try_from(ns).unwrap_or(u64::MAX).min(PUT_OFF_NS_MAX)
        };
        let burst_ns = takes_ns(conditions.burst_bytes);
        let free_at_ns = self.free_at_ns.max(now_ns) + takes_ns(len_bytes);
        let free_at_ns = free_at_ns.min(now_ns + PUT_OFF_NS_MAX);
        let leaves_ns = now_ns.max(free_at_ns.saturating_sub(burst_ns));
        let waiting_bytes = u128::from(leaves_ns - now_ns) * rate / NS_PER_S;
        if waiting_bytes > u128::from(conditions.queue_bytes) {
            return None;
        }
        self.free_at_ns = free_at_ns;
        Some(leaves_ns)
    }
}

/// Draws for datagram `number`, always in the same order, so that one condition does not change
/// what the others do.
fn chance(seed: u64, number: u64, conditions: &Conditions) -> Chance {
    let mut rng = fastrand::Rng::with_seed(seed.wrapping_add(number.wrapping_mul(SEED_STEP)));
    let lost = rng.u32(..MILLION) < conditions.loss_ppm;
    let held_back = rng.u32(..MILLION) < conditions.reorder_ppm;
    let jitter_us = rng.u64(..=conditions.jitter_us);
    Chance { lost, held_back, jitter_us }
}

fn put_off_ns(us: u64) -> u64 {
    us.saturating_mul(NS_PER_US).min(PUT_OFF_NS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(schedule: &mut Schedule, conditions: &Conditions, now_ns: u64, len_bytes: u64) -> u64 {
        match schedule.admit(conditions, now_ns, len_bytes) {
            Verdict::Due { at_ns, .. } => at_ns,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_default_passes_everything_on_at_once() {
        let mut schedule = Schedule::new(1, Direction::Up);
        for now_ns in [0, 5, 5, 1_000_000] {
            assert_eq!(due(&mut schedule, &Conditions::default(), now_ns, 65_507), now_ns);
        }
    }

    #[test]
    fn chance_is_the_same_for_a_seed_and_another_for_each_direction() {
        let conditions = Conditions { loss_ppm: 100_000, ..Conditions::default() };
        let lost = |direction, before| {
            let mut schedule = Schedule::new(77, direction);
            (0..5_000_u64)
                .filter(|now| schedule.admit(&conditions, now * before, 1) == Verdict::Lost)
                .collect::<Vec<_>>()
        };
        assert_eq!(lost(Direction::Up, 1), lost(Direction::Up, 1_000), "time has no part in it");
        assert_ne!(lost(Direction::Up, 1), lost(Direction::Down, 1));
    }

    #[test]
    fn as_many_are_lost_and_held_back_as_asked_for() {
        const PACKETS: u64 = 100_000;
        for seed in 0..4 {
            for ppm in [1_000, 10_000, 300_000] {
                let conditions = Conditions {
                    loss_ppm: ppm,
                    reorder_ppm: ppm,
                    jitter_us: 1_000,
                    ..Conditions::default()
                };
                let drawn = (0..PACKETS).map(|number| chance(seed, number, &conditions));
                let drawn: Vec<_> = drawn.collect();
                // Five standard deviations of a binomial distribution.
                let expected = PACKETS as f64 * f64::from(ppm) / 1e6;
                let off = 5.0 * (expected * (1.0 - f64::from(ppm) / 1e6)).sqrt();
                for count in [
                    drawn.iter().filter(|chance| chance.lost).count(),
                    drawn.iter().filter(|chance| chance.held_back).count(),
                ] {
                    let is_near = (count as f64 - expected).abs() < off;
                    assert!(is_near, "seed {seed}: {count} of {ppm} ppm of {PACKETS}");
                }
                let jitter_us: u64 = drawn.iter().map(|chance| chance.jitter_us).sum();
                let mean_us = jitter_us as f64 / PACKETS as f64;
                assert!((mean_us - 500.0).abs() < 10.0, "seed {seed}: a mean of {mean_us} us");
            }
        }
    }

    #[test]
    fn all_and_none_are_meant_literally() {
        let all = Conditions { loss_ppm: 1_000_000, ..Conditions::default() };
        let none = Conditions::default();
        for number in 0..10_000 {
            assert!(chance(3, number, &all).lost);
            assert!(!chance(3, number, &none).lost && !chance(3, number, &none).held_back);
        }
    }

    #[test]
    fn a_delay_that_becomes_less_keeps_the_order() {
        let mut schedule = Schedule::new(0, Direction::Up);
        assert_eq!(due(&mut schedule, &Conditions::delayed(10), 0, 1), 10_000);
        assert_eq!(due(&mut schedule, &Conditions::default(), 500, 1), 10_000);
        assert_eq!(due(&mut schedule, &Conditions::default(), 20_000, 1), 20_000);
    }

    #[test]
    fn who_is_held_back_is_overtaken_and_nobody_else() {
        let conditions = Conditions {
            delay_us: 10,
            reorder_ppm: 200_000,
            reorder_us: 5,
            ..Conditions::default()
        };
        let mut schedule = Schedule::new(4, Direction::Up);
        let mut held_back = 0;
        for now_ns in 0..1_000 {
            let late_ns = due(&mut schedule, &conditions, now_ns, 1) - now_ns;
            assert!([10_000, 15_000].contains(&late_ns), "{late_ns}");
            held_back += usize::from(late_ns == 15_000);
        }
        assert!((100..300).contains(&held_back), "{held_back}");
    }

    #[test]
    fn no_more_leaves_than_the_rate_and_one_burst() {
        let conditions = Conditions {
            rate_bytes_per_s: Some(1_000_000),
            burst_bytes: 10_000,
            queue_bytes: 20_000,
            ..Conditions::default()
        };
        let mut schedule = Schedule::new(0, Direction::Up);
        // 1,000 bytes come every 100 us, ten times the rate, for a second.
        let come_ns = (0..10_000).map(|nth| nth * 100_000);
        let (mut left, mut overflowed) = (Vec::new(), 0);
        for now_ns in come_ns {
            match schedule.admit(&conditions, now_ns, 1_000) {
                Verdict::Due { at_ns, .. } => {
                    assert!(at_ns >= now_ns && at_ns - now_ns <= 20_000_000, "the queue's length");
                    left.push(at_ns);
                }
                Verdict::Overflowed => overflowed += 1,
                other => panic!("{other:?}"),
            }
        }
        // A second's worth, the burst, and what still waits.
        assert!((1_020..=1_031).contains(&left.len()), "{}", left.len());
        assert_eq!(left.len() + overflowed, 10_000);
        assert_eq!(left.iter().filter(|&&at_ns| at_ns < 1_000_000).count(), 10, "the burst");
        for window in left.windows(100) {
            assert!(window[99] - window[0] >= 89_000_000, "100 packets within less than 89 ms");
        }
    }

    #[test]
    fn without_a_burst_each_waits_for_its_own_bytes() {
        let conditions = Conditions {
            rate_bytes_per_s: Some(1_000_000),
            burst_bytes: 0,
            queue_bytes: 60_000,
            ..Conditions::default()
        };
        let mut schedule = Schedule::new(0, Direction::Up);
        assert_eq!(due(&mut schedule, &conditions, 0, 60_000), 60_000_000);
        assert_eq!(schedule.admit(&conditions, 0, 60_000), Verdict::Overflowed);
        assert_eq!(due(&mut schedule, &conditions, 60_000_000, 60_000), 120_000_000);
    }

    #[test]
    fn the_most_absurd_conditions_overflow_nothing() {
        let conditions = Conditions {
            delay_us: u64::MAX,
            jitter_us: u64::MAX,
            loss_ppm: 0,
            reorder_ppm: u32::MAX,
            reorder_us: u64::MAX,
            rate_bytes_per_s: Some(0),
            burst_bytes: u64::MAX,
            queue_bytes: u64::MAX,
            cut: false,
        };
        let mut schedule = Schedule::new(u64::MAX, Direction::Down);
        for _ in 0..10 {
            assert!(due(&mut schedule, &conditions, 1 << 40, 65_507) > 1 << 40);
        }
    }
}
