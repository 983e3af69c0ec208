//! A prefetch policy ready to work: a component that accepted its configuration, or the name of a
//! native one, of which each client's engine makes its own.

use std::path::PathBuf;

use portcullis_core::eviction::PolicyLimits;
use portcullis_core::prefetch::PrefetchChoice;

use crate::compiler::Compiler;
use crate::component::{Compiled, PREFETCH};
use crate::engine::Engine;
use crate::error::{PolicyError, Refusal};
use crate::loaded::{on_deep_stack, read};
use crate::prefetch_instance::PrefetchInstance;
use crate::recipe::config_digest;
use crate::status::{PolicyIdentity, PolicyKind};

/// Which prefetch policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrefetchPolicyChoice {
    /// A native one.
    Native(PrefetchChoice),
    /// A component in a file.
    File(PathBuf),
    /// A component in memory.
    Bytes {
        /// What to call it in errors.
        name: String,
        /// The component.
        bytes: Vec<u8>,
        /// Its configuration.
        config: Vec<u8>,
    },
}

impl Default for PrefetchPolicyChoice {
    fn default() -> Self {
        Self::Native(PrefetchChoice::default())
    }
}

/// See the module.
pub struct LoadedPrefetch {
    pub(crate) policy: PrefetchSeat,
    pub(crate) identity: PolicyIdentity,
}

/// Who chooses.
pub(crate) enum PrefetchSeat {
    /// A component, for all clients.
    Wasm(Box<PrefetchInstance>),
    /// The engines of the clients themselves.
    Native(PrefetchChoice),
}

impl LoadedPrefetch {
    /// Loads a policy: reads, checks, has compiled, instantiates and initialises it. Of `limits` the
    /// capacity is what may be there ahead for one client.
    ///
    /// # Errors
    /// What is wrong with the policy.
    pub fn load(
        choice: PrefetchPolicyChoice,
        limits: PolicyLimits,
        compiler: &Compiler,
    ) -> Result<Self, PolicyError> {
        let (name, bytes, config) = match choice {
            PrefetchPolicyChoice::Native(choice) => return Ok(Self::native(choice)),
            PrefetchPolicyChoice::File(path) => {
                let name = path.display().to_string();
                let bytes = read(&path).map_err(|refusal| refusal.of(&name))?;
                (name, bytes, Vec::new())
            }
            PrefetchPolicyChoice::Bytes { name, bytes, config } => (name, bytes, config),
        };
        let load = || {
            let compiled = compiler.compile(&PREFETCH, &bytes, None)?;
            Self::start(&name, &compiled, &config, limits)
        };
        on_deep_stack(load)?.map_err(|refusal| refusal.of(&name))
    }

    /// Name, as the policy gives it.
    pub fn name(&self) -> &str {
        &self.identity.name
    }

    pub(crate) fn native(choice: PrefetchChoice) -> Self {
        let identity = PolicyIdentity::native(choice.name());
        Self { policy: PrefetchSeat::Native(choice), identity }
    }

    fn start(
        name: &str,
        compiled: &Compiled,
        config: &[u8],
        limits: PolicyLimits,
    ) -> Result<Self, Refusal> {
        let engine = Engine::shared()?;
        let (instance, info) = PrefetchInstance::start(engine, compiled, limits, config, name)?;
        let identity = PolicyIdentity {
            name: info.name,
            version: info.version,
            kind: PolicyKind::Wasm,
            digest: compiled.digest.clone(),
            config_digest: config_digest(config),
        };
        Ok(Self { policy: PrefetchSeat::Wasm(Box::new(instance)), identity })
    }
}
