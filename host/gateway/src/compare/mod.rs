//! Policies compared: beside the traffic ([`shadow`]) or on it ([`split`]).
//!
//! One of each at a time; what the last one has shown stays until the next begins. What must hold: a
//! shadow touches neither the cache nor the policy that works there; whatever ends a split, the whole
//! cache has one policy again.

mod incumbent;
mod kept;
mod shadow;
mod split;

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use portcullis_core::Status;
use portcullis_core::ab::{Experiment, Plan};
use portcullis_core::eviction::PolicyLimits;
use portcullis_core::eviction::native::NAMES;
use portcullis_core::limits::{POLICY_COMPONENT_LEN_BYTES_MAX, POLICY_CONFIG_LEN_BYTES_MAX};
use portcullis_policy::{LoadedPolicy, PolicyChoice};
use portcullis_transport::Body;
use portcullis_wire::Reply;
use portcullis_wire::message::{Candidate, Compare, Compared, Failure};

pub(crate) use self::incumbent::Incumbent;
pub(crate) use self::kept::KeptSplit;
use self::shadow::Shadow;
use self::split::{Order, Setup, Split};
use crate::random;
use crate::volume::Volume;

/// The longest that a shadow may run.
const SHADOW_MS_MAX: u64 = 7 * 24 * 3_600_000;

/// The comparisons of one gateway.
pub(crate) struct Comparisons {
    volume: Arc<Volume>,
    incumbent: Arc<Incumbent>,
    shadow: Mutex<Option<Shadow>>,
    split: Mutex<Option<Split>>,
    /// Held by whoever begins or ends a split, which takes its time.
    splitting: Mutex<()>,
    /// Where the split is kept for after a restart.
    kept: Option<KeptSplit>,
}

impl Comparisons {
    pub(crate) fn new(
        volume: Arc<Volume>,
        incumbent: Incumbent,
        kept: Option<KeptSplit>,
    ) -> Arc<Self> {
        let (incumbent, shadow, split) = (Arc::new(incumbent), Mutex::new(None), Mutex::new(None));
        Arc::new(Self { volume, incumbent, shadow, split, splitting: Mutex::new(()), kept })
    }

    /// Goes on with a split that the end of the gateway interrupted. Takes as long as it takes to load
    /// policies.
    pub(crate) fn resume(&self) {
        let Some(kept) = &self.kept else { return };
        let found = match split::resumed(kept) {
            Ok(None) => return,
            Ok(Some(found)) => found,
            Err(error) => {
                tracing::warn!("the comparison of before the restart does not go on: {error}");
                return kept.clear();
            }
        };
        if let Err(error) = self.begin_split(found.candidate, found.experiment) {
            tracing::warn!("the comparison of before the restart does not go on: {error}");
            kept.clear();
        }
    }

