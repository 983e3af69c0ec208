//! The network between gateway and brick, to be cut: a relay of datagrams on loopback.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::net::UdpSocket;
use tokio_util::task::AbortOnDropHandle;

/// Relays between one gateway and one brick until it is cut.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    /// Bytes that may still go from the brick to the gateway; at 0 nothing passes either way.
    left_bytes: Arc<AtomicU64>,
    /// Nothing goes from the brick to the gateway, whatever goes the other way.
    one_way: Arc<AtomicBool>,
    _tasks: [AbortOnDropHandle<()>; 2],
}

impl Relay {
    pub(crate) async fn start(brick: SocketAddr) -> Self {
        let near = Arc::new(UdpSocket::bind(crate::harness::any_port()).await.unwrap());
        let far = Arc::new(UdpSocket::bind(crate::harness::any_port()).await.unwrap());
        far.connect(brick).await.unwrap();
        let address = near.local_addr().unwrap();
        let left_bytes = Arc::new(AtomicU64::new(u64::MAX));
        let one_way = Arc::new(AtomicBool::new(false));
        let gateway = Arc::new(parking_lot::Mutex::new(None));
        let up = {
            let (near, far, left, gateway) =
                (near.clone(), far.clone(), left_bytes.clone(), gateway.clone());
            async move {
                let mut datagram = vec![0; 65_536];
                loop {
                    let Ok((len, from)) = near.recv_from(&mut datagram).await else { continue };
                    *gateway.lock() = Some(from);
                    if left.load(Ordering::SeqCst) > 0 {
                        let _ = far.send(&datagram[..len]).await;
                    }
                }
            }
        };
        let (left, blocked) = (left_bytes.clone(), one_way.clone());
        let down = async move {
            let mut datagram = vec![0; 65_536];
            loop {
                let Ok(len) = far.recv(&mut datagram).await else { continue };
                let to = *gateway.lock();
                let passes = left
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                        (left > 0).then(|| left.saturating_sub(len as u64))
                    })
                    .is_ok();
                if let Some(to) = to
                    && passes
                    && !blocked.load(Ordering::SeqCst)
                {
                    let _ = near.send_to(&datagram[..len], to).await;
                }
            }
        };
        let tasks = [tokio::spawn(up), tokio::spawn(down)];
        Self { address, left_bytes, one_way, _tasks: tasks.map(AbortOnDropHandle::new) }
    }

    /// Lets this many bytes more through to the gateway, then nothing any more.
    pub(crate) fn cut_after(&self, bytes: u64) {
        self.left_bytes.store(bytes, Ordering::SeqCst);
    }

    /// Lets everything through again.
    pub(crate) fn mend(&self) {
        self.left_bytes.store(u64::MAX, Ordering::SeqCst);
        self.one_way.store(false, Ordering::SeqCst);
    }

    /// From now on requests reach the brick, and no answer comes back.
    pub(crate) fn drop_answers(&self) {
        self.one_way.store(true, Ordering::SeqCst);
    }
}
