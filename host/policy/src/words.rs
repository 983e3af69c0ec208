//! A component of any kind in words, for who tests or inspects it: what it says of itself, what it wants
//! and has, and calls as they cross.
//!
//! It runs in the same [`sandbox`](crate::sandbox) as a policy at work, with the same limits. What must
//! hold: after a fault it is not called again, which the one who calls sees to.

use std::path::Path;

use portcullis_core::eviction::PolicyLimits;
use portcullis_core::limits::POLICY_EVENTS_MAX;
use wasmtime::Store;
use wasmtime::component::{ComponentType, Instance, Lift, Lower, TypedFunc};

use crate::bindings::VERSION;
use crate::compiler::Compiler;
use crate::component::{Compiled, World, world_of};
use crate::engine::Engine;
use crate::error::{Fault, PolicyError, Refusal};
use crate::guest::{Guest, readable};
use crate::loaded::{on_deep_stack, read};
use crate::sandbox::Sandbox;

/// A component that accepted its configuration.
pub struct WordsPolicy {
    sandbox: Sandbox,
    calls: Calls,
    name: String,
    version: String,
}

/// A component that was read, checked and compiled, of whichever kind.
pub struct CompiledWords {
    name: String,
    compiled: Compiled,
    world: &'static World,
}

/// The functions that its kind has.
enum Calls {
    Eviction {
        on_events: TypedFunc<(u64, Vec<u64>), ()>,
        propose: TypedFunc<(u64, u32), (Vec<u64>,)>,
    },
    Prefetch {
        on_events: TypedFunc<(u64, Vec<u64>), ()>,
        propose: TypedFunc<(u64, u32, u32), (Vec<u64>,)>,
    },
    Inlining {
        rules: TypedFunc<(u64, Vec<u64>), (Vec<u64>,)>,
    },
}

#[derive(ComponentType, Lift)]
#[component(record)]
struct Info {
    name: String,
    version: String,
}

#[derive(ComponentType, Lower)]
#[component(record)]
struct Limits {
    #[component(name = "capacity-bytes")]
    capacity_bytes: u64,
    seed: u64,
    #[component(name = "max-events")]
    max_events: u32,
    #[component(name = "max-answers")]
    max_answers: u32,
}

/// What `init` returns.
type Accepted = (Result<(), String>,);

/// What each component has, and what its kind has.
struct Functions {
    describe: TypedFunc<(), (Info,)>,
    init: TypedFunc<(Limits, Vec<u8>), Accepted>,
    calls: Calls,
}

impl CompiledWords {
    /// Reads, checks and compiles the component in a file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn open(path: &Path) -> Result<Self, PolicyError> {
        let name = path.display().to_string();
        let bytes = read(path).map_err(|refusal| refusal.of(&name))?;
        Self::compile(&name, &bytes)
    }

    /// Checks and compiles a component; `name` is what to call it in errors.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn compile(name: &str, bytes: &[u8]) -> Result<Self, PolicyError> {
        let compile = || {
            let world = world_of(bytes)?;
            Ok((Compiler::InProcess.compile(world, bytes, None)?, world))
        };
        let (compiled, world) = on_deep_stack(compile)?.map_err(|refusal| refusal.of(name))?;
        Ok(Self { name: name.to_owned(), compiled, world })
    }

    /// `eviction`, `prefetch` or `inlining`.
    pub fn kind(&self) -> &'static str {
        self.world.name
    }

    /// SHA-256 of the component in hexadecimal.
    pub fn digest(&self) -> &str {
        &self.compiled.digest
    }

    /// Instantiates it and asks who it is: name and version.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn describe(&self) -> Result<(String, String), PolicyError> {
        let describe = || {
            let (mut sandbox, functions) = self.instantiate(1 << 20)?;
            let (info,) = sandbox.call("describe", |store| functions.describe.call(store, ()))?;
            sandbox.introduce(&info.name, &info.version)?;
            Ok((info.name, info.version))
        };
        on_deep_stack(describe)?.map_err(|refusal| refusal.of(&self.name))
    }

    /// Makes a policy of it that may answer `answers_max` times in a call.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn start(
        &self,
        limits: PolicyLimits,
        answers_max: usize,
        config: &[u8],
    ) -> Result<WordsPolicy, PolicyError> {
        let start = || {
            let (mut sandbox, functions) = self.instantiate(limits.capacity_bytes)?;
            let (info,) = sandbox.call("describe", |store| functions.describe.call(store, ()))?;
            sandbox.introduce(&info.name, &info.version)?;
            let limits = Limits {
                capacity_bytes: limits.capacity_bytes,
                seed: limits.seed,
                max_events: POLICY_EVENTS_MAX as u32,
                max_answers: answers_max as u32,
            };
            let arguments = (limits, config.to_vec());
            let (answer,) = sandbox.call("init", |store| functions.init.call(store, arguments))?;
            answer.map_err(|reason| Refusal::Config(readable(&reason)))?;
            let Info { name, version } = info;
            Ok(WordsPolicy { sandbox, calls: functions.calls, name, version })
        };
        on_deep_stack(start)?.map_err(|refusal| refusal.of(&self.name))
    }

    fn instantiate(&self, capacity_bytes: u64) -> Result<(Sandbox, Functions), Refusal> {
        let engine = Engine::shared()?;
        let exports = |store: &mut Store<Guest>, instance: &Instance| {
            let mut find = Find { store, instance };
            Ok(Functions {
                describe: find.function("control", "describe")?,
                init: find.function("control", "init")?,
                calls: match self.world.name {
                    "eviction" => Calls::Eviction {
                        on_events: find.function("eviction", "on-events")?,
                        propose: find.function("eviction", "propose")?,
                    },
                    "prefetch" => Calls::Prefetch {
                        on_events: find.function("prefetch", "on-events")?,
                        propose: find.function("prefetch", "propose")?,
                    },
                    _ => Calls::Inlining { rules: find.function("inlining", "rules")? },
                },
            })
        };
        Sandbox::instantiate(engine, &self.compiled, capacity_bytes, &self.name, exports)
    }
}

