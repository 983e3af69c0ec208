//! Standard output: bytes, written in large pieces.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use crate::error::CliError;

/// Bytes gathered before they are written.
const PIECE_LEN_BYTES: usize = 128 * 1024;

/// Standard output. It is a `File`, since `io::Stdout` looks for line ends in all it is given.
#[derive(Debug)]
pub(crate) struct Output {
    file: File,
    buffer: Vec<u8>,
    is_terminal: bool,
}

impl Output {
    pub(crate) fn stdout() -> Result<Self, CliError> {
        let stdout = io::stdout();
        let file = stdout.as_fd().try_clone_to_owned().map_err(CliError::Output)?;
        let buffer = Vec::with_capacity(PIECE_LEN_BYTES + PIECE_LEN_BYTES / 8);
        Ok(Self { file: File::from(file), buffer, is_terminal: stdout.is_terminal() })
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// What is yet to be written; append to it, then call [`Output::settle`].
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Writes what was gathered if it is enough, and always on a terminal.
    pub(crate) fn settle(&mut self) -> Result<(), CliError> {
        if self.buffer.len() >= PIECE_LEN_BYTES || self.is_terminal { self.flush() } else { Ok(()) }
    }

    /// Writes `data` after all that was gathered.
    pub(crate) fn write(&mut self, data: &[u8]) -> Result<(), CliError> {
        if data.len() >= PIECE_LEN_BYTES {
            self.flush()?;
            return self.file.write_all(data).map_err(CliError::Output);
        }
        self.buffer.extend_from_slice(data);
        self.settle()
    }

    /// Writes all that was gathered.
    pub(crate) fn flush(&mut self) -> Result<(), CliError> {
        let written = self.file.write_all(&self.buffer).map_err(CliError::Output);
        self.buffer.clear();
        written
    }
}

/// Appends a name for a terminal: control characters, which could steer it, become `?`.
pub(crate) fn push_shown(out: &mut Vec<u8>, name: &[u8]) {
    out.extend(name.iter().map(|&byte| if byte < b' ' || byte == 0x7f { b'?' } else { byte }));
}

/// Appends a name as it is, or for a terminal.
pub(crate) fn push_name(out: &mut Vec<u8>, name: &[u8], is_terminal: bool) {
    if is_terminal { push_shown(out, name) } else { out.extend_from_slice(name) }
}

/// Appends a number in decimal.
pub(crate) fn push_decimal(out: &mut Vec<u8>, number: u64) {
    push_digits::<10>(out, number, 1);
}

/// Appends a number in octal.
pub(crate) fn push_octal(out: &mut Vec<u8>, number: u64) {
    push_digits::<8>(out, number, 1);
}

/// Appends a number in decimal with at least `width` digits.
pub(crate) fn push_padded(out: &mut Vec<u8>, number: u64, width: usize) {
    push_digits::<10>(out, number, width);
}

fn push_digits<const BASE: u64>(out: &mut Vec<u8>, mut number: u64, width: usize) {
    let mut digits = [b'0'; 22];
    let mut start = digits.len();
    while number > 0 {
        start -= 1;
        digits[start] = b'0' + (number % BASE) as u8;
        number /= BASE;
    }
    out.extend_from_slice(&digits[start.min(digits.len() - width)..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_the_standard_library_does() {
        for number in [0, 7, 8, 9, 10, 0o777, 123_456_789, u64::MAX] {
            let mut out = Vec::new();
            push_decimal(&mut out, number);
            out.push(b' ');
            push_octal(&mut out, number);
            out.push(b' ');
            push_padded(&mut out, number % 1_000_000_000, 9);
            let expected = format!("{number} {number:o} {:09}", number % 1_000_000_000);
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }

    #[test]
    fn a_terminal_is_not_steered() {
        let mut out = Vec::new();
        push_shown(&mut out, b"a\x1b[2J\n\xc3\xa4\x7f");
        assert_eq!(out, b"a?[2J?\xc3\xa4?");
    }
}
