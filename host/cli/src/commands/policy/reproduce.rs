//! `portcullis policy reproduce`: what a component was asked before it failed, asked of one again.

use std::path::PathBuf;

use portcullis_core::eviction::PolicyLimits;
use portcullis_policy::{Batches, LoadedPolicy, PolicyChoice};

use super::read;
use crate::error::CliError;
use crate::server::print_line;
use crate::units::parse_size;
use portcullis_core::limits::POLICY_CONFIG_LEN_BYTES_MAX;

/// Play to a component what another one was asked before it failed: a file in DIR/faults of a
/// gateway's --state DIR. Fails where the component does
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// What was asked
    #[arg(value_name = "FILE.batches")]
    batches: PathBuf,
    /// The component
    #[arg(value_name = "FILE.wasm")]
    policy: PathBuf,
    /// Its configuration
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Memory of the cache that it is told of
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_size)]
    cache_bytes: u64,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), CliError> {
    let Arguments { batches: path, policy, config, cache_bytes } = arguments;
    let at = |source| CliError::Local { path: path.clone(), source };
    let batches = Batches::read(path).map_err(at)?;
    let config = match config {
        Some(config) => read(config, POLICY_CONFIG_LEN_BYTES_MAX)?,
        None => Vec::new(),
    };
    let limits = PolicyLimits { capacity_bytes: *cache_bytes, seed: 0 };
    let mut policy = LoadedPolicy::load(PolicyChoice::configured(policy, config)?, limits)?;
    let whole = if batches.is_whole { "from its start" } else { "without its beginning" };
    print_line(&format!("{} {}; kept {whole}", batches.policy, batches.fault))?;
    let name = policy.name().to_owned();
    match batches.play(&mut policy) {
        Ok(calls) => print_line(&format!("{name} does all {calls} calls")),
        Err((call, fault)) => Err(CliError::Said(format!("{name} {fault}, in call {call}"))),
    }
}
