//! `portcullis policy load`: whether a running gateway would take a policy.

use portcullis_wire::message::PolicyCommand;
use portcullis_wire::message::policy::PolicyName;

use super::ask::{Source, Target, named};
use crate::error::CliError;

/// Have a running gateway check, compile and try a policy, without letting it work
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
    let command = PolicyCommand::Load { source, force };
    let say = |policy: &PolicyName| format!("{} can be swapped in\n", named(policy));
    target.ask(command, &body, |status| status.loaded.as_ref().map_or_else(String::new, say)).await
}
