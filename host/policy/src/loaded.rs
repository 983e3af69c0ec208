//! A policy ready to work: chosen, loaded, initialised.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::thread;

use portcullis_core::eviction::native::NAMES;
use portcullis_core::eviction::s3fifo::S3Fifo;
use portcullis_core::eviction::{Event, EvictionPolicy, ObjectId, PolicyLimits};
use portcullis_core::limits::{POLICY_COMPONENT_LEN_BYTES_MAX, POLICY_THREAD_STACK_BYTES};

use crate::builtin;
use crate::codes::CodeCache;
use crate::compiler::Compiler;
use crate::component::{EVICTION, sha256};
use crate::error::{Fault, PolicyError, Refusal};
use crate::instance::Instance;
use crate::kept::Kept;
use crate::recipe::Recipe;
use crate::self_test::self_test;
use crate::status::PolicyIdentity;

/// Which eviction policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PolicyChoice {
    /// The S3-FIFO component inside this binary.
    #[default]
    BuiltIn,
    /// A component in a file, with an empty configuration.
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
    /// The native S3-FIFO, without any Wasm.
    Native,
    /// A native policy by its name, one of `portcullis_core::eviction::native::NAMES`.
    Named(String),
}

impl PolicyChoice {
    /// The same, with what lies in a file or in this binary read into memory.
    ///
    /// # Errors
    /// It cannot be read, or there is too much of it.
    pub fn read(self) -> Result<Self, PolicyError> {
        match self {
            Self::File(path) => Self::configured(&path, Vec::new()),
            Self::BuiltIn => match builtin::COMPONENT {
                Some(bytes) => Ok(Self::Bytes {
                    name: builtin::NAME.to_owned(),
                    bytes: bytes.to_vec(),
                    config: Vec::new(),
                }),
                None => Err(Refusal::NotBuilt.of(builtin::NAME)),
            },
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
}

/// A policy that accepted its configuration and has seen no event yet.
pub struct LoadedPolicy {
    pub(crate) policy: Policy,
    pub(crate) identity: PolicyIdentity,
    pub(crate) recipe: Recipe,
    pub(crate) limits: PolicyLimits,
}

/// A policy that was read, checked and compiled, to be loaded as often as is wanted.
#[derive(Clone)]
pub struct CompiledPolicy {
    pub(crate) recipe: Recipe,
}

impl CompiledPolicy {
    /// Reads and compiles the component in a file, in this process.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn open(path: &Path) -> Result<Self, PolicyError> {
        PolicyLoader::default().compile(PolicyChoice::File(path.to_owned()))
    }

    /// The same component with another configuration; a native policy has none.
    pub(crate) fn with_config(mut self, other: &[u8]) -> Self {
        if let Recipe::Component { config, .. } = &mut self.recipe {
            *config = other.into();
        }
        self
    }

    /// SHA-256 of the component in hexadecimal, empty for a native policy.
    pub fn digest(&self) -> &str {
        self.recipe.digest()
    }

    /// Tries it with made-up objects.
    ///
    /// # Errors
    /// What it did wrong, or did not do.
    pub fn self_test(&self, limits: PolicyLimits) -> Result<(), PolicyError> {
        on_deep_stack(|| self_test(&self.recipe, limits))?
            .map_err(|refusal| refusal.of(self.recipe.name()))
    }

    /// Makes a policy of it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn load(&self, limits: PolicyLimits) -> Result<LoadedPolicy, PolicyError> {
        on_deep_stack(|| self.recipe.start(limits))?
            .map_err(|refusal| refusal.of(self.recipe.name()))
    }
}

/// Makes policies of what is chosen.
#[derive(Clone, Debug, Default)]
pub(crate) struct PolicyLoader {
    compiler: Compiler,
    codes: Option<CodeCache>,
    kept: Kept,
}

impl PolicyLoader {
    pub(crate) fn new(compiler: Compiler, codes: Option<CodeCache>) -> Self {
        Self { compiler, codes, kept: Kept::default() }
    }

