//! `portcullis mount`: a volume, or a directory of it, as a file system of this machine.
//!
//! In the background the command runs twice: this process starts another one of itself
//! (`--detached`), waits for its `ready` on a pipe and ends; the other one gives up terminal,
//! working directory and standard streams once it is mounted. An error before that goes to the
//! standard error that both share, and its exit code becomes ours.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{self, Stdio};

use portcullis_client::mount::{self, MountError, MountOptions};
use portcullis_client::{Address, ClientOptions};
use portcullis_core::prefetch::PrefetchChoice;

use crate::error::{CliError, complain};
use crate::server::{Stop, print_line};
use crate::session::{Connect, address_parser};

/// Mount a volume, or a directory of it
///
/// Goes to the background once the mount is usable; SIGTERM to it, or umount, ends it.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// What to mount: pc://HOST:PORT/PATH
    #[arg(value_parser = address_parser())]
    address: Address,
    /// Where to mount it: an existing directory
    mountpoint: PathBuf,
    #[command(flatten)]
    connect: Connect,
    /// Stay in the foreground; print `ready MOUNTPOINT` once it is usable
    #[arg(long)]
    foreground: bool,
    /// Options, separated by commas: ro, noexec, allow_other, acl, timeout=SECONDS (0: wait for
    /// ever), attr_ttl_ms=N, cache=BYTES, contents=BYTES, prefetch=none|crawl, fsname=TEXT
    #[arg(short = 'o', value_name = "OPT,...")]
    options: Vec<String>,
    /// What is listed before it is asked for, as -o prefetch [default: crawl]
    #[arg(long, value_name = "none|crawl")]
    prefetch: Option<PrefetchChoice>,
    /// Where the log of a mount in the background goes, appended; nowhere by default
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// The process in the background
    #[arg(long, hide = true)]
    detached: bool,
}

/// Starts the process in the background, if there is to be one, and waits until its mount is
/// usable. Gives the arguments back where the mount is to be served by this process.
pub(crate) fn detach(arguments: Arguments) -> Result<Option<Arguments>, CliError> {
    if arguments.foreground || arguments.detached {
        return Ok(Some(arguments));
    }
    // What is wrong with them is better said before another process begins.
    arguments.mount_options()?;
    let failed =
        |source| CliError::System { what: "cannot start a process in the background", source };
    let mut given = std::env::args_os().skip(1);
    let command: Vec<OsString> = given.by_ref().take(1).collect();
    let mut child = process::Command::new(std::env::current_exe().map_err(failed)?)
        .args(command)
        .arg("--detached")
        .args(given)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line).map_err(failed)?;
    }
    if line.starts_with("ready ") {
        return Ok(None);
    }
    let status = child.wait().map_err(failed)?;
    if status.code().is_none() {
        complain(&format!("the process in the background ended: {status}"));
    }
    // Otherwise it has said why on the standard error that it shares with us.
    Err(CliError::Told)
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), CliError> {
    let options = arguments.mount_options()?;
    let log = arguments.open_log()?;
    if arguments.detached {
        // Fails where we lead a process group already, and so have no terminal to lose.
        let _ = rustix::process::setsid();
    }
    let stop = Stop::install()?;
    let given = arguments.connect.options();
    let request_timeout_ms = options.timeout_ms.unwrap_or(given.request_timeout_ms);
    let contents = options.content_bytes > 0;
    let watching = ClientOptions { request_timeout_ms, watch: true, acl: options.acl, contents };
    let client = arguments.connect.client_with(&arguments.address, watching).await?;
    let (mountpoint, detached) = (arguments.mountpoint.clone(), arguments.detached);
    let on_ready = move || {
        let ready = format!("ready {}", mountpoint.display());
        let told = if detached { let_go(log, &ready) } else { print_line(&ready) };
        if let Err(error) = told {
            tracing::warn!(%error, "mounted, but could not say so");
        }
    };
    let path = arguments.address.path();
    let mounted = mount::run(
        client.clone(),
        path,
        &arguments.mountpoint,
        &options,
        on_ready,
        stop.requested(),
    );
    mounted.await.map_err(|error| match error {
        // It says what, but not of which directory.
        MountError::Client(error) => CliError::request(arguments.address.given())(error),
        error => error.into(),
    })?;
    client.close().await;
    Ok(())
}

/// Says that it is ready, and gives up all that ties this process to where it was started.
fn let_go(log: File, ready: &str) -> Result<(), CliError> {
    let failed = |error: rustix::io::Errno| CliError::Output(error.into());
    rustix::process::chdir("/").map_err(failed)?;
    rustix::stdio::dup2_stderr(&log).map_err(failed)?;
    print_line(ready)?;
    rustix::stdio::dup2_stdout(&log).map_err(failed)
}

impl Arguments {
    /// Whether a log of what goes well has anywhere to go.
    pub(crate) fn is_logged(&self) -> bool {
        !self.detached || self.log.is_some()
    }

    fn mount_options(&self) -> Result<MountOptions, CliError> {
        let mut options = MountOptions::default();
        for list in &self.options {
            options.apply(list)?;
        }
        options.prefetch = self.prefetch.unwrap_or(options.prefetch);
        Ok(options)
    }

    fn open_log(&self) -> Result<File, CliError> {
        let path = self.log.clone().unwrap_or_else(|| "/dev/null".into());
        File::options()
            .append(true)
            .create(true)
            .open(&path)
            .map_err(|source| CliError::Local { path, source })
    }
}
