//! `floor MOUNTPOINT`: mounts a made-up tree, prints `ready`, and ends when it is unmounted or told
//! to. On SIGUSR1, and at the end, it prints the requests since it was mounted or printed them
//! last.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;
use portcullis_floor::{Floor, Options, Tree};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A mount that serves a made-up tree from memory.
#[derive(Debug, Parser)]
struct Args {
    /// Where to mount it.
    mountpoint: PathBuf,
    /// Files in the root.
    #[arg(long, default_value_t = 0)]
    files: usize,
    /// Directories in the root.
    #[arg(long, default_value_t = 0)]
    dirs: usize,
    /// Files in each of them.
    #[arg(long, default_value_t = 0)]
    per_dir: usize,
    /// The names and attributes of this directory, instead.
    #[arg(long, conflicts_with_all = ["files", "dirs", "per_dir"])]
    like: Option<PathBuf>,
    /// Negotiate POSIX access lists.
    #[arg(long)]
    acl: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let args = Args::parse();
    let tree = match &args.like {
        Some(path) => Tree::like(path).with_context(|| path.display().to_string())?,
        None => Tree::wide(args.files, args.dirs, args.per_dir),
    };
    let handler = |kind| -> Result<Signal> { signal(kind).context("a signal handler") };
    let mut terminate = handler(SignalKind::terminate())?;
    let mut interrupt = handler(SignalKind::interrupt())?;
    let mut report = handler(SignalKind::user_defined1())?;
    let floor = Floor::mount(tree, &args.mountpoint, Options { acl: args.acl })?;
    println!("ready");
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            () = floor.gone() => break,
            _ = report.recv() => println!("{}", floor.take_requests()),
        }
    }
    println!("{}", floor.requests());
    floor.unmount()?;
    Ok(())
}
