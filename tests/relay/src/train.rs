//! Datagrams to one destination that leave together: equally long ones, of which the last may be
//! shorter, are one system call by UDP segmentation offload.

use std::net::SocketAddr;
use std::sync::Arc;

use quinn_udp::{EcnCodepoint, Transmit};

use crate::counters::Counts;
use crate::flight::Datagram;
use crate::socket::Socket;

/// Bytes of a train: what one IP packet can hold.
const TRAIN_LEN_BYTES_MAX: usize = 65_000;

/// Datagrams that wait for the next, to leave with it.
#[derive(Debug, Default)]
pub(crate) struct Train {
    bytes: Vec<u8>,
    packets: usize,
    /// The length of each but the last.
    segment_len: usize,
    /// The last one is shorter, so that none can follow.
    is_closed: bool,
    route: Option<Route>,
}

#[derive(Debug)]
struct Route {
    via: Arc<Socket>,
    to: SocketAddr,
    ecn: Option<EcnCodepoint>,
}

impl Train {
    /// Takes a datagram; what cannot leave with it leaves before.
    pub(crate) fn push(&mut self, datagram: &Datagram, counts: &Counts) {
        if !self.fits(datagram) {
            self.leave(counts);
        }
        let len = datagram.bytes.len();
        if self.packets == 0 {
            self.segment_len = len;
            let (via, to, ecn) = (datagram.via.clone(), datagram.to, datagram.ecn);
            self.route = Some(Route { via, to, ecn });
        }
        self.is_closed = len < self.segment_len || len == 0;
        self.bytes.extend_from_slice(&datagram.bytes);
        self.packets += 1;
    }

    /// Sends what there is.
    pub(crate) fn leave(&mut self, counts: &Counts) {
        if let Some(route) = self.route.take() {
            self.send(&route, counts);
        }
        self.bytes.clear();
        self.packets = 0;
        self.is_closed = false;
    }

    fn fits(&self, datagram: &Datagram) -> bool {
        let Some(route) = &self.route else { return true };
        !self.is_closed
            && datagram.bytes.len() <= self.segment_len
            && !datagram.bytes.is_empty()
            && self.packets < route.via.train_len_max()
            && self.bytes.len() + datagram.bytes.len() <= TRAIN_LEN_BYTES_MAX
            && Arc::ptr_eq(&route.via, &datagram.via)
            && route.to == datagram.to
            && route.ecn == datagram.ecn
    }

    fn send(&self, route: &Route, counts: &Counts) {
        let Route { via, to, ecn } = route;
        let transmit = |contents, segment_size| {
            let transmit =
                Transmit { destination: *to, ecn: *ecn, contents, segment_size, src_ip: None };
            via.send(&transmit).is_ok()
        };
        if self.packets == 1 {
            return self.count(transmit(&self.bytes, None), 1, self.bytes.len(), counts);
        }
        if transmit(&self.bytes, Some(self.segment_len)) {
            return self.count(true, self.packets, self.bytes.len(), counts);
        }
        // The kernel does not do it, or has no room for as much at once.
        for segment in self.bytes.chunks(self.segment_len) {
            self.count(transmit(segment, None), 1, segment.len(), counts);
        }
    }

    fn count(&self, sent: bool, packets: usize, len_bytes: usize, counts: &Counts) {
        if sent {
            counts.sent(packets as u64, len_bytes as u64);
        } else {
            counts.unsent(packets as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;

    fn datagram(via: &Arc<Socket>, to: &UdpSocket, byte: u8, len: usize) -> Datagram {
        let bytes = Bytes::from(vec![byte; len]);
        let to = to.local_addr().unwrap();
        Datagram { at_ns: 0, number: 0, bytes, ecn: None, via: via.clone(), to }
    }

    #[test]
    fn datagrams_of_all_lengths_arrive_as_they_were_and_equal_ones_leave_together() {
        let receivers = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        for receiver in &receivers {
            receiver.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        }
        let via = Arc::new(Socket::bind_like(receivers[0].local_addr().unwrap()));
        let (mut train, counts) = (Train::default(), Counts::default());
        let lens =
            [100, 100, 40, 100, 120, 0, 0, 7, 7, 5, 5, 5, 30_000, 30_000, 30_000, 9, 9, 9, 9, 9, 9];
        for (nth, len) in lens.into_iter().enumerate() {
            // The last ones go to and fro.
            let to = if nth > 15 { &receivers[nth % 2] } else { &receivers[0] };
            train.push(&datagram(&via, to, nth as u8, len), &counts);
        }
        train.leave(&counts);
        let expected: u64 = lens.iter().map(|len| *len as u64).sum();
        assert_eq!((counts.read().packets, counts.read().bytes), (lens.len() as u64, expected));
        let mut buffer = vec![0; 65_536];
        for (nth, len) in lens.into_iter().enumerate() {
            let at = if nth > 15 { &receivers[nth % 2] } else { &receivers[0] };
            let received = at.recv(&mut buffer).unwrap();
            assert_eq!(received, len, "the {nth}th");
            assert!(buffer[..len].iter().all(|&byte| byte == nth as u8), "the {nth}th");
        }
    }

    #[test]
    fn equal_ones_are_one_system_call() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let via = Arc::new(Socket::bind_like(receiver.local_addr().unwrap()));
        let (mut train, counts) = (Train::default(), Counts::default());
        let fit = via.train_len_max().min(10);
        for _ in 0..fit {
            train.push(&datagram(&via, &receiver, 1, 1_200), &counts);
        }
        assert_eq!((train.packets, counts.read().packets), (fit, 0));
        train.leave(&counts);
        assert_eq!((train.packets, counts.read().packets), (0, fit as u64));
    }
}
