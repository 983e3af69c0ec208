//! `portcullis policy`: what is done with policies themselves.

use crate::error::CliError;

mod ab;
mod candidate;
mod replay;
mod shadow;

/// Work with eviction policies
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Replay(replay::Arguments),
    Shadow(shadow::Arguments),
    Ab(ab::Arguments),
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), CliError> {
    match arguments.command {
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Shadow(arguments) => shadow::run(arguments).await,
        Command::Ab(arguments) => ab::run(arguments).await,
    }
}
