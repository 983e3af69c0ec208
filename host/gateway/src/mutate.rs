//! A mutation on its way: passed through to the brick under the client's own number, so that it is
//! applied once however often it is sent; its body is passed on as it arrives.
//!
//! A mutation whose session with the brick is lost is sent again over the next one, marked as a
//! repetition. What came of it is taken in by `effects`.
//!
//! What must hold: a failure that is told was told by the brick, or nothing was sent; otherwise
//! whether anything was changed is not known, and everything that may have changed is forgotten.
//! A late answer is still waited for, because the brick counts on this gateway to take it in.

use std::sync::Arc;

use bytes::Bytes;
use portcullis_core::replay::OpId;
use portcullis_core::volume::{DirId, Told};
use portcullis_core::watch::Change;
use portcullis_core::{Attr, Handle, Status};
use portcullis_transport::Body;
use portcullis_wire::message::{Caller, Failure, Mutated, Mutation};
use portcullis_wire::{Reply, ReplyFrame, Request};
use tokio::time::{Instant, timeout_at};

use crate::brick_call::{BrickStream, Fault};
use crate::brick_link::BrickLink;
use crate::brick_session::BrickSession;
use crate::bricks::Bricks;
use crate::open_file::OpenFile;
use crate::session::Session;
use crate::volume::Volume;

/// How often a directory is made on a brick that says that it does not have it.
const COPIES_MAX: usize = 4;

/// What a client asks to be changed.
pub(crate) struct Asked {
    pub(crate) op: OpId,
    pub(crate) caller: Caller,
    pub(crate) mutation: Mutation,
    pub(crate) files: Files,
    /// The brick that does it.
    pub(crate) brick: Arc<BrickLink>,
    body: Pieces,
}

/// The open files that a mutation goes through.
pub(crate) type Files = [Option<Arc<OpenFile>>; 2];

/// An answer that may still come, the brick that it would come from, and the epoch of the session.
pub(crate) type Late = Option<Box<(BrickStream, Arc<BrickLink>, u64)>>;

/// How a mutation ended.
pub(crate) enum Outcome {
    /// The brick made it.
    Made(Box<Made>),
    /// Nothing was changed.
    Failed(Failure),
    /// Whether anything was changed is not known.
    Unknown(Failure, Late),
}

/// A mutation that was made.
pub(crate) struct Made {
    pub(crate) result: Mutated,
    pub(crate) changes: Vec<Change>,
    pub(crate) dirs: Vec<(Handle, Attr)>,
    /// The session that the answer came over.
    pub(crate) session: Arc<BrickSession>,
    /// It was sent before: the answer may be as old as that.
    pub(crate) repeated: bool,
}

/// The body of a request: what has arrived of it is kept until it is answered, at most
/// `WRITE_LEN_BYTES_MAX`, so that it can be sent again.
struct Pieces {
    body: Body,
    kept: Vec<Bytes>,
}

impl Pieces {
    async fn get(&mut self, number: usize) -> Result<Option<Bytes>, Failure> {
        if let Some(piece) = self.kept.get(number) {
            return Ok(Some(piece.clone()));
        }
        let piece = self.body.next().await?;
        self.kept.extend(piece.clone());
        Ok(piece)
    }
}

impl Asked {
    /// Refuses what the gateway itself can tell is wrong.
    pub(crate) fn new(
        session: &Session,
        op: OpId,
        caller: Caller,
        mutation: Mutation,
        body: Body,
    ) -> Result<Self, Failure> {
        crate::effects::check(&mutation)?;
        let file = |id: Option<u64>| id.map(|id| session.file(id)).transpose();
        let [first, second] = file_ids(&mutation);
        let files = [file(first)?, file(second)?];
        let brick = brick_of(&session.volume.bricks, &mutation, &files)?.clone();
        let mut op = op;
        if op.retry && session.volume.bricks.are_several() {
            op.life = session.volume.bricks.life_of(brick.number as u8, op.life);
        }
        Ok(Self { op, caller, mutation, files, brick, body: Pieces { body, kept: Vec::new() } })
    }

