//! `portcullis policy load`: whether a running gateway would take a policy.

use portcullis_wire::message::PolicyCommand;
use portcullis_wire::message::policy::PolicyName;

use super::ask::{Sent, named};
use crate::error::CliError;

pub(super) async fn run(arguments: Sent) -> Result<(), CliError> {
    let say = |policy: &PolicyName| format!("{} can be swapped in\n", named(policy));
    let command = |source, force| PolicyCommand::Load { source, force };
    arguments.ask(command, |status| status.loaded.as_ref().map_or_else(String::new, say)).await
}
