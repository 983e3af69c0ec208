//! What an administrator wants of the policies of a running gateway, and how they stand.

use portcullis_core::limits::{POLICY_COMPONENT_LEN_BYTES_MAX, POLICY_CONFIG_LEN_BYTES_MAX};
use serde::{Deserialize, Serialize};

/// What a policy decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyKind {
    /// What leaves when memory is short.
    #[default]
    Eviction,
    /// What is fetched before it is asked for.
    Prefetch,
    /// Which content travels with the metadata.
    Inlining,
}

impl PolicyKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Eviction, Self::Prefetch, Self::Inlining];

    /// The name, as on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Eviction => "eviction",
            Self::Prefetch => "prefetch",
            Self::Inlining => "inlining",
        }
    }
}

/// What is wanted. Every answer is a [`PolicyStatus`] of afterwards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PolicyCommand {
    /// Nothing but the status.
    Status,
    /// Read, check, compile and try a policy, and change nothing.
    Load {
        /// Which.
        source: PolicySource,
        /// Also where it is quarantined.
        force: bool,
    },
    /// The same; then let it work in place of the active one.
    Swap {
        /// Which.
        source: PolicySource,
        /// Also where it is quarantined.
        force: bool,
    },
    /// Let the policy before the active one work again.
    Rollback,
    /// Let no component work, of any kind, until one is swapped in.
    Panic,
}

/// Where a policy comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PolicySource {
    /// A component: it, and then its configuration, are the body.
    Component {
        /// What to call it in errors.
        name: String,
        /// Bytes of the component, at most `POLICY_COMPONENT_LEN_BYTES_MAX`.
        len_bytes: u32,
        /// Bytes of its configuration, at most `POLICY_CONFIG_LEN_BYTES_MAX`. `None`: that of the
        /// active policy where this has its name, and else an empty one.
        config_len_bytes: Option<u32>,
    },
    /// The component inside the gateway's binary.
    BuiltIn,
    /// A policy that is part of the gateway, by name.
    Native {
        /// The name.
        name: String,
    },
}

impl PolicyCommand {
    /// Bytes that follow the request, as they are.
    pub const fn body_len_bytes(&self) -> u32 {
        match self {
            Self::Load { source, .. } | Self::Swap { source, .. } => source.body_len_bytes(),
            Self::Status | Self::Rollback | Self::Panic => 0,
        }
    }

    /// The policy that it is about, if it brings one.
    pub const fn source(&self) -> Option<&PolicySource> {
        match self {
            Self::Load { source, .. } | Self::Swap { source, .. } => Some(source),
            Self::Status | Self::Rollback | Self::Panic => None,
        }
    }
}

impl PolicySource {
    const fn body_len_bytes(&self) -> u32 {
        match self {
            Self::Component { len_bytes, config_len_bytes: Some(config), .. } => {
                len_bytes.saturating_add(*config)
            }
            Self::Component { len_bytes, config_len_bytes: None, .. } => *len_bytes,
            Self::BuiltIn | Self::Native { .. } => 0,
        }
    }

    /// Whether what it brings is within the limits.
    pub const fn is_within_limits(&self) -> bool {
        match self {
            Self::Component { len_bytes, config_len_bytes, .. } => {
                let config_len_bytes = match config_len_bytes {
                    Some(len_bytes) => *len_bytes as usize,
                    None => 0,
                };
                *len_bytes as usize <= POLICY_COMPONENT_LEN_BYTES_MAX
                    && config_len_bytes <= POLICY_CONFIG_LEN_BYTES_MAX
            }
            Self::BuiltIn | Self::Native { .. } => true,
        }
    }
}

/// Who a policy is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyName {
    /// Name, as the policy gives it.
    pub name: String,
    /// Version, as the policy gives it.
    pub version: String,
    /// `wasm` or `native`.
    pub kind: String,
    /// SHA-256 of the component in hexadecimal; empty for a native policy.
    pub digest: String,
    /// SHA-256 of its configuration in hexadecimal; empty where there is none.
    pub config_digest: String,
}

/// How the policies of one kind stand.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyStatus {
    /// What they decide.
    pub kind: PolicyKind,
    /// The policy that is really active.
    pub active: PolicyName,
    /// For how long it has been.
    pub active_ms: u64,
    /// Calls into policies since then.
    pub calls: u64,
    /// Where it stands in for another one: for which, and why. Empty otherwise.
    pub fallback_reason: String,
    /// Whether the panic switch is on.
    pub panic: bool,
    /// The policy before it, if there was one.
    pub previous: Option<PreviousPolicy>,
    /// Policies swapped in since the gateway started.
    pub swaps: u64,
    /// Faults of components since then.
    pub faults: u64,
    /// Those of the active component that count against it.
    pub strikes: u64,
    /// Components that are not let in.
    pub quarantined: Vec<QuarantinedPolicy>,
    /// Why the last policy that was not taken was not taken; empty if there was none.
    pub last_refusal: String,
    /// In the answer to a load: what was tried, and could be swapped in.
    pub loaded: Option<PolicyName>,
}

/// The policy before the active one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviousPolicy {
    /// Who it is.
    pub policy: PolicyName,
    /// For how long it is kept at work; where that is over, it would learn what is resident anew.
    pub warm_ms: u64,
}

/// A component that is not let in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantinedPolicy {
    /// SHA-256 of the component in hexadecimal.
    pub digest: String,
    /// What it did last.
    pub reason: String,
}