    /// Sends it, and again where the session with the brick is lost, until it is answered.
    pub(crate) async fn send(&mut self, client: &Session) -> Outcome {
        let volume = &*client.volume;
        let mut op = self.op;
        let mut deadline = self.deadline();
        let (mut lost, mut sent, mut copies) = (0, false, 0);
        loop {
            let located = self.located(volume, lost, deadline).await;
            let (session, ids) = match located {
                Ok(located) => located,
                Err(failure) if sent => return Outcome::Unknown(failure, None),
                Err(failure) => return Outcome::Failed(failure),
            };
            // Looked at once it is known which session with the brick it goes to: another one may be
            // with another life of it, which does not know that the client asked it again.
            if !sent && client.is_superseded() {
                let detail = "the client goes on on another connection";
                return Outcome::Failed(Failure::new(Status::Unavailable, detail));
            }
            if !op.retry {
                // The client may have attached in an earlier life of the brick.
                op.life = session.life;
            }
            let mutation = with_file_ids(&self.mutation, ids);
            let request = Request::Mutate { op, caller: self.caller.clone(), mutation };
            let answer = self.attempt(&session, &request, &mut deadline).await;
            match answer {
                Err(Attempt::Refused(failure)) if !sent => return Outcome::Failed(failure),
                Err(Attempt::Refused(failure)) => return Outcome::Unknown(failure, None),
                Err(Attempt::Unknown(failure, stream)) => {
                    return Outcome::Unknown(failure, stream);
                }
                Err(Attempt::Lost) => {
                    (lost, sent, op.retry) = (session.epoch, true, true);
                }
                Ok(ReplyFrame::Reply(Reply::Mutated {
                    result: Mutated::Told(Told::NoCopy),
                    ..
                })) => {
                    if let Err(failure) = self.make_copy(client, &mut copies).await {
                        // Whoever was asked before may be at it yet.
                        return if self.op.retry {
                            Outcome::Unknown(Failure::new(Status::InDoubt, failure.detail), None)
                        } else {
                            Outcome::Failed(failure)
                        };
                    }
                }
                Ok(ReplyFrame::Reply(Reply::Mutated { result, changes, mut dirs })) => {
                    // The attributes of a directory are known at its home.
                    dirs.retain(|(dir, _)| volume.bricks.of(dir).number == self.brick.number);
                    let repeated = op.retry;
                    let made = Made { result, changes, dirs, session, repeated };
                    return Outcome::Made(Box::new(made));
                }
                Ok(ReplyFrame::Failure(failure)) => return self.failed(failure),
                Ok(_) => {
                    let failure = self.brick.nonsense(request.verb());
                    return Outcome::Unknown(failure, None);
                }
            }
        }
    }

    /// The brick has nothing of a directory yet, in which it is to make a name.
    async fn make_copy(&self, client: &Session, copies: &mut usize) -> Result<(), Failure> {
        let dir = self.mutation.dirs()[0].or(match self.mutation {
            Mutation::Tmpfile { dir, .. } => Some(dir),
            _ => None,
        });
        *copies += 1;
        match dir.as_ref().and_then(DirId::of_handle) {
            Some(id) if *copies <= COPIES_MAX => client.volume.need_copy(id, &self.brick).await,
            _ => Err(self.brick.nonsense(self.mutation.verb())),
        }
    }

    /// The brick answers that it failed.
    fn failed(&self, mut failure: Failure) -> Outcome {
        if failure.status == Status::Unavailable && failure.detail.is_empty() {
            let verb = self.mutation.verb().name();
            failure.detail = format!("it is not known whether the {verb} was applied");
        }
        match failure.status {
            Status::Unavailable | Status::InDoubt | Status::Io | Status::BadFrame => {
                Outcome::Unknown(failure, None)
            }
            // Part of the data may have been written.
            _ if !matches!(self.files, [None, None]) => Outcome::Unknown(failure, None),
            _ => Outcome::Failed(failure),
        }
    }

    fn deadline(&self) -> Instant {
        match self.mutation {
            Mutation::Fallocate { .. } | Mutation::CopyFileRange { .. } => {
                self.brick.long_deadline()
            }
            _ => self.brick.deadline(),
        }
    }

