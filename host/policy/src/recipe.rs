//! How to make a policy, as often as is wanted: a compiled component with its configuration, or the
//! name of a native one.

use std::sync::Arc;

use portcullis_core::eviction::PolicyLimits;
use portcullis_core::eviction::native::native;
use portcullis_core::eviction::s3fifo::S3Fifo;

use crate::component::{Compiled, sha256};
use crate::engine::Engine;
use crate::error::Refusal;
use crate::instance::Instance;
use crate::loaded::{LoadedPolicy, Policy};
use crate::status::{PolicyIdentity, PolicyKind};

/// See the module. Cloning shares the compiled code.
#[derive(Clone)]
pub(crate) enum Recipe {
    /// A component.
    Component {
        /// What it is called until it told its own name.
        name: Arc<str>,
        compiled: Compiled,
        config: Arc<[u8]>,
    },
    /// A native policy, by its name in `portcullis_core::eviction::native`.
    Native(&'static str),
}

impl Recipe {
    /// The policy that works where a component cannot.
    pub(crate) const STAND_IN: Self = Self::Native(S3Fifo::NAME);

    /// What it is called in errors.
    pub(crate) fn name(&self) -> &str {
        match self {
            Recipe::Component { name, .. } => name,
            Recipe::Native(name) => name,
        }
    }

    /// SHA-256 of the component in hexadecimal, empty for a native policy.
    pub(crate) fn digest(&self) -> &str {
        match self {
            Recipe::Component { compiled, .. } => &compiled.digest,
            Recipe::Native(_) => "",
        }
    }

    /// Makes a policy that accepted its configuration and has seen no event yet. Wants a deep stack.
    pub(crate) fn start(&self, limits: PolicyLimits) -> Result<LoadedPolicy, Refusal> {
        let recipe = self.clone();
        match self {
            Recipe::Native(name) => {
                let policy = native(name, limits)
                    .ok_or_else(|| Refusal::Unknown { name: (*name).to_owned() })?;
                let identity = PolicyIdentity::native(name);
                Ok(LoadedPolicy { policy: Policy::Native(policy), identity, recipe, limits })
            }
            Recipe::Component { name, compiled, config } => {
                let (instance, info) =
                    Instance::start(Engine::shared()?, compiled, limits, config, name)?;
                let identity = PolicyIdentity {
                    name: info.name,
                    version: info.version,
                    kind: PolicyKind::Wasm,
                    digest: compiled.digest.clone(),
                    config_digest: config_digest(config),
                };
                let policy = Policy::Wasm(Box::new(instance));
                Ok(LoadedPolicy { policy, identity, recipe, limits })
            }
        }
    }
}

/// SHA-256 of a configuration in hexadecimal, empty where there is none.
pub(crate) fn config_digest(config: &[u8]) -> String {
    if config.is_empty() { String::new() } else { sha256(config) }
}
