//! The gateway: serves clients over QUIC from a dentry cache in front of a brick.
//!
//! One request's way: [`service`] counts it and finds its verb; [`volume`] asks the cache; a miss
//! becomes a fill ([`fills`]), a listing a shared scan ([`scans`], as one client gets it:
//! [`listing`]); [`inlining`] has contents travel along; [`ahead`] begins scans before a client asks. A mutation is passed through by [`mutate`] and taken in by [`effects`]. A
//! [`session`] is one client's connection; its open files ([`session_files`], each an [`open_file`])
//! are read by [`reads`], locked by [`locks`] ([`held_locks`], [`lockers`]), and asked for the rest
//! by [`file_calls`]; [`clients`] has all of them. [`brick_link`] is the way to the brick,
//! [`brick_session`] keeps the session with it, [`brick_call`] asks over it. [`coherence`] passes
//! changes on. [`space`] tells what `df` asks. [`outflow`] keeps a slow client from holding up
//! anything else. [`stats`], [`metrics`] and [`admin`] tell how it goes; by [`policies`] an
//! administrator changes what decides.
//! anything else. [`stats`], [`metrics`] and [`admin`] tell how it goes,
//! [`recording`] what is asked, and [`compare`] what other policies would make of it.
//!
//! What must hold: a hit takes no lock beyond the cache's and its client's watches', and starts no
//! task; every request that reaches the brick has a deadline, but for waits for a lock; answers
//! come from the cache only while the gateway has a lease at the brick, and no client has a longer
//! one; a client costs bounded memory and delays nobody beyond its lease.

mod admin;
mod ahead;
mod asks;
mod brick_call;
mod brick_link;
mod brick_session;
mod bricks;
mod clients;
mod clock;
mod coherence;
mod compare;
mod copies_ahead;
mod effects;
mod error;
mod file_calls;
mod fills;
mod found;
mod held_locks;
mod inlining;
mod kept_answers;
mod leases;
mod listing;
mod lockers;
mod locks;
mod lookups;
mod membership;
mod merged;
mod metrics;
mod mutate;
mod open_file;
mod outflow;
mod own_ops;
mod owners;
mod policies;
mod reads;
mod recording;
mod redo;
mod refresh;
mod scans;
mod service;
mod session;
mod session_files;
mod several;
mod space;
mod stats;
mod steps;
mod touches;
mod volume;
mod waits;

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use portcullis_core::cache::CacheConfig;
use portcullis_core::contents::ContentCache;
use portcullis_core::eviction::PolicyLimits;
use portcullis_core::inlining::Ledger;
use portcullis_core::limits::{BRICKS_MAX, CACHE_BYTES_MIN, CACHE_ENTRIES_MIN, INLINE_CACHE_BYTES};
use portcullis_policy::{
    EvictionDriver, InliningControl, PolicyControl, PolicySetup, PrefetchControl, PrefetchSetup,
};
use portcullis_transport::{Identity, Server};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

pub use portcullis_policy::{Compiler, InliningPolicyChoice, PolicyChoice, PrefetchPolicyChoice};

pub use crate::error::GatewayError;

use crate::ahead::{AheadShared, budget_bytes};
use crate::brick_link::BrickLink;
use crate::bricks::Bricks;
use crate::clock::Clock;
use crate::compare::{Comparisons, Incumbent, KeptSplit};
use crate::inlining::Inlining;
use crate::policies::Policies;
use crate::service::GatewayService;
use crate::stats::Observer;
use crate::volume::{Cache, Volume};

/// Bytes of cache where nothing else is asked for.
pub const CACHE_BYTES_DEFAULT: u64 = 256 * 1024 * 1024;
/// How old an answer from the cache may be where nothing else is asked for.
pub const MAX_AGE_MS_DEFAULT: u64 = 60_000;
/// How long a brick may take to answer where nothing else is asked for.
pub const BRICK_TIMEOUT_MS_DEFAULT: u64 = 10_000;

