//! `portcullis policy ab`: two policies on the halves of a live gateway's cache.

mod start;
mod status;

use bytes::Bytes;
use portcullis_client::Address;
use portcullis_wire::message::{AbStatus, Compare};

use crate::error::CliError;
use crate::session::{Connect, address_parser};

/// Compare a policy with the active one on live traffic; needs the admin identity
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Start(start::Arguments),
    Status(status::Arguments),
    /// End it: the active policy has the whole cache again
    Stop(status::Arguments),
    /// End it: the candidate has the whole cache, and is the active policy
    Promote(status::Arguments),
}

/// Which gateway.
#[derive(Debug, clap::Args)]
struct Gateway {
    /// The gateway: pc://HOST:PORT/
    #[arg(value_parser = address_parser())]
    address: Address,
    #[command(flatten)]
    connect: Connect,
}

impl Gateway {
    async fn ask(&self, compare: Compare, body: Bytes) -> Result<AbStatus, CliError> {
        let compared = self.connect.compare(&self.address, compare, body).await?;
        let none = || CliError::Said("no comparison was begun on this gateway".to_owned());
        compared.ab.ok_or_else(none)
    }
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), CliError> {
    match arguments.command {
        Command::Start(arguments) => start::run(arguments).await,
        Command::Status(arguments) => status::run(arguments, Compare::Status).await,
        Command::Stop(arguments) => status::run(arguments, Compare::AbStop).await,
        Command::Promote(arguments) => status::run(arguments, Compare::AbPromote).await,
    }
}