    /// The session to ask on, and the ids of the open files there.
    async fn located(
        &self,
        volume: &Volume,
        mut lost: u64,
        deadline: Instant,
    ) -> Result<(Arc<BrickSession>, [u64; 2]), Failure> {
        'session: loop {
            let mut session: Option<Arc<BrickSession>> = None;
            let mut ids = [0; 2];
            for (id, open) in ids.iter_mut().zip(&self.files) {
                let Some(open) = open else { continue };
                let (its, file) = open.at_brick(volume, lost, deadline).await?;
                if session.as_ref().is_some_and(|session| session.epoch != its.epoch) {
                    // The other one is of a session that is lost.
                    lost = lost.max(its.epoch - 1);
                    continue 'session;
                }
                session = Some(its);
                *id = file;
            }
            return match session {
                Some(session) => Ok((session, ids)),
                None => Ok((self.brick.session(lost, deadline).await?, ids)),
            };
        }
    }

    /// Sends it over this very session and waits for the answer.
    async fn attempt(
        &mut self,
        session: &BrickSession,
        request: &Request,
        deadline: &mut Instant,
    ) -> Result<ReplyFrame, Attempt> {
        let verb = request.verb();
        let brick = self.brick.clone();
        let late = |_| Attempt::Unknown(brick.late(verb), None);
        let sending = timeout_at(*deadline, brick.begin(session, request)).await;
        let mut sending = sending.map_err(late)?.map_err(|fault| match fault {
            Fault::Lost => Attempt::Lost,
            // It was not sent.
            Fault::Failed(failure) => Attempt::Refused(failure),
        })?;
        if request.body_len_bytes() > 0 {
            let mut number = 0;
            loop {
                let piece = self.body.get(number).await;
                let piece = piece.map_err(|failure| Attempt::Unknown(failure, None))?;
                let Some(piece) = piece else { break };
                number += 1;
                *deadline = (*deadline).max(self.deadline());
                let passed_on = timeout_at(*deadline, sending.piece(piece)).await.map_err(late)?;
                passed_on.map_err(|_| Attempt::Lost)?;
            }
        }
        let mut stream = brick.finish(verb, sending)?;
        match timeout_at(*deadline, stream.receive()).await {
            Ok(frame) => Ok(frame?),
            Err(_) => Err(Attempt::Unknown(
                brick.late(verb),
                Some(Box::new((stream, brick, session.epoch))),
            )),
        }
    }
}

/// Why an attempt brought no answer of the brick.
enum Attempt {
    Lost,
    /// It was not sent.
    Refused(Failure),
    Unknown(Failure, Late),
}

impl From<Fault> for Attempt {
    /// Of a request that was sent.
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Lost => Self::Lost,
            Fault::Failed(failure) => Self::Unknown(failure, None),
        }
    }
}

/// The brick that carries a mutation out, where it concerns one.
fn brick_of<'a>(
    bricks: &'a Bricks,
    mutation: &Mutation,
    files: &Files,
) -> Result<&'a Arc<BrickLink>, Failure> {
    let mut of_files = files.iter().flatten().map(|open| bricks.of(&open.handle));
    if let Some(brick) = of_files.next() {
        if of_files.any(|other| other.number != brick.number) {
            // Then kernels copy by reading and writing.
            let detail = "the files are on different bricks";
            return Err(Failure::new(Status::CrossDevice, detail));
        }
        return Ok(brick);
    }
    Ok(match mutation {
        Mutation::Create { dir, name, .. }
        | Mutation::Mkdir { dir, name, .. }
        | Mutation::Mknod { dir, name, .. }
        | Mutation::Symlink { dir, name, .. }
        | Mutation::Link { dir, name, .. }
        | Mutation::Unlink { dir, name }
        | Mutation::Rmdir { dir, name }
        | Mutation::Rename { dir, name, .. } => bricks.arbiter(dir, name),
        Mutation::Tmpfile { dir, .. } => bricks.of(dir),
        Mutation::Setattr { handle, .. }
        | Mutation::Setxattr { handle, .. }
        | Mutation::Removexattr { handle, .. } => bricks.of(handle),
        // These have files, or come from gateways only.
        Mutation::Write { .. }
        | Mutation::Fallocate { .. }
        | Mutation::CopyFileRange { .. }
        | Mutation::Volume(_)
        | Mutation::Recall => bricks.first(),
    })
}

/// The open files that a mutation goes through, by the client's ids.
fn file_ids(mutation: &Mutation) -> [Option<u64>; 2] {
    match mutation {
        Mutation::Write { file, .. } | Mutation::Fallocate { file, .. } => [Some(*file), None],
        Mutation::CopyFileRange { file, to_file, .. } => [Some(*file), Some(*to_file)],
        Mutation::Setattr { file, .. } if *file != 0 => [Some(*file), None],
        _ => [None, None],
    }
}

/// The same with the brick's ids.
fn with_file_ids(mutation: &Mutation, [first, second]: [u64; 2]) -> Mutation {
    let mut mutation = mutation.clone();
    match &mut mutation {
        Mutation::Write { file, .. } | Mutation::Fallocate { file, .. } => *file = first,
        Mutation::CopyFileRange { file, to_file, .. } => (*file, *to_file) = (first, second),
        Mutation::Setattr { file, .. } if *file != 0 => *file = first,
        _ => {}
    }
    mutation
}
