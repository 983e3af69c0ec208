//! Datagrams passed on between clients and a server on loopback, as a network would: late, out of
//! order, not all of them, no more than so many a second, or none at all. The kernel's own netem is
//! not to be had everywhere.
//!
//! - [`conditions`]: what a direction does to its datagrams; may change at any time.
//! - `schedule`: what happens to one datagram, and when it is due. No I/O and no clock.
//! - `pump`: the thread of a direction: it receives, and sends what is due.
//! - `flight`: the datagrams between the two; `train`: sending many at once.
//! - `clients`: a socket toward the server for each client; `socket`: sockets and their buffers.
//!
//! What must hold: what chance does to a datagram follows from the seed, its direction and its
//! number there, never from time; where neither jitter nor holding back is asked for, order is
//! kept; a datagram is never sent before it is due; whatever is dropped is counted; memory is
//! bounded; dropping the [`Relay`] ends its threads.

mod clients;
pub mod conditions;
mod counters;
mod flight;
mod pump;
mod schedule;
mod socket;
mod train;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

pub use self::conditions::{Conditions, Direction};
pub use self::counters::Counters;
use self::pump::{Lane, Pump};
use self::socket::Socket;

/// A running relay. Dropping it ends its threads.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    up: Arc<Lane>,
    down: Arc<Lane>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Relay {
    /// Begins to pass datagrams on to `server` and back, without any delay or loss.
    ///
    /// # Panics
    /// `server` is no `HOST:PORT` in numbers, or there are no sockets or threads.
    pub fn start(server: &str) -> Self {
        Self::with_seed(server, 0)
    }

    /// As [`start`](Self::start); `seed` decides which datagrams suffer, and is printed.
    ///
    /// # Panics
    /// As `start` does.
    pub fn with_seed(server: &str, seed: u64) -> Self {
        let server: SocketAddr = server.parse().expect("an address");
        let front = Arc::new(Socket::bind_like(server));
        let address = front.address();
        eprintln!("relay {address} before {server}: seed {seed}");
        let is_over = Arc::new(AtomicBool::new(false));
        let [up, down] = [Direction::Up, Direction::Down].map(|way| Arc::new(Lane::new(seed, way)));
        let began = Instant::now();
        let routes = clients::routes(&front, server, &down);
        let mut relay = Self { address, up, down, is_over, threads: Vec::new() };
        relay.spawn("relay-up", Pump::new(&relay.up, &relay.is_over, began), routes.up);
        relay.spawn("relay-down", Pump::new(&relay.down, &relay.is_over, began), routes.down);
        relay
    }

    /// Where clients reach it.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Changes what happens to datagrams that come from now on. Those that are on their way keep
    /// their time; while a direction is cut they are dropped when it comes.
    pub fn set(&self, direction: Direction, conditions: Conditions) {
        *self.lane(direction).conditions.lock() = conditions;
    }

    /// [`set`](Self::set) for both directions.
    pub fn set_both(&self, conditions: Conditions) {
        self.set(Direction::Up, conditions);
        self.set(Direction::Down, conditions);
    }

    /// What happens to datagrams now.
    pub fn conditions(&self, direction: Direction) -> Conditions {
        *self.lane(direction).conditions.lock()
    }

    /// What happened so far.
    pub fn counters(&self, direction: Direction) -> Counters {
        self.lane(direction).counts.read()
    }

    /// Whether what clients send is dropped.
    pub fn cut_up(&self, cut: bool) {
        self.up.conditions.lock().cut = cut;
    }

    /// Whether what the server sends is dropped.
    pub fn cut_down(&self, cut: bool) {
        self.down.conditions.lock().cut = cut;
    }

    /// Cuts or mends both directions.
    pub fn cut(&self, cut: bool) {
        self.cut_up(cut);
        self.cut_down(cut);
    }

    /// Datagrams dropped so far, for whatever reason, both directions together.
    pub fn dropped(&self) -> u64 {
        self.up.counts.read().dropped() + self.down.counts.read().dropped()
    }

    fn lane(&self, direction: Direction) -> &Lane {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }

    fn spawn(&mut self, name: &str, pump: Pump, routes: impl clients::Routes + Send + 'static) {
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || pump.run(routes)).expect("a thread");
        self.threads.push(thread);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.up.wake.wake();
        self.down.wake.wake();
        for thread in self.threads.drain(..) {
            // It panicked: that was printed, and what depends on the relay fails by itself.
            let _ = thread.join();
        }
    }
}
