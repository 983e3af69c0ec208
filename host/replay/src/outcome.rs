//! What became of the requests of a trace.

/// Requests, and those that hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests.
    pub requests: u64,
    /// Those whose object was in the cache.
    pub hits: u64,
    /// Bytes asked for; 0 where the trace does not tell sizes.
    pub bytes: u64,
    /// Bytes of the hits.
    pub hit_bytes: u64,
}

impl Counts {
    /// Hits of requests, from 0 to 1.
    pub fn hit_ratio(&self) -> f64 {
        ratio(self.hits, self.requests)
    }

    /// Bytes of hits of bytes asked for, from 0 to 1; 0 where the trace does not tell sizes.
    pub fn byte_hit_ratio(&self) -> f64 {
        ratio(self.hit_bytes, self.bytes)
    }

    /// Requests that had to be answered from behind the cache.
    pub fn misses(&self) -> u64 {
        self.requests - self.hits
    }

    fn add(&mut self, size_bytes: u32, hit: bool) {
        self.requests += 1;
        self.bytes += u64::from(size_bytes);
        if hit {
            self.hits += 1;
            self.hit_bytes += u64::from(size_bytes);
        }
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// One replay, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The whole trace.
    pub total: Counts,
    /// The trace in intervals of as many requests each, but for the last.
    pub intervals: Vec<Counts>,
    /// Requests for objects larger than the cache, which do not enter it.
    pub refused: u64,
    /// Objects that left at the policy's word.
    pub evicted: u64,
    /// Objects that left at the host's own choice, the policy having proposed none.
    pub shortfall: u64,
    /// Victims that stayed, since they were used after they were proposed.
    pub spared: u64,
    /// Hits that the policy was not told of.
    pub dropped: u64,
    /// Proposals of objects that had left, were proposed already or never existed.
    pub useless: u64,
}

/// An outcome that is being counted.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) outcome: Outcome,
    interval_len: usize,
}

impl Tally {
    /// For so many requests, in so many intervals.
    pub(crate) fn new(requests: usize, intervals: usize) -> Self {
        let interval_len = requests.div_ceil(intervals.max(1)).max(1);
        Self { outcome: Outcome::default(), interval_len }
    }

    /// Counts the next request.
    #[inline]
    pub(crate) fn count(&mut self, size_bytes: u32, hit: bool) {
        let outcome = &mut self.outcome;
        if outcome.total.requests.is_multiple_of(self.interval_len as u64) {
            outcome.intervals.push(Counts::default());
        }
        outcome.total.add(size_bytes, hit);
        if let Some(interval) = outcome.intervals.last_mut() {
            interval.add(size_bytes, hit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_add_up() {
        let mut tally = Tally::new(10, 3);
        for number in 0..10 {
            tally.count(number, number % 2 == 0);
        }
        let Outcome { total, intervals, .. } = tally.outcome;
        assert_eq!(total, Counts { requests: 10, hits: 5, bytes: 45, hit_bytes: 20 });
        assert_eq!(intervals.iter().map(|counts| counts.requests).collect::<Vec<_>>(), [4, 4, 2]);
        assert_eq!(intervals.iter().map(|counts| counts.hit_bytes).sum::<u64>(), 20);
        assert_eq!(
            (total.misses(), total.hit_ratio(), Counts::default().hit_ratio()),
            (5, 0.5, 0.0)
        );
    }
}
