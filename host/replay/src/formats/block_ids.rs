//! The traces of the LIRS paper (Jiang and Zhang, SIGMETRICS 2002): a block's number on each line;
//! lines of `*` are marks between them.

use super::{lines, malformed, number};
use crate::error::ReplayError;
use crate::trace::TraceBuilder;

pub(super) fn read(content: &[u8], trace: &mut TraceBuilder) -> Result<(), ReplayError> {
    for (line_number, line) in lines(content).filter(|(_, line)| !line.starts_with(b"*")) {
        trace.push(number(line).ok_or_else(|| malformed(line_number, "it is not a number"))?)?;
    }
    Ok(())
}
