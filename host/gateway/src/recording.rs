//! A recording: what is asked of the cache, told to an admin as it happens.
//!
//! Records wait in a queue of bounded length and are sent in pieces; what an admin that does not keep
//! up misses is told as lost. What must hold: no request of a client waits for a recording.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use portcullis_core::Status;
use portcullis_core::cache::{Listener, TapConfig, TapNames};
use portcullis_core::limits::{READ_FRAME_LEN_BYTES, TAP_QUEUE_LEN_BYTES, TAP_RESIDENTS_MAX};
use portcullis_core::trace::{Header, Record};
use portcullis_transport::ReplySink;
use portcullis_wire::message::{Failure, TraceNames};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::outflow::Interrupt;
use crate::random;
use crate::stats::Observer;
use crate::volume::{Volume, Waiter};

/// How often what waits is sent.
const PIECE_MS: u64 = 20;
/// How often an admin hears that it goes on, where nothing happens.
const MARK_MS: u64 = 1_000;

impl Volume {
    /// Listens to what is asked of the cache.
    pub(crate) fn listen(&self, names: TapNames, sample: u64) -> Result<Listener<Waiter>, Failure> {
        let config = TapConfig {
            names,
            hash_key: (random(), random()),
            sample,
            queue_len_bytes: TAP_QUEUE_LEN_BYTES,
        };
        self.cache.listen(self.now_ms(), config).ok_or_else(|| {
            let detail = "as many listen already as may; try again when one of them has ended";
            Failure::new(Status::Busy, detail)
        })
    }
}

/// Sends a header and records for as long as was asked.
pub(crate) async fn record(
    volume: &Arc<Volume>,
    observer: &Observer,
    names: TraceNames,
    for_ms: u64,
    reply: &mut ReplySink,
) -> Result<(), Interrupt> {
    let names = match names {
        TraceNames::Hashed => TapNames::Hashed,
        TraceNames::Plain => TapNames::Plain,
    };
    let listener = volume.listen(names, 1)?;
    let began = Instant::now();
    let mut bytes = Vec::new();
    header(volume, observer).push(&mut bytes);
    let listed = listener.residents(TAP_RESIDENTS_MAX, &mut bytes);
    if !listed {
        tracing::info!(
            "too much is cached to be told to a recording: it begins with an empty cache"
        );
    }
    send(bytes, reply).await?;
    let mut pieces = interval(Duration::from_millis(PIECE_MS));
    pieces.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut sent = Instant::now();
    loop {
        tokio::select! {
            _ = pieces.tick() => {}
            () = reply.gone() => return Err(Interrupt::PeerGone),
        }
        let is_over = began.elapsed() >= Duration::from_millis(for_ms);
        let mut bytes = Vec::new();
        listener.take(&mut bytes);
        if bytes.is_empty() && sent.elapsed() >= Duration::from_millis(MARK_MS) {
            let now_ms = u32::try_from(began.elapsed().as_millis()).unwrap_or(u32::MAX);
            Record::lost(now_ms, 0).push(&mut bytes);
        }
        if !bytes.is_empty() {
            send(bytes, reply).await?;
            sent = Instant::now();
        }
        if is_over {
            return Ok(());
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "it says for people when a recording was made")]
fn header(volume: &Volume, observer: &Observer) -> Header {
    let eviction = observer.stats().eviction;
    let digest = eviction.digest.get(..12).unwrap_or_default();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Header {
        capacity_bytes: volume.capacity_bytes,
        began_unix_ms: since.as_millis() as u64,
        policy: format!("{} {digest}", eviction.name).trim_end().to_owned(),
    }
}

async fn send(bytes: Vec<u8>, reply: &mut ReplySink) -> Result<(), Interrupt> {
    let mut bytes = Bytes::from(bytes);
    while !bytes.is_empty() {
        let piece = bytes.split_to(bytes.len().min(READ_FRAME_LEN_BYTES));
        reply.data(vec![piece]).await?;
    }
    Ok(())
}
