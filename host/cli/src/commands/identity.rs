//! `portcullis identity init`: a private CA with one identity a role.

use std::path::PathBuf;

use portcullis_transport::IdentitySet;

use crate::error::CliError;
use crate::server::print_line;

/// Make the certificates by which the parties prove who they are
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make a private CA and one identity each for brick, gateway, client and admin
    ///
    /// Each host needs ca.pem and the .pem and .key of its own role (a brick also handle.key);
    /// ca.key is needed by none and is best kept elsewhere.
    Init {
        /// Directory to write to; made if it is missing
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
    },
}

pub(crate) fn run(arguments: Arguments) -> Result<(), CliError> {
    let Command::Init { dir } = arguments.command;
    IdentitySet::generate()?.write(&dir)?;
    print_line(&format!("identity {}", dir.display()))
}
