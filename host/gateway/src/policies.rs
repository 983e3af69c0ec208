//! The policies of a running gateway, as an administrator asks for them.
//!
//! What must hold: nobody but an administrator costs the gateway anything here; one component at a
//! time is in memory on its way; none of it happens on a thread that serves requests.

use std::sync::Arc;

use bytes::Bytes;
use portcullis_core::Status;
use portcullis_policy::{
    EvictionStatus, InliningControl, InliningPolicyChoice, InliningStanding, LoadOptions,
    PolicyChoice, PolicyControl, PolicyError, PolicyIdentity, PrefetchControl,
    PrefetchPolicyChoice, PrefetchStanding, Quarantined,
};
use portcullis_transport::{Body, Role};
use portcullis_wire::Reply;
use portcullis_wire::message::policy::{PolicyName, PreviousPolicy, QuarantinedPolicy};
use portcullis_wire::message::{Failure, PolicyCommand, PolicyKind, PolicySource, PolicyStatus};
use tokio::sync::Mutex;

/// Characters of a policy's file name that are repeated in messages.
const NAME_CHARS_MAX: usize = 200;

/// See the module.
pub(crate) struct Policies {
    eviction: Arc<PolicyControl>,
    prefetch: Arc<PrefetchControl>,
    inlining: Arc<InliningControl>,
    /// Held while a component is on its way or tried.
    arriving: Mutex<()>,
}

impl Policies {
    pub(crate) fn new(
        eviction: Arc<PolicyControl>,
        prefetch: Arc<PrefetchControl>,
        inlining: Arc<InliningControl>,
    ) -> Self {
        Self { eviction, prefetch, inlining, arriving: Mutex::new(()) }
    }

    /// Answers a [`Request::Policy`](portcullis_wire::Request::Policy).
    pub(crate) async fn answer(
        &self,
        role: Role,
        kind: PolicyKind,
        command: PolicyCommand,
        body: Body,
    ) -> Result<Reply, Failure> {
        if role != Role::Admin {
            let detail = format!("policies are for the admin role, this is a {role}");
            return Err(Failure::new(Status::WrongRole, detail));
        }
        if matches!(command, PolicyCommand::Panic) {
            // Of every kind, whichever was named, and whatever comes of the other.
            let eviction = run(&self.eviction, PolicyControl::panic).await;
            let prefetch = run(&self.prefetch, PrefetchControl::panic).await;
            let inlining = run(&self.inlining, InliningControl::panic).await;
            eviction.and(prefetch).and(inlining)?;
        }
        let status = match kind {
            PolicyKind::Eviction => self.eviction(command, body).await?,
            PolicyKind::Prefetch => self.prefetch(command, body).await?,
            PolicyKind::Inlining => self.inlining(command, body).await?,
        };
        Ok(Reply::Policy(Box::new(status)))
    }

    async fn eviction(&self, command: PolicyCommand, body: Body) -> Result<PolicyStatus, Failure> {
        let control = &self.eviction;
        let loaded = match command {
            PolicyCommand::Status | PolicyCommand::Panic => None,
            PolicyCommand::Rollback => {
                run(control, PolicyControl::rollback).await?;
                None
            }
            PolicyCommand::Load { source, force } => {
                let _arriving = self.arrive()?;
                let (choice, options) = choice(source, force, body).await?;
                Some(run(control, move |control| control.load(choice, options)).await?)
            }
            PolicyCommand::Swap { source, force } => {
                let _arriving = self.arrive()?;
                let (choice, options) = choice(source, force, body).await?;
                Some(run(control, move |control| control.swap(choice, options)).await?)
            }
        };
        Ok(PolicyStatus { loaded: loaded.map(name_of), ..status_of(control.status()) })
    }

