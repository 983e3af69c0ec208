//! The relay between real sockets. Whatever is timed has a lower bound that always holds; an upper
//! one is held by some try before a deadline, so that a busy machine does not matter.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use portcullis_relay::{Conditions, Direction, Relay};
use quinn_udp::{Transmit, UdpSocketState};

/// How long anything may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
/// Datagrams sent before those that pass are received: what the smallest buffer holds.
const WINDOW: u64 = 64;

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket
}

fn receive(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut bytes = vec![0; 65_536];
    let (len, from) = socket.recv_from(&mut bytes).expect("a datagram");
    bytes.truncate(len);
    (bytes, from)
}

fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// A server, a client, and a relay between them that both have used: the server knows `peer`.
struct Line {
    server: UdpSocket,
    client: UdpSocket,
    relay: Relay,
    peer: SocketAddr,
}

impl Line {
    fn new(seed: u64) -> Self {
        let (server, client) = (socket(), socket());
        let relay = Relay::with_seed(&server.local_addr().unwrap().to_string(), seed);
        client.connect(relay.address()).unwrap();
        client.send(b"hello").unwrap();
        let (_, peer) = receive(&server);
        server.send_to(b"hello", peer).unwrap();
        receive(&client);
        // It is counted only when it has gone.
        for direction in [Direction::Up, Direction::Down] {
            until("it is counted", || relay.counters(direction).packets == 1);
        }
        Self { server, client, relay, peer }
    }

    /// Sends numbers up, as datagrams of this length; the numbers that arrive, in their order.
    fn pass(&self, numbers: std::ops::Range<u64>, len: usize) -> Vec<u64> {
        let before = self.relay.counters(Direction::Up);
        let mut arrived = Vec::new();
        let mut datagram = vec![0; len.max(8)];
        for number in numbers.clone() {
            datagram[..8].copy_from_slice(&number.to_le_bytes());
            self.client.send(&datagram).unwrap();
            let sent = number + 1 - numbers.start;
            if sent.is_multiple_of(WINDOW) || number + 1 == numbers.end {
                until("each is passed on or dropped", || {
                    let now = self.relay.counters(Direction::Up);
                    now.packets + now.dropped() - before.packets - before.dropped() == sent
                });
                let passed = self.relay.counters(Direction::Up).packets - before.packets;
                while (arrived.len() as u64) < passed {
                    let (bytes, _) = receive(&self.server);
                    arrived.push(u64::from_le_bytes(*bytes.first_chunk().unwrap()));
                }
            }
        }
        arrived
    }

    /// How long a datagram takes there and back.
    fn round_trip(&self) -> Duration {
        let start = Instant::now();
        self.client.send(b"ping").unwrap();
        let (_, from) = receive(&self.server);
        self.server.send_to(b"pong", from).unwrap();
        receive(&self.client);
        start.elapsed()
    }
}

#[test]
fn each_direction_is_cut_by_itself() {
    let Line { server, client, relay, peer } = Line::new(0);
    relay.cut_down(true);
    server.send_to(b"lost", peer).unwrap();
    until("it is dropped", || relay.dropped() == 1);
    relay.cut_down(false);
    relay.cut_up(true);
    client.send(b"lost").unwrap();
    until("it is dropped", || relay.dropped() == 2);
    relay.cut(false);
    server.send_to(b"2", peer).unwrap();
    assert_eq!(receive(&client).0, b"2", "what was dropped is not delivered later");
    client.send(b"3").unwrap();
    assert_eq!(receive(&server).0, b"3");
    assert_eq!((relay.counters(Direction::Up).cut, relay.counters(Direction::Down).cut), (1, 1));
}

#[test]
fn what_is_on_its_way_when_the_line_is_cut_is_dropped() {
    let line = Line::new(0);
    line.relay.set(Direction::Up, Conditions::delayed(100_000));
    line.client.send(b"lost").unwrap();
    until("it comes", || line.relay.counters(Direction::Up).received_packets == 2);
    line.relay.cut_up(true);
    until("it is dropped", || line.relay.dropped() == 1);
}

#[test]
fn every_datagram_is_delayed_by_what_is_asked_each_way_and_hardly_more() {
    let line = Line::new(0);
    for (up_us, down_us) in [(300, 0), (0, 300), (2_000, 5_000), (10_000, 10_000)] {
        line.relay.set(Direction::Up, Conditions::delayed(up_us));
        line.relay.set(Direction::Down, Conditions::delayed(down_us));
        let asked = Duration::from_micros(up_us + down_us);
        let (mut least, mut tries) = (Duration::MAX, 0);
        // Well under a millisecond: no timer of the relay ticks more coarsely.
        until("one takes hardly longer", || {
            for _ in 0..10 {
                let took = line.round_trip();
                assert!(took >= asked, "{took:?} instead of {asked:?}");
                least = least.min(took);
            }
            tries += 10;
            least < asked + Duration::from_micros(600)
        });
        println!("{asked:?}: {least:?} at least, of {tries}");
    }
}

