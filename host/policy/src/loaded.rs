//! A policy ready to work: chosen, loaded, initialised.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::thread;

use portcullis_core::eviction::s3fifo::S3Fifo;
use portcullis_core::eviction::{Event, EvictionPolicy, ObjectId, PolicyLimits};
use portcullis_core::limits::{POLICY_COMPONENT_LEN_BYTES_MAX, POLICY_THREAD_STACK_BYTES};

use crate::builtin;
use crate::component::{Compiled, EVICTION, compile};
use crate::engine::Engine;
use crate::error::{Fault, PolicyError, Refusal};
use crate::instance::Instance;
use crate::status::{PolicyIdentity, PolicyKind};

/// Which eviction policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PolicyChoice {
    /// The S3-FIFO component inside this binary.
    #[default]
    BuiltIn,
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
    /// The native S3-FIFO, without any Wasm.
    Native,
}

/// A policy that accepted its configuration and has seen no event yet.
pub struct LoadedPolicy {
    pub(crate) policy: Policy,
    pub(crate) identity: PolicyIdentity,
    pub(crate) limits: PolicyLimits,
}

/// A component that was read, checked and compiled, to be loaded as often as is wanted.
pub struct CompiledPolicy {
    name: String,
    compiled: Compiled,
}

impl CompiledPolicy {
    /// Reads and compiles the component in a file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn open(path: &Path) -> Result<Self, PolicyError> {
        let name = path.display().to_string();
        let open = || compile(Engine::shared()?, &EVICTION, &read(path)?);
        match on_deep_stack(open)? {
            Ok(compiled) => Ok(Self { name, compiled }),
            Err(refusal) => Err(refusal.of(&name)),
        }
    }

    /// SHA-256 of the component in hexadecimal.
    pub fn digest(&self) -> &str {
        &self.compiled.digest
    }

    /// Makes a policy of it, with an empty configuration.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn load(&self, limits: PolicyLimits) -> Result<LoadedPolicy, PolicyError> {
        let load = || LoadedPolicy::start(&self.name, &self.compiled, b"", limits);
        on_deep_stack(load)?.map_err(|refusal| refusal.of(&self.name))
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
    Native(Box<S3Fifo>),
}

impl LoadedPolicy {
    /// Loads a policy: reads, checks, compiles, instantiates and initialises it. Takes tens of
    /// milliseconds for a component.
    ///
    /// # Errors
    /// What is wrong with the policy.
    pub fn load(choice: PolicyChoice, limits: PolicyLimits) -> Result<Self, PolicyError> {
        let (name, bytes, config) = match choice {
            PolicyChoice::Native => return Ok(Self::native(limits)),
            PolicyChoice::BuiltIn => match builtin::COMPONENT {
                Some(bytes) => (builtin::NAME.to_owned(), bytes.to_vec(), Vec::new()),
                None => return Err(Refusal::NotBuilt.of(builtin::NAME)),
            },
            PolicyChoice::File(path) => return CompiledPolicy::open(&path)?.load(limits),
            PolicyChoice::Bytes { name, bytes, config } => (name, bytes, config),
        };
        let load = || {
            let compiled = compile(Engine::shared()?, &EVICTION, &bytes)?;
            Self::start(&name, &compiled, &config, limits)
        };
        on_deep_stack(load)?.map_err(|refusal| refusal.of(&name))
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

    pub(crate) fn native(limits: PolicyLimits) -> Self {
        let identity = PolicyIdentity {
            name: S3Fifo::NAME.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kind: PolicyKind::Native,
            digest: String::new(),
        };
        Self { policy: Policy::Native(Box::new(S3Fifo::new(limits))), identity, limits }
    }

    fn start(
        name: &str,
        compiled: &Compiled,
        config: &[u8],
        limits: PolicyLimits,
    ) -> Result<Self, Refusal> {
        let (instance, info) = Instance::start(Engine::shared()?, compiled, limits, config, name)?;
        let identity = PolicyIdentity {
            name: info.name,
            version: info.version,
            kind: PolicyKind::Wasm,
            digest: compiled.digest.clone(),
        };
        Ok(Self { policy: Policy::Wasm(Box::new(instance)), identity, limits })
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