/// Functions by the names of ours.
struct Find<'a> {
    store: &'a mut Store<Guest>,
    instance: &'a Instance,
}

impl Find<'_> {
    fn function<P, R>(
        &mut self,
        interface: &str,
        function: &str,
    ) -> wasmtime::Result<TypedFunc<P, R>>
    where
        P: wasmtime::component::ComponentNamedList + Lower,
        R: wasmtime::component::ComponentNamedList + Lift,
    {
        let full = format!("portcullis:policy/{interface}@{VERSION}");
        let missing = || wasmtime::format_err!("{full} has no {function}");
        let outer = self.instance.get_export_index(&mut *self.store, None, &full);
        let outer = outer.ok_or_else(missing)?;
        let inner = self.instance.get_export_index(&mut *self.store, Some(&outer), function);
        self.instance.get_typed_func(&mut *self.store, inner.ok_or_else(missing)?)
    }
}

impl WordsPolicy {
    /// Name, as the policy gives it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Version, as the policy gives it.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Bytes of memory that it has taken.
    pub fn memory_bytes(&self) -> usize {
        self.sandbox.memory_bytes()
    }

    /// Hands packed events over. An inlining policy takes none.
    ///
    /// # Errors
    /// What it did wrong.
    pub fn on_events(&mut self, now_ms: u64, words: &[u64]) -> Result<(), Fault> {
        match &self.calls {
            Calls::Eviction { on_events, .. } | Calls::Prefetch { on_events, .. } => {
                let words = words.to_vec();
                self.sandbox.call("on-events", |store| on_events.call(store, (now_ms, words)))
            }
            Calls::Inlining { .. } => Ok(()),
        }
    }

    /// Asks for victims, or for what is wanted for a client, packed. An inlining policy has none.
    ///
    /// # Errors
    /// What it did wrong.
    pub fn propose(&mut self, now_ms: u64, client: u32, want: u32) -> Result<Vec<u64>, Fault> {
        let (words,) = match &self.calls {
            Calls::Eviction { propose, .. } => {
                self.sandbox.call("propose", |store| propose.call(store, (now_ms, want)))?
            }
            Calls::Prefetch { propose, .. } => {
                self.sandbox.call("propose", |store| propose.call(store, (now_ms, client, want)))?
            }
            Calls::Inlining { .. } => (Vec::new(),),
        };
        Ok(words)
    }

    /// Hands packed statistics over and takes packed rules. Only an inlining policy has any.
    ///
    /// # Errors
    /// What it did wrong.
    pub fn rules(&mut self, now_ms: u64, words: &[u64]) -> Result<Vec<u64>, Fault> {
        let Calls::Inlining { rules } = &self.calls else { return Ok(Vec::new()) };
        let words = words.to_vec();
        let (words,) = self.sandbox.call("rules", |store| rules.call(store, (now_ms, words)))?;
        Ok(words)
    }
}
