//! `portcullis policy inspect`: what a component is.

use std::fmt::Write;
use std::path::PathBuf;

use portcullis_policy::inspect::{Inspected, inspect};
use serde::Serialize;

use crate::error::CliError;
use crate::json::push_line;
use crate::output::Output;

/// Tell what a policy is
///
/// Its kind, name and version, the interface that it was made for, what it imports and exports, its size
/// and digest; or in one line why no host takes it.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The component
    file: PathBuf,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Line<'a> {
    file: &'a str,
    kind: &'a str,
    name: &'a str,
    version: &'a str,
    interface: &'a str,
    imports: &'a [String],
    exports: &'a [String],
    optional: &'a [&'static str],
    len_bytes: u64,
    digest: &'a str,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), CliError> {
    let found = inspect(&arguments.file)?;
    let mut output = Output::stdout()?;
    if arguments.json {
        let file = arguments.file.display().to_string();
        let Inspected { kind, name, version, interface, imports, exports, .. } = &found;
        let Inspected { optional, len_bytes, digest, .. } = &found;
        let len_bytes = *len_bytes;
        let line = Line {
            file: &file,
            kind,
            name,
            version,
            interface,
            imports,
            exports,
            optional,
            len_bytes,
            digest,
        };
        push_line(output.buffer(), &line);
    } else {
        output.write(table(&found).as_bytes())?;
    }
    output.flush()
}

fn table(found: &Inspected) -> String {
    let listed = |names: &[String]| match names {
        [] => "nothing".to_owned(),
        names => names.join(", "),
    };
    let optional = match &found.optional[..] {
        [] => "none".to_owned(),
        names => names.join(", "),
    };
    let rows = [
        ("kind", found.kind.to_owned()),
        ("name", found.name.clone()),
        ("version", found.version.clone()),
        ("interface", found.interface.clone()),
        ("imports", listed(&found.imports)),
        ("exports", listed(&found.exports)),
        ("optional", optional),
        ("size", format!("{} bytes", found.len_bytes)),
        ("digest", found.digest.clone()),
    ];
    rows.iter().fold(String::new(), |mut text, (title, value)| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{title:<10} {value}");
        text
    })
}
