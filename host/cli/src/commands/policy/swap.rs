//! `portcullis policy swap`: another policy for a running gateway.

use portcullis_wire::message::PolicyCommand;

use super::ask::{Source, Target};
use crate::error::CliError;

/// Let another policy work in a running gateway; no request waits or fails for it
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    source: Source,
}

pub(super) async fn run(arguments: Arguments) -> Result<(), CliError> {
    let Arguments { target, source } = arguments;
    let (force, (source, body)) = (source.force, source.read()?);
    target.ask(PolicyCommand::Swap { source, force }, &body, |_| String::new()).await
}
