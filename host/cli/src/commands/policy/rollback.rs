//! `portcullis policy rollback`: the policy before the active one, again.

use portcullis_wire::message::PolicyCommand;

use super::ask::Target;
use crate::error::CliError;

/// Let the policy before the active one work again
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: Target,
}

pub(super) async fn run(arguments: Arguments) -> Result<(), CliError> {
    arguments.target.ask(PolicyCommand::Rollback, &[], |_| String::new()).await
}
