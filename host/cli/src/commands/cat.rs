//! `portcullis cat`: the content of files.

use portcullis_client::{Address, Client, ReadAhead};
use portcullis_core::{FileKind, Status};
use portcullis_wire::message::Failure;

use crate::error::{CliError, complain};
use crate::output::Output;
use crate::session::{Connect, address_parser, resolve};

/// Print the content of files, one after the other
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The files: pc://HOST:PORT/PATH
    #[arg(value_parser = address_parser(), required = true)]
    addresses: Vec<Address>,
    #[command(flatten)]
    connect: Connect,
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), CliError> {
    let mut output = Output::stdout()?;
    let mut connected: Option<(String, Client)> = None;
    let mut failed = false;
    for address in &arguments.addresses {
        let gateway = address.authority();
        let client = match &connected {
            Some((of, client)) if *of == gateway => client.clone(),
            _ => {
                let client = arguments.connect.client(address).await?;
                connected = Some((gateway, client.clone()));
                client
            }
        };
        match print(&client, address, &mut output).await {
            Ok(()) => {}
            Err(error) if error.ends_all() => return Err(error),
            Err(error) => {
                complain(&error.to_string());
                failed = true;
            }
        }
    }
    if let Some((_, client)) = connected {
        client.close().await;
    }
    if failed { Err(CliError::Told) } else { Ok(()) }
}

async fn print(client: &Client, address: &Address, output: &mut Output) -> Result<(), CliError> {
    let failed = || CliError::request(address.given());
    let entry = resolve(client, address).await?;
    let refused = match entry.kind {
        FileKind::Regular | FileKind::Unknown => None,
        FileKind::Directory => Some(Failure::from(Status::IsDirectory)),
        FileKind::Symlink => Some(Failure::new(
            Status::InvalidArgument,
            "a symbolic link, which is not followed; `portcullis stat` tells where it leads",
        )),
        _ => Some(Failure::new(Status::InvalidArgument, "not a regular file")),
    };
    if let Some(failure) = refused {
        return Err(failed()(failure.into()));
    }
    let mut content = ReadAhead::new(client.open(&entry.handle).await.map_err(failed())?);
    while let Some(piece) = content.next().await.map_err(failed())? {
        output.write(&piece)?;
    }
    output.flush()
}
