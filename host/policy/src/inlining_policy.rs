//! An inlining policy ready to work: a component that accepted its configuration, or a native one.

use std::path::PathBuf;

use portcullis_core::eviction::PolicyLimits;
use portcullis_core::inlining::{InliningChoice, InliningPolicy};

use crate::compiler::Compiler;
use crate::component::{Compiled, INLINING};
use crate::engine::Engine;
use crate::error::{PolicyError, Refusal};
use crate::inlining_instance::InliningInstance;
use crate::loaded::{on_deep_stack, read};
use crate::recipe::config_digest;
use crate::status::{PolicyIdentity, PolicyKind};

/// Which inlining policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InliningPolicyChoice {
    /// A native one.
    Native(InliningChoice),
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

impl InliningPolicyChoice {
    /// The same, with what lies in a file read into memory.
    ///
    /// # Errors
    /// It cannot be read, or there is too much of it.
    pub fn read(self) -> Result<Self, PolicyError> {
        let Self::File(path) = self else { return Ok(self) };
        let name = path.display().to_string();
        match read(&path) {
            Ok(bytes) => Ok(Self::Bytes { name, bytes, config: Vec::new() }),
            Err(refusal) => Err(refusal.of(name)),
        }
    }
}

impl Default for InliningPolicyChoice {
    fn default() -> Self {
        Self::Native(InliningChoice::default())
    }
}

/// See the module.
pub(crate) struct LoadedInlining {
    pub(crate) policy: InliningSeat,
    pub(crate) identity: PolicyIdentity,
}

/// Who makes rules.
pub(crate) enum InliningSeat {
    /// A component.
    Wasm(Box<InliningInstance>),
    /// The host itself.
    Native(Box<dyn InliningPolicy>),
    /// Nobody: nothing travels along.
    Nobody,
}

impl LoadedInlining {
    /// Loads a policy: reads, checks, has compiled, instantiates and initialises it. Of `limits` the
    /// capacity is what the contents kept may take.
    pub(crate) fn load(
        choice: InliningPolicyChoice,
        limits: PolicyLimits,
        compiler: &Compiler,
    ) -> Result<Self, PolicyError> {
        let (name, bytes, config) = match choice.read()? {
            InliningPolicyChoice::Native(choice) => return Ok(Self::native(choice)),
            InliningPolicyChoice::Bytes { name, bytes, config } => (name, bytes, config),
            InliningPolicyChoice::File(path) => {
                return Err(Refusal::NotAFile.of(path.display().to_string()));
            }
        };
        let load = || {
            let compiled = compiler.compile(&INLINING, &bytes, None)?;
            Self::start(&name, &compiled, &config, limits)
        };
        on_deep_stack(load)?.map_err(|refusal| refusal.of(&name))
    }

    pub(crate) fn native(choice: InliningChoice) -> Self {
        let identity = PolicyIdentity::native(choice.name());
        let policy = choice.policy().map_or(InliningSeat::Nobody, InliningSeat::Native);
        Self { policy, identity }
    }

    fn start(
        name: &str,
        compiled: &Compiled,
        config: &[u8],
        limits: PolicyLimits,
    ) -> Result<Self, Refusal> {
        let engine = Engine::shared()?;
        let (instance, info) = InliningInstance::start(engine, compiled, limits, config, name)?;
        let identity = PolicyIdentity {
            name: info.name,
            version: info.version,
            kind: PolicyKind::Wasm,
            digest: compiled.digest.clone(),
            config_digest: config_digest(config),
        };
        Ok(Self { policy: InliningSeat::Wasm(Box::new(instance)), identity })
    }
}