/// How a gateway is set up.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// The bricks of the volume, at most `BRICKS_MAX`, always in the same order; one that is added
    /// later comes last.
    pub bricks: Vec<SocketAddr>,
    /// Where clients connect; port 0 for any.
    pub listen: SocketAddr,
    /// Bytes the cache may hold.
    pub cache_bytes: u64,
    /// How many entries the cache may hold, whatever they take; then `cache_bytes` does not count. For
    /// comparisons with replays.
    pub cache_entries: Option<u64>,
    /// How old an answer from the cache may be.
    pub max_age_ms: u64,
    /// What decides what leaves the cache.
    pub eviction: PolicyChoice,
    /// Where policies are compiled.
    pub compiler: Compiler,
    /// Where what an administrator changed is kept, for after a restart; nowhere if `None`.
    pub state: Option<PathBuf>,
    /// What is listed at the brick before a client asks for it.
    pub prefetch: PrefetchPolicyChoice,
    /// Which contents of small files travel along with listings.
    pub inlining: InliningPolicyChoice,
    /// Bytes of such contents that are kept, beside the cache.
    pub inline_bytes: u64,
    /// Where health and metrics are served over HTTP; nowhere if `None`.
    pub admin: Option<SocketAddr>,
    /// How long a brick may take for an answer, or for the next part of one.
    pub brick_timeout_ms: u64,
}

impl GatewayConfig {
    /// A gateway in front of `brick` with everything else at its default, listening on any
    /// loopback port.
    pub fn new(brick: SocketAddr) -> Self {
        Self {
            bricks: vec![brick],
            listen: ([127, 0, 0, 1], 0).into(),
            cache_bytes: CACHE_BYTES_DEFAULT,
            cache_entries: None,
            max_age_ms: MAX_AGE_MS_DEFAULT,
            eviction: PolicyChoice::default(),
            compiler: Compiler::default(),
            state: None,
            prefetch: PrefetchPolicyChoice::default(),
            inlining: InliningPolicyChoice::default(),
            inline_bytes: INLINE_CACHE_BYTES,
            admin: None,
            brick_timeout_ms: BRICK_TIMEOUT_MS_DEFAULT,
        }
    }
}

/// A gateway that listens.
pub struct Gateway {
    server: Server,
    address: SocketAddr,
    admin: Option<(TcpListener, SocketAddr)>,
    volume: Arc<Volume>,
    observer: Arc<Observer>,
    driver: Arc<EvictionDriver>,
    policies: Policies,
    comparisons: Arc<Comparisons>,
}

impl Gateway {
    /// Loads the policies and listens; clients are served once [`Gateway::serve`] runs. The
    /// brick need not be there yet. Call it within a tokio runtime.
    ///
    /// # Errors
    /// What is wrong with the configuration, the policy or an address.
    pub fn bind(config: GatewayConfig, identity: &Identity) -> Result<Self, GatewayError> {
        if config.bricks.is_empty() || config.bricks.len() > BRICKS_MAX {
            return Err(GatewayError::Bricks { count: config.bricks.len() });
        }
        if let Some(twice) = repeated(&config.bricks) {
            return Err(GatewayError::BrickTwice { address: twice });
        }
        if config.cache_bytes < CACHE_BYTES_MIN {
            return Err(GatewayError::CacheTooSmall { cache_bytes: config.cache_bytes });
        }
        if config.brick_timeout_ms == 0 {
            return Err(GatewayError::NoBrickTimeout);
        }
        if config.cache_entries.is_some_and(|entries| entries < CACHE_ENTRIES_MIN) {
            return Err(GatewayError::TooFewEntries);
        }
        let (capacity_bytes, max_age_ms) = (config.cache_bytes, config.max_age_ms);
        let kept = match &config.state {
            Some(state) => Some(
                KeptSplit::open(state, random())
                    .map_err(|source| GatewayError::State { path: state.clone(), source })?,
            ),
            None => None,
        };
        let seed = kept.as_ref().map_or_else(random, KeptSplit::seed);
        let cache = CacheConfig { capacity_bytes, max_age_ms, seed };
        let cache = Arc::new(match config.cache_entries {
            Some(entries) => Cache::of_entries(entries, cache),
            None => Cache::new(cache),
        });
        let capacity_bytes = cache.capacity_bytes();
        let limits = PolicyLimits { capacity_bytes, seed: random() };
        let ahead_limits = PolicyLimits { capacity_bytes: budget_bytes(capacity_bytes), ..limits };
        let mut setup = PrefetchSetup::new(config.prefetch, ahead_limits);
        (setup.compiler, setup.state) = (config.compiler.clone(), config.state.clone());
        let prefetch = PrefetchControl::start(setup).map_err(GatewayError::Prefetch)?;
        let ledger = Arc::new(Ledger::new(random()));
        let content_limits = PolicyLimits { capacity_bytes: config.inline_bytes, ..limits };
        let inlining = InliningControl::start(
            config.inlining,
            content_limits,
            config.compiler.clone(),
            ledger.clone(),
        );
        let inlining = Arc::new(inlining.map_err(GatewayError::Inlining)?);
        let contents = ContentCache::new(config.inline_bytes, max_age_ms);
        let server = Server::bind(config.listen, identity)?;
        let address = server.local_addr().map_err(GatewayError::LocalAddress)?;
        let admin = config.admin.map(bind_admin).transpose()?;
        let timeout = Duration::from_millis(config.brick_timeout_ms);
        let client = u128::from(random()) << 64 | u128::from(random());
        let clock = Clock::start();
        let count = config.bricks.len();
        let link = |(number, &address)| {
            BrickLink::new(identity, (number, count), address, timeout, client, clock).map(Arc::new)
        };
        let links: Result<Vec<_>, _> = config.bricks.iter().enumerate().map(link).collect();
        let bricks = Bricks::new(links?, u128::from(random()) << 64 | u128::from(random()));
        let mut setup = PolicySetup::new(config.eviction, limits);
        (setup.compiler, setup.state) = (config.compiler, config.state);
        let control = Arc::new(PolicyControl::start(cache.clone(), setup)?);
        let driver = control.driver().clone();
        let ahead = AheadShared::new(prefetch.driver().clone(), random());
        let beside = (ahead, Inlining::new(contents, inlining.clone(), ledger));
        let volume = Arc::new(Volume::new(cache, bricks, beside, capacity_bytes, clock));
        let observer = Arc::new(Observer::new(volume.clone(), driver.clone()));
        let comparisons = Comparisons::new(volume.clone(), Incumbent::new(control.clone()), kept);
        comparisons.resume();
        let policies = Policies::new(control, Arc::new(prefetch), inlining);
        Ok(Self { server, address, admin, volume, observer, driver, policies, comparisons })
    }