#[test]
fn the_seed_says_exactly_which_are_lost() {
    const PACKETS: u64 = 2_000;
    let conditions = Conditions { loss_ppm: 50_000, ..Conditions::default() };
    let arrive = |seed: u64, conditions: Conditions| {
        let line = Line::new(seed);
        line.relay.set_both(conditions);
        let arrived = line.pass(0..PACKETS, 8);
        let counters = line.relay.counters(Direction::Up);
        assert_eq!(counters.lost, PACKETS - arrived.len() as u64);
        assert_eq!(line.relay.counters(Direction::Down).lost, 0);
        arrived
    };
    let arrived = arrive(11, conditions);
    let lost = PACKETS as usize - arrived.len();
    // Five standard deviations about 100.
    assert!((51..=149).contains(&lost), "{lost} of {PACKETS} lost");
    // The other conditions do not change who is lost, only when the others arrive.
    let slowly = Conditions { delay_us: 500, jitter_us: 2_000, ..conditions };
    let as_set = |numbers: &[u64]| numbers.iter().copied().collect::<HashSet<_>>();
    assert_eq!(as_set(&arrive(11, slowly)), as_set(&arrived));
    assert_ne!(arrive(12, conditions), arrived, "another seed");
}

#[test]
fn those_held_back_are_overtaken_and_counted() {
    let line = Line::new(5);
    line.relay.set(
        Direction::Up,
        Conditions { reorder_ppm: 100_000, reorder_us: 200_000, ..Conditions::default() },
    );
    let arrived = line.pass(0..WINDOW * 4, 8);
    assert_eq!(arrived.len() as u64, WINDOW * 4, "none is lost");
    let mut latest = 0;
    let late = |&&number: &&u64| {
        latest = latest.max(number);
        number < latest
    };
    let late = arrived.iter().filter(late).count();
    assert!(late > 0, "{arrived:?}");
    assert_eq!(line.relay.counters(Direction::Up).reordered, late as u64);
}

#[test]
fn order_is_kept_where_nothing_else_is_asked_for() {
    let line = Line::new(0);
    let capped = Conditions {
        delay_us: 700,
        loss_ppm: 100_000,
        rate_bytes_per_s: Some(10_000_000),
        ..Conditions::default()
    };
    let mut all = Vec::new();
    for (nth, conditions) in
        [Conditions::delayed(3_000), Conditions::default(), capped, Conditions::delayed(1)]
            .into_iter()
            .cycle()
            .take(12)
            .enumerate()
    {
        line.relay.set(Direction::Up, conditions);
        let first = nth as u64 * 300;
        all.extend(line.pass(first..first + 300, 200));
    }
    assert!(all.is_sorted(), "{all:?}");
    assert_eq!(line.relay.counters(Direction::Up).reordered, 0);
    assert!(all.len() > 3_000);
}

#[test]
fn jitter_spreads_the_delay() {
    let line = Line::new(0);
    let (delay_us, jitter_us) = (1_000, 20_000);
    let conditions = Conditions { delay_us, jitter_us, ..Conditions::default() };
    line.relay.set(Direction::Up, conditions);
    let took: Vec<_> = (0..40).map(|_| line.round_trip()).collect();
    assert!(took.iter().all(|took| *took >= Duration::from_micros(delay_us)), "{took:?}");
    // Of 40 even draws one is above half of it, whatever the machine does: it only adds.
    assert!(took.iter().any(|took| *took >= Duration::from_micros(delay_us + jitter_us / 2)));
    assert!(took.iter().any(|took| *took < Duration::from_micros(delay_us + jitter_us / 2)));
}

#[test]
fn no_more_than_the_rate_passes_and_not_much_less() {
    const PACKETS: u64 = 60;
    const LEN: usize = 1_000;
    let line = Line::new(0);
    let conditions = Conditions {
        rate_bytes_per_s: Some(200_000),
        burst_bytes: 10 * LEN as u64,
        ..Conditions::default()
    };
    line.relay.set(Direction::Up, conditions);
    // 60 kB, of which 10 kB pass at once.
    let asked = Duration::from_millis(250);
    let mut next = 0;
    until("one pass takes hardly longer", || {
        let start = Instant::now();
        let arrived = line.pass(next..next + PACKETS, LEN);
        let took = start.elapsed();
        assert_eq!(arrived.len() as u64, PACKETS, "the queue holds them");
        // After an earlier pass the bucket may hold less than a burst, never more.
        assert!(took >= asked, "{took:?}");
        next += PACKETS;
        took < asked + Duration::from_millis(125)
    });
}

