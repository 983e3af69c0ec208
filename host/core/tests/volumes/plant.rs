//! Faults that a member could have. Each is found by some seed, or the simulation is blind to it.

/// A fault to be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plant {
    /// A name that is about to leave is not held once the session that asked has ended.
    LeaveEndsWithSession,
    /// What is prepared does not outlive a restart.
    PreparedInMemory,
    /// A commit does not look whether its name is held.
    CommitWithoutHold,
    /// Who asks how a transaction ended does not end its hold.
    SettleKeepsHold,
    /// An intent does not hold the name it came with.
    IntentHoldsNothing,
    /// A seal leaves tickets for copies good.
    SealKeepsTickets,
    /// A home does not note who gets a copy.
    EnlistForgets,
    /// A copy takes any attributes that it is given.
    SetCopyAnyVersion,
    /// An intent to refresh is forgotten though the attributes have changed since.
    ForgetAnyVersion,
    /// A change of attributes needs no intent.
    SetattrWithoutMark,
    /// A parent is told while it is about to change.
    ParentAtOnce,
    /// Creates do not mind seals.
    SealsIgnored,
    /// A sealed copy may have names.
    SealsFull,
    /// A hidden name is not removed.
    BodyStays,
    /// It is not kept what a commit carried out.
    OutcomeForgotten,
    /// What somebody else has taken over is committed all the same.
    TakenOverCommits,
}

/// All of them, each with the seed from which on it is looked for: most are rare.
pub(crate) const PLANTS: &[(Plant, u64)] = &[
    (Plant::LeaveEndsWithSession, 470),
    (Plant::PreparedInMemory, 30),
    (Plant::CommitWithoutHold, 160),
    (Plant::SettleKeepsHold, 210),
    (Plant::IntentHoldsNothing, 800),
    (Plant::SealKeepsTickets, 10_090),
    (Plant::EnlistForgets, 0),
    (Plant::SetCopyAnyVersion, 15_500),
    (Plant::ForgetAnyVersion, 10_090),
    (Plant::SetattrWithoutMark, 22_250),
    (Plant::ParentAtOnce, 850),
    (Plant::SealsIgnored, 10),
    (Plant::SealsFull, 0),
    (Plant::BodyStays, 0),
    (Plant::OutcomeForgotten, 15),
    (Plant::TakenOverCommits, 0),
];
