//! `portcullis policy replay`: what policies would have made of a recorded trace.
//!
//! [`subject`] is a policy as it was named, [`capacities`] reads how large caches are, [`grid`] replays
//! every policy at every capacity with every seed, on all processors. What must hold: standard output
//! and the plot are the same for the same command, to the byte; what varies (times) goes to standard
//! error.

mod capacities;
mod grid;
mod subject;

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use portcullis_core::limits::{REPLAY_INTERVALS_MAX, REPLAY_SEEDS_MAX, TRACE_LEN_BYTES_MAX};
use portcullis_replay::row::Difference;
use portcullis_replay::{Capacity, Live, Outcome, Pace, Row, Trace, formats, opt, plot, table};

use self::capacities::Asked;
use self::grid::Grid;
use self::subject::Subject;
use crate::error::{CliError, complain};
use crate::json::push_line;
use crate::output::Output;

/// Replay a trace to eviction policies
///
/// Prints the hit ratios that each policy would have had with caches of each capacity, and for
/// reference those of OPT, which knows what comes, and of no cache at all. The same command prints the
/// same.
///
/// The format of the trace is known by its name: .oracleGeneral.bin (libCacheSim), .lis (ARC), .trace
/// (LIRS) or .tsv (paths touched by git), compressed (.gz, .zst) or not, or .pctrace (`portcullis trace
/// record`). Of the latter, what really happened is shown beside.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The trace
    trace: PathBuf,
    /// A component (a path with a / or .wasm in it), or one of the native lru, fifo, sieve, s3-fifo,
    /// w-tinylfu, gdsf; several times for several
    #[arg(long = "policy", value_name = "POLICY", required = true)]
    policies: Vec<String>,
    /// Capacities, in entries (10k), in bytes (64MiB), in percent of the trace's objects (5%), or that
    /// of the gateway it was recorded from (live)
    #[arg(
        long = "capacity",
        value_name = "CAPACITY,...",
        value_delimiter = ',',
        value_parser = capacities::parse,
        default_value = "1%,2%,5%,10%,20%,40%"
    )]
    capacities: Vec<Asked>,
    /// Replay with so many seeds, and show the least and the most
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=REPLAY_SEEDS_MAX as u64)
    )]
    seeds: u64,
    /// Call the policy once in so many requests, as the live path does [default: for each victim]
    #[arg(
        long,
        value_name = "REQUESTS",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    batch: Option<u32>,
    /// Of the hits, how many percent are not told to the policy
    #[arg(long, value_name = "PERCENT", value_parser = percent, requires = "batch")]
    drop: Option<f64>,
    /// Intervals of the trace that are counted apart, and compared in pairs
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 20,
        value_parser = clap::value_parser!(u64).range(1..=REPLAY_INTERVALS_MAX as u64)
    )]
    intervals: u64,
    /// The policy that others are compared with [default: the first]
    #[arg(long, value_name = "POLICY")]
    baseline: Option<String>,
    /// Fail if at any capacity a policy is more than so many points below the baseline
    #[arg(long, value_name = "POINTS", value_parser = points)]
    max_loss: Option<f64>,
    /// Where to write a plot of hit ratio over capacity
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print one JSON object a line for each policy and capacity
    #[arg(long)]
    json: bool,
    /// Tell on standard error how fast each policy was
    #[arg(long)]
    timing: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), CliError> {
    let path = &arguments.trace;
    let unfit = |source| CliError::Replay { path: path.clone(), source };
    let subjects = arguments.subjects()?;
    let baseline = arguments.baseline(&subjects)?;
    let name = path.display().to_string();
    let trace = formats::read(&name, &read(path)?).map_err(unfit)?;
    let capacities = capacities::resolve(&arguments.capacities, &trace).map_err(unfit)?;
    let grid = Grid {
        trace: &trace,
        subjects: &subjects,
        capacities: &capacities,
        seeds: arguments.seeds,
        pace: arguments.pace(),
        intervals: arguments.intervals as usize,
    };
    let outcomes = grid.replay()?;
    if arguments.timing {
        grid.tell_times(&outcomes);
    }
    let folded: Vec<Vec<Outcome>> = outcomes
        .into_iter()
        .map(|cell| cell.into_iter().map(|(outcome, _)| outcome).collect())
        .collect();
    let mut rows = rows(&trace, &subjects, &capacities, &folded, baseline);
    rows.extend(trace.live().and_then(|live| Row::live(&trace.name, live)));
    print(arguments, &trace, &rows, &subjects[baseline])?;
    judge(arguments.max_loss, &rows, &subjects[baseline])
}

impl Arguments {
    fn pace(&self) -> Pace {
        match self.batch {
            None => Pace::Exact,
            Some(requests) => {
                let dropped_per_million = (self.drop.unwrap_or(0.0) * 10_000.0).round() as u32;
                Pace::Batched { requests, dropped_per_million }
            }
        }
    }

