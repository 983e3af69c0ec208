//! A prefetch policy ready to work: a component that accepted its configuration, or the name of a
//! native one, of which each client's engine makes its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use portcullis_core::eviction::PolicyLimits;
use portcullis_core::prefetch::PrefetchChoice;

use crate::compiler::Compiler;
use crate::component::{Compiled, PREFETCH};
use crate::engine::Engine;
use crate::error::{PolicyError, Refusal};
use crate::loaded::{PolicyChoice, on_deep_stack, read};
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

impl PrefetchPolicyChoice {
    /// The same, with what lies in a file read into memory.
    ///
    /// # Errors
    /// It cannot be read, or there is too much of it.
    pub fn read(self) -> Result<Self, PolicyError> {
        match self {
            Self::File(path) => Self::configured(&path, Vec::new()),
            other => Ok(other),
        }
    }

    /// The component in a file, with a configuration.
    ///
    /// # Errors
    /// It cannot be read, or there is too much of it.
    pub fn configured(path: &Path, config: Vec<u8>) -> Result<Self, PolicyError> {
        let name = path.display().to_string();
        match read(path) {
            Ok(bytes) => Ok(Self::Bytes { name, bytes, config }),
            Err(refusal) => Err(refusal.of(name)),
        }
    }

    /// As what is kept over a restart.
    pub(crate) fn to_kept(&self) -> PolicyChoice {
        match self.clone() {
            Self::Native(choice) => PolicyChoice::Named(choice.name().to_owned()),
            Self::File(path) => PolicyChoice::File(path),
            Self::Bytes { name, bytes, config } => PolicyChoice::Bytes { name, bytes, config },
        }
    }

    /// Of what was kept over a restart, or what is wrong with it.
    pub(crate) fn from_kept(kept: PolicyChoice) -> Result<Self, String> {
        match kept {
            PolicyChoice::Named(name) => name.parse().map(Self::Native),
            PolicyChoice::File(path) => Ok(Self::File(path)),
            PolicyChoice::Bytes { name, bytes, config } => Ok(Self::Bytes { name, bytes, config }),
            PolicyChoice::BuiltIn | PolicyChoice::Native => {
                Err("no prefetch policy is built in".to_owned())
            }
        }
    }
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
    /// `None` for a native policy, which needs none.
    pub(crate) recipe: Option<PrefetchRecipe>,
}

/// How to make a policy of a component, as often as is wanted. Cloning shares the compiled code.
#[derive(Clone)]
pub(crate) struct PrefetchRecipe {
    /// What it is called until it told its own name.
    name: Arc<str>,
    compiled: Compiled,
    config: Arc<[u8]>,
    limits: PolicyLimits,
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
                let choice = PrefetchPolicyChoice::configured(&path, Vec::new())?;
                return Self::load(choice, limits, compiler);
            }
            PrefetchPolicyChoice::Bytes { name, bytes, config } => (name, bytes, config),
        };
        let load = || {
            let compiled = compiler.compile(&PREFETCH, &bytes, None)?;
            let (name, config) = (name.as_str().into(), config.into());
            PrefetchRecipe { name, compiled, config, limits }.start()
        };
        on_deep_stack(load)?.map_err(|refusal| refusal.of(&name))
    }

    /// Name, as the policy gives it.
    pub fn name(&self) -> &str {
        &self.identity.name
    }

    pub(crate) fn native(choice: PrefetchChoice) -> Self {
        let identity = PolicyIdentity::native(choice.name());
        Self { policy: PrefetchSeat::Native(choice), identity, recipe: None }
    }
}

impl PrefetchRecipe {
    /// Makes a policy that accepted its configuration and has seen no event yet. Wants a deep stack.
    pub(crate) fn start(&self) -> Result<LoadedPrefetch, Refusal> {
        let Self { name, compiled, config, limits } = self;
        let engine = Engine::shared()?;
        let (instance, info) = PrefetchInstance::start(engine, compiled, *limits, config, name)?;
        let identity = PolicyIdentity {
            name: info.name,
            version: info.version,
            kind: PolicyKind::Wasm,
            digest: compiled.digest.clone(),
            config_digest: config_digest(config),
        };
        let policy = PrefetchSeat::Wasm(Box::new(instance));
        Ok(LoadedPrefetch { policy, identity, recipe: Some(self.clone()) })
    }
}
