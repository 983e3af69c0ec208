//! How often components failed lately, and which are not let in any more.
//!
//! Time is an argument. What must hold: a component that fails [`Recovery::strikes_max`] times within
//! [`POLICY_STRIKES_MS`] is quarantined by its digest, until somebody pardons it; what is remembered
//! is bounded.

use std::collections::VecDeque;

use portcullis_core::limits::{
    POLICY_QUARANTINED_MAX, POLICY_REBUILD_MS, POLICY_STRIKES_MAX, POLICY_STRIKES_MS,
};

/// Faults that are remembered, of all components.
const FAULTS_MAX: usize = 256;

/// What happens after a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Faults within a minute after which a component is quarantined; before that it is tried again.
    pub strikes_max: usize,
    /// How long the native policy works after the first fault; twice as long after each further one.
    pub rebuild_ms: u64,
}

impl Default for Recovery {
    fn default() -> Self {
        Self { strikes_max: POLICY_STRIKES_MAX, rebuild_ms: POLICY_REBUILD_MS }
    }
}

/// A component that is not let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    /// SHA-256 of the component in hexadecimal.
    pub digest: String,
    /// What it did last.
    pub reason: String,
}

/// What a fault leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It may be tried again after this time.
    Again { after_ms: u64 },
    /// It is quarantined.
    Quarantined,
}

/// See the module.
pub(crate) struct Strikes {
    recovery: Recovery,
    /// When which component failed.
    faults: VecDeque<(u64, String)>,
    quarantined: VecDeque<Quarantined>,
}

impl Strikes {
    pub(crate) fn new(recovery: Recovery) -> Self {
        Self { recovery, faults: VecDeque::new(), quarantined: VecDeque::new() }
    }

    /// Notes a fault of the component with this digest.
    pub(crate) fn note(&mut self, now_ms: u64, digest: &str, reason: &str) -> Verdict {
        if self.faults.len() == FAULTS_MAX {
            self.faults.pop_front();
        }
        self.faults.push_back((now_ms, digest.to_owned()));
        let strikes = self.count(now_ms, digest);
        if strikes < self.recovery.strikes_max {
            let doublings = (strikes - 1).min(16);
            return Verdict::Again { after_ms: self.recovery.rebuild_ms << doublings };
        }
        self.pardon(digest);
        if self.quarantined.len() == POLICY_QUARANTINED_MAX {
            self.quarantined.pop_front();
        }
        let (digest, reason) = (digest.to_owned(), reason.to_owned());
        self.quarantined.push_back(Quarantined { digest, reason });
        Verdict::Quarantined
    }

    /// Faults of a component that count still.
    pub(crate) fn count(&self, now_ms: u64, digest: &str) -> usize {
        let counts = |at_ms: u64| now_ms.saturating_sub(at_ms) < POLICY_STRIKES_MS;
        self.faults.iter().filter(|(at_ms, of)| of == digest && counts(*at_ms)).count()
    }

    /// Why a component is not let in, if it is not.
    pub(crate) fn reason(&self, digest: &str) -> Option<&str> {
        let found = self.quarantined.iter().find(|quarantined| quarantined.digest == digest);
        found.map(|quarantined| &quarantined.reason[..])
    }

    /// Lets a component in again, with nothing held against it.
    pub(crate) fn pardon(&mut self, digest: &str) {
        self.faults.retain(|(_, of)| of != digest);
        self.quarantined.retain(|quarantined| quarantined.digest != digest);
    }

    /// All that are not let in, the oldest first.
    pub(crate) fn quarantined(&self) -> Vec<Quarantined> {
        self.quarantined.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_faults_in_a_minute_and_only_those() {
        let mut strikes = Strikes::new(Recovery { strikes_max: 3, rebuild_ms: 100 });
        assert_eq!(strikes.note(0, "a", "first"), Verdict::Again { after_ms: 100 });
        assert_eq!(strikes.note(1_000, "a", "second"), Verdict::Again { after_ms: 200 });
        assert_eq!(strikes.note(2_000, "b", "another"), Verdict::Again { after_ms: 100 });
        // The first one no longer counts.
        assert_eq!(strikes.note(60_000, "a", "third"), Verdict::Again { after_ms: 200 });
        assert_eq!(strikes.reason("a"), None);
        assert_eq!(strikes.note(60_500, "a", "fourth"), Verdict::Quarantined);
        assert_eq!((strikes.reason("a"), strikes.reason("b")), (Some("fourth"), None));
        strikes.pardon("a");
        assert_eq!((strikes.reason("a"), strikes.count(60_500, "a")), (None, 0));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut strikes = Strikes::new(Recovery { strikes_max: 1, rebuild_ms: 100 });
        for number in 0..10_000 {
            strikes.note(number, &number.to_string(), "it fails");
        }
        assert_eq!(strikes.quarantined().len(), POLICY_QUARANTINED_MAX);
        assert!(strikes.faults.len() <= FAULTS_MAX);
        assert_eq!((strikes.reason("0"), strikes.reason("9999")), (None, Some("it fails")));
    }
}
