//! `portcullis compile-policy`: the compiler of a gateway, in a process of its own. Not for people.

use std::path::PathBuf;

use portcullis_policy::{Compiler, compile_in_this_process};

use crate::error::CliError;

/// The name of the command.
const NAME: &str = "compile-policy";

/// Compile a component from standard input to standard output
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

pub(crate) fn run() -> Result<(), CliError> {
    compile_in_this_process().map_err(CliError::Said)
}

/// How this binary compiles policies: in a child that is this binary, also where another one lies in
/// its place by now.
pub(crate) fn compiler() -> Compiler {
    Compiler::Child { program: PathBuf::from("/proc/self/exe"), args: vec![NAME.to_owned()] }
}
