//! `portcullis policy shadow`: two policies beside the traffic of a live gateway.

use std::time::Duration;

use bytes::Bytes;
use portcullis_client::Address;
use portcullis_core::ab::{Progress, ShadowReport};
use portcullis_wire::message::Compare;
use tokio::time::sleep;

use super::candidate::Named;
use crate::error::CliError;
use crate::json::push_line;
use crate::output::Output;
use crate::server::Stop;
use crate::session::{Connect, address_parser};
use crate::units::parse_duration;

/// How often it is asked how it goes.
const ASK: Duration = Duration::from_millis(500);

/// Compare a policy with the active one beside live traffic; needs the admin identity
///
/// Both work on caches of keys alone, of a sample of the directories and as much smaller. Nothing that
/// is answered to a client depends on it. Ends by its time or Ctrl-C, and reports.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The gateway: pc://HOST:PORT/
    #[arg(value_parser = address_parser())]
    address: Address,
    #[command(flatten)]
    candidate: Named,
    #[command(flatten)]
    connect: Connect,
    /// Of which kind it is
    #[arg(long, value_name = "eviction", default_value = "eviction", value_parser = ["eviction"])]
    kind: String,
    /// The part of the directories that is looked at
    #[arg(long, value_name = "1/N", default_value = "1/16", value_parser = sample)]
    sample: u32,
    /// How long
    #[arg(long = "for", value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    duration: Duration,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), CliError> {
    debug_assert_eq!(arguments.kind, "eviction");
    let (candidate, body) = arguments.candidate.read()?;
    let stop = Stop::install()?;
    let start = Compare::ShadowStart {
        candidate,
        sample: arguments.sample,
        for_ms: arguments.duration.as_millis() as u64,
    };
    arguments.ask(start, body).await?;
    let ended = tokio::select! {
        ended = arguments.wait() => ended?,
        () = stop.requested() => {
            arguments.ask(Compare::ShadowStop, Bytes::new()).await?;
            arguments.wait().await?
        }
    };
    let mut output = Output::stdout()?;
    if arguments.json {
        push_line(output.buffer(), &ended);
    } else {
        output.write(ended.words().as_bytes())?;
    }
    output.flush()?;
    match ended.progress {
        Progress::Failed(why) => Err(CliError::Said(why)),
        _ => Ok(()),
    }
}

impl Arguments {
    async fn ask(&self, compare: Compare, body: Bytes) -> Result<ShadowReport, CliError> {
        let compared = self.connect.compare(&self.address, compare, body).await?;
        compared.shadow.ok_or_else(|| CliError::Said("the gateway knows of no shadow".to_owned()))
    }

    /// Waits for the end.
    async fn wait(&self) -> Result<ShadowReport, CliError> {
        loop {
            let report = self.ask(Compare::Status, Bytes::new()).await?;
            if !matches!(report.progress, Progress::Filling | Progress::Counting) {
                return Ok(report);
            }
            sleep(ASK).await;
        }
    }
}

/// Reads `1/16`.
fn sample(text: &str) -> Result<u32, String> {
    let parts = text.strip_prefix("1/").and_then(|parts| parts.parse().ok());
    parts.filter(|&parts| parts > 0).ok_or_else(|| "a sample is a part, as in 1/16".to_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_sample_is_one_in_so_many() {
        assert_eq!((super::sample("1/16"), super::sample("1/1")), (Ok(16), Ok(1)));
        for text in ["", "16", "1/", "1/0", "2/3", "1/-2"] {
            assert!(super::sample(text).is_err(), "{text}");
        }
    }
}
