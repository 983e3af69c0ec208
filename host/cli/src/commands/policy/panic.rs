//! `portcullis policy panic`: native policies at once.

use portcullis_wire::message::PolicyCommand;

use super::ask::Target;
use crate::error::CliError;

/// Let native policies work at once, of every kind, until `policy swap`
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: Target,
}

pub(super) async fn run(arguments: Arguments) -> Result<(), CliError> {
    arguments.target.ask(PolicyCommand::Panic, &[], |_| String::new()).await
}
