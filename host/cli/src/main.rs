//! The binary `portcullis`: every server and every command.
//!
//! One file a command under [`commands`]; the rest is what several of them share: [`session`]
//! (how clients connect), [`server`] (how servers start and stop), [`output`], [`printf`],
//! [`json`], [`archive`], [`text`] and [`units`] (how things are written and read), [`progress`],
//! [`logging`] and [`error`] (how a command ends).
//!
//! What must hold: exit code 0 for success, 1 for failure with a line on standard error for each
//! thing that failed, 2 for a command line that makes no sense.

mod archive;
mod commands;
mod error;
mod json;
mod logging;
mod output;
mod printf;
mod progress;
mod server;
mod session;
mod text;
mod units;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::filter::LevelFilter;

use crate::commands::{
    brick, cat, compile_policy, demo, find, gateway, identity, ls, mount, policy, serve, stat,
    stats, tar, trace,
};
use crate::error::CliError;

/// Buffers of up to a megabyte come and go with every read and write. The system's allocator gives
/// such memory back to the kernel each time, and has it cleared when it is taken again: a third of
/// the CPU time of a read. Without huge pages, which would keep twice as much resident.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A caching gateway for file trees
///
/// `portcullis demo` shows what it does with a tree of this machine; `portcullis serve DIR` serves
/// one for a first try.
#[derive(Debug, Parser)]
#[command(name = "portcullis", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Identity(identity::Arguments),
    Brick(brick::Arguments),
    Gateway(Box<gateway::Arguments>),
    Mount(mount::Arguments),
    Find(find::Arguments),
    Ls(ls::Arguments),
    Stat(stat::Arguments),
    Cat(cat::Arguments),
    Tar(tar::Arguments),
    Stats(stats::Arguments),
    Policy(policy::Arguments),
    #[command(hide = true)]
    CompilePolicy(compile_policy::Arguments),
    Trace(trace::Arguments),
    Serve(serve::Arguments),
    Demo(demo::Arguments),
}

fn main() -> ExitCode {
    let cli = Cli::parse_from(find::with_long_options(std::env::args_os()));
    logging::start(cli.command.log_level());
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}

fn run(command: Command) -> Result<(), CliError> {
    // The mount in the background begins as another process, before this one has threads.
    let command = match command {
        Command::Mount(arguments) => match mount::detach(arguments)? {
            Some(arguments) => Command::Mount(arguments),
            None => return Ok(()),
        },
        // Its limits leave no room for a runtime, and it needs none.
        Command::CompilePolicy(_) => return compile_policy::run(),
        other => other,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|source| CliError::System { what: "cannot start the runtime", source })?;
    let result = runtime.block_on(async {
        match command {
            Command::Identity(arguments) => identity::run(arguments),
            Command::Brick(arguments) => brick::run(arguments).await,
            Command::Gateway(arguments) => gateway::run(*arguments).await,
            Command::Mount(arguments) => mount::run(arguments).await,
            Command::Find(arguments) => find::run(arguments).await,
            Command::Ls(arguments) => ls::run(arguments).await,
            Command::Stat(arguments) => stat::run(arguments).await,
            Command::Cat(arguments) => cat::run(arguments).await,
            Command::Tar(arguments) => tar::run(arguments).await,
            Command::Stats(arguments) => stats::run(arguments).await,
            Command::Policy(arguments) => policy::run(arguments).await,
            Command::CompilePolicy(_) => compile_policy::run(),
            Command::Trace(arguments) => trace::run(arguments).await,
            Command::Serve(arguments) => serve::run(arguments).await,
            Command::Demo(arguments) => demo::run(arguments).await,
        }
    });
    // A task of ours that blocks must not keep the process.
    runtime.shutdown_background();
    result
}

impl Command {
    fn log_level(&self) -> LevelFilter {
        match self {
            Command::Brick(_) | Command::Gateway(_) | Command::Serve(_) => LevelFilter::INFO,
            Command::Mount(arguments) if arguments.is_logged() => LevelFilter::INFO,
            _ => LevelFilter::WARN,
        }
    }
}
