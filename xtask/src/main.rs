//! `cargo xtask COMMAND`: everything that is done to this repository, set-up included.
//!
//! One file a command. [`build`] makes the shipped policies and the binary; [`demo`], [`mod@test`],
//! [`lint`], [`mod@bench`] and [`soak`] begin with what they need of it, so each works on a fresh
//! checkout. [`policies`] turns `plugins/*` into components, [`tidy`] has the rules of the house
//! that no compiler knows, [`tools`] installs what the tests run, [`tally`] counts tests, [`run`]
//! starts programs.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

mod bench;
mod build;
mod demo;
mod lint;
mod policies;
mod run;
mod soak;
mod tally;
mod test;
mod tidy;
mod tools;

/// Everything that is done to this repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build target/release/portcullis and the shipped policies (target/policies/*.wasm).
    Build,
    /// Build only the policies: the shipped ones, and those that tests use (target/policies/test).
    Policies,
    /// Build, then walk a real tree through Portcullis and compare it with the local walk.
    Demo {
        /// Passed on to `portcullis demo`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Build, then run every test: unit, documentation, simulation, whole processes.
    Test {
        /// Run only tests whose name contains this.
        filter: Option<String>,
    },
    /// Formatting, clippy, the rules of the house, documentation, licences and sources.
    Lint,
    /// Benchmarks: ratios between Portcullis and the floor below it, measured in one run.
    Bench {
        /// One of them (a file of tests/bench/src/bin); all where none is named.
        name: Option<String>,
        /// Passed on to it.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, requires = "name")]
        args: Vec<String>,
    },
    /// The simulator and the whole-process tests in their full form: hours.
    Soak {
        /// How often.
        #[arg(long, default_value_t = 1)]
        rounds: u32,
    },
}

fn main() -> Result<ExitCode> {
    let root = run::root()?;
    match Arguments::parse().command {
        Command::Build => build::build(&root).map(|()| ExitCode::SUCCESS),
        Command::Policies => build::all_components(&root).map(|()| ExitCode::SUCCESS),
        Command::Demo { args } => demo::demo(&root, &args),
        Command::Test { filter } => test::test(&root, filter.as_deref()),
        Command::Lint => lint::lint(&root),
        Command::Bench { name, args } => bench::bench(&root, name.as_deref(), &args),
        Command::Soak { rounds } => soak::soak(&root, rounds),
    }
}
