//! A trace in memory: who was asked for, in which order.
//!
//! Objects are numbered in the order in which they first appear, so that whoever replays it needs
//! arrays and no maps.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use portcullis_core::eviction::Class;
use portcullis_core::limits::TRACE_REQUESTS_MAX;
use portcullis_core::trace::Header;

use crate::error::ReplayError;
use crate::outcome::Counts;

/// No request: the object is not asked for again.
pub const NEVER: u32 = u32::MAX;

const _: () = assert!(TRACE_REQUESTS_MAX < NEVER as usize);

/// In `kinds`: the request is not counted.
const UNCOUNTED: u8 = 0x80;

/// What really happened while a trace was recorded from a gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// The policy that was active when the recording began.
    pub policy: String,
    /// Bytes that the cache could hold.
    pub capacity_bytes: u64,
    /// Requests of clients.
    pub requests: u64,
    /// Those that the cache answered.
    pub hits: u64,
    /// Objects touched or fetched, as a replay counts them.
    pub objects: Counts,
    /// Records that were lost.
    pub lost: u64,
}

impl Live {
    /// Of a recording that begins.
    pub(crate) fn of(header: &Header) -> Self {
        let Header { policy, capacity_bytes, .. } = header.clone();
        Self { policy, capacity_bytes, ..Self::default() }
    }
}

/// A request with all that a trace may tell of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) key: u64,
    pub(crate) size_bytes: u32,
    pub(crate) time_ms: u32,
    pub(crate) class: Class,
    pub(crate) counted: bool,
}

/// A trace. There is at least one request in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// What it is called.
    pub name: String,
    /// The number of the object of each request.
    objects: Vec<u32>,
    /// The size of the object at each request, in bytes; empty where the trace does not tell.
    sizes_bytes: Vec<u32>,
    /// When each request was made, in milliseconds; empty where the trace does not tell.
    times_ms: Vec<u64>,
    /// Class and [`UNCOUNTED`] of each request; empty where all are asked for, and counted.
    kinds: Vec<u8>,
    /// Where it was recorded.
    live: Option<Live>,
    /// What each object is known by, by its number.
    keys: Vec<u64>,
}

impl Trace {
    /// The number of the object of each request.
    pub fn objects(&self) -> &[u32] {
        &self.objects
    }

    /// How many objects there are.
    pub fn distinct(&self) -> usize {
        self.keys.len()
    }

    /// What object `number` is known by.
    pub fn key(&self, number: u32) -> u64 {
        self.keys[number as usize]
    }

    /// Whether sizes are known.
    pub fn has_sizes(&self) -> bool {
        !self.sizes_bytes.is_empty()
    }

    /// Size of the object at `request` in bytes, 0 where the trace does not tell.
    pub fn size_bytes(&self, request: usize) -> u32 {
        self.sizes_bytes.get(request).copied().unwrap_or(0)
    }

    /// When `request` was made, in milliseconds since the first; where the trace does not tell, a
    /// request a millisecond.
    pub fn now_ms(&self, request: usize) -> u64 {
        match (self.times_ms.get(request), self.times_ms.first()) {
            (Some(&now), Some(&first)) => now.saturating_sub(first),
            _ => request as u64,
        }
    }

    /// Why the object comes that `request` is for, where it does.
    pub fn class(&self, request: usize) -> Class {
        match self.kinds.get(request).map_or(0, |kind| kind & !UNCOUNTED) {
            1 => Class::Listed,
            2 => Class::Prefetched,
            _ => Class::Asked,
        }
    }

    /// Whether `request` counts: one that does not makes its object resident, and is no use of it.
    pub fn is_counted(&self, request: usize) -> bool {
        self.kinds.get(request).is_none_or(|kind| kind & UNCOUNTED == 0)
    }

    /// Requests that count.
    pub fn counted(&self) -> usize {
        self.objects.len() - self.kinds.iter().filter(|kind| **kind & UNCOUNTED != 0).count()
    }

