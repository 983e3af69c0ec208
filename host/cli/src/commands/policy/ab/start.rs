//! `portcullis policy ab start`.

use std::time::Duration;

use portcullis_wire::message::Compare;

use super::Gateway;
use super::status::{Shown, show};
use crate::commands::policy::candidate::Named;
use crate::error::CliError;
use crate::units::parse_duration;

/// Split the cache and begin
///
/// First both halves have the active policy, then one has the candidate, then they change sides. What is
/// counted while a half warms up is thrown away. It goes on by itself; ask `status`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    gateway: Gateway,
    #[command(flatten)]
    candidate: Named,
    /// Requests of each of the four periods of measurement
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 100_000,
        value_parser = clap::value_parser!(u64).range(1_000..)
    )]
    requests: u64,
    /// How long each period, and each warming up, lasts at most
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = parse_duration)]
    period: Duration,
    #[command(flatten)]
    shown: Shown,
}

pub(super) async fn run(arguments: Arguments) -> Result<(), CliError> {
    let (candidate, body) = arguments.candidate.read()?;
    let start = Compare::AbStart {
        candidate,
        period_requests: arguments.requests,
        period_ms_max: arguments.period.as_millis() as u64,
    };
    show(&arguments.gateway.ask(start, body).await?, &arguments.shown)
}
