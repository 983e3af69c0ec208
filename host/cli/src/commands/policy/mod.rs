//! `portcullis policy`: what is done with policies themselves.

use crate::error::CliError;

mod build;
mod inspect;
mod kind;
mod new;
mod replay;
mod test;

/// Work with policies
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    New(new::Arguments),
    Build(build::Arguments),
    Inspect(inspect::Arguments),
    Test(test::Arguments),
    Replay(replay::Arguments),
}

pub(crate) fn run(arguments: Arguments) -> Result<(), CliError> {
    match arguments.command {
        Command::New(arguments) => new::run(&arguments),
        Command::Build(arguments) => build::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Test(arguments) => test::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
    }
}