    /// What really happened, where it was recorded from a gateway.
    pub fn live(&self) -> Option<&Live> {
        self.live.as_ref()
    }

    /// For each request, the next one for the same object, or [`NEVER`].
    pub fn next_uses(&self) -> Vec<u32> {
        let mut coming = vec![NEVER; self.keys.len()];
        let mut next = vec![NEVER; self.objects.len()];
        for (request, &object) in self.objects.iter().enumerate().rev() {
            next[request] = std::mem::replace(&mut coming[object as usize], request as u32);
        }
        next
    }
}

/// A trace that is being read.
#[derive(Debug)]
pub struct TraceBuilder {
    trace: Trace,
    numbers: HashMap<u64, u32, FixedState>,
}

impl TraceBuilder {
    /// A trace without requests.
    pub fn new(name: &str) -> Self {
        let trace = Trace {
            name: name.to_owned(),
            objects: Vec::new(),
            sizes_bytes: Vec::new(),
            times_ms: Vec::new(),
            kinds: Vec::new(),
            live: None,
            keys: Vec::new(),
        };
        Self { trace, numbers: HashMap::default() }
    }

    /// Appends a request for the object known by `key`.
    ///
    /// # Errors
    /// The trace is too long.
    pub fn push(&mut self, key: u64) -> Result<(), ReplayError> {
        if self.trace.objects.len() == TRACE_REQUESTS_MAX {
            return Err(ReplayError::TooLong("a thousand million requests"));
        }
        let keys = &mut self.trace.keys;
        let number = *self.numbers.entry(key).or_insert_with(|| {
            keys.push(key);
            (keys.len() - 1) as u32
        });
        self.trace.objects.push(number);
        Ok(())
    }

    /// Appends a request with its time and the size of its object. A trace has these for all of its
    /// requests or for none.
    ///
    /// # Errors
    /// The trace is too long.
    pub fn push_sized(
        &mut self,
        key: u64,
        size_bytes: u32,
        time_s: u32,
    ) -> Result<(), ReplayError> {
        self.push(key)?;
        self.trace.sizes_bytes.push(size_bytes);
        self.trace.times_ms.push(u64::from(time_s) * 1_000);
        Ok(())
    }

    /// Appends a request of which everything is known, as it then is of all of them.
    pub(crate) fn push_request(&mut self, request: Request) -> Result<(), ReplayError> {
        self.push(request.key)?;
        self.trace.sizes_bytes.push(request.size_bytes);
        self.trace.times_ms.push(request.time_ms.into());
        let uncounted = if request.counted { 0 } else { UNCOUNTED };
        self.trace.kinds.push(request.class as u8 | uncounted);
        Ok(())
    }

    /// Notes what really happened.
    pub(crate) fn set_live(&mut self, live: Live) {
        self.trace.live = Some(live);
    }

    /// The trace.
    ///
    /// # Errors
    /// It has no requests.
    pub fn finish(self) -> Result<Trace, ReplayError> {
        if self.trace.objects.is_empty() { Err(ReplayError::Empty) } else { Ok(self.trace) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_numbered_as_they_come_and_their_next_uses_found() {
        let mut builder = TraceBuilder::new("t");
        for key in [70, 50, 70, 70, 60, 50] {
            builder.push(key).expect("short");
        }
        let trace = builder.finish().expect("not empty");
        assert_eq!(trace.objects(), [0, 1, 0, 0, 2, 1]);
        assert_eq!((trace.distinct(), trace.key(2), trace.has_sizes()), (3, 60, false));
        assert_eq!(trace.next_uses(), [2, 5, 3, NEVER, NEVER, NEVER]);
        assert_eq!((trace.now_ms(4), trace.size_bytes(4)), (4, 0));
        assert_eq!(TraceBuilder::new("t").finish(), Err(ReplayError::Empty));
    }
}
