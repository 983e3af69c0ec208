//! `portcullis policy ab status`, and what the others print.

use std::path::PathBuf;

use bytes::Bytes;
use portcullis_core::ab::Verdict;
use portcullis_replay::timeline::timeline;
use portcullis_wire::message::{AbStatus, Compare};

use super::Gateway;
use crate::error::CliError;
use crate::json::push_line;
use crate::output::Output;

/// Show how far it is, and what it has shown
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    gateway: Gateway,
    #[command(flatten)]
    shown: Shown,
}

/// How it is shown.
#[derive(Debug, clap::Args)]
pub(super) struct Shown {
    /// Where to write a plot of both sides over time
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(arguments: Arguments, compare: Compare) -> Result<(), CliError> {
    show(&arguments.gateway.ask(compare, Bytes::new()).await?, &arguments.shown)
}

/// Prints what there is.
pub(super) fn show(status: &AbStatus, shown: &Shown) -> Result<(), CliError> {
    let mut output = Output::stdout()?;
    if shown.json {
        push_line(output.buffer(), status);
    } else {
        output.write(words(status).as_bytes())?;
    }
    output.flush()?;
    let Some(path) = &shown.svg else { return Ok(()) };
    let names = [&*status.incumbent.name, &*status.candidate.name];
    let title = format!("{}: {}", names.join(" and "), status.report.verdict.words());
    let plot = timeline(&status.windows, names, &title);
    std::fs::write(path, plot).map_err(|source| CliError::Local { path: path.clone(), source })
}

fn words(status: &AbStatus) -> String {
    let AbStatus { incumbent, candidate, split, ended, report, .. } = status;
    let stage = serde_json::to_value(report.stage).unwrap_or_default();
    let stage = stage.as_str().unwrap_or_default();
    let now = match (*split, ended.is_empty()) {
        (true, _) => format!("under way: {stage}"),
        (false, true) => "through; the cache is whole again".to_owned(),
        (false, false) => format!("ended at {stage}: {ended}"),
    };
    let verdict = match (report.verdict, *split) {
        (Verdict::UnderWay, false) => "it ended before it could tell",
        (verdict, _) => verdict.words(),
    };
    format!("{} -> {}, {now}\n{verdict}\n{}", incumbent.name, candidate.name, report.figures())
}
