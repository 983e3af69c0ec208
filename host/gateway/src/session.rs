//! One client's connection: who it is and which files it has open.
//!
//! A client's file id stands for a file that is open at the brick, under an id that only one
//! connection to the brick knows. When that connection is lost the file is opened again by its
//! handle; when the client is gone its files are closed at the brick.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use portcullis_core::limits::OPEN_FILES_MAX;
use portcullis_core::{Handle, Status};
use portcullis_transport::Role;
use portcullis_wire::message::{Failure, Verb};
use portcullis_wire::{Reply, Request};
use tokio::time::Instant;

use crate::brick_call::Fault;
use crate::brick_link::BrickSession;
use crate::volume::Volume;

/// A client's connection.
pub(crate) struct Session {
    pub(crate) role: Role,
    volume: Arc<Volume>,
    files: Mutex<Files>,
}

#[derive(Default)]
struct Files {
    opened: u64,
    open: HashMap<u64, Arc<OpenFile>>,
}

/// A file that a client has open.
pub(crate) struct OpenFile {
    handle: Handle,
    at_brick: tokio::sync::Mutex<AtBrick>,
}

/// How the brick knows an open file.
#[derive(Clone, Copy)]
struct AtBrick {
    /// The connection to the brick that the id is of.
    epoch: u64,
    file: u64,
}

impl Session {
    /// A connection without open files.
    pub(crate) fn new(role: Role, volume: Arc<Volume>) -> Self {
        Self { role, volume, files: Mutex::default() }
    }

    /// Opens a file at the brick and gives it an id on this connection.
    pub(crate) async fn open(&self, handle: Handle) -> Result<Reply, Failure> {
        self.may_open(&self.files.lock())?;
        let request = Request::Open { handle };
        let opened = self.volume.brick.call_any(&request).await;
        let (reply, brick) = opened.inspect_err(|failure| self.volume.note(&request, failure))?;
        let Reply::Opened { file, attr } = reply else {
            return Err(self.volume.brick.nonsense(Verb::Open));
        };
        let at_brick = AtBrick { epoch: brick.epoch, file };
        let open = Arc::new(OpenFile { handle, at_brick: tokio::sync::Mutex::new(at_brick) });
        let added = {
            let mut files = self.files.lock();
            // Others may have been opened meanwhile.
            self.may_open(&files).map(|()| {
                files.opened += 1;
                let id = files.opened;
                files.open.insert(id, open);
                id
            })
        };
        match added {
            Ok(file) => Ok(Reply::Opened { file, attr }),
            Err(failure) => {
                release(self.volume.clone(), vec![at_brick]);
                Err(failure)
            }
        }
    }

    /// Closes a file. The client is answered at once: nothing can go wrong at the brick that it
    /// could act on.
    pub(crate) fn release(&self, file: u64) -> Result<Reply, Failure> {
        let open = self.files.lock().open.remove(&file).ok_or_else(|| bad_file(file))?;
        let volume = self.volume.clone();
        tokio::spawn(async move {
            // A read of the same file that is still under way may be opening it again.
            let at_brick = *open.at_brick.lock().await;
            release_all(&volume, &[at_brick]).await;
        });
        Ok(Reply::Released)
    }

    /// The open file of an id.
    pub(crate) fn file(&self, file: u64) -> Result<Arc<OpenFile>, Failure> {
        self.files.lock().open.get(&file).cloned().ok_or_else(|| bad_file(file))
    }

    fn may_open(&self, files: &Files) -> Result<(), Failure> {
        if files.open.len() < OPEN_FILES_MAX {
            return Ok(());
        }
        let detail = format!("this connection has {OPEN_FILES_MAX} files open; close some");
        Err(Failure::new(Status::TooManyOpen, detail))
    }
}

impl OpenFile {
    /// The file's id over a session with an epoch above `lost`; opened again where that session
    /// does not know it yet.
    pub(crate) async fn at_brick(
        &self,
        volume: &Volume,
        lost: u64,
        deadline: Instant,
    ) -> Result<(Arc<BrickSession>, u64), Failure> {
        let mut at_brick = self.at_brick.lock().await;
        let mut lost = lost;
        loop {
            let session = volume.brick.session(lost, deadline).await?;
            if session.epoch == at_brick.epoch {
                return Ok((session, at_brick.file));
            }
            let request = Request::Open { handle: self.handle };
            match volume.brick.call_on(&session, &request, deadline).await {
                Ok(Reply::Opened { file, .. }) => {
                    *at_brick = AtBrick { epoch: session.epoch, file };
                    return Ok((session, file));
                }
                Ok(_) => return Err(volume.brick.nonsense(Verb::Open)),
                Err(Fault::Lost) => lost = session.epoch,
                Err(Fault::Failed(failure)) => {
                    volume.note(&request, &failure);
                    return Err(failure);
                }
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let files = std::mem::take(&mut self.files.get_mut().open);
        let open = files.into_values().filter_map(|open| Some(*open.at_brick.try_lock().ok()?));
        release(self.volume.clone(), open.collect());
    }
}

fn bad_file(file: u64) -> Failure {
    Failure::new(Status::BadFile, format!("{file} is not a file that this connection has open"))
}

/// Closes files at the brick, in the background.
fn release(volume: Arc<Volume>, files: Vec<AtBrick>) {
    if files.is_empty() {
        return;
    }
    // Without a runtime the process is ending, and the brick closes the files by itself.
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move { release_all(&volume, &files).await });
    }
}

async fn release_all(volume: &Volume, files: &[AtBrick]) {
    for at_brick in files {
        // With its connection the brick closed the files of it.
        let Some(session) = volume.brick.current(at_brick.epoch) else { continue };
        let request = Request::Release { file: at_brick.file };
        if let Err(fault) = volume.brick.call_on(&session, &request, volume.brick.deadline()).await
        {
            tracing::debug!(?fault, "a file could not be closed at the brick");
        }
    }
}
