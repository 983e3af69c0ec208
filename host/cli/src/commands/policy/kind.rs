//! `--kind`: what a policy decides.

use portcullis_sdk::testing::Kind;

/// As it is written on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum KindArgument {
    /// What leaves when memory is short
    Eviction,
    /// Which directories are listed ahead
    Prefetch,
    /// What content travels with attributes
    Inlining,
}

impl KindArgument {
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Eviction => Kind::Eviction,
            Self::Prefetch => Kind::Prefetch,
            Self::Inlining => Kind::Inlining,
        }
    }
}
