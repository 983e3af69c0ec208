//! `portcullis gateway`: the cache between clients and bricks.

use std::path::{Path, PathBuf};
use std::time::Duration;

use portcullis_core::limits::POLICY_CONFIG_LEN_BYTES_MAX;
use portcullis_gateway::{
    Gateway, GatewayConfig, GatewayError, InliningPolicyChoice, PrefetchPolicyChoice,
};
use portcullis_policy::PolicyChoice;
use portcullis_transport::{Identity, Role};

use crate::commands::compile_policy;
use crate::commands::policy::read;
use crate::error::CliError;
use crate::server::{Stop, print_ready, resolve};
use crate::units::{parse_duration, parse_size};

/// Serve clients from a cache in front of one or more bricks
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Address of a brick, which need not be there yet; once for each brick of the volume, always in
    /// the same order, new ones last
    #[arg(long, value_name = "HOST:PORT", required = true)]
    brick: Vec<String>,
    /// Where to listen; port 0 for any
    #[arg(long, value_name = "HOST:PORT")]
    listen: String,
    /// Directory that `portcullis identity init` made
    #[arg(long, value_name = "ID")]
    identity: PathBuf,
    /// Memory for the cache [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    cache_bytes: Option<u64>,
    /// Capacity of the cache in entries, whatever they take: for comparisons with replays
    #[arg(long, value_name = "COUNT", conflicts_with = "cache_bytes")]
    cache_entries: Option<u64>,
    /// Eviction policy, a WebAssembly component [default: the S3-FIFO component that is built in]
    #[arg(long, value_name = "FILE")]
    eviction: Option<PathBuf>,
    /// Configuration of that component
    #[arg(long, value_name = "FILE", requires = "eviction")]
    eviction_config: Option<PathBuf>,
    /// Where what an administrator changes is kept, for after a restart (a directory, made where it is
    /// missing), and compiled policies
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// What is listed at the brick before a client asks for it: none, statahead, crawl, or a policy of
    /// one's own, a WebAssembly component [default: crawl]
    #[arg(long, value_name = "NAME|FILE.wasm", value_parser = parse_prefetch)]
    prefetch: Option<PrefetchPolicyChoice>,
    /// Configuration of that component
    #[arg(long, value_name = "FILE", requires = "prefetch")]
    prefetch_config: Option<PathBuf>,
    /// Which contents of small files travel along with listings: none, fixed (up to 16 KiB), learnt, or a
    /// policy of one's own, a WebAssembly component [default: none]
    #[arg(long, value_name = "NAME|FILE.wasm", value_parser = parse_inlining)]
    inlining: Option<InliningPolicyChoice>,
    /// Memory for such contents, beside the cache [default: 64MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    inline_bytes: Option<u64>,
    /// Where to serve /healthz, /readyz and /metrics over HTTP, without any authentication
    #[arg(long, value_name = "HOST:PORT")]
    admin: Option<String>,
    /// How old an answer from the cache may be [default: 60s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    max_age: Option<Duration>,
    /// How long a brick may take to answer [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    brick_timeout: Option<Duration>,
}

/// The name of a native policy, or a file: what has a folder before it, or ends in `.wasm`.
fn parse_prefetch(text: &str) -> Result<PrefetchPolicyChoice, String> {
    if text.contains('/') || text.ends_with(".wasm") {
        return Ok(PrefetchPolicyChoice::File(text.into()));
    }
    let native = text.parse().map(PrefetchPolicyChoice::Native);
    native.map_err(|error: String| format!("{error}, and components in files NAME.wasm"))
}

/// As [`parse_prefetch`], for inlining.
fn parse_inlining(text: &str) -> Result<InliningPolicyChoice, String> {
    if text.contains('/') || text.ends_with(".wasm") {
        return Ok(InliningPolicyChoice::File(text.into()));
    }
    let native = text.parse().map(InliningPolicyChoice::Native);
    native.map_err(|error: String| format!("{error}, and components in files NAME.wasm"))
}

/// A prefetch policy with its configuration, where there is one.
fn configured(
    choice: PrefetchPolicyChoice,
    config: Option<&Path>,
) -> Result<PrefetchPolicyChoice, CliError> {
    match (choice, config) {
        (PrefetchPolicyChoice::File(file), config) => {
            let configured = PrefetchPolicyChoice::configured(&file, read_config(config)?);
            Ok(configured.map_err(GatewayError::Prefetch)?)
        }
        (native, None) => Ok(native),
        (_, Some(_)) => {
            let what = "--prefetch-config is for a component in a file: the policies that have a name \
                        take none";
            Err(CliError::Said(what.to_owned()))
        }
    }
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), CliError> {
    let identity = Identity::load(&arguments.identity, Role::Gateway)?;
    let config = arguments.config().await?;
    let stop = Stop::install()?;
    let gateway = Gateway::bind(config, &identity)?;
    if let Some(admin) = gateway.admin_addr() {
        tracing::info!(address = %admin, "health and metrics over HTTP");
    }
    print_ready(gateway.local_addr())?;
    gateway.serve(stop.requested()).await;
    Ok(())
}

fn read_config(path: Option<&Path>) -> Result<Vec<u8>, CliError> {
    path.map_or_else(|| Ok(Vec::new()), |path| read(path, POLICY_CONFIG_LEN_BYTES_MAX))
}

impl Arguments {
    async fn config(self) -> Result<GatewayConfig, CliError> {
        let mut bricks = Vec::new();
        for brick in &self.brick {
            bricks.push(resolve(brick).await?);
        }
        let mut config = match bricks.first() {
            Some(first) => GatewayConfig::new(*first),
            None => return Err(CliError::Said("no brick given: name one with --brick".into())),
        };
        config.bricks = bricks;
        config.listen = resolve(&self.listen).await?;
        if let Some(bytes) = self.cache_bytes {
            config.cache_bytes = bytes;
        }
        config.cache_entries = self.cache_entries;
        if let Some(file) = self.eviction {
            let policy = read_config(self.eviction_config.as_deref())?;
            config.eviction =
                PolicyChoice::configured(&file, policy).map_err(GatewayError::from)?;
        }
        config.compiler = compile_policy::compiler();
        config.state = self.state;
        if let Some(prefetch) = self.prefetch {
            config.prefetch = configured(prefetch, self.prefetch_config.as_deref())?;
        }
        if let Some(inlining) = self.inlining {
            config.inlining = inlining;
        }
        if let Some(bytes) = self.inline_bytes {
            config.inline_bytes = bytes;
        }
        if let Some(admin) = &self.admin {
            config.admin = Some(resolve(admin).await?);
        }
        if let Some(age) = self.max_age {
            config.max_age_ms = age.as_millis() as u64;
        }
        if let Some(timeout) = self.brick_timeout {
            config.brick_timeout_ms = timeout.as_millis() as u64;
        }
        Ok(config)
    }
}
