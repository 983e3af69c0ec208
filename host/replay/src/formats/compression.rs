//! Compressed files: gzip and Zstandard, known by the ends of their names. A recorded trace is gzip.

use std::io::{ErrorKind, Read};

use flate2::read::MultiGzDecoder;
use portcullis_core::limits::TRACE_LEN_BYTES_MAX;
use ruzstd::decoding::StreamingDecoder;

use crate::error::ReplayError;

type Decompress = fn(&[u8]) -> Result<Vec<u8>, ReplayError>;

const COMPRESSIONS: &[(&str, Decompress)] = &[(".gz", gzip), (".zst", zstandard)];

/// The name without the ending of a compression, and how to undo that.
pub(super) fn of(name: &str) -> (&str, Option<Decompress>) {
    if name.ends_with(".pctrace") {
        // Always compressed, and not said so.
        return (name, Some(gzip_to_the_cut));
    }
    COMPRESSIONS
        .iter()
        .find_map(|&(ending, decompress)| Some((name.strip_suffix(ending)?, Some(decompress))))
        .unwrap_or((name, None))
}

/// There is more in it than is replayed.
pub(super) fn too_long() -> ReplayError {
    ReplayError::TooLong("8 GiB")
}

fn gzip(content: &[u8]) -> Result<Vec<u8>, ReplayError> {
    let mut plain = Vec::new();
    read_to_end(MultiGzDecoder::new(content), &mut plain)?;
    Ok(plain)
}

/// As far as it goes: a recording may have been cut off.
fn gzip_to_the_cut(content: &[u8]) -> Result<Vec<u8>, ReplayError> {
    let mut plain = Vec::new();
    let read = MultiGzDecoder::new(content).take(TRACE_LEN_BYTES_MAX + 1).read_to_end(&mut plain);
    match read {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof && !plain.is_empty() => Ok(plain),
        Err(error) => Err(ReplayError::Compressed(error.to_string())),
        Ok(_) if plain.len() as u64 > TRACE_LEN_BYTES_MAX => Err(too_long()),
        Ok(_) => Ok(plain),
    }
}

/// One frame after the other, each with the checksum it carries.
fn zstandard(content: &[u8]) -> Result<Vec<u8>, ReplayError> {
    let mut plain = Vec::new();
    let mut rest = content;
    while !rest.is_empty() {
        let mut frame = StreamingDecoder::new(&mut rest)
            .map_err(|error| ReplayError::Compressed(error.to_string()))?;
        read_to_end(&mut frame, &mut plain)?;
        let (told, is) =
            (frame.decoder.get_checksum_from_data(), frame.decoder.get_calculated_checksum());
        if told.is_some() && told != is {
            return Err(ReplayError::Compressed("its checksum is another".to_owned()));
        }
    }
    Ok(plain)
}

fn read_to_end(reader: impl Read, plain: &mut Vec<u8>) -> Result<(), ReplayError> {
    reader
        .take((TRACE_LEN_BYTES_MAX + 1).saturating_sub(plain.len() as u64))
        .read_to_end(plain)
        .map_err(|error| ReplayError::Compressed(error.to_string()))?;
    if plain.len() as u64 > TRACE_LEN_BYTES_MAX { Err(too_long()) } else { Ok(()) }
}
