//! A policy as it was named on the command line, to be made anew for each replay.

use std::path::Path;

use portcullis_core::eviction::native::{NAMES, native};
use portcullis_core::eviction::{Event, ObjectId, PolicyLimits};
use portcullis_policy::{CompiledPolicy, Fault, LoadedPolicy};
use portcullis_replay::{Outcome, Policy, Setup, Trace, opt, replay, row};

use crate::error::CliError;

/// What is replayed.
pub(super) struct Subject {
    named: String,
    kind: Kind,
}

enum Kind {
    /// Of the host, by its name there.
    Native(&'static str),
    Component(CompiledPolicy),
    Opt,
    /// No cache.
    Nothing,
}

impl Subject {
    /// Finds what `named` means.
    pub(super) fn open(named: &str) -> Result<Self, CliError> {
        let kind = if named == opt::NAME {
            Kind::Opt
        } else if named == opt::NONE_NAME {
            Kind::Nothing
        } else if named.contains('/') || named.ends_with(".wasm") {
            Kind::Component(CompiledPolicy::open(Path::new(named))?)
        } else {
            // `s3fifo` is as good as `s3-fifo`.
            let plain = |name: &str| name.replace('-', "");
            let known = NAMES.iter().find(|name| plain(name) == plain(named));
            let what = || {
                let names = NAMES.join(", ");
                format!("there is no policy {named}: name one of {names}, or a file (./{named})")
            };
            Kind::Native(known.ok_or_else(|| CliError::Said(what()))?)
        };
        Ok(Self { named: named.to_owned(), kind })
    }

    pub(super) fn named(&self) -> &str {
        &self.named
    }

    /// Whether it makes the same of every seed.
    pub(super) fn ignores_seeds(&self) -> bool {
        matches!(self.kind, Kind::Opt | Kind::Nothing)
    }

    pub(super) fn described(&self) -> row::Subject {
        let (kind, digest) = match &self.kind {
            Kind::Native(_) => ("native", ""),
            Kind::Component(component) => ("wasm", component.digest()),
            Kind::Opt | Kind::Nothing => ("reference", ""),
        };
        row::Subject { policy: self.named.clone(), kind, digest: digest.to_owned() }
    }

    /// Replays `trace` to it; `next_uses` are the trace's.
    pub(super) fn replay(
        &self,
        trace: &Trace,
        next_uses: &[u32],
        setup: Setup,
    ) -> Result<Outcome, CliError> {
        let capacity_bytes = setup.capacity.capacity_bytes();
        let limits = PolicyLimits { capacity_bytes, seed: setup.seed };
        match &self.kind {
            Kind::Opt => Ok(opt::replay(trace, next_uses, setup.capacity, setup.intervals)),
            Kind::Nothing => Ok(opt::replay_none(trace, setup.intervals)),
            Kind::Native(name) => {
                let Some(policy) = native(name, limits) else {
                    return Err(CliError::Said(format!("there is no policy {name}")));
                };
                let Ok(outcome) = replay(trace, setup, policy);
                Ok(outcome)
            }
            Kind::Component(component) => {
                let policy = Component(component.load(limits)?);
                replay(trace, setup, policy)
                    .map_err(|fault| CliError::Said(format!("{} {fault}", self.named)))
            }
        }
    }
}

/// A component as a replay calls it.
struct Component(LoadedPolicy);

impl Policy for Component {
    type Error = Fault;

    fn on_events(&mut self, now_ms: u64, events: &[Event]) -> Result<(), Fault> {
        self.0.on_events(now_ms, events)
    }

    fn propose(&mut self, now_ms: u64, want: usize) -> Result<Vec<ObjectId>, Fault> {
        self.0.propose(now_ms, want)
    }
}
