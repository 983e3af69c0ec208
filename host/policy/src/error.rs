//! How a policy fails: before it works ([`PolicyError`]), or at work ([`Fault`]).

use std::io;
use std::path::PathBuf;

use portcullis_core::eviction::native::NAMES;
use portcullis_core::limits::{
    POLICY_CALL_CPU_MS_MAX, POLICY_COMPONENT_LEN_BYTES_MAX, POLICY_SWAP_MS_MAX,
};
use thiserror::Error;

/// A policy that cannot be used.
#[derive(Debug, Error)]
pub enum PolicyError {
    /// This policy is refused.
    #[error("{policy}: {source}")]
    Refused {
        /// The file, or another name where there is none.
        policy: String,
        /// Why.
        source: Refusal,
    },
    /// A policy is being swapped in already.
    #[error("another policy is just being swapped in: try again when it is through")]
    Busy,
    /// There is nothing to go back to.
    #[error("no policy was active before this one")]
    NoPrevious,
    /// All policies are switched off.
    #[error("the panic switch is on, and native policies work: `policy swap` ends that")]
    PanicSwitch,
    /// The place for what is to survive a restart cannot be used.
    #[error("{path}: {source}")]
    State {
        /// The directory.
        path: PathBuf,
        /// What the system said, or what is wrong with it.
        source: io::Error,
    },
    /// The driver is no more.
    #[error("the gateway is stopping")]
    Stopped,
    /// No thread can be started to call policies from.
    #[error("cannot start a thread for policies: {0}")]
    Thread(io::Error),
}

/// Why a policy is refused. Each message says what to do, where something can be done.
#[derive(Debug, Error)]
pub enum Refusal {
    /// The binary carries no policy.
    #[error("this binary was built without the policies: run `cargo xtask build`")]
    NotBuilt,
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
    /// It is a directory, a pipe or the like.
    #[error("is not a regular file")]
    NotAFile,
    /// There is too much of it.
    #[error("is larger than {} MiB, the most a policy may have", POLICY_COMPONENT_LEN_BYTES_MAX >> 20)]
    TooLarge,
    /// It is not WebAssembly, or not whole.
    #[error("is not a WebAssembly component: {0}")]
    NotAComponent(String),
    /// It is WebAssembly, but a plain module.
    #[error(
        "is a WebAssembly module and not a component: `cargo xtask build` shows how to encode one"
    )]
    Module,
    /// It wants something that policies do not get.
    #[error(
        "imports {import}, which the host does not give: a policy gets only `portcullis:policy/log`"
    )]
    Import {
        /// What it wants.
        import: String,
    },
    /// It was made for another host.
    #[error("is made for policy interface {found}, this host has {ours}")]
    Version {
        /// The version it names.
        found: String,
        /// The version of the host.
        ours: &'static str,
    },
    /// It is a component for another purpose.
    #[error("does not export {export}: it is not {kind} policy")]
    Export {
        /// What is missing.
        export: String,
        /// What it is to be, with its article.
        kind: &'static str,
    },
    /// It names our interfaces, but their functions are of other types.
    #[error("does not fit the policy interface: {0}")]
    Interface(String),
    /// The compiler refuses it.
    #[error("cannot be compiled: {0}")]
    Compile(String),
    /// It says of itself what cannot be shown.
    #[error("describes itself badly: {0}")]
    Description(&'static str),
    /// It does not like its configuration.
    #[error("refuses its configuration: {0}")]
    Config(String),
    /// It fails before its first event.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// There is no native policy of that name.
    #[error("is no native policy: there are {}", NAMES.join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// It failed too often.
    #[error("is quarantined until this gateway restarts or it is forced: {reason}")]
    Quarantined {
        /// What it did last.
        reason: String,
    },
    /// It works, and does not do what an eviction policy is for.
    #[error("fails the test with made-up objects: {0}")]
    SelfTest(String),
    /// It is too slow for the load.
    #[error(
        "did not learn what is resident in {} s: it is too slow for this load",
        POLICY_SWAP_MS_MAX / 1_000
    )]
    TooSlow,
    /// Something came between.
    #[error("was not swapped in: {0}")]
    Abandoned(&'static str),
    /// The system does not let WebAssembly run.
    #[error("WebAssembly cannot run here: {0}")]
    Engine(String),
    /// The host itself failed while it loaded the policy.
    #[error("loading it failed within the host, which is a defect of Portcullis")]
    Panicked,
}

impl PolicyError {
    /// What a component did wrong, where it is at fault.
    pub(crate) fn fault(&self) -> Option<&Fault> {
        match self {
            PolicyError::Refused { source: Refusal::Fault(fault), .. } => Some(fault),
            _ => None,
        }
    }
}

impl Refusal {
    /// The error for the policy so named.
    pub(crate) fn of(self, policy: impl Into<String>) -> PolicyError {
        PolicyError::Refused { policy: policy.into(), source: self }
    }
}

/// What a policy did wrong at work. `call` is the function it was in.
#[derive(Debug, Error)]
pub enum Fault {
    /// It trapped: a panic, an access out of bounds, a stack overflow.
    #[error("trapped in {call}: {trap}{}", after(.denied))]
    Trap {
        /// The function.
        call: &'static str,
        /// The trap.
        trap: String,
        /// What it was denied before, which is often why.
        denied: Option<String>,
    },
    /// It ran too long.
    #[error("used more than {POLICY_CALL_CPU_MS_MAX} ms of CPU time in {call}")]
    Overrun {
        /// The function.
        call: &'static str,
    },
    /// Its answer cannot be read, or it cannot be instantiated within its limits.
    #[error("failed in {call}: {reason}{}", after(.denied))]
    Failed {
        /// The function.
        call: &'static str,
        /// How.
        reason: String,
        /// What it was denied before, which is often why.
        denied: Option<String>,
    },
    /// It proposed more than it was asked.
    #[error("proposed {proposed} where {wanted} were asked for")]
    Oversize {
        /// Victims, or answers.
        proposed: usize,
        /// How many there may have been.
        wanted: usize,
    },
    /// It made up ids.
    #[error("proposed {count} ids that never existed")]
    Foreign {
        /// How many, in one proposal.
        count: u64,
    },
    /// It keeps its victims to itself.
    #[error(
        "proposed no usable victim {times} times in a row, with {resident} objects resident \
         (of the last proposal {stale} had left and {repeated} were proposed before)"
    )]
    Shortfall {
        /// Proposals in a row.
        times: u32,
        /// Objects that could have been proposed.
        resident: u64,
        /// Objects of the last proposal that had left.
        stale: u64,
        /// Objects of the last proposal that were in the reserve already.
        repeated: u64,
    },
    /// The host itself failed while it worked for the policy.
    #[error("the driver failed while it worked for this policy, which is a defect of Portcullis")]
    Panicked,
}

fn after(denied: &Option<String>) -> String {
    denied.as_ref().map_or_else(String::new, |what| format!(", after it was denied {what}"))
}