    /// Does what is asked, and tells what there is.
    pub(crate) async fn compare(
        self: &Arc<Self>,
        compare: Compare,
        body: Body,
    ) -> Result<Reply, Failure> {
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
            Compare::AbStart { candidate, period_requests, period_ms_max } => {
                let candidate = receive(candidate, body).await?;
                let plan = Plan {
                    period_requests,
                    period_ms_max,
                    capacity_bytes: self.volume.cache.capacity_bytes(),
                    candidate_first: random() as usize % 2,
                };
                self.start_split(candidate, plan).await?;
            }
            Compare::AbStop => self.end_split(Order::Stop).await,
            Compare::AbPromote => self.promote().await?,
        }
        Ok(Reply::Compared(Box::new(self.compared())))
    }

    fn compared(&self) -> Compared {
        Compared {
            shadow: self.shadow.lock().as_ref().map(Shadow::report),
            ab: self.split.lock().as_ref().map(Split::status),
        }
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
        let incumbent = self.load(self.incumbent.choice(), limits).await?;
        let candidate = self.load(candidate, limits).await?;
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

    /// Loads a policy, away from the threads that serve.
    async fn load(
        &self,
        choice: PolicyChoice,
        limits: PolicyLimits,
    ) -> Result<LoadedPolicy, Failure> {
        let incumbent = self.incumbent.clone();
        let loaded = blocking(move || incumbent.load(choice, limits)).await?;
        loaded.map_err(|error| Failure::new(Status::InvalidArgument, error.to_string()))
    }

    fn free_shadow(&self) -> Result<(), Failure> {
        let is_running = self.shadow.lock().as_ref().is_some_and(Shadow::is_running);
        if is_running { Err(under_way()) } else { Ok(()) }
    }

    async fn start_split(
        self: &Arc<Self>,
        candidate: PolicyChoice,
        plan: Plan,
    ) -> Result<(), Failure> {
        if plan.period_requests == 0 || plan.period_ms_max == 0 {
            let detail = "a period has at least one request, and takes some time";
            return Err(Failure::new(Status::InvalidArgument, detail));
        }
        let own = self.clone();
        let begun = move || own.begin_split(candidate, Experiment::new(plan));
        blocking(begun).await?
    }

    fn begin_split(&self, candidate: PolicyChoice, experiment: Experiment) -> Result<(), Failure> {
        let _splitting = self.splitting.lock();
        if self.split.lock().as_ref().is_some_and(Split::is_running) {
            let detail = "a comparison is under way: stop or promote it first";
            return Err(Failure::new(Status::Busy, detail));
        }
        if self.incumbent.is_panic() {
            let detail = "the panic switch is on: swap a policy in first";
            return Err(Failure::new(Status::Busy, detail));
        }
        let setup = Setup {
            volume: self.volume.clone(),
            incumbent: self.incumbent.clone(),
            candidate,
            experiment,
            kept: self.kept.clone(),
        };
        let started = Split::start(setup)
            .map_err(|error| Failure::new(Status::InvalidArgument, error.to_string()))?;
        *self.split.lock() = Some(started);
        Ok(())
    }

    async fn end_split(self: &Arc<Self>, order: Order) {
        let own = self.clone();
        let ended = blocking(move || own.end_split_now(order));
        // It fails only where it panicked, which is logged.
        let _ = ended.await;
    }

    /// Ends the split that is under way, and waits until the cache is whole.
    fn end_split_now(&self, order: Order) {
        let _splitting = self.splitting.lock();
        let thread = self.split.lock().as_mut().and_then(|split| split.order(order));
        if let Some(thread) = thread {
            // It ends in an error only where it panicked, which it does not.
            let _ = thread.join();
        }
    }

    /// The candidate of the last split becomes the active policy.
    async fn promote(self: &Arc<Self>) -> Result<(), Failure> {
        let found =
            self.split.lock().as_ref().map(|split| (split.is_running(), split.candidate.clone()));
        match found {
            None => {
                Err(Failure::new(Status::NotFound, "no comparison was begun: nobody to promote"))
            }
            Some((true, _)) => {
                self.end_split(Order::Promote).await;
                Ok(())
            }
            Some((false, candidate)) => {
                let incumbent = self.incumbent.clone();
                let put_in = blocking(move || incumbent.put_in(candidate)).await?;
                put_in.map_err(|error| Failure::new(Status::InvalidArgument, error))
            }
        }
    }

    /// Ends all of them: the gateway stops.
    pub(crate) fn close(&self) {
        *self.shadow.lock() = None;
        self.end_split_now(Order::Leave);
    }
}

fn under_way() -> Failure {
    Failure::new(Status::Busy, "a shadow is under way: stop it, or wait for its end")
}

/// Reads a candidate that follows its request.
async fn receive(candidate: Candidate, body: Body) -> Result<PolicyChoice, Failure> {
    let Candidate { name, component_len_bytes, config_len_bytes } = candidate;
    if component_len_bytes as usize > POLICY_COMPONENT_LEN_BYTES_MAX
        || config_len_bytes as usize > POLICY_CONFIG_LEN_BYTES_MAX
    {
        let detail = format!(
            "a component has {POLICY_COMPONENT_LEN_BYTES_MAX} bytes at most, a configuration \
             {POLICY_CONFIG_LEN_BYTES_MAX}"
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
    // `s3fifo` is as good as `s3-fifo`.
    let plain = |name: &str| name.replace('-', "");
    let known = NAMES.iter().find(|known| plain(known) == plain(&name));
    known.map(|&known| PolicyChoice::Named(known.to_owned())).ok_or_else(|| {
        let detail = format!("there is no native policy {name}: name one of {}", NAMES.join(", "));
        Failure::new(Status::NotFound, detail)
    })
}

/// Does something that takes its time, away from the threads that serve.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| Failure::new(Status::Io, "it ended in a panic"))
}
