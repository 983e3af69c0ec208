//! `portcullis stat`: all that is known of one file.

use portcullis_client::Address;
use portcullis_core::{Attr, Entry, FileKind};

use crate::commands::ls::borrowed;
use crate::error::CliError;
use crate::json::{Label, push_entry};
use crate::output::{Output, push_name};
use crate::session::{Connect, address_parser, resolve, volume_path};
use crate::text::{device_numbers, kind_name, symbolic_mode, utc_nanos};

/// Show all that is known of a file; of a symbolic link itself, not of what it leads to
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The file: pc://HOST:PORT/PATH
    #[arg(value_parser = address_parser())]
    address: Address,
    #[command(flatten)]
    connect: Connect,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), CliError> {
    let address = &arguments.address;
    let failed = || CliError::request(address.given());
    let client = arguments.connect.client(address).await?;
    let mut entry = resolve(&client, address).await?;
    if entry.attr.is_none() {
        entry.attr = Some(client.getattr(&entry.handle).await.map_err(failed())?);
    }
    if entry.kind == FileKind::Symlink && entry.target.is_none() {
        entry.target = Some(client.readlink(&entry.handle).await.map_err(failed())?);
    }
    client.close().await;
    let mut path = volume_path(address);
    if path.is_empty() {
        path.push(b'/');
    }
    let mut output = Output::stdout()?;
    if arguments.json {
        push_entry(output.buffer(), Label::Path(&path), &borrowed(&entry, b""));
    } else {
        let is_terminal = output.is_terminal();
        push_sheet(output.buffer(), &path, &entry, is_terminal);
    }
    output.flush()
}

fn push_sheet(out: &mut Vec<u8>, path: &[u8], entry: &Entry, is_terminal: bool) {
    out.extend_from_slice(b"    Path: ");
    push_name(out, path, is_terminal);
    if let Some(target) = &entry.target {
        out.extend_from_slice(b" -> ");
        push_name(out, target, is_terminal);
    }
    out.push(b'\n');
    if let Some(attr) = &entry.attr {
        out.extend_from_slice(sheet(attr).as_bytes());
    }
}

fn sheet(attr: &Attr) -> String {
    let kind = attr.kind();
    let mut sheet = format!(
        "    Type: {}\n    Size: {} bytes, {} blocks of 512\n",
        kind_name(kind),
        attr.size_bytes,
        attr.blocks
    );
    if matches!(kind, FileKind::CharDevice | FileKind::BlockDevice) {
        let (major, minor) = device_numbers(attr.rdev);
        sheet.push_str(&format!("  Device: {major}, {minor}\n"));
    }
    let permissions = attr.mode & 0o7777;
    sheet.push_str(&format!(
        "    Mode: {permissions:04o} ({})\n   Owner: {}, group {}\n   Inode: {}, {} links\n",
        symbolic_mode(kind, attr.mode),
        attr.uid,
        attr.gid,
        attr.ino,
        attr.nlink
    ));
    for (name, time) in [("Access", attr.atime), ("Modify", attr.mtime), ("Change", attr.ctime)] {
        sheet.push_str(&format!("  {name}: {}\n", utc_nanos(time)));
    }
    sheet
}
