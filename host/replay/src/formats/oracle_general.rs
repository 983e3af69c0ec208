//! libCacheSim's `oracleGeneral`: packed little-endian records of 24 bytes: time in seconds (32 bits),
//! object (64), size in bytes (32), and the request that asks for it next (64), which is found anew
//! here.

use crate::error::ReplayError;
use crate::trace::TraceBuilder;

const RECORD_LEN_BYTES: usize = 24;

pub(super) fn read(content: &[u8], trace: &mut TraceBuilder) -> Result<(), ReplayError> {
    let (records, rest) = content.as_chunks::<RECORD_LEN_BYTES>();
    for record in records {
        let [t0, t1, t2, t3, o0, o1, o2, o3, o4, o5, o6, o7, s0, s1, s2, s3, ..] = *record;
        let object = u64::from_le_bytes([o0, o1, o2, o3, o4, o5, o6, o7]);
        let size_bytes = u32::from_le_bytes([s0, s1, s2, s3]);
        trace.push_sized(object, size_bytes, u32::from_le_bytes([t0, t1, t2, t3]))?;
    }
    if rest.is_empty() {
        return Ok(());
    }
    let number = records.len() as u64 + 1;
    Err(ReplayError::Malformed { unit: "record", number, what: "it has fewer than 24 bytes" })
}
