//! `portcullis policy status`: which policy is active, and how it does.

use portcullis_wire::message::PolicyCommand;

use super::ask::Target;
use crate::error::CliError;

/// Show which policy is active, down to its digest, and how it does
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: Target,
}

pub(super) async fn run(arguments: Arguments) -> Result<(), CliError> {
    arguments.target.ask(PolicyCommand::Status, &[], |_| String::new()).await
}
