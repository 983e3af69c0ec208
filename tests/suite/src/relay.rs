//! Datagrams passed on between a client and a server on loopback, or dropped, each direction by
//! itself: a network that can be cut.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The largest datagram that passes.
const DATAGRAM_BYTES_MAX: usize = 65_536;
/// How often a thread looks whether the relay still lives.
const TICK: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
struct State {
    drops_up: AtomicBool,
    drops_down: AtomicBool,
    is_over: AtomicBool,
    dropped: AtomicU64,
}

/// A running relay. Dropping it ends its threads.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    state: Arc<State>,
}

impl Relay {
    /// Begins to pass datagrams on to `server` and back.
    pub fn start(server: &str) -> Self {
        let server: SocketAddr = server.parse().expect("an address");
        let front = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        front.set_read_timeout(Some(TICK)).expect("a timeout");
        let address = front.local_addr().expect("its address");
        let state = Arc::new(State::default());
        let shared = state.clone();
        std::thread::spawn(move || up(&Arc::new(front), server, &shared));
        Self { address, state }
    }

    /// Where clients reach it.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Whether what clients send is dropped.
    pub fn cut_up(&self, cut: bool) {
        self.state.drops_up.store(cut, Ordering::SeqCst);
    }

    /// Whether what the server sends is dropped.
    pub fn cut_down(&self, cut: bool) {
        self.state.drops_down.store(cut, Ordering::SeqCst);
    }

    /// Cuts or mends both directions.
    pub fn cut(&self, cut: bool) {
        self.cut_up(cut);
        self.cut_down(cut);
    }

    /// Datagrams dropped so far.
    pub fn dropped(&self) -> u64 {
        self.state.dropped.load(Ordering::SeqCst)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::SeqCst);
    }
}

/// Passes on what clients send, each through a socket of its own, so that the server tells them
/// apart.
fn up(front: &Arc<UdpSocket>, server: SocketAddr, state: &Arc<State>) {
    let mut backs: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
    let mut datagram = vec![0; DATAGRAM_BYTES_MAX];
    while !state.is_over.load(Ordering::SeqCst) {
        let Ok((len, client)) = front.recv_from(&mut datagram) else { continue };
        if state.drops_up.load(Ordering::SeqCst) {
            state.dropped.fetch_add(1, Ordering::SeqCst);
            continue;
        }
        let back = backs.entry(client).or_insert_with(|| {
            let back = Arc::new(UdpSocket::bind("127.0.0.1:0").expect("a socket"));
            back.set_read_timeout(Some(TICK)).expect("a timeout");
            let (front, back_too, state) = (front.clone(), back.clone(), state.clone());
            std::thread::spawn(move || down(&back_too, &front, client, &state));
            back
        });
        // A server that is down refuses; the client will ask again.
        let _ = back.send_to(&datagram[..len], server);
    }
}

fn down(back: &UdpSocket, front: &UdpSocket, client: SocketAddr, state: &State) {
    let mut datagram = vec![0; DATAGRAM_BYTES_MAX];
    while !state.is_over.load(Ordering::SeqCst) {
        let Ok(len) = back.recv(&mut datagram) else { continue };
        if state.drops_down.load(Ordering::SeqCst) {
            state.dropped.fetch_add(1, Ordering::SeqCst);
        } else {
            let _ = front.send_to(&datagram[..len], client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket() -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        socket
    }

    fn receive(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
        let mut bytes = [0; 16];
        let (len, from) = socket.recv_from(&mut bytes).expect("a datagram");
        (bytes[..len].to_vec(), from)
    }

    #[test]
    fn each_direction_is_cut_by_itself() {
        let (server, client) = (socket(), socket());
        let relay = Relay::start(&server.local_addr().expect("its address").to_string());
        client.send_to(b"1", relay.address()).expect("sent");
        let (bytes, from) = receive(&server);
        assert_eq!(bytes, b"1");
        relay.cut_down(true);
        server.send_to(b"lost", from).expect("sent");
        while relay.dropped() == 0 {
            std::thread::yield_now();
        }
        relay.cut_down(false);
        relay.cut_up(true);
        client.send_to(b"lost", relay.address()).expect("sent");
        while relay.dropped() == 1 {
            std::thread::yield_now();
        }
        relay.cut(false);
        server.send_to(b"2", from).expect("sent");
        assert_eq!(receive(&client).0, b"2", "what was dropped is not delivered later");
        client.send_to(b"3", relay.address()).expect("sent");
        assert_eq!(receive(&server).0, b"3");
    }
}
