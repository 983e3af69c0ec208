//! How a gateway is watched: recordings of what is asked of it, and policies compared beside its traffic
//! or on it.

use portcullis_core::ab::{Report, ShadowReport, experiment::Window, shadow::Contender};
use serde::{Deserialize, Serialize};

/// What a recording tells of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TraceNames {
    /// A hash of each, by a key that is drawn for the recording and not kept.
    #[default]
    Hashed,
    /// The names.
    Plain,
}

/// A policy that is to be tried.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The name of a native policy, or what the component's file is called.
    pub name: String,
    /// Bytes of the component, which follow the request; 0 for a native policy.
    pub component_len_bytes: u32,
    /// Bytes of its configuration, which follow the component.
    pub config_len_bytes: u32,
}

/// What is asked of comparisons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Compare {
    /// Begins a shadow, in place of one that has ended.
    ShadowStart {
        /// Whom to try.
        candidate: Candidate,
        /// One directory in so many, from 1.
        sample: u32,
        /// How long.
        for_ms: u64,
    },
    /// Ends the shadow; what it has shown stays.
    ShadowStop,
    /// Begins a split of the live cache, in place of one that has ended.
    AbStart {
        /// Whom to try.
        candidate: Candidate,
        /// Requests of each period of measurement.
        period_requests: u64,
        /// How long a period lasts at most.
        period_ms_max: u64,
    },
    /// Ends the split: the incumbent has the whole cache again. What it has shown stays.
    AbStop,
    /// Ends the split: the candidate has the whole cache.
    AbPromote,
    /// Only tells.
    Status,
}

/// A comparison on the live cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AbStatus {
    /// The policy that was active before.
    pub incumbent: Contender,
    /// The one that is tried.
    pub candidate: Contender,
    /// Whether the cache is split now.
    pub split: bool,
    /// Why it ended, where it did before it was through; empty otherwise.
    pub ended: String,
    /// What it has shown.
    pub report: Report,
    /// Stretches of it, for a plot.
    pub windows: Vec<Window>,
}

/// What there is of comparisons.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// The last shadow.
    pub shadow: Option<ShadowReport>,
    /// The last split.
    pub ab: Option<AbStatus>,
}

impl Compare {
    /// Bytes that follow the request.
    pub const fn body_len_bytes(&self) -> u32 {
        match self {
            Compare::ShadowStart { candidate, .. } | Compare::AbStart { candidate, .. } => {
                candidate.component_len_bytes.saturating_add(candidate.config_len_bytes)
            }
            _ => 0,
        }
    }
}
