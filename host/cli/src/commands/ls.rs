//! `portcullis ls`: one directory.

use portcullis_client::{Address, Client};
use portcullis_core::entry::EntryRef;
use portcullis_core::{Chunk, Entry, FileKind, Status};
use portcullis_wire::message::Failure;

use crate::error::CliError;
use crate::json::{Label, push_entry};
use crate::output::{Output, push_name};
use crate::session::{Connect, address_parser, last_name, resolve};
use crate::text::{device_numbers, symbolic_mode, utc};

/// List a directory, one name a line and sorted by bytes; dot files too, but not . and ..
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// What to list: pc://HOST:PORT/PATH; of a file, its own entry
    #[arg(value_parser = address_parser())]
    address: Address,
    #[command(flatten)]
    connect: Connect,
    /// Show mode, links, owner and group as numbers, size and time of last change in UTC
    #[arg(short, long)]
    long: bool,
    /// Do not sort: entries come as they are listed, in memory that does not grow with them
    #[arg(short = 'U', long)]
    unsorted: bool,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), CliError> {
    let address = &arguments.address;
    let client = arguments.connect.client(address).await?;
    let entry = resolve(&client, address).await?;
    let mut output = Output::stdout()?;
    if entry.kind == FileKind::Directory {
        list(&arguments, &client, &entry, &mut output).await?;
    } else {
        arguments.print(&mut output, &borrowed(&entry, last_name(address)))?;
    }
    output.flush()?;
    client.close().await;
    Ok(())
}

async fn list(
    arguments: &Arguments,
    client: &Client,
    dir: &Entry,
    output: &mut Output,
) -> Result<(), CliError> {
    let failed = || CliError::request(arguments.address.given());
    let mut listing = client.list(&dir.handle, Vec::new()).await.map_err(failed())?;
    let mut chunks: Vec<Chunk> = Vec::new();
    while let Some(chunk) = listing.next().await.map_err(failed())? {
        if arguments.unsorted {
            for entry in chunk.entries() {
                arguments.print(output, &entry)?;
            }
        } else {
            chunks.push(chunk);
        }
    }
    let mut sorted: Vec<(&[u8], &Chunk, usize)> = chunks
        .iter()
        .flat_map(|chunk| (0..chunk.count()).map(move |index| (chunk.name(index), chunk, index)))
        .collect();
    sorted.sort_unstable_by_key(|(name, ..)| *name);
    for (_, chunk, index) in sorted {
        arguments.print(output, &chunk.entry(index))?;
    }
    if listing.complete() {
        return Ok(());
    }
    let detail = "entries are missing, because a brick is down";
    Err(failed()(Failure::new(Status::Unavailable, detail).into()))
}

impl Arguments {
    fn print(&self, output: &mut Output, entry: &EntryRef<'_>) -> Result<(), CliError> {
        let is_terminal = output.is_terminal();
        let out = output.buffer();
        if self.json {
            push_entry(out, Label::Name(entry.name), entry);
            return output.settle();
        }
        if self.long {
            push_long(out, entry);
        }
        push_name(out, entry.name, is_terminal);
        if self.long
            && let Some(target) = entry.target
        {
            out.extend_from_slice(b" -> ");
            push_name(out, target, is_terminal);
        }
        out.push(b'\n');
        output.settle()
    }
}

/// The columns before the name; question marks where the attributes could not be read.
fn push_long(out: &mut Vec<u8>, entry: &EntryRef<'_>) {
    let columns = match &entry.attr {
        None => {
            let kind = &symbolic_mode(entry.kind, 0)[..1];
            format!("{kind}?????????   ?     ?     ?            ? {:19} ", "?")
        }
        Some(attr) => {
            let size = match attr.kind() {
                FileKind::CharDevice | FileKind::BlockDevice => {
                    let (major, minor) = device_numbers(attr.rdev);
                    format!("{major}, {minor}")
                }
                _ => attr.size_bytes.to_string(),
            };
            let (mode, time) = (symbolic_mode(attr.kind(), attr.mode), utc(attr.mtime));
            let (nlink, uid, gid) = (attr.nlink, attr.uid, attr.gid);
            format!("{mode} {nlink:3} {uid:5} {gid:5} {size:>12} {time:19} ")
        }
    };
    out.extend_from_slice(columns.as_bytes());
}

/// An entry under a name, as listings give it.
pub(crate) fn borrowed<'a>(entry: &'a Entry, name: &'a [u8]) -> EntryRef<'a> {
    EntryRef {
        name,
        handle: entry.handle,
        attr: entry.attr,
        kind: entry.kind,
        target: entry.target.as_deref(),
        cookie: 0,
    }
}
