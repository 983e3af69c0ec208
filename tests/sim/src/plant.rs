//! Faults planted to prove that the simulator finds them.

/// A fault. Each is a mistake that a tier around `core` could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// None: the code as it is.
    Nothing,
    /// A reply fills the cache as if it had been asked for when it arrives.
    LateFill,
    /// A watch is registered after the reading, and nobody looks whether something changed between.
    WatchAfterReading,
    /// A lease counts from when the answer to its renewal arrives.
    LeaseFromAnswer,
    /// A renewal is answered while a tell is not acknowledged.
    RenewedWhileOwing,
    /// What was learnt through a session is kept when the session is lost.
    LostSessionKept,
    /// A gateway gives its clients a full lease, whatever is left of its own.
    FullLeaseOfGateway,
    /// The brick forgets an answer as soon as it is sent.
    ReplayDropped,
    /// A repetition gets the answer before everybody is told.
    ReplayBeforeTold,
    /// A repetition is answered without a word to the session by which it came first.
    FirstSessionNotTold,
    /// A repetition teaches what was true when it was first applied.
    ReplayTeaches,
    /// A mutation is answered before those who watch have acknowledged.
    AnswerBeforeAcknowledged,
    /// A gateway acknowledges to the brick before its clients have acknowledged to it.
    RecalledBeforeClients,
    /// A gateway does not tell its own clients of what one of them changed.
    OwnClientsNotTold,
    /// A new session ends the session of another client.
    SessionOfAnotherEnded,
    /// A brick that was restarted does not wait for leases of its earlier life.
    EarlierLifeForgotten,
}

/// All faults.
pub const PLANTS: [Plant; 15] = [
    Plant::LateFill,
    Plant::WatchAfterReading,
    Plant::LeaseFromAnswer,
    Plant::RenewedWhileOwing,
    Plant::LostSessionKept,
    Plant::FullLeaseOfGateway,
    Plant::ReplayDropped,
    Plant::ReplayBeforeTold,
    Plant::FirstSessionNotTold,
    Plant::ReplayTeaches,
    Plant::AnswerBeforeAcknowledged,
    Plant::RecalledBeforeClients,
    Plant::OwnClientsNotTold,
    Plant::SessionOfAnotherEnded,
    Plant::EarlierLifeForgotten,
];

impl Plant {
    /// The fault of this name, as `--plant` takes it.
    pub fn named(name: &str) -> Option<Self> {
        PLANTS.into_iter().find(|plant| format!("{plant:?}") == name)
    }
}
