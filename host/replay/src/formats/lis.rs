//! The traces of the ARC paper (Megiddo and Modha, FAST 2003): lines of `start count ignored
//! request`, each of which asks for `count` blocks from `start` on, one by one.

use super::{lines, malformed, number, words};
use crate::error::ReplayError;
use crate::trace::TraceBuilder;

/// Blocks of one line: more are a mistake.
const BLOCKS_MAX: u64 = 1 << 20;

pub(super) fn read(content: &[u8], trace: &mut TraceBuilder) -> Result<(), ReplayError> {
    for (line_number, line) in lines(content) {
        let mut words = words(line).map(number);
        let (Some(Some(start)), Some(Some(count))) = (words.next(), words.next()) else {
            return Err(malformed(line_number, "it does not begin with two numbers"));
        };
        if count > BLOCKS_MAX {
            return Err(malformed(line_number, "it asks for more than 2^20 blocks"));
        }
        for block in 0..count {
            trace.push(start.wrapping_add(block))?;
        }
    }
    Ok(())
}
