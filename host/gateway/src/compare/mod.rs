//! Policies compared: beside the traffic ([`shadow`]) or on it ([`split`]).
//!
//! One of each at a time; what the last one has shown stays until the next begins. What must hold: a
//! shadow touches neither the cache nor the policy that works there; whatever ends a split, the whole
//! cache has one policy again.

mod shadow;

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use portcullis_core::Status;
use portcullis_core::eviction::PolicyLimits;
use portcullis_core::limits::POLICY_COMPONENT_LEN_BYTES_MAX;
use portcullis_policy::{LoadedPolicy, PolicyChoice};
use portcullis_transport::Body;
use portcullis_wire::Reply;
use portcullis_wire::message::{Candidate, Compare, Compared, Failure};

use self::shadow::Shadow;
use crate::random;
use crate::volume::Volume;

/// Bytes of a candidate's configuration.
const CONFIG_LEN_BYTES_MAX: u32 = 64 * 1024;
/// The longest that a shadow may run.
const SHADOW_MS_MAX: u64 = 7 * 24 * 3_600_000;

/// The comparisons of one gateway.
pub(crate) struct Comparisons {
    volume: Arc<Volume>,
    /// What loads the active policy anew.
    incumbent: PolicyChoice,
    shadow: Mutex<Option<Shadow>>,
}

impl Comparisons {
    pub(crate) fn new(volume: Arc<Volume>, incumbent: PolicyChoice) -> Self {
        Self { volume, incumbent, shadow: Mutex::new(None) }
    }

    /// Does what is asked, and tells what there is.
    pub(crate) async fn compare(&self, compare: Compare, body: Body) -> Result<Reply, Failure> {
        match compare {
            Compare::ShadowStart { candidate, sample, for_ms } => {
                let choice = receive(candidate, body).await?;
                self.start_shadow(choice, sample, for_ms).await?;
            }
            Compare::ShadowStop => {
                if let Some(shadow) = &*self.shadow.lock() {
                    shadow.stop();
                }
            }
            Compare::Status => {}
            Compare::AbStart { .. } | Compare::AbStop | Compare::AbPromote => {
                let detail = "this gateway does not split its cache";
                return Err(Failure::new(Status::NotSupported, detail));
            }
        }
        Ok(Reply::Compared(Box::new(self.compared())))
    }

    fn compared(&self) -> Compared {
        Compared { shadow: self.shadow.lock().as_ref().map(Shadow::report), ab: None }
    }

    async fn start_shadow(
        &self,
        candidate: PolicyChoice,
        sample: u32,
        for_ms: u64,
    ) -> Result<(), Failure> {
        if sample == 0 || for_ms == 0 || for_ms > SHADOW_MS_MAX {
            let detail = "a sample is one directory in 1 or more, a time up to a week";
            return Err(Failure::new(Status::InvalidArgument, detail));
        }
        self.free_shadow()?;
        let capacity_bytes = self.volume.capacity_bytes / u64::from(sample);
        let limits = PolicyLimits { capacity_bytes, seed: random() };
        let incumbent = load(self.incumbent.clone(), limits).await?;
        let candidate = load(candidate, limits).await?;
        let listener = shadow::listen(&self.volume, sample)?;
        let policies = [incumbent, candidate];
        let started = Shadow::start(listener, policies, capacity_bytes, sample, for_ms)
            .map_err(|error| Failure::new(Status::Busy, format!("no thread: {error}")))?;
        let mut shadow = self.shadow.lock();
        // Somebody else may have started one meanwhile.
        if shadow.as_ref().is_some_and(Shadow::is_running) {
            return Err(under_way());
        }
        *shadow = Some(started);
        Ok(())
    }

    fn free_shadow(&self) -> Result<(), Failure> {
        let is_running = self.shadow.lock().as_ref().is_some_and(Shadow::is_running);
        if is_running { Err(under_way()) } else { Ok(()) }
    }

    /// Ends all of them: the gateway stops.
    pub(crate) fn close(&self) {
        *self.shadow.lock() = None;
    }
}

fn under_way() -> Failure {
    Failure::new(Status::Busy, "a shadow is under way: stop it, or wait for its end")
}

/// Reads a candidate that follows its request.
async fn receive(candidate: Candidate, body: Body) -> Result<PolicyChoice, Failure> {
    let Candidate { name, component_len_bytes, config_len_bytes } = candidate;
    if component_len_bytes as usize > POLICY_COMPONENT_LEN_BYTES_MAX
        || config_len_bytes > CONFIG_LEN_BYTES_MAX
    {
        let detail = format!(
            "a component has {POLICY_COMPONENT_LEN_BYTES_MAX} bytes at most, a configuration \
             {CONFIG_LEN_BYTES_MAX}"
        );
        return Err(Failure::new(Status::InvalidArgument, detail));
    }
    let pieces: Vec<Bytes> = body.collect().await?;
    let mut bytes = pieces.concat();
    if component_len_bytes == 0 {
        return native(name);
    }
    let config = bytes.split_off(component_len_bytes as usize);
    Ok(PolicyChoice::Bytes { name, bytes, config })
}

/// The native policy of a name.
fn native(name: String) -> Result<PolicyChoice, Failure> {
    if name == portcullis_core::eviction::s3fifo::S3Fifo::NAME {
        return Ok(PolicyChoice::Native);
    }
    Err(Failure::new(Status::NotFound, format!("there is no native policy {name}")))
}

/// Loads a policy, away from the threads that serve.
async fn load(choice: PolicyChoice, limits: PolicyLimits) -> Result<LoadedPolicy, Failure> {
    let loaded = tokio::task::spawn_blocking(move || LoadedPolicy::load(choice, limits)).await;
    match loaded {
        Ok(Ok(policy)) => Ok(policy),
        Ok(Err(error)) => Err(Failure::new(Status::InvalidArgument, error.to_string())),
        Err(_) => Err(Failure::new(Status::Io, "loading the policy ended in a panic")),
    }
}
