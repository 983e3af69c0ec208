//! Datagrams that are on their way, the next one due first; of those due together, the one that
//! came first.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use quinn_udp::EcnCodepoint;

use crate::socket::Socket;

/// Memory for what is on its way in one direction: 300 MB/s for the better part of a second.
const HELD_BYTES_MAX: usize = 256 * 1024 * 1024;
/// What a datagram takes beside its bytes, counted generously.
const OVERHEAD_BYTES: usize = 256;

/// One on its way.
#[derive(Debug)]
pub(crate) struct Datagram {
    /// When it is due, in nanoseconds since the relay began.
    pub(crate) at_ns: u64,
    /// How many came before it.
    pub(crate) number: u64,
    pub(crate) bytes: Bytes,
    pub(crate) ecn: Option<EcnCodepoint>,
    /// The socket it leaves by.
    pub(crate) via: Arc<Socket>,
    pub(crate) to: SocketAddr,
}

/// Those on their way.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    datagrams: BinaryHeap<Reverse<Datagram>>,
    held_bytes: usize,
}

impl Flight {
    /// Whether one more of this length can be held.
    pub(crate) fn has_room(&self, len_bytes: usize) -> bool {
        self.held_bytes + len_bytes + OVERHEAD_BYTES <= HELD_BYTES_MAX
    }

    pub(crate) fn push(&mut self, datagram: Datagram) {
        self.held_bytes += datagram.bytes.len() + OVERHEAD_BYTES;
        self.datagrams.push(Reverse(datagram));
    }

    /// When the next one is due.
    pub(crate) fn next_at_ns(&self) -> Option<u64> {
        self.datagrams.peek().map(|Reverse(datagram)| datagram.at_ns)
    }

    /// The next one, if it is due.
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<Datagram> {
        if self.next_at_ns()? > now_ns {
            return None;
        }
        let Reverse(datagram) = self.datagrams.pop()?;
        self.held_bytes -= datagram.bytes.len() + OVERHEAD_BYTES;
        Some(datagram)
    }
}

impl Ord for Datagram {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at_ns, self.number).cmp(&(other.at_ns, other.number))
    }
}

impl PartialOrd for Datagram {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Datagram {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Datagram {}
