//! The network and the clocks: packets under way on connections, delivered by time of arrival.
//!
//! A packet takes a random time, so two overtake one another freely, as they do on separate QUIC
//! streams; only the frames of one answer keep their order. A lost packet is sent again by QUIC, so
//! loss is a longer time, and a connection that is cut in one direction delivers what was sent when
//! the cut is over, unless the cut is longer than [`IDLE_US`]: then the connection is lost, each
//! side notices in its own time, and what was under way is gone.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use fastrand::Rng;

/// A connection without a sign of life for so long is lost.
pub const IDLE_US: u64 = 6_000_000;
/// How much longer a slow packet may take.
const SLOW_US_MAX: u64 = 3_000_000;
/// A clock may be so much too fast or too slow, in millionths.
const DRIFT_PPM_MAX: i64 = 20_000;

/// A part of the system: brick, gateways, clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the numbers are what they seem")]
pub enum Node {
    Brick,
    Gateway(usize),
    Client(usize),
}

/// Names a connection.
pub type Conn = u64;

/// What travels on a connection, as real frames.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the fields are what their names say")]
pub enum What {
    Request {
        call: u64,
        frame: Bytes,
    },
    /// One frame of an answer.
    Answer {
        call: u64,
        frame: Bytes,
    },
    Recall(Bytes),
    Recalled(Bytes),
    /// The connection is lost; not sent by anybody.
    Lost,
}

/// What happens next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the fields are what their names say")]
pub enum Event {
    Packet {
        conn: Conn,
        to_upper: bool,
        what: What,
    },
    /// A node wanted to be woken, in the life that it had then.
    Wake {
        node: Node,
        life: u64,
        token: u64,
    },
    /// A cut took too long.
    Lose {
        conn: Conn,
    },
    /// A node is back after its restart.
    Start {
        node: Node,
    },
}

/// How unkind the network is.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// Longest time of a packet that is not lost.
    pub delay_us_max: u64,
    /// Chance, out of 100, that a packet is lost and sent again, once or several times.
    pub loss_percent: u8,
    /// Time until a lost packet is sent again.
    pub resend_us: u64,
    /// Chance, out of 100, that a packet takes up to [`SLOW_US_MAX`] longer.
    pub slow_percent: u8,
}

#[derive(Debug)]
struct Wire {
    lower: Node,
    upper: Node,
    /// When what is sent to the lower and to the upper side arrives again.
    cut_until_us: [u64; 2],
    is_lost: bool,
    /// When the last frame of an answer arrives.
    answers_us: BTreeMap<u64, u64>,
}

/// See the module.
#[derive(Debug)]
pub struct Net {
    /// Everybody's chance.
    pub random: Rng,
    /// The true time.
    pub now_us: u64,
    /// Fingerprint of everything that happened: equal for equal runs.
    pub fingerprint: u64,
    weather: Weather,
    queue: BTreeMap<(u64, u64), Event>,
    queued: u64,
    wires: BTreeMap<Conn, Wire>,
    last_conn: Conn,
    lives: BTreeMap<Node, u64>,
    down: BTreeMap<Node, bool>,
    frozen_until_us: BTreeMap<Node, u64>,
    /// Of each node: what its clock shows at the start, and how much too fast it is.
    clocks: BTreeMap<Node, (u64, i64)>,
}

impl Net {
    /// An empty network.
    pub fn new(random: Rng, weather: Weather) -> Self {
        Self {
            random,
            now_us: 0,
            fingerprint: 0,
            weather,
            queue: BTreeMap::new(),
            queued: 0,
            wires: BTreeMap::new(),
            last_conn: 0,
            lives: BTreeMap::new(),
            down: BTreeMap::new(),
            frozen_until_us: BTreeMap::new(),
            clocks: BTreeMap::new(),
        }
    }

    /// What the monotonic clock of `node` shows.
    pub fn now_ms(&mut self, node: Node) -> u64 {
        let random = &mut self.random;
        let (offset_us, drift_ppm) = *self.clocks.entry(node).or_insert_with(|| {
            (random.u64(0..1 << 40), random.i64(-DRIFT_PPM_MAX..=DRIFT_PPM_MAX))
        });
        let drifted_us = self.now_us as i64 / 1_000_000 * drift_ppm
            + self.now_us as i64 % 1_000_000 * drift_ppm / 1_000_000;
        (offset_us + self.now_us).saturating_add_signed(drifted_us) / 1000
    }

    /// Which life `node` is in, from 1.
    pub fn life(&self, node: Node) -> u64 {
        self.lives.get(&node).copied().unwrap_or(1)
    }

    /// Whether `node` is there.
    pub fn is_up(&self, node: Node) -> bool {
        !self.down.get(&node).copied().unwrap_or(false)
    }

    /// Wakes `node` with `token` after `delay_us`, unless it restarts before.
    pub fn later(&mut self, node: Node, delay_us: u64, token: u64) {
        let life = self.life(node);
        self.push(self.now_us + delay_us, Event::Wake { node, life, token });
    }

    /// A new connection; where `upper` is not there, it is lost at once.
    pub fn open(&mut self, lower: Node, upper: Node) -> Conn {
        self.last_conn += 1;
        let conn = self.last_conn;
        let wire = Wire {
            lower,
            upper,
            cut_until_us: [0; 2],
            is_lost: false,
            answers_us: BTreeMap::new(),
        };
        self.wires.insert(conn, wire);
        if !self.is_up(upper) {
            self.lose(conn, [300_000; 2]);
        }
        conn
    }