#[test]
fn what_the_queue_cannot_hold_is_dropped_and_counted() {
    let line = Line::new(0);
    line.relay.set(
        Direction::Up,
        Conditions {
            rate_bytes_per_s: Some(100_000),
            burst_bytes: 1_000,
            queue_bytes: 10_000,
            ..Conditions::default()
        },
    );
    let arrived = line.pass(0..WINDOW, 1_000);
    let counters = line.relay.counters(Direction::Up);
    assert!(counters.overflowed > 0, "64 kB do not fit");
    assert!(arrived.len() >= 11, "the burst and the queue: {}", arrived.len());
    assert_eq!(counters.overflowed + arrived.len() as u64, WINDOW);
}

#[test]
fn each_client_gets_its_own_answers() {
    let server = socket();
    let relay = Relay::start(&server.local_addr().unwrap().to_string());
    let clients: Vec<_> = (0..10_u8).map(|_| socket()).collect();
    let mut peers = HashSet::new();
    for _ in 0..2 {
        for (nth, client) in clients.iter().enumerate() {
            client.send_to(&[nth as u8], relay.address()).unwrap();
            let (bytes, from) = receive(&server);
            peers.insert(from);
            server.send_to(&bytes, from).unwrap();
        }
        for (nth, client) in clients.iter().enumerate() {
            let (bytes, from) = receive(client);
            assert_eq!((bytes.as_slice(), from.to_string()), (&[nth as u8][..], relay.address()));
        }
    }
    assert_eq!(peers.len(), clients.len(), "the server tells them apart, and knows them again");
    // Somebody else finds out where the relay listens for the server: it is nobody's.
    let stranger = socket();
    for peer in &peers {
        stranger.send_to(b"?", peer).unwrap();
    }
    clients[3].send_to(b"still there", relay.address()).unwrap();
    let (bytes, from) = receive(&server);
    server.send_to(&bytes, from).unwrap();
    assert_eq!(receive(&clients[3]).0, b"still there");
}

#[test]
fn many_clients_one_after_the_other_all_get_through() {
    let server = socket();
    let relay = Relay::start(&server.local_addr().unwrap().to_string());
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mut most = 0;
    let first = socket();
    let answered = |client: &UdpSocket, text: &[u8]| {
        client.send_to(text, relay.address()).unwrap();
        let (bytes, from) = receive(&server);
        server.send_to(&bytes, from).unwrap();
        assert_eq!(receive(client).0, text);
        from
    };
    let peer = answered(&first, b"first");
    for nth in 0..1_000_u32 {
        answered(&socket(), &nth.to_le_bytes());
        let still = answered(&first, b"still there");
        assert_eq!(still, peer, "who is not silent is not forgotten");
        most = most.max(open());
    }
    // 256 clients, and what the other tests of this process have open.
    assert!(most < 700, "{most} descriptors");
    for nth in 0..300_u32 {
        answered(&socket(), &nth.to_le_bytes());
    }
    assert_ne!(answered(&first, b"forgotten, and heard again"), peer);
}

#[test]
fn datagrams_of_any_length_pass_whole() {
    let line = Line::new(0);
    for len in [0, 1, 1_200, 1_452, 9_000, 65_507, 0, 40_000] {
        let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        line.client.send(&bytes).unwrap();
        let (up, from) = receive(&line.server);
        assert!(up == bytes, "{len} bytes up");
        line.server.send_to(&bytes, from).unwrap();
        assert!(receive(&line.client).0 == bytes, "{len} bytes down");
    }
}

#[test]
fn each_datagram_of_a_train_has_its_own_fate() {
    const SEGMENT: usize = 1_000;
    let line = Line::new(3);
    let state = UdpSocketState::new((&line.client).into()).unwrap();
    let packets = state.max_gso_segments().min(40);
    // The last one is shorter.
    let contents: Vec<u8> = (0..packets * SEGMENT - 500).map(|at| (at / SEGMENT) as u8).collect();
    let train = Transmit {
        destination: line.relay.address().parse().unwrap(),
        ecn: None,
        contents: &contents,
        segment_size: (packets > 1).then_some(SEGMENT),
        src_ip: None,
    };
    let send = || {
        let before = line.relay.counters(Direction::Up);
        state.try_send((&line.client).into(), &train).unwrap();
        until("each is passed on or dropped", || {
            let now = line.relay.counters(Direction::Up);
            now.packets + now.dropped() - before.packets - before.dropped() == packets as u64
        });
        let passed = line.relay.counters(Direction::Up).packets - before.packets;
        (0..passed).map(|_| receive(&line.server).0).collect::<Vec<_>>()
    };
    let arrived = send();
    let sent: Vec<_> = contents.chunks(SEGMENT).map(<[u8]>::to_vec).collect();
    assert!(arrived == sent, "{} of {packets} datagrams", arrived.len());
    let conditions = Conditions { loss_ppm: 300_000, ..Conditions::default() };
    line.relay.set(Direction::Up, conditions);
    let arrived = send();
    assert!(!arrived.is_empty() && arrived.len() < packets, "{}", arrived.len());
    assert!(arrived.iter().all(|datagram| sent.contains(datagram)), "none is torn");
}
