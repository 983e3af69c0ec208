//! Sockets on loopback with large buffers, through `quinn-udp`: many datagrams a system call, and
//! the marks of ECN along with them.

use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};
use rustix::net::sockopt;

/// Bytes that the kernel keeps for us while we are not running.
const BUFFER_LEN_BYTES: usize = 8 * 1024 * 1024;
/// The largest datagram, or train of them, that comes in one piece.
const PIECE_LEN_BYTES_MAX: usize = 65_536;

/// A socket that never waits.
#[derive(Debug)]
pub(crate) struct Socket {
    socket: UdpSocket,
    state: UdpSocketState,
    address: SocketAddr,
}

impl Socket {
    /// A socket on loopback, of the address family of `peer`.
    pub(crate) fn bind_like(peer: SocketAddr) -> Self {
        let address: SocketAddr = match peer {
            SocketAddr::V4(_) => (Ipv4Addr::LOCALHOST, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::LOCALHOST, 0).into(),
        };
        let socket = UdpSocket::bind(address).expect("a socket");
        // Without privileges, as much as the system allows.
        if sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_LEN_BYTES).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(&socket, BUFFER_LEN_BYTES);
        }
        let _ = sockopt::set_socket_send_buffer_size(&socket, BUFFER_LEN_BYTES);
        let state = UdpSocketState::new((&socket).into()).expect("options of the socket");
        let address = socket.local_addr().expect("its address");
        Self { socket, state, address }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Datagrams that may be sent as one train, at least 1.
    pub(crate) fn train_len_max(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Sends a datagram, or a train of them.
    pub(crate) fn send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.state.try_send((&self.socket).into(), transmit)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Buffers for as much as one system call receives.
#[derive(Debug)]
pub(crate) struct Received {
    bytes: Vec<u8>,
    meta: [RecvMeta; BATCH_SIZE],
    pieces: usize,
}

impl Received {
    pub(crate) fn new() -> Self {
        let bytes = vec![0; PIECE_LEN_BYTES_MAX * BATCH_SIZE];
        Self { bytes, meta: [RecvMeta::default(); BATCH_SIZE], pieces: 0 }
    }

    /// Receives what there is, if anything.
    pub(crate) fn fill(&mut self, from: &Socket) {
        let buffers = self.bytes.chunks_mut(PIECE_LEN_BYTES_MAX).map(IoSliceMut::new);
        let mut buffers: Vec<_> = buffers.collect();
        let received = from.state.recv((&from.socket).into(), &mut buffers, &mut self.meta);
        // Nothing there, or an error that an earlier datagram caused: it is as lost as any other.
        self.pieces = received.unwrap_or(0);
    }

    /// What came: each a datagram or a train of them, and what is known of it.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (&[u8], &RecvMeta)> {
        let pieces = self.bytes.chunks(PIECE_LEN_BYTES_MAX).zip(&self.meta).take(self.pieces);
        pieces.map(|(bytes, meta)| (&bytes[..meta.len], meta))
    }
}
