//! `portcullis tar`: a tree as a tar archive.
//!
//! A task walks the tree and sends its entries, in order, through a bounded queue; the content of
//! small files is fetched by tasks meanwhile, and here all is written in the order of the walk.
//! Large files are opened ahead and read when it is their turn. What must hold: fetched content
//! that waits for its turn takes at most [`AHEAD_BYTES_MAX`].

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use portcullis_client::{
    Address, Client, ClientError, OpenFile, ReadAhead, Step, Visit, Walk, WalkLimits,
};
use portcullis_core::{Attr, Entry, FileKind};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;

use crate::archive::{Member, push_end, push_headers, push_padding};
use crate::error::{CliError, complain, shown};
use crate::output::Output;
use crate::progress::Progress;
use crate::session::{Connect, address_parser, last_name, resolve};

/// A file up to this size is fetched whole, ahead of its turn.
const SMALL_BYTES_MAX: u64 = 1024 * 1024;
/// Content fetched ahead.
const AHEAD_BYTES_MAX: usize = 32 * 1024 * 1024;
/// What a file counts for at least; with the limit above, this bounds how many are under way.
const SMALL_COST_MIN: u64 = 256 * 1024;
/// Entries that wait to be written.
const QUEUE_LEN_MAX: usize = 1024;

/// Write a tree as a tar archive to standard output
///
/// Paths begin with ./ as those of `tar -C DIR -c .` do, owners are numbers, and times keep their
/// nanoseconds (in pax headers). Sockets are left out with a warning. Where something cannot be
/// read, the archive goes on without it and the exit code is 1.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The tree: pc://HOST:PORT/PATH
    #[arg(value_parser = address_parser())]
    address: Address,
    #[command(flatten)]
    connect: Connect,
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), CliError> {
    let output = Output::stdout()?;
    if output.is_terminal() {
        let refused = "an archive is not written to a terminal: redirect standard output";
        return Err(CliError::Said(refused.into()));
    }
    let address = &arguments.address;
    let client = arguments.connect.client(address).await?;
    let start = resolve(&client, address).await?;
    let name = if start.kind == FileKind::Directory { b"." } else { last_name(address) };
    let walk = Walk::new(client.clone(), start, name, WalkLimits::default());
    let mut items = fetch(client.clone(), walk);
    let progress = Progress::beside_output("tar");
    let mut writer =
        Writer { output, len_bytes: 0, links: HashMap::new(), progress, failed: false };
    while let Some(item) = items.recv().await {
        match item {
            Ok(item) => writer.write(item).await?,
            Err(error) => writer.tell(error)?,
        }
    }
    writer.end()?;
    client.close().await;
    if writer.failed { Err(CliError::Told) } else { Ok(()) }
}

/// An entry on its way into the archive.
struct Item {
    path: Vec<u8>,
    entry: Entry,
    content: Option<Fetching>,
}

/// The content of a file on its way; dropping it stops that.
struct Fetching {
    task: JoinHandle<Result<Content, ClientError>>,
    _room: OwnedSemaphorePermit,
}

/// A file that was opened, with its attributes of that moment.
enum Content {
    /// Small enough to have been read whole.
    Whole(Attr, Bytes),
    /// To be read when it is its turn.
    Open(OpenFile),
}

/// Walks, and fetches what small files contain.
fn fetch(client: Client, mut walk: Walk) -> mpsc::Receiver<Result<Item, CliError>> {
    let (items, receiver) = mpsc::channel(QUEUE_LEN_MAX);
    tokio::spawn(async move {
        let room = Arc::new(Semaphore::new(AHEAD_BYTES_MAX));
        while let Some(step) = walk.next().await {
            let item = match step {
                Step::Failed { path, error } => Err(CliError::request(path)(error)),
                Step::Visit(visit) => item(&client, &room, visit).await,
            };
            if items.send(item).await.is_err() {
                return;
            }
        }
    });
    receiver
}

async fn item(client: &Client, room: &Arc<Semaphore>, visit: Visit<'_>) -> Result<Item, CliError> {
    let failed = || CliError::request(visit.path);
    let mut entry = visit.entry.to_entry();
    let attr = match entry.attr {
        Some(attr) => attr,
        None => client.getattr(&entry.handle).await.map_err(failed())?,
    };
    entry.attr = Some(attr);
    if entry.kind == FileKind::Symlink && entry.target.is_none() {
        entry.target = Some(client.readlink(&entry.handle).await.map_err(failed())?);
    }
    let content = if entry.kind == FileKind::Regular && attr.size_bytes > 0 {
        let cost = attr.size_bytes.clamp(SMALL_COST_MIN, SMALL_BYTES_MAX) as u32;
        let taken = room.clone().acquire_many_owned(cost).await;
        let room = taken.map_err(|error| CliError::Said(error.to_string()))?;
        let (client, handle) = (client.clone(), entry.handle);
        let task = tokio::spawn(async move {
            let file = client.open(&handle).await?;
            let attr = *file.attr();
            if attr.size_bytes > SMALL_BYTES_MAX {
                return Ok(Content::Open(file));
            }
            // One byte more than it has: is it still as long as it was?
            let data = file.read(0, attr.size_bytes as u32 + 1).await?;
            Ok(Content::Whole(attr, data.concat().into()))
        });
        Some(Fetching { task, _room: room })
    } else {
        None
    };
    Ok(Item { path: visit.path.to_vec(), entry, content })
}