    /// The policies in the order given, and the references that were not.
    fn subjects(&self) -> Result<Vec<Subject>, CliError> {
        let mut subjects = Vec::new();
        for name in &self.policies {
            if subjects.iter().any(|subject: &Subject| subject.named() == name) {
                return Err(CliError::Said(format!("{name} is given twice")));
            }
            subjects.push(Subject::open(name)?);
        }
        for name in [opt::NAME, opt::NONE_NAME] {
            if !self.policies.iter().any(|given| given == name) {
                subjects.push(Subject::open(name)?);
            }
        }
        Ok(subjects)
    }

    /// Which of the policies others are compared with.
    fn baseline(&self, subjects: &[Subject]) -> Result<usize, CliError> {
        let Some(name) = &self.baseline else { return Ok(0) };
        subjects.iter().position(|subject| subject.named() == name).ok_or_else(|| {
            CliError::Said(format!("{name} is no --policy: nothing to compare with"))
        })
    }
}

/// Reads a file, but no more of it than is replayed.
fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    let local = |source| CliError::Local { path: path.to_owned(), source };
    let mut content = Vec::new();
    let file = File::open(path).map_err(local)?;
    file.take(TRACE_LEN_BYTES_MAX + 1).read_to_end(&mut content).map_err(local)?;
    Ok(content)
}

/// Policy by policy, capacity by capacity.
fn rows(
    trace: &Trace,
    subjects: &[Subject],
    capacities: &[Capacity],
    outcomes: &[Vec<Outcome>],
    baseline: usize,
) -> Vec<Row> {
    let mut rows = Vec::new();
    for (at, subject) in subjects.iter().enumerate() {
        for (column, &capacity) in capacities.iter().enumerate() {
            let cell = &outcomes[at * capacities.len() + column];
            let against = outcomes[baseline * capacities.len() + column].first();
            let row =
                Row::fold(&trace.name, &subject.described(), capacity, cell, trace.has_sizes());
            rows.extend(row.map(|row| Row {
                difference: match (cell.first(), against) {
                    (Some(ours), Some(theirs)) if at != baseline => {
                        Some(Difference::between(ours, theirs))
                    }
                    _ => None,
                },
                ..row
            }));
        }
    }
    rows
}

fn print(
    arguments: &Arguments,
    trace: &Trace,
    rows: &[Row],
    baseline: &Subject,
) -> Result<(), CliError> {
    let file = trace.name.rsplit('/').next().unwrap_or(&trace.name);
    let title =
        format!("{file}: {} requests for {} objects", trace.objects().len(), trace.distinct());
    let mut output = Output::stdout()?;
    if arguments.json {
        for row in rows {
            push_line(output.buffer(), row);
        }
    } else {
        let table = table::table(rows, Some(baseline.named()));
        let recorded = trace.live().map(recorded).unwrap_or_default();
        output.write(format!("{title}\n{recorded}\n{table}").as_bytes())?;
    }
    output.flush()?;
    if let Some(path) = &arguments.svg {
        let written = File::create(path)
            .and_then(|mut file| file.write_all(plot::plot(rows, &title).as_bytes()));
        written.map_err(|source| CliError::Local { path: path.clone(), source })?;
    }
    Ok(())
}

/// How it was when the trace was recorded.
fn recorded(live: &Live) -> String {
    let share = 100.0 * live.hits as f64 / live.requests.max(1) as f64;
    let lost = match live.lost {
        0 => String::new(),
        lost => format!("; {lost} records lost, so the replay is of a part only"),
    };
    format!(
        "recorded from a gateway: {} requests of clients, {share:.1} % of them answered from {} by \
         {}{lost}\n",
        live.requests,
        Capacity::Bytes(live.capacity_bytes),
        live.policy
    )
}

/// Fails where a policy loses more than is allowed; tells each such place.
fn judge(max_loss: Option<f64>, rows: &[Row], baseline: &Subject) -> Result<(), CliError> {
    let Some(max_loss) = max_loss else { return Ok(()) };
    let mut failed = false;
    for row in rows.iter().filter(|row| row.kind != "reference") {
        if let Some(difference) = row.difference
            && -difference.points > max_loss
        {
            failed = true;
            let Row { policy, shown_capacity, .. } = row;
            complain(&format!(
                "{policy} at {shown_capacity}: {:.2} points below {}, {max_loss} are allowed",
                -difference.points,
                baseline.named()
            ));
        }
    }
    if failed { Err(CliError::Told) } else { Ok(()) }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("a number from 0 to 100".to_owned()),
    }
}

fn points(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(points) if (0.0..=100.0).contains(&points) => Ok(points),
        _ => Err("points of a hit ratio, from 0 to 100".to_owned()),
    }
}
