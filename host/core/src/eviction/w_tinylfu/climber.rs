//! How large the window is worth being: a hill climber over the hit ratio.
//!
//! After each sample of requests the hit ratio is compared with that of the sample before. Where it
//! rose, the border between window and main space moves on in the same direction, where it fell in
//! the other. The steps shrink, so that it comes to rest, and are large again when the hit ratio
//! changes by much: the load has changed. (The form is that of Caffeine, the cache of the paper's
//! authors, with its constants.)

/// The window's share at first.
const WINDOW_SHARE: f64 = 0.01;
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
    hit_ratio: f64,
    hits: u64,
    misses: u64,
}

impl Climber {
    /// A climber at the usual share, about to try a smaller one.
    pub(super) fn new() -> Self {
        Self { window_share: WINDOW_SHARE, step: -STEP, hit_ratio: 0.0, hits: 0, misses: 0 }
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
        let change = hit_ratio - self.hit_ratio;
        let step = if change >= 0.0 { self.step } else { -self.step };
        self.step = if change.abs() >= RESTART { STEP.copysign(step) } else { STEP_KEPT * step };
        (self.hit_ratio, self.hits, self.misses) = (hit_ratio, 0, 0);
        self.window_share = (self.window_share + step).clamp(0.0, WINDOW_SHARE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Five samples of 100 requests with these hits.
    #[test]
    fn it_goes_on_while_it_rises_and_turns_where_it_falls() {
        let mut climber = Climber::new();
        let mut shares = Vec::new();
        for hits in [50, 52, 51, 53, 40] {
            climber.note(hits, 100 - hits, 100);
            shares.push(climber.window_share());
        }
        // From nothing to 50 %: a rise, and a large one. The window is as small as it gets.
        assert_eq!(shares[..2], [0.0, 0.0]);
        // A small fall: back, by a step that has shrunk once.
        let step = STEP * STEP_KEPT;
        assert_eq!(shares[2], step);
        // A small rise: on, by a step that shrunk twice.
        let further = step + step * STEP_KEPT;
        assert_eq!(shares[3], further);
        // A large fall: back by the next step, and large steps from then on.
        assert_eq!(shares[4], further - step * STEP_KEPT * STEP_KEPT);
        assert_eq!(climber.step, -STEP);
    }

    #[test]
    fn a_sample_ends_when_it_is_full_and_not_before() {
        let mut climber = Climber::new();
        climber.note(60, 39, 100);
        assert_eq!(climber.window_share(), WINDOW_SHARE);
        climber.note(300, 0, 100);
        assert_eq!(climber.window_share(), 0.0);
        assert_eq!((climber.hits, climber.misses), (0, 0));
    }
}
