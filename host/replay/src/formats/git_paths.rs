//! Paths that the commits of a git repository touched: lines of `operation`, `size`, `path`, with tabs
//! between them. `A`, `M` and `D` (added, modified, deleted) touch a path, which asks for each of its
//! components, as a program that opens it does: `a/b/c` for `a`, `a/b` and `a/b/c`. Lines of `T` (the
//! tree as it is) and `C` (a commit begins), and those that begin with `#`, are no requests.

use super::{lines, malformed};
use crate::error::ReplayError;
use crate::trace::TraceBuilder;

pub(super) fn read(content: &[u8], trace: &mut TraceBuilder) -> Result<(), ReplayError> {
    for (line_number, line) in lines(content) {
        let mut fields = line.splitn(3, |&byte| byte == b'\t');
        match (fields.next(), fields.nth(1)) {
            (Some(b"A" | b"M" | b"D"), Some(path)) => touch(path, trace)?,
            (Some(b"T" | b"C"), _) => {}
            _ if line.starts_with(b"#") => {}
            _ => {
                return Err(malformed(line_number, "it is none of T, C, A, M and D with its path"));
            }
        }
    }
    Ok(())
}

fn touch(path: &[u8], trace: &mut TraceBuilder) -> Result<(), ReplayError> {
    // FNV-1a, on and on along the path.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for &byte in path {
        if byte == b'/' {
            trace.push(hash)?;
        }
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    trace.push(hash)
}
