//! `portcullis policy swap`: another policy for a running gateway.

use portcullis_wire::message::PolicyCommand;

use super::ask::Sent;
use crate::error::CliError;

pub(super) async fn run(arguments: Sent) -> Result<(), CliError> {
    let command = |source, force| PolicyCommand::Swap { source, force };
    arguments.ask(command, |_| String::new()).await
}
