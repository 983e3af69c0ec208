//! `portcullis find`: a tree, in the formats of GNU find or as JSON lines.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::builder::{OsStringValueParser, TypedValueParser};
use portcullis_client::{Address, Client, Step, Visit, Walk, WalkLimits};
use portcullis_core::FileKind;

use crate::error::{CliError, complain};
use crate::json::{Label, push_entry};
use crate::output::{Output, push_name};
use crate::printf::Format;
use crate::progress::Progress;
use crate::session::{Connect, address_parser, resolve, volume_path};

/// Print a tree: each directory before its entries, in the order in which it is listed
///
/// Symbolic links are not followed. A directory that cannot be listed is told on standard error,
/// and the exit code is 1 at the end.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Where to start: pc://HOST:PORT/PATH
    #[arg(value_parser = address_parser())]
    address: Address,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct Form {
    /// Print FORMAT for each entry, as GNU find does; also as -printf
    ///
    /// %y type, %s size, %m mode in octal, %U %G owner and group, %T@ time of last change, %P path
    /// below the start, %p whole path, %f name, %l target of a link, %n links, %i inode number,
    /// %% a percent sign; escapes \a \b \f \n \r \t \v \\ \NNN.
    #[arg(long, value_name = "FORMAT", allow_hyphen_values = true, value_parser = format_parser())]
    printf: Option<Format>,
    /// Print paths, each ended by NUL; also as -print0
    #[arg(long)]
    print0: bool,
    /// Print paths, one a line (the default); also as -print
    #[arg(long)]
    print: bool,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

/// GNU find's own options have one dash, which clap does not know.
pub(crate) fn with_long_options(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut all: Vec<OsString> = Vec::new();
    for argument in arguments {
        let of_find = all.get(1).is_some_and(|command| command == "find");
        let is_value = all.last().is_some_and(|last| last == "--printf");
        let long = match argument.as_bytes() {
            b"-printf" => "--printf",
            b"-print0" => "--print0",
            b"-print" => "--print",
            _ => "",
        };
        let rewrite = of_find && !is_value && !long.is_empty();
        all.push(if rewrite { long.into() } else { argument });
    }
    all
}

fn format_parser() -> impl TypedValueParser<Value = Format> {
    OsStringValueParser::new().try_map(|format: OsString| Format::parse(format.as_bytes()))
}

enum Printer {
    Format(Format),
    Paths { end: u8 },
    Json { start: Vec<u8> },
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), CliError> {
    let Arguments { address, connect, form } = arguments;
    let printer = Printer::new(form, &address);
    let mut output = Output::stdout()?;
    let client = connect.client(&address).await?;
    let start = resolve(&client, &address).await?;
    let mut walk = Walk::new(client.clone(), start, address.given(), WalkLimits::default());
    let mut progress = Progress::beside_output("find");
    let mut failed = false;
    while let Some(step) = walk.next().await {
        let told = match step {
            Step::Failed { path, error } => Err(CliError::request(path)(error)),
            Step::Visit(visit) => printer.print(&client, &mut output, visit).await,
        };
        match told {
            Ok(()) => progress.entry(0),
            Err(error) if error.ends_all() => return Err(error),
            Err(error) => {
                progress.suspend(|| complain(&error.to_string()));
                failed = true;
            }
        }
    }
    output.flush()?;
    client.close().await;
    if failed { Err(CliError::Told) } else { Ok(()) }
}

impl Printer {
    fn new(form: Form, address: &Address) -> Self {
        match form {
            Form { printf: Some(format), .. } => Printer::Format(format),
            Form { json: true, .. } => Printer::Json { start: volume_path(address) },
            Form { print0: true, .. } => Printer::Paths { end: 0 },
            _ => Printer::Paths { end: b'\n' },
        }
    }

    async fn print(
        &self,
        client: &Client,
        output: &mut Output,
        mut visit: Visit<'_>,
    ) -> Result<(), CliError> {
        let (needs_attr, needs_target) = match self {
            Printer::Format(format) => (format.needs_attr(), format.needs_target()),
            Printer::Paths { .. } => (false, false),
            Printer::Json { .. } => (true, true),
        };
        let target;
        if needs_attr && visit.entry.attr.is_none() {
            // The listing could not tell them: what does the file itself say?
            let attr = client.getattr(&visit.entry.handle).await;
            visit.entry.attr = Some(attr.map_err(CliError::request(visit.path))?);
        }
        if needs_target && visit.entry.kind == FileKind::Symlink && visit.entry.target.is_none() {
            let read = client.readlink(&visit.entry.handle).await;
            target = read.map_err(CliError::request(visit.path))?;
            visit.entry.target = Some(&target);
        }
        let is_terminal = output.is_terminal();
        let out = output.buffer();
        match self {
            Printer::Format(format) => format.push(out, &visit),
            Printer::Paths { end } => {
                push_name(out, visit.path, is_terminal && *end != 0);
                out.push(*end);
            }
            Printer::Json { start } => {
                let mut path = start.clone();
                if !visit.relative().is_empty() {
                    path.push(b'/');
                    path.extend_from_slice(visit.relative());
                }
                let path = if path.is_empty() { b"/" } else { &path[..] };
                push_entry(out, Label::Path(path), &visit.entry);
            }
        }
        output.settle()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(line: &str) -> String {
        let all = with_long_options(line.split(' ').map(OsString::from));
        all.join(std::ffi::OsStr::new(" ")).into_string().expect("text")
    }

    #[test]
    fn options_of_find_get_a_second_dash_and_nothing_else_does() {
        for (given, expected) in [
            ("portcullis find pc://h:1/ -printf %p", "portcullis find pc://h:1/ --printf %p"),
            ("portcullis find -print0 pc://h:1/", "portcullis find --print0 pc://h:1/"),
            (
                "portcullis find x -printf -print0 -print",
                "portcullis find x --printf -print0 --print",
            ),
            ("portcullis ls x -print0", "portcullis ls x -print0"),
            ("portcullis find x -printx", "portcullis find x -printx"),
        ] {
            assert_eq!(rewritten(given), expected);
        }
    }
}
