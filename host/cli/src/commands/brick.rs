//! `portcullis brick`: exports one directory.

use std::path::PathBuf;

use portcullis_brick::{Brick, BrickConfig};
use portcullis_transport::{Identity, Role};

use crate::error::CliError;
use crate::server::{Stop, print_ready, resolve};

/// Export one directory to gateways
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The directory to export
    #[arg(long, value_name = "DIR")]
    export: PathBuf,
    /// Where to listen; port 0 for any
    #[arg(long, value_name = "HOST:PORT")]
    listen: String,
    /// Directory that `portcullis identity init` made
    #[arg(long, value_name = "ID")]
    identity: PathBuf,
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), CliError> {
    let identity = Identity::load(&arguments.identity, Role::Brick)?;
    let listen = resolve(&arguments.listen).await?;
    let stop = Stop::install()?;
    let brick = Brick::bind(BrickConfig::new(arguments.export, listen), &identity)?;
    print_ready(brick.local_addr())?;
    brick.serve(stop.requested()).await;
    Ok(())
}
