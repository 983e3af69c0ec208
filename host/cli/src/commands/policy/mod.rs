//! `portcullis policy`: what is done with policies themselves.

use crate::error::CliError;

mod ab;
mod ask;
mod build;
mod candidate;
mod inspect;
mod kind;
mod load;
mod new;
mod panic;
mod replay;
mod reproduce;
mod rollback;
mod shadow;
mod status;
mod swap;
mod test;

pub(crate) use ask::read;

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
    Reproduce(reproduce::Arguments),
    /// Have a running gateway check, compile and try a policy, without letting it work
    Load(ask::Sent),
    /// Let another policy work in a running gateway; no request waits or fails for it
    Swap(ask::Sent),
    Rollback(rollback::Arguments),
    Status(status::Arguments),
    Panic(panic::Arguments),
    Shadow(shadow::Arguments),
    Ab(ab::Arguments),
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), CliError> {
    match arguments.command {
        Command::New(arguments) => new::run(&arguments),
        Command::Build(arguments) => build::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Test(arguments) => test::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Reproduce(arguments) => reproduce::run(&arguments),
        Command::Load(arguments) => load::run(arguments).await,
        Command::Swap(arguments) => swap::run(arguments).await,
        Command::Rollback(arguments) => rollback::run(arguments).await,
        Command::Status(arguments) => status::run(arguments).await,
        Command::Panic(arguments) => panic::run(arguments).await,
        Command::Shadow(arguments) => shadow::run(arguments).await,
        Command::Ab(arguments) => ab::run(arguments).await,
    }
}