    async fn prefetch(&self, command: PolicyCommand, body: Body) -> Result<PolicyStatus, Failure> {
        let control = &self.prefetch;
        let loaded = match command {
            PolicyCommand::Status | PolicyCommand::Panic => None,
            PolicyCommand::Rollback => {
                run(control, PrefetchControl::rollback).await?;
                None
            }
            PolicyCommand::Load { source, force } => {
                let _arriving = self.arrive()?;
                let (choice, options) = prefetch_choice(source, force, body).await?;
                Some(run(control, move |control| control.load(choice, options)).await?)
            }
            PolicyCommand::Swap { source, force } => {
                let _arriving = self.arrive()?;
                let (choice, options) = prefetch_choice(source, force, body).await?;
                Some(run(control, move |control| control.swap(choice, options)).await?)
            }
        };
        Ok(PolicyStatus { loaded: loaded.map(name_of), ..standing_of(control.standing()) })
    }

    async fn inlining(&self, command: PolicyCommand, body: Body) -> Result<PolicyStatus, Failure> {
        let control = &self.inlining;
        let loaded = match command {
            PolicyCommand::Status | PolicyCommand::Panic => None,
            PolicyCommand::Rollback => {
                run(control, InliningControl::rollback).await?;
                None
            }
            PolicyCommand::Load { source, force } => {
                let _arriving = self.arrive()?;
                let (choice, options) = inlining_choice(source, force, body).await?;
                Some(run(control, move |control| control.load(choice, options)).await?)
            }
            PolicyCommand::Swap { source, force } => {
                let _arriving = self.arrive()?;
                let (choice, options) = inlining_choice(source, force, body).await?;
                Some(run(control, move |control| control.swap(choice, options)).await?)
            }
        };
        Ok(PolicyStatus { loaded: loaded.map(name_of), ..inlining_of(control.standing()) })
    }

    fn arrive(&self) -> Result<tokio::sync::MutexGuard<'_, ()>, Failure> {
        let busy = |_| Failure::new(Status::Busy, PolicyError::Busy.to_string());
        self.arriving.try_lock().map_err(busy)
    }
}

/// Does something that takes a while.
async fn run<C: Send + Sync + 'static, T: Send + 'static>(
    control: &Arc<C>,
    work: impl FnOnce(&C) -> Result<T, PolicyError> + Send + 'static,
) -> Result<T, Failure> {
    let control = control.clone();
    let done = tokio::task::spawn_blocking(move || work(&control)).await;
    match done {
        Ok(result) => result.map_err(|error| failure(&error)),
        Err(_) => Err(Failure::new(Status::Io, "the gateway failed while it did that")),
    }
}

/// What is to be loaded, read to its end.
async fn choice(
    source: PolicySource,
    force: bool,
    body: Body,
) -> Result<(PolicyChoice, LoadOptions), Failure> {
    if !source.is_within_limits() {
        let detail = "the component or its configuration is larger than a policy's may be";
        return Err(Failure::new(Status::InvalidArgument, detail));
    }
    let mut options = LoadOptions { force, keep_config: false };
    let choice = match source {
        PolicySource::BuiltIn => PolicyChoice::BuiltIn,
        PolicySource::Native { name } => PolicyChoice::Named(shown(&name)),
        PolicySource::Component { name, len_bytes, config_len_bytes } => {
            options.keep_config = config_len_bytes.is_none();
            let mut bytes = Vec::with_capacity(body.left_bytes());
            let pieces: Vec<Bytes> = body.collect().await?;
            pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
            let config = bytes.split_off(len_bytes as usize);
            PolicyChoice::Bytes { name: shown(&name), bytes, config }
        }
    };
    Ok((choice, options))
}

/// As [`choice`], for a prefetch policy. There is none inside this binary, but native ones.
async fn prefetch_choice(
    source: PolicySource,
    force: bool,
    body: Body,
) -> Result<(PrefetchPolicyChoice, LoadOptions), Failure> {
    let refused = |detail: String| Failure::new(Status::InvalidArgument, detail);
    let (choice, options) = choice(source, force, body).await?;
    let choice = match choice {
        PolicyChoice::Bytes { name, bytes, config } => {
            PrefetchPolicyChoice::Bytes { name, bytes, config }
        }
        PolicyChoice::Named(name) => PrefetchPolicyChoice::Native(name.parse().map_err(refused)?),
        _ => PrefetchPolicyChoice::default(),
    };
    Ok((choice, options))
}

