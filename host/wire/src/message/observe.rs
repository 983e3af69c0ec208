//! How a gateway is watched: recordings of what is asked of it.

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