struct Writer {
    output: Output,
    len_bytes: u64,
    /// Files of several names that are in the archive, by inode number: where, and how many names
    /// are yet to come.
    links: HashMap<u64, (Vec<u8>, u32)>,
    progress: Progress,
    failed: bool,
}

impl Writer {
    async fn write(&mut self, item: Item) -> Result<(), CliError> {
        let Item { mut path, entry, content } = item;
        let Some(attr) = entry.attr else { return Ok(()) };
        match entry.kind {
            FileKind::Directory => path.push(b'/'),
            FileKind::Socket => {
                let path = shown(&path);
                self.progress.suspend(|| complain(&format!("{path}: a socket, left out")));
                return Ok(());
            }
            _ => {}
        }
        if attr.nlink > 1
            && entry.kind != FileKind::Directory
            && let Some(target) = self.linked(attr.ino)
        {
            return self.headers(&path, &attr, Member::Hardlink { target: &target });
        }
        let written = match (content, &entry.target) {
            (Some(content), _) => self.file(&path, content).await?,
            (None, Some(target)) if entry.kind == FileKind::Symlink => {
                self.headers(&path, &attr, Member::Symlink { target })?;
                true
            }
            (None, _) => {
                self.headers(&path, &attr, Member::File)?;
                true
            }
        };
        if written && attr.nlink > 1 && entry.kind != FileKind::Directory {
            self.links.insert(attr.ino, (path, attr.nlink - 1));
        }
        Ok(())
    }

    /// The first name of a file that is in the archive already.
    fn linked(&mut self, ino: u64) -> Option<Vec<u8>> {
        let (path, names_left) = self.links.get_mut(&ino)?;
        *names_left -= 1;
        if *names_left > 0 {
            return Some(path.clone());
        }
        self.links.remove(&ino).map(|(path, _)| path)
    }

    /// Whether the file came into the archive.
    async fn file(&mut self, path: &[u8], mut content: Fetching) -> Result<bool, CliError> {
        let fetched = (&mut content.task).await;
        let fetched = fetched.map_err(|error| CliError::Said(error.to_string()))?;
        match fetched {
            Ok(Content::Whole(attr, data)) => {
                self.headers(path, &attr, Member::File)?;
                let len = data.len().min(attr.size_bytes as usize);
                self.push(&data[..len])?;
                if data.len() > len {
                    self.warn(&format!("{}: it grew while it was read", shown(path)));
                }
                self.fill(path, len as u64, attr.size_bytes)?;
            }
            Ok(Content::Open(file)) => self.large(path, file).await?,
            Err(error) => {
                self.tell(CliError::request(path)(error))?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn large(&mut self, path: &[u8], file: OpenFile) -> Result<(), CliError> {
        let attr = *file.attr();
        self.headers(path, &attr, Member::File)?;
        let mut content = ReadAhead::new(file);
        let mut written = 0;
        loop {
            match content.next().await {
                Ok(Some(piece)) => {
                    let len = piece.len().min((attr.size_bytes - written) as usize);
                    self.push(&piece[..len])?;
                    self.progress.content(len as u64);
                    written += len as u64;
                    if piece.len() > len {
                        self.warn(&format!("{}: it grew while it was read", shown(path)));
                        break;
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    self.tell(CliError::request(path)(error))?;
                    break;
                }
            }
        }
        self.fill(path, written, attr.size_bytes)
    }

    /// Ends a content of `written` bytes that was announced with `announced`.
    fn fill(&mut self, path: &[u8], written: u64, announced: u64) -> Result<(), CliError> {
        let lacking = announced - written;
        if lacking > 0 {
            let path = shown(path);
            self.warn(&format!("{path}: {lacking} bytes could not be read, zeros in their place"));
        }
        const ZEROS: &[u8] = &[0; 64 * 1024];
        let mut left = lacking;
        while left > 0 {
            let len = left.min(ZEROS.len() as u64);
            self.push(&ZEROS[..len as usize])?;
            left -= len;
        }
        let before = self.output.buffer().len();
        push_padding(self.output.buffer(), announced);
        self.len_bytes += (self.output.buffer().len() - before) as u64;
        self.output.settle()
    }

    fn headers(&mut self, path: &[u8], attr: &Attr, member: Member<'_>) -> Result<(), CliError> {
        self.progress.entry(0);
        let before = self.output.buffer().len();
        if !push_headers(self.output.buffer(), path, attr, member) {
            self.warn(&format!("{}: of a type that no archive holds, left out", shown(path)));
        }
        self.len_bytes += (self.output.buffer().len() - before) as u64;
        self.output.settle()
    }

    fn push(&mut self, data: &[u8]) -> Result<(), CliError> {
        self.len_bytes += data.len() as u64;
        self.output.write(data)
    }

    fn end(&mut self) -> Result<(), CliError> {
        push_end(self.output.buffer(), self.len_bytes);
        self.output.flush()
    }

    /// Tells of a failure, unless it ends all; then the archive is left without its end.
    fn tell(&mut self, error: CliError) -> Result<(), CliError> {
        if error.ends_all() {
            return Err(error);
        }
        self.warn(&error.to_string());
        Ok(())
    }

    fn warn(&mut self, message: &str) {
        self.failed = true;
        self.progress.suspend(|| complain(message));
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        self.task.abort();
    }
}