    /// The connections there are from `lower`, or from all.
    pub fn conns(&self, of: Option<Node>) -> Vec<Conn> {
        let is_wanted = |wire: &Wire| {
            !wire.is_lost && of.is_none_or(|node| wire.lower == node || wire.upper == node)
        };
        self.wires.iter().filter(|(_, wire)| is_wanted(wire)).map(|(&conn, _)| conn).collect()
    }

    /// The lower and the upper side of a connection.
    pub fn ends(&self, conn: Conn) -> Option<(Node, Node)> {
        self.wires.get(&conn).map(|wire| (wire.lower, wire.upper))
    }

    /// Sends a packet.
    pub fn send(&mut self, conn: Conn, to_upper: bool, what: What) {
        let mut at_us = self.now_us + self.random.u64(10..=self.weather.delay_us_max);
        while self.random.u8(0..100) < self.weather.loss_percent {
            at_us += self.weather.resend_us;
        }
        if self.random.u8(0..100) < self.weather.slow_percent {
            at_us += self.random.u64(0..SLOW_US_MAX);
        }
        let Some(wire) = self.wires.get_mut(&conn) else { return };
        let cut_until_us = wire.cut_until_us[usize::from(to_upper)];
        if cut_until_us > self.now_us {
            at_us += cut_until_us - self.now_us;
        }
        if let What::Answer { call, .. } = what {
            let last = wire.answers_us.entry(call).or_default();
            at_us = at_us.max(*last);
            *last = at_us;
        }
        self.push(at_us, Event::Packet { conn, to_upper, what });
    }

    /// Loses a connection; the lower and the upper side notice within `noticed_us`.
    pub fn lose(&mut self, conn: Conn, noticed_us: [u64; 2]) {
        let Some(wire) = self.wires.get_mut(&conn).filter(|wire| !wire.is_lost) else { return };
        wire.is_lost = true;
        for (to_upper, noticed_us) in [false, true].into_iter().zip(noticed_us) {
            let at_us = self.now_us + self.random.u64(1..=noticed_us);
            self.push(at_us, Event::Packet { conn, to_upper, what: What::Lost });
        }
    }

    /// Nothing that is sent to the lower side, to the upper side, arrives before `us` have passed.
    pub fn cut(&mut self, conn: Conn, directions: [bool; 2], us: u64) {
        let Some(wire) = self.wires.get_mut(&conn) else { return };
        for (until_us, cut) in wire.cut_until_us.iter_mut().zip(directions) {
            if cut {
                *until_us = self.now_us + us;
            }
        }
        if us > IDLE_US {
            self.push(self.now_us + IDLE_US, Event::Lose { conn });
        }
    }

    /// A node does nothing for a while, and then goes on as if no time had passed.
    pub fn freeze(&mut self, node: Node, us: u64) {
        self.frozen_until_us.insert(node, self.now_us + us);
    }

    /// Whether `node` does nothing now.
    pub fn is_frozen(&self, node: Node) -> bool {
        self.frozen_until_us.get(&node).is_some_and(|&until_us| until_us > self.now_us)
    }

    /// A node is killed, and back after a while. What it had sent is still delivered where the other
    /// side has not noticed yet.
    pub fn restart(&mut self, node: Node, down_us: u64) {
        *self.lives.entry(node).or_insert(1) += 1;
        self.down.insert(node, true);
        for conn in self.conns(Some(node)) {
            let noticed_us = if self.random.u8(0..4) > 0 { 50_000 } else { IDLE_US };
            self.lose(conn, [noticed_us; 2]);
        }
        self.push(self.now_us + down_us, Event::Start { node });
    }

    /// The next thing that happens to a node that is there; `None` when nothing is under way.
    pub fn next_event(&mut self) -> Option<(Node, Event)> {
        loop {
            let ((at_us, _), event) = self.queue.pop_first()?;
            self.now_us = self.now_us.max(at_us);
            let Some(node) = self.target(&event) else { continue };
            let frozen_until_us = self.frozen_until_us.get(&node).copied().unwrap_or(0);
            if frozen_until_us > self.now_us && !matches!(event, Event::Start { .. }) {
                self.push(frozen_until_us, event);
                continue;
            }
            let mut hasher = DefaultHasher::new();
            (self.fingerprint, self.now_us, &event).hash(&mut hasher);
            self.fingerprint = hasher.finish();
            return Some((node, event));
        }
    }

    /// When the next thing happens.
    pub fn next_at_us(&self) -> Option<u64> {
        self.queue.first_key_value().map(|((at_us, _), _)| (*at_us).max(self.now_us))
    }

    /// Whom an event concerns; `None` where it never happens, or happens here.
    fn target(&mut self, event: &Event) -> Option<Node> {
        match event {
            Event::Packet { conn, to_upper, what } => {
                let wire = self.wires.get(conn)?;
                let node = if *to_upper { wire.upper } else { wire.lower };
                let arrives = *what == What::Lost || !wire.is_lost;
                (arrives && self.is_up(node)).then_some(node)
            }
            Event::Wake { node, life, .. } => (self.life(*node) == *life).then_some(*node),
            Event::Lose { conn } => {
                self.lose(*conn, [1000; 2]);
                None
            }
            Event::Start { node } => {
                self.down.insert(*node, false);
                Some(*node)
            }
        }
    }

    fn push(&mut self, at_us: u64, event: Event) {
        self.queued += 1;
        self.queue.insert((at_us, self.queued), event);
    }
}
