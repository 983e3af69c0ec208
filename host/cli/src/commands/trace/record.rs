//! `portcullis trace record`: a trace of a live gateway, for `portcullis policy replay`.
//!
//! What must hold: whatever ends it (time, size, a signal, a lost connection), what was written is a
//! whole file; an existing file is not written over.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use flate2::Compression;
use flate2::write::GzEncoder;
use portcullis_client::recording::Recording;
use portcullis_client::{Address, ClientError};
use portcullis_core::trace::{Header, Record, What};
use portcullis_wire::message::TraceNames;
use serde::Serialize;

use crate::error::{CliError, complain};
use crate::json::push_line;
use crate::output::Output;
use crate::server::Stop;
use crate::session::{Connect, address_parser};
use crate::units::{parse_duration, parse_size, show_bytes};

/// Record what is asked of a gateway; needs the admin identity
///
/// The file tells for each request when it came, its operation, its directory (as a hash), its name,
/// what it touched in the cache, and whether that was there; `portcullis policy replay` reads it.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The gateway: pc://HOST:PORT/
    #[arg(value_parser = address_parser())]
    address: Address,
    /// The file to write, which ends in .pctrace and must not exist
    file: PathBuf,
    #[command(flatten)]
    connect: Connect,
    /// Names as they are, or as hashes by a key that is not kept
    #[arg(long, value_name = "hashed|plain", value_enum, default_value = "hashed")]
    names: Names,
    /// How long to record
    #[arg(long = "for", value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    duration: Duration,
    /// How large the file may become, about
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_size)]
    max_bytes: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Names {
    Hashed,
    Plain,
}

/// What was recorded.
#[derive(Debug, Default, Serialize)]
struct Summary {
    file: String,
    /// Why it ended: `time`, `size`, `signal` or `connection`.
    ended: &'static str,
    bytes: u64,
    records: u64,
    /// Objects that were in the cache when it began.
    residents: u64,
    requests: u64,
    /// Requests that the cache answered.
    hits: u64,
    /// Records that were lost.
    lost: u64,
    duration_ms: u64,
    policy: String,
    capacity_bytes: u64,
}

pub(crate) async fn run(arguments: &Arguments) -> Result<(), CliError> {
    let path = &arguments.file;
    if path.extension().is_none_or(|extension| extension != "pctrace") {
        let file = path.display();
        return Err(CliError::Said(format!("{file}: name a file that ends in .pctrace")));
    }
    let names = match arguments.names {
        Names::Hashed => TraceNames::Hashed,
        Names::Plain => TraceNames::Plain,
    };
    let stop = Stop::install()?;
    let recording = arguments.connect.recording(&arguments.address, names, arguments.duration);
    let mut recording = recording.await?;
    let mut writer = Writer::create(path)?;
    let ended = tokio::select! {
        ended = writer.write_all(&mut recording, arguments.max_bytes) => ended?,
        () = stop.requested() => "signal",
    };
    let summary = writer.finish(path, ended)?;
    if summary.ended == "connection" {
        complain("the connection to the gateway was lost: the trace ends there");
    }
    let mut output = Output::stdout()?;
    if arguments.json {
        push_line(output.buffer(), &summary);
    } else {
        output.write(summary.words().as_bytes())?;
    }
    output.flush()
}

/// The file, and what is read of it on its way there.
struct Writer {
    file: GzEncoder<BufWriter<File>>,
    /// What came and is no whole record yet.
    rest: Vec<u8>,
    has_header: bool,
    summary: Summary,
}

impl Writer {
    fn create(path: &Path) -> Result<Self, CliError> {
        let file = File::create_new(path)
            .map_err(|source| CliError::Local { path: path.to_owned(), source })?;
        Ok(Self {
            file: GzEncoder::new(BufWriter::new(file), Compression::default()),
            rest: Vec::new(),
            has_header: false,
            summary: Summary { file: path.display().to_string(), ..Summary::default() },
        })
    }

    /// Writes what comes until it ends; says why it did.
    async fn write_all(
        &mut self,
        recording: &mut Recording,
        bytes_max: u64,
    ) -> Result<&'static str, CliError> {
        loop {
            match recording.next().await {
                Ok(Some(bytes)) => self.write(&bytes)?,
                Ok(None) => return Ok("time"),
                Err(ClientError::Lost { .. }) if self.has_header => return Ok("connection"),
                Err(error) => return Err(CliError::Connect(error)),
            }
            // What the compressor still holds is little beside this.
            if self.file.get_ref().get_ref().metadata().is_ok_and(|file| file.len() >= bytes_max) {
                return Ok("size");
            }
        }
    }

    /// Writes the whole records of what came.
    fn write(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        self.rest.extend_from_slice(bytes);
        let mut at = 0;
        if !self.has_header {
            let header = Header::take(&self.rest).map_err(unreadable)?;
            let Some((header, len)) = header else { return Ok(()) };
            self.has_header = true;
            (self.summary.policy, self.summary.capacity_bytes) =
                (header.policy, header.capacity_bytes);
            at = len;
        }
        while let Some((record, len)) = Record::take(&self.rest[at..]).map_err(unreadable)? {
            self.summary.note(&record);
            at += len;
        }
        let path = || PathBuf::from(&self.summary.file);
        self.file
            .write_all(&self.rest[..at])
            .map_err(|source| CliError::Local { path: path(), source })?;
        self.rest.drain(..at);
        Ok(())
    }

    fn finish(self, path: &Path, ended: &'static str) -> Result<Summary, CliError> {
        let local = |source| CliError::Local { path: path.to_owned(), source };
        let mut buffer = self.file.finish().map_err(local)?;
        buffer.flush().map_err(local)?;
        let bytes = buffer.get_ref().metadata().map_err(local)?.len();
        Ok(Summary { ended, bytes, ..self.summary })
    }
}

fn unreadable(what: &'static str) -> CliError {
    CliError::Said(format!("the gateway sends something that is no trace: {what}"))
}

impl Summary {
    fn note(&mut self, record: &Record<'_>) {
        self.records += 1;
        self.duration_ms = self.duration_ms.max(record.now_ms.into());
        match record.what {
            What::Resident => self.residents += 1,
            What::Lost => self.lost += record.key,
            _ => {}
        }
        if record.begins {
            self.requests += 1;
            self.hits += u64::from(matches!(record.what, What::Hit | What::Absent));
        }
    }

    fn words(&self) -> String {
        let Self { file, bytes, records, requests, hits, lost, residents, .. } = self;
        let share = 100.0 * *hits as f64 / (*requests).max(1) as f64;
        let lost = match lost {
            0 => "nothing lost".to_owned(),
            lost => format!("{lost} records lost: this machine did not keep up"),
        };
        format!(
            "{file}: {requests} requests in {:.1} s, {share:.1} % answered from the cache; {records} \
             records ({residents} of what was cached before), {}, {lost}\n",
            self.duration_ms as f64 / 1e3,
            show_bytes(*bytes),
        )
    }
}
