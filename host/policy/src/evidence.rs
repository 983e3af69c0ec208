//! What a component was asked last, kept in a file when it fails, so that whoever mends it can play the
//! same to it.
//!
//! A file begins with lines of text: `portcullis-batches 1`, `policy` who it was, `fault` what it did,
//! `whole` `yes` where the file has everything the instance was ever asked, and an empty line. Then come
//! calls: `u8` 0 and `u64` time, `u32` events, three `u64` each (`wit/README.md`); or `u8` 1, `u64` time,
//! `u32` victims wanted. Numbers are little-endian. The last call is the one that failed.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read};
use std::path::Path;

use portcullis_core::eviction::Event;
use portcullis_core::limits::{
    POLICY_EVENTS_MAX, POLICY_EVIDENCE_EVENTS_MAX, POLICY_EVIDENCE_FILES_MAX, POLICY_VICTIMS_MAX,
};

use crate::codes::write_whole;
use crate::error::Fault;
use crate::guest::readable;
use crate::loaded::LoadedPolicy;
use crate::status::PolicyIdentity;

const HEAD: &str = "portcullis-batches 1";
/// Calls that are kept: proposals have no events, and count, too.
const CALLS_MAX: usize = 4096;
/// Longest file that is read.
const FILE_LEN_BYTES_MAX: u64 = 64 << 20;

/// Something a component was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Call {
    Events { now_ms: u64, events: Vec<Event> },
    Propose { now_ms: u64, want: u32 },
}

/// What one instance was asked last.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    calls: VecDeque<Call>,
    events: usize,
    /// Whether something was asked before.
    is_cut: bool,
}

impl Recent {
    pub(crate) fn told(&mut self, now_ms: u64, events: &[Event]) {
        self.events += events.len();
        self.push(Call::Events { now_ms, events: events.to_vec() });
    }

    pub(crate) fn asked(&mut self, now_ms: u64, want: usize) {
        self.push(Call::Propose { now_ms, want: want as u32 });
    }

    fn push(&mut self, call: Call) {
        self.calls.push_back(call);
        while self.events > POLICY_EVIDENCE_EVENTS_MAX || self.calls.len() > CALLS_MAX {
            if let Some(Call::Events { events, .. }) = self.calls.pop_front() {
                self.events -= events.len();
            }
            self.is_cut = true;
        }
    }

    /// Writes it into `dir`, where the oldest files make place.
    pub(crate) fn write(
        &self,
        dir: &Path,
        identity: &PolicyIdentity,
        fault: &str,
    ) -> io::Result<()> {
        let whole = if self.is_cut { "no" } else { "yes" };
        let fault = readable(fault);
        let mut out =
            format!("{HEAD}\npolicy {identity}\nfault {fault}\nwhole {whole}\n\n").into_bytes();
        for call in &self.calls {
            let (kind, now_ms, count) = match call {
                Call::Events { now_ms, events } => (0, *now_ms, events.len() as u32),
                Call::Propose { now_ms, want } => (1, *now_ms, *want),
            };
            out.push(kind);
            out.extend(now_ms.to_le_bytes());
            out.extend(count.to_le_bytes());
            if let Call::Events { events, .. } = call {
                out.extend(events.iter().flat_map(Event::pack).flat_map(u64::to_le_bytes));
            }
        }
        let mut numbers: Vec<u64> = fs::read_dir(dir)?.filter_map(number).collect();
        numbers.sort_unstable();
        let number = numbers.last().map_or(1, |last| last + 1);
        write_whole(&dir.join(format!("{number}.batches")), &[&out])?;
        for old in numbers.iter().rev().skip(POLICY_EVIDENCE_FILES_MAX - 1) {
            fs::remove_file(dir.join(format!("{old}.batches")))?;
        }
        Ok(())
    }
}

fn number(entry: io::Result<fs::DirEntry>) -> Option<u64> {
    entry.ok()?.file_name().to_str()?.strip_suffix(".batches")?.parse().ok()
}

/// A file of what a component was asked.
#[derive(Debug)]
pub struct Batches {
    /// Who the component was.
    pub policy: String,
    /// What it did.
    pub fault: String,
    /// Whether it is everything the instance was ever asked.
    pub is_whole: bool,
    calls: Vec<Call>,
}

impl Batches {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or is no such file.
    pub fn read(path: &Path) -> io::Result<Self> {
        let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
        let mut bytes = Vec::new();
        fs::File::open(path)?.take(FILE_LEN_BYTES_MAX).read_to_end(&mut bytes)?;
        let end = bytes.windows(2).position(|pair| pair == b"\n\n");
        let end = end.ok_or_else(|| bad("it does not begin as a file of batches does"))?;
        let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.map(str::to_owned).ok_or_else(|| bad("a line of its head is missing"))
        };
        if text.lines().next() != Some(HEAD) {
            return Err(bad("it is no file of batches, or one of another version"));
        }
        let (policy, fault) = (field("policy")?, field("fault")?);
        let is_whole = field("whole")? == "yes";
        let mut rest = &bytes[end + 2..];
        let mut calls = Vec::new();
        while !rest.is_empty() {
            calls.push(call(&mut rest).ok_or_else(|| bad("it is damaged, or not whole"))?);
        }
        Ok(Self { policy, fault, is_whole, calls })
    }

    /// Asks a policy the same. The answer is the number of calls.
    ///
    /// # Errors
    /// The number of the call in which it failed, from 1, and how.
    pub fn play(&self, policy: &mut LoadedPolicy) -> Result<usize, (usize, Fault)> {
        for (number, call) in self.calls.iter().enumerate() {
            let result = match call {
                Call::Events { now_ms, events } => policy.on_events(*now_ms, events),
                Call::Propose { now_ms, want } => policy.propose(*now_ms, *want as usize).map(drop),
            };
            result.map_err(|fault| (number + 1, fault))?;
        }
        Ok(self.calls.len())
    }
}

/// The next call; `None` where there is no whole and sensible one.
fn call(rest: &mut &[u8]) -> Option<Call> {
    let kind = take::<1>(rest)?[0];
    let now_ms = u64::from_le_bytes(take(rest)?);
    let count = u32::from_le_bytes(take(rest)?);
    match kind {
        0 if count as usize <= POLICY_EVENTS_MAX => {
            let mut events = Vec::new();
            for _ in 0..count {
                let mut words = [0; Event::WORDS];
                for word in &mut words {
                    *word = u64::from_le_bytes(take(rest)?);
                }
                events.push(Event::unpack(words)?);
            }
            Some(Call::Events { now_ms, events })
        }
        1 if count as usize <= POLICY_VICTIMS_MAX => Some(Call::Propose { now_ms, want: count }),
        _ => None,
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*bytes)
}
