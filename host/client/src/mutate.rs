//! Mutations: asked once, or again after a lost connection, and applied once.
//!
//! A mutation runs to its end in a task of its own, also where nobody waits for it any longer: it
//! may have been applied, and what it changed has to be forgotten here, since the gateway tells
//! everybody but the one who asked. Where what came of it stays unknown, everything it may have
//! changed is forgotten.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use portcullis_core::watch::Change;
use portcullis_core::{Attr, Entry, Handle, Status};
use portcullis_transport::CallError;
use portcullis_wire::message::{Caller, Failure, Mutated, Mutation};
use portcullis_wire::{Reply, ReplyFrame, Request};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::error::ClientError;
use crate::link::{Link, is_away};
use crate::open_file::{OpenFile, Opening};
use crate::session::Session;

/// How much longer a mutation goes on when nobody waits for it any more.
const LINGER_MS: u64 = 30_000;
/// How often a mutation is asked again because a server has too much to do.
const REFUSED_MAX: u32 = 50;

/// What came of a mutation, and what it made untrue. Everybody else who caches was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed<T> {
    /// What came of it.
    pub value: T,
    /// What is no longer true.
    pub changes: Vec<Change>,
    /// What the directories of the names that changed are like since, where that is known.
    pub dirs: Vec<(Handle, Attr)>,
}

impl<T> Changed<T> {
    /// What came of it, apart from what it made untrue.
    pub(crate) fn split(self) -> (T, Changed<()>) {
        (self.value, Changed { value: (), changes: self.changes, dirs: self.dirs })
    }

    pub(crate) fn map<U>(self, map: impl FnOnce(T) -> U) -> Changed<U> {
        Changed { value: map(self.value), changes: self.changes, dirs: self.dirs }
    }
}

/// A mutation to be asked for.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) caller: Caller,
    /// Ids of open files are filled in for each connection.
    pub(crate) mutation: Mutation,
    pub(crate) body: Vec<Bytes>,
    /// The open file it is done through, and for a copy the one that is written.
    pub(crate) file: Option<Arc<Opening>>,
    pub(crate) to_file: Option<Arc<Opening>>,
}

/// What has gone wrong with one mutation so far.
#[derive(Debug, Default)]
struct Tries {
    refused: u32,
}

/// What to do about an error.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// It is not known whether it was applied: ask again, by the same number.
    AskAgain,
    /// It was not applied, and may be when it is asked once more.
    Refused,
    /// It stays as it is.
    Final,
}

impl Tries {
    fn judge(&mut self, error: &CallError, has_file: bool) -> Verdict {
        match error {
            CallError::Lost(_) => Verdict::AskAgain,
            CallError::Failed(failure) => match failure.status {
                Status::Unavailable => Verdict::AskAgain,
                Status::Busy | Status::BadFile if self.refused < REFUSED_MAX => {
                    self.refused += if failure.status == Status::Busy { 1 } else { REFUSED_MAX };
                    let is_id = failure.status == Status::BadFile;
                    if is_id && !has_file { Verdict::Final } else { Verdict::Refused }
                }
                _ => Verdict::Final,
            },
            CallError::Protocol(_) => Verdict::Final,
        }
    }
}

