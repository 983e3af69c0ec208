//! The formats of traces, known by the names of their files. The only place that names them.
//!
//! | name ends in | what it is | a request is |
//! |---|---|---|
//! | `.oracleGeneral.bin`, `.oracleGeneral` | libCacheSim's packed records ([`oracle_general`]) | a record: time, object, size |
//! | `.lis` | the text of the ARC paper ([`lis`]) | a block of each line's range |
//! | `.trace` | the text of the LIRS paper ([`block_ids`]) | a line: a block's number |
//! | `.tsv` | paths touched by commits of a git repository ([`git_paths`]) | a component of each path |
//! | `.pctrace` | recorded from a gateway ([`recorded`]), compressed by gzip | an object that was touched or came |
//!
//! The others may be compressed: `.gz` or `.zst` after it ([`compression`]). What must hold: whatever the
//! bytes, reading them ends in a trace or an error, and takes memory in proportion to what
//! [`limits`](portcullis_core::limits) allow.

mod block_ids;
mod compression;
mod git_paths;
mod lis;
mod oracle_general;
mod recorded;

use std::borrow::Cow;

use portcullis_core::limits::TRACE_LEN_BYTES_MAX;

use crate::error::ReplayError;
use crate::trace::{Trace, TraceBuilder};

type Read = fn(&[u8], &mut TraceBuilder) -> Result<(), ReplayError>;

/// Endings of names, and who reads what ends so.
const FORMATS: &[(&str, Read)] = &[
    (".oracleGeneral.bin", oracle_general::read),
    (".oracleGeneral", oracle_general::read),
    (".lis", lis::read),
    (".trace", block_ids::read),
    (".tsv", git_paths::read),
    (".pctrace", recorded::read),
];

/// Reads a trace from the content of a file called `name`.
///
/// # Errors
/// The name tells no format, or the content is not of it.
pub fn read(name: &str, content: &[u8]) -> Result<Trace, ReplayError> {
    let (plain, decompress) = compression::of(name);
    let (_, read) = FORMATS
        .iter()
        .find(|(ending, _)| plain.ends_with(ending))
        .ok_or(ReplayError::UnknownFormat)?;
    let content = match decompress {
        Some(decompress) => Cow::Owned(decompress(content)?),
        None => Cow::Borrowed(content),
    };
    if content.len() as u64 > TRACE_LEN_BYTES_MAX {
        return Err(compression::too_long());
    }
    let mut builder = TraceBuilder::new(name);
    read(&content, &mut builder)?;
    builder.finish()
}

/// The lines of a text that are not empty, with their numbers from 1.
fn lines(content: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let lines = content.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    (1..).zip(lines).filter(|(_, line)| !line.is_empty())
}

/// The words of a line.
fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// A number in decimal.
fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn malformed(line: u64, what: &'static str) -> ReplayError {
    ReplayError::Malformed { unit: "line", number: line, what }
}

#[cfg(test)]
mod tests;