/// As [`choice`], for an inlining policy. There is none inside this binary, but native ones.
async fn inlining_choice(
    source: PolicySource,
    force: bool,
    body: Body,
) -> Result<(InliningPolicyChoice, LoadOptions), Failure> {
    let refused = |detail: String| Failure::new(Status::InvalidArgument, detail);
    let (choice, options) = choice(source, force, body).await?;
    let choice = match choice {
        PolicyChoice::Bytes { name, bytes, config } => {
            InliningPolicyChoice::Bytes { name, bytes, config }
        }
        PolicyChoice::Named(name) => InliningPolicyChoice::Native(name.parse().map_err(refused)?),
        _ => InliningPolicyChoice::default(),
    };
    Ok((choice, options))
}

/// A name that somebody sent, fit for a line of a log.
fn shown(name: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    name.chars().take(NAME_CHARS_MAX).map(plain).collect()
}

fn failure(error: &PolicyError) -> Failure {
    let status = match error {
        PolicyError::Busy => Status::Busy,
        PolicyError::Thread(_) | PolicyError::Stopped => Status::Unavailable,
        _ => Status::InvalidArgument,
    };
    Failure::new(status, error.to_string())
}

fn name_of(identity: PolicyIdentity) -> PolicyName {
    let PolicyIdentity { name, version, kind, digest, config_digest } = identity;
    PolicyName { name, version, kind: kind.as_str().to_owned(), digest, config_digest }
}

fn quarantined(all: Vec<Quarantined>) -> Vec<QuarantinedPolicy> {
    let told = |one: Quarantined| QuarantinedPolicy { digest: one.digest, reason: one.reason };
    all.into_iter().map(told).collect()
}

fn standing_of(standing: PrefetchStanding) -> PolicyStatus {
    let PrefetchStanding { status, is_panic, previous, swaps, last_refusal } = standing;
    PolicyStatus {
        kind: PolicyKind::Prefetch,
        active: PolicyName {
            name: status.name,
            version: status.version,
            kind: status.kind.as_str().to_owned(),
            digest: status.digest,
            config_digest: status.config_digest,
        },
        active_ms: status.active_ms,
        calls: status.active_calls,
        fallback_reason: status.fallback_reason,
        panic: is_panic,
        previous: previous.map(|identity| PreviousPolicy { policy: name_of(identity), warm_ms: 0 }),
        swaps,
        faults: status.faults,
        strikes: status.strikes,
        quarantined: quarantined(status.quarantined),
        last_refusal,
        loaded: None,
    }
}

fn inlining_of(standing: InliningStanding) -> PolicyStatus {
    let InliningStanding { status, is_panic, previous, swaps, last_refusal } = standing;
    PolicyStatus {
        kind: PolicyKind::Inlining,
        active: name_of(status.identity),
        active_ms: status.active_ms,
        calls: status.active_calls,
        fallback_reason: status.fallback_reason,
        panic: is_panic,
        previous: previous.map(|identity| PreviousPolicy { policy: name_of(identity), warm_ms: 0 }),
        swaps,
        faults: status.faults,
        // One that failed is not tried again until it is swapped in.
        strikes: 0,
        quarantined: Vec::new(),
        last_refusal,
        loaded: None,
    }
}

fn status_of(status: EvictionStatus) -> PolicyStatus {
    PolicyStatus {
        kind: PolicyKind::Eviction,
        active: PolicyName {
            name: status.name,
            version: status.version,
            kind: status.kind.as_str().to_owned(),
            digest: status.digest,
            config_digest: status.config_digest,
        },
        active_ms: status.active_ms,
        calls: status.active_calls,
        fallback_reason: status.fallback_reason,
        panic: status.is_panic,
        previous: status.previous.map(|previous| PreviousPolicy {
            policy: name_of(previous.identity),
            warm_ms: previous.warm_ms,
        }),
        swaps: status.swaps,
        faults: status.faults,
        strikes: status.strikes,
        quarantined: quarantined(status.quarantined),
        last_refusal: status.last_refusal,
        loaded: None,
    }
}
