//! Our own format: what `portcullis trace record` writes, records of [`portcullis_core::trace`] after a
//! header.
//!
//! A request of the trace is an object that was touched or came, as eviction saw it. What was resident
//! when the recording began, what was fetched ahead and what came with a change enters the cache, but
//! is not counted: no policy could have helped it. What left since it was no longer true is another
//! object when it comes again.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use portcullis_core::eviction::Class;
use portcullis_core::trace::{Header, Operation, Record, What};

use crate::error::ReplayError;
use crate::outcome::Counts;
use crate::trace::{Live, Request, TraceBuilder};

pub(super) fn read(content: &[u8], trace: &mut TraceBuilder) -> Result<(), ReplayError> {
    let unit = "record";
    let malformed = |number, what| ReplayError::Malformed { unit, number, what };
    let header = Header::take(content).map_err(|what| malformed(0, what))?;
    let (header, mut at) = header.ok_or_else(|| malformed(0, "it is cut off in its header"))?;
    let mut reader = Reader { generations: HashMap::default(), live: Live::of(&header) };
    for number in 1.. {
        let rest = content.get(at..).unwrap_or_default();
        let record = Record::take(rest).map_err(|what| malformed(number, what))?;
        let Some((record, len)) = record else {
            // A recording that was cut off lacks its last record, and is good for all the others.
            break;
        };
        reader.read(&record, trace)?;
        at += len;
    }
    trace.set_live(reader.live);
    Ok(())
}

struct Reader {
    /// How often each object left since it was no longer true.
    generations: HashMap<u64, u32, FixedState>,
    live: Live,
}

impl Reader {
    fn read(&mut self, record: &Record<'_>, trace: &mut TraceBuilder) -> Result<(), ReplayError> {
        if record.begins {
            self.live.requests += 1;
            self.live.hits += u64::from(matches!(record.what, What::Hit | What::Absent));
        }
        let hit = match record.what {
            What::Hit => true,
            What::Came | What::Resident => false,
            What::Left => {
                *self.generations.entry(record.key).or_default() += 1;
                return Ok(());
            }
            What::Lost => {
                self.live.lost += record.key;
                return Ok(());
            }
            What::Absent | What::Missed | What::Joined => return Ok(()),
        };
        let counted = match record.what {
            What::Came => {
                record.class != Class::Prefetched && record.operation != Operation::Change
            }
            what => what == What::Hit,
        };
        if counted {
            let Counts { requests, hits, .. } = &mut self.live.objects;
            *requests += 1;
            *hits += u64::from(hit);
        }
        trace.push_request(Request {
            key: self.key(record.key),
            size_bytes: record.weight_bytes,
            time_ms: record.now_ms,
            class: record.class,
            counted,
        })
    }

    /// What an object is known by, which is another one after it left.
    fn key(&self, key: u64) -> u64 {
        let generation = self.generations.get(&key).copied().unwrap_or(0);
        key ^ u64::from(generation).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}
