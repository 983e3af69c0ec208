//! How large the window is worth being: a hill climber over the hit ratio.
//!
//! After each sample of requests the hit ratio is compared with that of the sample before. Where it
//! rose, the border between window and main space moves on in the same direction, where it fell in
//! the other. The steps shrink, so that it comes to rest, and are large again when the hit ratio
//! changes by much: the load has changed. The form is that of Caffeine, the cache of the paper's
//! authors, with its constants but for these:
//!
//! - The window has a fifth at first, not a hundredth. A sample is ten requests for each resident, so a
//!   large cache climbs a few times a day, and a small window costs most where the load is one of
//!   recency, as that of file trees is.
//! - It never has less than a hundredth. With none at all a newcomer is turned away in the moment in which
//!   it comes, and whatever comes again soon never hits.
//! - The first sample has none before it, so nothing can be learnt from it: the border stays.

/// The window's share at first.
const WINDOW_SHARE: f64 = 0.2;
/// And at least.
const WINDOW_SHARE_MIN: f64 = 0.01;
/// And at most: the protected segment has the rest of what they share.
const WINDOW_SHARE_MAX: f64 = 0.802;
/// The first step, as a share of all bytes.
const STEP: f64 = 0.062_5;
/// What is left of a step for the next.
const STEP_KEPT: f64 = 0.98;
/// A change of the hit ratio that makes steps large again.
const RESTART: f64 = 0.05;

/// The climber.
#[derive(Debug)]
pub(super) struct Climber {
    window_share: f64,
    /// The next step, negative where the window shrinks.
    step: f64,
    /// In the sample before.
    hit_ratio: Option<f64>,
    hits: u64,
    misses: u64,
}

impl Climber {
    /// A climber at the usual share, about to try a smaller one.
    pub(super) fn new() -> Self {
        Self { window_share: WINDOW_SHARE, step: -STEP, hit_ratio: None, hits: 0, misses: 0 }
    }

    /// The window's share of all bytes.
    pub(super) fn window_share(&self) -> f64 {
        self.window_share
    }

    /// Notes requests; a sample ends after `sample` of them.
    pub(super) fn note(&mut self, hits: u32, misses: u32, sample: u64) {
        self.hits += u64::from(hits);
        self.misses += u64::from(misses);
        let requests = self.hits + self.misses;
        if requests < sample {
            return;
        }
        let hit_ratio = self.hits as f64 / requests as f64;
        (self.hits, self.misses) = (0, 0);
        let Some(before) = self.hit_ratio.replace(hit_ratio) else { return };
        let change = hit_ratio - before;
        let step = if change >= 0.0 { self.step } else { -self.step };
        self.step = if change.abs() >= RESTART { STEP.copysign(step) } else { STEP_KEPT * step };
        self.window_share = (self.window_share + step).clamp(WINDOW_SHARE_MIN, WINDOW_SHARE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of 100 requests with these hits.
    fn shares(hits: &[u32]) -> (Climber, Vec<f64>) {
        let mut climber = Climber::new();
        let mut shares = Vec::new();
        for &hits in hits {
            climber.note(hits, 100 - hits, 100);
            shares.push(climber.window_share());
        }
        (climber, shares)
    }

    #[test]
    fn it_goes_on_while_it_rises_and_turns_where_it_falls() {
        let (climber, shares) = shares(&[50, 52, 51, 53, 40]);
        assert_eq!(shares[0], WINDOW_SHARE, "there is nothing to compare with");
        // A small rise: on, the first step is towards a smaller one.
        let smaller = WINDOW_SHARE - STEP;
        assert_eq!(shares[1], smaller);
        // A small fall: back, by a step that has shrunk once.
        let back = smaller + STEP * STEP_KEPT;
        assert_eq!(shares[2], back);
        // A small rise: on, by a step that shrunk twice.
        let further = back + STEP * STEP_KEPT * STEP_KEPT;
        assert_eq!(shares[3], further);
        // A large fall: back by the next step, and large steps from then on.
        assert_eq!(shares[4], further - STEP * STEP_KEPT * STEP_KEPT * STEP_KEPT);
        assert_eq!(climber.step, -STEP);
    }

    #[test]
    fn the_window_is_never_without_room_and_never_all() {
        let down: Vec<u32> = (10..40).collect();
        let (_, smaller) = shares(&down);
        assert_eq!(smaller.last(), Some(&WINDOW_SHARE_MIN));
        let turned: Vec<u32> = [11, 10].into_iter().chain(11..90).collect();
        let (_, larger) = shares(&turned);
        assert_eq!(larger.last(), Some(&WINDOW_SHARE_MAX));
    }

    #[test]
    fn a_sample_ends_when_it_is_full_and_not_before() {
        let mut climber = Climber::new();
        climber.note(60, 39, 100);
        assert_eq!(climber.hit_ratio, None);
        climber.note(300, 0, 100);
        assert_eq!(climber.hit_ratio, Some(360.0 / 399.0));
        assert_eq!((climber.hits, climber.misses), (0, 0));
    }
}