    /// Where clients connect.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Where health and metrics are served.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(|(_, address)| *address)
    }

    /// Serves until `stop` resolves, then finishes what is under way and returns.
    pub async fn serve(self, stop: impl Future<Output = ()>) {
        let Self { server, admin, volume, observer, driver, policies, comparisons, .. } = self;
        let stopping = CancellationToken::new();
        let connecting: Vec<_> = volume
            .bricks
            .all()
            .iter()
            .map(|brick| {
                let connecting = volume.clone().keep_connected(brick.clone());
                AbortOnDropHandle::new(tokio::spawn(connecting))
            })
            .collect();
        let admin = admin.map(|(listener, _)| {
            let serving = admin::serve(listener, observer.clone(), stopping.clone());
            AbortOnDropHandle::new(tokio::spawn(serving))
        });
        let counters = observer.connections.clone();
        let service = Arc::new(GatewayService {
            volume: volume.clone(),
            observer,
            policies,
            comparisons: comparisons.clone(),
        });
        server.serve(service, counters, stop).await;
        stopping.cancel();
        if let Some(admin) = admin {
            // It fails only where it panicked, which is logged.
            let _ = admin.await;
        }
        drop(connecting);
        // Clients may answer from what they were told until their leases are over.
        let forgotten = volume.watching.grantor().sessions() == 0;
        let mut closing = JoinSet::new();
        for brick in volume.bricks.all() {
            let brick = brick.clone();
            closing.spawn(async move { brick.close(forgotten).await });
        }
        closing.join_all().await;
        let stop_policies = move || {
            comparisons.close();
            driver.stop();
            volume.ahead.driver().stop();
            volume.inlining.control.stop();
        };
        let _ = tokio::task::spawn_blocking(stop_policies).await;
    }
}

/// An address that is there twice.
fn repeated(addresses: &[SocketAddr]) -> Option<SocketAddr> {
    let mut rest = addresses;
    while let Some((first, others)) = rest.split_first() {
        if others.contains(first) {
            return Some(*first);
        }
        rest = others;
    }
    None
}

fn bind_admin(address: SocketAddr) -> Result<(TcpListener, SocketAddr), GatewayError> {
    admin::bind(address)
        .and_then(|listener| {
            let address = listener.local_addr()?;
            Ok((listener, address))
        })
        .map_err(|source| GatewayError::AdminBind { address, source })
}

/// A number that nobody can guess, from the randomness behind std's hash tables.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0)
}
