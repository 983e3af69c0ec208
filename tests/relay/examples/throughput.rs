//! How many bytes a second pass through a relay that does nothing to them, beside the same without
//! it: trains of datagrams of 1,452 bytes, as QUIC sends them, in a window that the receiver opens
//! again as they arrive.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use portcullis_relay::{Direction, Relay};
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};

const SEGMENT_LEN_BYTES: usize = 1_452;
const TRAIN_PACKETS: usize = 40;
const TOTAL_BYTES: u64 = 2_000_000_000;
/// Bytes under way at a time.
const WINDOW_BYTES: u64 = 2_000_000;
/// Nothing came for this long: the rest was lost.
const SILENCE: Duration = Duration::from_secs(2);
const PIECE_LEN_BYTES: usize = 65_536;

fn main() {
    for round in 0..3 {
        let server = socket();
        let address = server.local_addr().expect("its address");
        println!("round {round}: {:.0} MB/s without a relay", measure(server, address));
        let server = socket();
        let relay = Relay::start(&server.local_addr().expect("its address").to_string());
        let address = relay.address().parse().expect("an address");
        println!("round {round}: {:.0} MB/s through one", measure(server, address));
        println!("  {:?}", relay.counters(Direction::Up));
    }
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 8 * 1024 * 1024).expect("a buffer");
    socket
}

/// Moves bytes from a client to `server`, sent to `address`; MB/s.
fn measure(server: UdpSocket, address: SocketAddr) -> f64 {
    let receiver = std::thread::spawn(move || receive_all(&server));
    let client = socket();
    let state = UdpSocketState::new((&client).into()).expect("options");
    client.set_nonblocking(false).expect("it waits");
    client.set_read_timeout(Some(SILENCE)).expect("a timeout");
    let contents = vec![7; SEGMENT_LEN_BYTES * TRAIN_PACKETS];
    let train = Transmit {
        destination: address,
        ecn: None,
        contents: &contents,
        segment_size: Some(SEGMENT_LEN_BYTES),
        src_ip: None,
    };
    let start = Instant::now();
    let (mut sent_bytes, mut acked_bytes) = (0, 0);
    while acked_bytes < TOTAL_BYTES {
        while sent_bytes < TOTAL_BYTES && sent_bytes - acked_bytes < WINDOW_BYTES {
            state.try_send((&client).into(), &train).expect("it is sent");
            sent_bytes += contents.len() as u64;
        }
        let mut ack = [0; 8];
        if client.recv(&mut ack).is_err() {
            println!("  lost {} bytes", sent_bytes - acked_bytes);
            break;
        }
        acked_bytes = acked_bytes.max(u64::from_le_bytes(ack));
    }
    let took = start.elapsed();
    receiver.join().expect("it ends");
    acked_bytes as f64 / took.as_secs_f64() / 1e6
}

/// Receives everything, and tells the sender how much came.
fn receive_all(server: &UdpSocket) {
    let state = UdpSocketState::new(server.into()).expect("options");
    server.set_nonblocking(false).expect("it waits");
    server.set_read_timeout(Some(SILENCE)).expect("a timeout");
    let mut bytes = vec![0; PIECE_LEN_BYTES * BATCH_SIZE];
    let mut meta = [RecvMeta::default(); BATCH_SIZE];
    let mut received_bytes = 0;
    while received_bytes < TOTAL_BYTES {
        let buffers = bytes.chunks_mut(PIECE_LEN_BYTES).map(std::io::IoSliceMut::new);
        let mut buffers: Vec<_> = buffers.collect();
        let Ok(pieces) = state.recv(server.into(), &mut buffers[..1], &mut meta[..1]) else {
            return;
        };
        received_bytes += meta[..pieces].iter().map(|meta| meta.len as u64).sum::<u64>();
        let peer = meta[0].addr;
        server.send_to(&u64::to_le_bytes(received_bytes), peer).expect("it is sent");
    }
}