    /// Reads, checks and compiles what was chosen.
    pub(crate) fn compile(&self, choice: PolicyChoice) -> Result<CompiledPolicy, PolicyError> {
        let (name, bytes, config) = match choice.read()? {
            PolicyChoice::Bytes { name, bytes, config } => (name, bytes, config),
            PolicyChoice::Named(name) => {
                let recipe = NAMES.iter().find(|known| **known == name).copied();
                return match recipe.map(Recipe::Native) {
                    Some(recipe) => Ok(CompiledPolicy { recipe }),
                    None => Err(Refusal::Unknown { name: name.clone() }.of(name)),
                };
            }
            _ => return Ok(CompiledPolicy { recipe: Recipe::STAND_IN }),
        };
        let compiled = match self.kept.get(&sha256(&bytes)) {
            Some(compiled) => compiled,
            None => {
                let codes = self.codes.as_ref();
                let compiled = on_deep_stack(|| self.compiler.compile(&EVICTION, &bytes, codes))?;
                let compiled = compiled.map_err(|refusal| refusal.of(&name))?;
                self.kept.put(compiled.clone());
                compiled
            }
        };
        let (name, config) = (name.into(), config.into());
        Ok(CompiledPolicy { recipe: Recipe::Component { name, compiled, config } })
    }
}

/// Policies want a deep stack, and the caller's may be a shallow one.
pub(crate) fn on_deep_stack<T: Send>(
    work: impl FnOnce() -> Result<T, Refusal> + Send,
) -> Result<Result<T, Refusal>, PolicyError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("policy-load".into())
            .stack_size(POLICY_THREAD_STACK_BYTES)
            .spawn_scoped(scope, work)
            .map_err(PolicyError::Thread)?;
        Ok(thread.join().unwrap_or(Err(Refusal::Panicked)))
    })
}

/// A policy of either kind. Native ones do not fail.
pub(crate) enum Policy {
    Wasm(Box<Instance>),
    Native(Box<dyn EvictionPolicy>),
}

impl LoadedPolicy {
    /// Loads a policy: reads, checks, compiles, instantiates and initialises it. Takes tens of
    /// milliseconds for a component.
    ///
    /// # Errors
    /// What is wrong with the policy.
    pub fn load(choice: PolicyChoice, limits: PolicyLimits) -> Result<Self, PolicyError> {
        PolicyLoader::default().compile(choice)?.load(limits)
    }

    /// The native policy that works where a component cannot.
    pub(crate) fn stand_in(limits: PolicyLimits) -> Self {
        let policy = Policy::Native(Box::new(S3Fifo::new(limits)));
        let identity = PolicyIdentity::native(S3Fifo::NAME);
        Self { policy, identity, recipe: Recipe::STAND_IN, limits }
    }

    /// Who it is.
    pub fn identity(&self) -> &PolicyIdentity {
        &self.identity
    }

    /// Name, as the policy gives it.
    pub fn name(&self) -> &str {
        &self.identity.name
    }

    /// SHA-256 of the component in hexadecimal, empty for a native policy.
    pub fn digest(&self) -> &str {
        &self.identity.digest
    }

    /// Hands a batch of at most [`POLICY_EVENTS_MAX`](portcullis_core::limits::POLICY_EVENTS_MAX)
    /// events to the policy, for whoever drives it without an [`EvictionDriver`](crate::EvictionDriver).
    ///
    /// # Errors
    /// What the policy did wrong; it must not be called again. A native policy does nothing wrong.
    pub fn on_events(&mut self, now_ms: u64, events: &[Event]) -> Result<(), Fault> {
        self.policy.on_events(now_ms, events)
    }

    /// Asks the policy for up to `want` victims, best first.
    ///
    /// # Errors
    /// What the policy did wrong; it must not be called again. A native policy does nothing wrong.
    pub fn propose(&mut self, now_ms: u64, want: usize) -> Result<Vec<ObjectId>, Fault> {
        self.policy.propose(now_ms, want)
    }
}

impl Policy {
    pub(crate) fn on_events(&mut self, now_ms: u64, events: &[Event]) -> Result<(), Fault> {
        match self {
            Policy::Wasm(instance) => instance.on_events(now_ms, events),
            Policy::Native(policy) => {
                policy.on_events(now_ms, events);
                Ok(())
            }
        }
    }

    pub(crate) fn propose(&mut self, now_ms: u64, want: usize) -> Result<Vec<ObjectId>, Fault> {
        match self {
            Policy::Wasm(instance) => instance.propose(now_ms, want),
            Policy::Native(policy) => Ok(policy.propose(now_ms, want)),
        }
    }
}

/// Reads a file, but no more of it than a component may have.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Refusal> {
    // Asked before it is opened, which would wait where it is a pipe.
    let metadata = std::fs::metadata(path).map_err(Refusal::Unreadable)?;
    if !metadata.is_file() {
        return Err(Refusal::NotAFile);
    }
    let file = File::open(path).map_err(Refusal::Unreadable)?;
    let mut bytes = Vec::new();
    file.take(POLICY_COMPONENT_LEN_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(Refusal::Unreadable)?;
    Ok(bytes)
}
