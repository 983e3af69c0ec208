//! `portcullis trace`: what is asked of a gateway, as a file.

use crate::error::CliError;

mod record;

/// Record what is asked of a gateway
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Record(record::Arguments),
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), CliError> {
    match arguments.command {
        Command::Record(arguments) => record::run(&arguments).await,
    }
}
