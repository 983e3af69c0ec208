//! The network: messages under way, delivered in the order of their arrival times.
//!
//! A message takes a random time, so two messages overtake one another freely, as they do on
//! separate QUIC streams. A lost packet is sent again by QUIC, so loss is a longer time. What a
//! transport cannot mend, the loss of a whole connection, is an event of the world.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bytes::Bytes;

/// A message and where it goes. Calls and requests are numbered by whoever makes them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the fields are what their names say")]
pub enum Message {
    /// A client's request frame reaches the gateway.
    ToGateway { client: usize, request: u64, frame: Bytes },
    /// Reply frames reach the client.
    ToClient { client: usize, request: u64, frames: Vec<Bytes> },
    /// A gateway's request frame reaches the brick.
    ToBrick { session: u64, call: u64, frame: Bytes },
    /// One reply frame reaches the gateway; frames of one call stay in order.
    FromBrick { session: u64, call: u64, frame: Bytes },
    /// The brick tells that something changed: the handles concerned, as bytes.
    Invalidate { session: u64, change: u64, handles: Vec<Bytes> },
    /// The gateway has acted on it.
    Acknowledge { session: u64, change: u64 },
}

/// How unkind the network is.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Shortest time of a message.
    pub delay_us_min: u64,
    /// Longest time of a message that is not lost.
    pub delay_us_max: u64,
    /// Chance, out of 100, that a message is lost and sent again, once or several times.
    pub loss_percent: u8,
    /// Time until a lost message is sent again.
    pub resend_us: u64,
}

/// Messages under way.
#[derive(Debug)]
pub struct Net {
    weather: Weather,
    under_way: BinaryHeap<Reverse<(u64, u64, Message)>>,
    sent: u64,
}

impl Net {
    /// An empty network.
    pub fn new(weather: Weather) -> Self {
        Self { weather, under_way: BinaryHeap::new(), sent: 0 }
    }

    /// Sends a message; it arrives after `after_us` at the earliest. Returns when.
    pub fn send(&mut self, random: &mut fastrand::Rng, after_us: u64, message: Message) -> u64 {
        let Weather { delay_us_min, delay_us_max, loss_percent, resend_us } = self.weather;
        let mut at_us = after_us + random.u64(delay_us_min..=delay_us_max);
        while random.u8(0..100) < loss_percent {
            at_us += resend_us;
        }
        self.sent += 1;
        self.under_way.push(Reverse((at_us, self.sent, message)));
        at_us
    }

    /// When the next message arrives.
    pub fn next_at_us(&self) -> Option<u64> {
        self.under_way.peek().map(|Reverse((at_us, ..))| *at_us)
    }

    /// Takes the next message.
    pub fn receive(&mut self) -> Option<Message> {
        self.under_way.pop().map(|Reverse((_, _, message))| message)
    }
}
