//! A policy that a gateway is asked to try, as it was named on the command line.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use portcullis_core::limits::{POLICY_COMPONENT_LEN_BYTES_MAX, POLICY_CONFIG_LEN_BYTES_MAX};
use portcullis_wire::message::Candidate;

use super::read;
use crate::error::CliError;

/// Whom to try.
#[derive(Debug, clap::Args)]
pub(crate) struct Named {
    /// A component (a path with a / or .wasm in it), or the name of a native policy
    candidate: String,
    /// The component's configuration
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Named {
    /// What to ask for, and what follows it.
    pub(crate) fn read(&self) -> Result<(Candidate, Bytes), CliError> {
        let named = &self.candidate;
        let is_component = named.contains('/') || named.ends_with(".wasm");
        let component = match is_component {
            true => read(Path::new(named), POLICY_COMPONENT_LEN_BYTES_MAX)?,
            false => Vec::new(),
        };
        if is_component && component.is_empty() {
            return Err(CliError::Said(format!("{named} is empty")));
        }
        let config = match &self.config {
            Some(path) => read(path, POLICY_CONFIG_LEN_BYTES_MAX)?,
            None => Vec::new(),
        };
        let len = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let candidate = Candidate {
            name: named.clone(),
            component_len_bytes: len(&component),
            config_len_bytes: len(&config),
        };
        Ok((candidate, Bytes::from([component, config].concat())))
    }
}