pub(crate) fn given_up() -> ClientError {
    Failure::new(Status::Interrupted, "nobody waits for it any more").into()
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Applied {
    pub(crate) result: Mutated,
    pub(crate) changes: Vec<Change>,
    pub(crate) dirs: Vec<(Handle, Attr)>,
    /// The file that a creation opened.
    pub(crate) opened: Option<OpenFile>,
}

impl Link {
    /// Has a mutation carried out.
    pub(crate) async fn mutate(self: &Arc<Self>, ask: Ask) -> Result<Applied, ClientError> {
        let (told, answer) = oneshot::channel();
        let involved = ask.involved();
        let link = self.clone();
        if matches!(ask.mutation, Mutation::Unlink { .. } | Mutation::Rename { .. }) {
            self.flush_releases();
        }
        tokio::spawn(async move { link.carry_out(ask, told).await });
        let answered = self.within(async {
            answer.await.unwrap_or_else(|_| {
                Err(Failure::new(Status::Io, "the mutation was given up").into())
            })
        });
        let result = answered.await;
        // It goes on, and may be applied at any time.
        if let Err(ClientError::Timeout { .. }) = &result {
            self.forget(involved).await;
        }
        result
    }

    async fn carry_out(
        self: Arc<Self>,
        ask: Ask,
        mut told: oneshot::Sender<Result<Applied, ClientError>>,
    ) {
        let involved = ask.involved();
        let is_unheard = AtomicBool::new(false);
        let asked = {
            let alone = async {
                told.closed().await;
                is_unheard.store(true, Ordering::Relaxed);
                sleep(Duration::from_millis(LINGER_MS)).await;
            };
            tokio::select! {
                asked = self.ask_until_answered(ask, &is_unheard) => Some(asked),
                () = alone => None,
            }
        };
        let unheard = match asked {
            Some(Ok(applied)) => {
                let changes = applied.changes.clone();
                told.send(Ok(applied)).is_err().then_some(changes)
            }
            Some(Err((error, is_certain))) => {
                if !is_certain {
                    self.forget(involved.clone()).await;
                }
                let _ = told.send(Err(error));
                None
            }
            None => Some(involved),
        };
        if let Some(changes) = unheard {
            self.forget(changes).await;
        }
    }

    /// Asks until there is an answer, but not again where nobody would hear it. An error comes with
    /// whether it is certain that nothing was applied.
    async fn ask_until_answered(
        self: &Arc<Self>,
        ask: Ask,
        is_unheard: &AtomicBool,
    ) -> Result<Applied, (ClientError, bool)> {
        let mut operation = self.operations.begin();
        let mut tries = Tries::default();
        let (mut life, mut sent) = (None, false);
        loop {
            let (session, fresh) = self.live().await.map_err(|error| (error, !sent))?;
            if is_unheard.load(Ordering::Relaxed) {
                return Err((given_up(), !sent));
            }
            let mutation = match ask.on(&session).await {
                Ok(mutation) => mutation,
                Err(CallError::Lost(_)) => continue,
                Err(error) => return Err((self.explain(error), !sent)),
            };
            let op = operation.id(*life.get_or_insert(session.life()), sent);
            let request = Request::Mutate { op, caller: ask.caller.clone(), mutation };
            let call = session.connection.call_with(&request, &ask.body).await;
            let was_sent = std::mem::replace(&mut sent, true);
            let error = match call {
                Ok(Reply::Mutated { result, changes, dirs }) => {
                    let opened = self.opened(&ask, &result, &session);
                    return Ok(Applied { result, changes, dirs, opened });
                }
                Ok(other) => return Err((self.misplaced(&ReplyFrame::Reply(other)), false)),
                Err(CallError::Lost(_)) if !fresh => continue,
                Err(error) => error,
            };
            match tries.judge(&error, ask.file.is_some()) {
                Verdict::AskAgain if self.persists() => self.pause().await,
                Verdict::Refused => {
                    ask.reopen().await;
                    self.pause().await;
                    if !was_sent {
                        // Asked by the same number it would get the same answer.
                        (operation, sent) = (self.operations.begin(), false);
                    }
                }
                Verdict::AskAgain | Verdict::Final => {
                    let is_certain = matches!(&error, CallError::Failed(failure)
                        if failure.status != Status::InDoubt)
                        && !is_away(&error);
                    return Err((self.explain(error), is_certain));
                }
            }
        }
    }

    /// The file that a creation opened.
    fn opened(
        self: &Arc<Self>,
        ask: &Ask,
        result: &Mutated,
        session: &Session,
    ) -> Option<OpenFile> {
        match result {
            Mutated::Created { entry, file } => Some(OpenFile::created(
                self.clone(),
                entry,
                ask.mutation_flags(),
                *file,
                session.epoch,
            )),
            _ => None,
        }
    }
}

impl Ask {
    /// A mutation without open files and without a body.
    pub(crate) fn new(caller: Caller, mutation: Mutation) -> Self {
        Self { caller, mutation, body: Vec::new(), file: None, to_file: None }
    }

    /// The mutation with the ids that its open files have on the connection of `session`.
    async fn on(&self, session: &Arc<Session>) -> Result<Mutation, CallError> {
        let mut mutation = self.mutation.clone();
        if let Some(opening) = &self.file {
            let id = opening.id_on(session).await?;
            match &mut mutation {
                Mutation::Write { file, .. }
                | Mutation::Fallocate { file, .. }
                | Mutation::Setattr { file, .. }
                | Mutation::CopyFileRange { file, .. } => *file = id,
                _ => {}
            }
        }
        if let (Some(opening), Mutation::CopyFileRange { to_file, .. }) =
            (&self.to_file, &mut mutation)
        {
            *to_file = opening.id_on(session).await?;
        }
        Ok(mutation)
    }

    /// Lets its files be opened again before they are used.
    async fn reopen(&self) {
        for opening in [&self.file, &self.to_file].into_iter().flatten() {
            opening.forget_id().await;
        }
    }

    fn mutation_flags(&self) -> u32 {
        match &self.mutation {
            Mutation::Create { flags, .. } | Mutation::Tmpfile { flags, .. } => *flags,
            _ => 0,
        }
    }

    /// Everything that this may have changed.
    fn involved(&self) -> Vec<Change> {
        let attr = |handle| Change::Attr { handle };
        match &self.mutation {
            Mutation::Create { dir, name, .. }
            | Mutation::Mkdir { dir, name, .. }
            | Mutation::Mknod { dir, name, .. }
            | Mutation::Symlink { dir, name, .. } => {
                vec![Change::Name { dir: *dir, name: name.clone() }, attr(*dir)]
            }
            Mutation::Link { handle, dir, name } => {
                let name = Change::Name { dir: *dir, name: name.clone() };
                vec![name, attr(*dir), attr(*handle)]
            }
            // What the names stood for is not known here.
            Mutation::Unlink { .. } | Mutation::Rmdir { .. } | Mutation::Rename { .. } => {
                vec![Change::All]
            }
            Mutation::Setattr { handle, .. }
            | Mutation::Setxattr { handle, .. }
            | Mutation::Removexattr { handle, .. } => vec![attr(*handle)],
            Mutation::Tmpfile { .. } => Vec::new(),
            // From gateways to bricks only.
            Mutation::Volume(_) | Mutation::Recall => Vec::new(),
            Mutation::Write { .. } | Mutation::Fallocate { .. } => {
                self.file.iter().map(|file| attr(*file.handle())).collect()
            }
            Mutation::CopyFileRange { .. } => {
                self.to_file.iter().map(|file| attr(*file.handle())).collect()
            }
        }
    }
}

impl Applied {
    /// The result of a mutation that has none to tell.
    pub(crate) fn whole(self) -> Changed<Mutated> {
        Changed { value: self.result, changes: self.changes, dirs: self.dirs }
    }

    /// The file that was made, open; `None` where nothing was.
    pub(crate) fn into_created(self) -> Option<Changed<(Entry, OpenFile)>> {
        match (self.result, self.opened) {
            (Mutated::Created { entry, .. }, Some(file)) => {
                Some(Changed { value: (entry, file), changes: self.changes, dirs: self.dirs })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(status: Status) -> CallError {
        Failure::from(status).into()
    }

    #[test]
    fn a_server_that_is_away_is_asked_again_and_one_that_will_never_know_is_not() {
        let mut tries = Tries::default();
        for _ in 0..100 {
            let lost = CallError::Lost(String::new());
            assert_eq!(tries.judge(&failed(Status::Unavailable), false), Verdict::AskAgain);
            assert_eq!(tries.judge(&lost, false), Verdict::AskAgain);
        }
        assert_eq!(tries.judge(&failed(Status::InDoubt), false), Verdict::Final);
    }

    #[test]
    fn what_was_refused_is_asked_anew_but_not_for_ever() {
        let mut tries = Tries::default();
        let busy = failed(Status::Busy);
        let again = (0..1000).take_while(|_| tries.judge(&busy, false) == Verdict::Refused);
        assert_eq!(again.count(), REFUSED_MAX as usize);
        let bad_file = failed(Status::BadFile);
        let mut tries = Tries::default();
        assert_eq!(tries.judge(&bad_file, true), Verdict::Refused);
        assert_eq!(tries.judge(&bad_file, true), Verdict::Final, "opened anew");
        let mut tries = Tries::default();
        assert_eq!(tries.judge(&bad_file, false), Verdict::Final, "no file");
        assert_eq!(tries.judge(&failed(Status::Exists), true), Verdict::Final);
    }
}
