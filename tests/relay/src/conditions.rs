//! What a direction of the relay does to its datagrams. Sizes are of the payload of UDP.

/// Bytes that may leave at once after a pause, unless told otherwise: one train as UDP segmentation
/// offload sends it.
const BURST_BYTES: u64 = 64 * 1024;
/// Bytes that may wait for their turn, unless told otherwise.
const QUEUE_BYTES: u64 = 256 * 1024;

/// Which way a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From a client to the server.
    Up,
    /// From the server to a client.
    Down,
}

/// The conditions of one direction. The default passes everything on at once.
///
/// A datagram is lost or not; then it waits for its turn where there is a rate, or is dropped where
/// too many wait; then it is on its way for the delay, and what jitter or holding back adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// How long every datagram is on its way at least, in microseconds.
    pub delay_us: u64,
    /// The most that is added to it, in microseconds: for each datagram another, evenly
    /// distributed. Datagrams overtake each other.
    pub jitter_us: u64,
    /// Of a million datagrams, how many are lost.
    pub loss_ppm: u32,
    /// Of a million datagrams, how many are held back so that others may overtake them.
    pub reorder_ppm: u32,
    /// How long those are held back, in microseconds.
    pub reorder_us: u64,
    /// Bytes a second that pass, at least 1; `None`: as many as come.
    pub rate_bytes_per_s: Option<u64>,
    /// Bytes that pass at once after a pause (the size of the token bucket).
    pub burst_bytes: u64,
    /// Bytes that may wait for their turn; what comes beyond is dropped.
    pub queue_bytes: u64,
    /// Everything is dropped.
    pub cut: bool,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            delay_us: 0,
            jitter_us: 0,
            loss_ppm: 0,
            reorder_ppm: 0,
            reorder_us: 0,
            rate_bytes_per_s: None,
            burst_bytes: BURST_BYTES,
            queue_bytes: QUEUE_BYTES,
            cut: false,
        }
    }
}

impl Conditions {
    /// Nothing but a delay.
    pub fn delayed(delay_us: u64) -> Self {
        Self { delay_us, ..Self::default() }
    }
}
