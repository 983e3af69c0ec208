//! Requests to the brick: over whichever session there is, or over one in particular.
//!
//! A request whose session is lost before the first frame of its answer is asked again over the
//! next session, within the same deadline: all that goes through [`BrickLink::call`] and
//! [`BrickLink::list`] means the same on every session. Ids of open files do not, and a mutation
//! must say that it is asked again, so `file_calls`, `reads`, `locks` and `mutate` use
//! [`BrickLink::call_on`], [`BrickLink::open`] and [`BrickLink::begin`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use portcullis_core::Status;
use portcullis_core::limits::READ_FRAME_LEN_BYTES;
use portcullis_transport::call::misplaced;
use portcullis_transport::{CallError, ReplyStream, Sending};
use portcullis_wire::message::{Failure, Verb};
use portcullis_wire::{Reply, ReplyFrame, Request};
use tokio::time::{Instant, timeout, timeout_at};

use crate::brick_link::BrickLink;
use crate::brick_session::BrickSession;

/// Why a request over one session has no answer.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The session is lost; another may answer.
    Lost,
    /// The request failed, or the brick did not answer in time.
    Failed(Failure),
}

/// The frames that answer one request. Dropping it tells the brick to stop.
#[derive(Debug)]
pub(crate) struct BrickStream {
    link: Arc<BrickLink>,
    verb: Verb,
    first: Option<ReplyFrame>,
    frames: ReplyStream,
    counted_bytes: u64,
}

impl BrickLink {
    /// Asks the brick for one message.
    pub(crate) async fn call(
        self: &Arc<Self>,
        request: &Request,
        deadline: Instant,
    ) -> Result<Reply, Failure> {
        Ok(self.call_any(request, deadline).await?.0)
    }

    /// Asks the brick for one message; also tells over which session it came.
    pub(crate) async fn call_any(
        self: &Arc<Self>,
        request: &Request,
        deadline: Instant,
    ) -> Result<(Reply, Arc<BrickSession>), Failure> {
        let (mut stream, session) = self.open_any(request, deadline).await?;
        match stream.first.take() {
            Some(frame) => Ok((self.message(request, frame)?, session)),
            None => Err(self.nonsense(stream.verb)),
        }
    }

    /// Asks the brick for a listing; its first frame has arrived.
    pub(crate) async fn list(self: &Arc<Self>, request: &Request) -> Result<BrickStream, Failure> {
        Ok(self.open_any(request, self.deadline()).await?.0)
    }

    async fn open_any(
        self: &Arc<Self>,
        request: &Request,
        deadline: Instant,
    ) -> Result<(BrickStream, Arc<BrickSession>), Failure> {
        let mut lost = 0;
        loop {
            let session = self.session(lost, deadline).await?;
            match self.open(&session, request, deadline).await {
                Ok(stream) => return Ok((stream, session)),
                Err(Fault::Lost) => lost = session.epoch,
                Err(Fault::Failed(failure)) => return Err(failure),
            }
        }
    }

    /// Asks for one message over this very session.
    pub(crate) async fn call_on(
        self: &Arc<Self>,
        session: &BrickSession,
        request: &Request,
        deadline: Instant,
    ) -> Result<Reply, Fault> {
        let mut stream = self.open(session, request, deadline).await?;
        match stream.first.take() {
            Some(frame) => self.message(request, frame).map_err(Fault::Failed),
            None => Err(Fault::Failed(self.nonsense(stream.verb))),
        }
    }

    /// Sends a request over this very session and waits for the first frame of its answer.
    pub(crate) async fn open(
        self: &Arc<Self>,
        session: &BrickSession,
        request: &Request,
        deadline: Instant,
    ) -> Result<BrickStream, Fault> {
        let verb = request.verb();
        let opened = async {
            let mut stream = self.ask(session, request).await?;
            stream.first = Some(stream.receive().await?);
            Ok(stream)
        };
        let late = |_| Err(Fault::Failed(self.late(verb)));
        timeout_at(deadline, opened).await.unwrap_or_else(late)
    }

    /// Sends a request over this very session; its answer may take any time.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        session: &BrickSession,
        request: &Request,
    ) -> Result<BrickStream, Fault> {
        let sending = self.begin(session, request).await?;
        self.finish(request.verb(), sending)
    }

    /// Begins to send a request whose body follows.
    pub(crate) async fn begin(
        &self,
        session: &BrickSession,
        request: &Request,
    ) -> Result<Sending, Fault> {
        let sending = session.connection.begin(request).await.map_err(|error| self.fault(error))?;
        self.count(request.verb());
        Ok(sending)
    }

    /// Ends a request; what follows is its answer.
    pub(crate) fn finish(
        self: &Arc<Self>,
        verb: Verb,
        sending: Sending,
    ) -> Result<BrickStream, Fault> {
        let frames = sending.finish().map_err(|error| self.fault(error))?;
        Ok(BrickStream { link: self.clone(), verb, first: None, frames, counted_bytes: 0 })
    }

    fn message(&self, request: &Request, frame: ReplyFrame) -> Result<Reply, Failure> {
        match frame {
            ReplyFrame::Reply(reply) if answers(request, &reply) => Ok(reply),
            ReplyFrame::Failure(failure) => Err(failure),
            ReplyFrame::Reply(_) => Err(self.nonsense(request.verb())),
            other => {
                let error = CallError::Protocol(misplaced(&other));
                Err(Failure::new(Status::Io, format!("{}: {error}", self.name)))
            }
        }
    }

    fn fault(&self, error: CallError) -> Fault {
        match error {
            CallError::Lost(_) => Fault::Lost,
            CallError::Failed(failure) => Fault::Failed(failure),
            CallError::Protocol(_) => {
                Fault::Failed(Failure::new(Status::Io, format!("{}: {error}", self.name)))
            }
        }
    }

    /// The failure of a request whose deadline has come.
    pub(crate) fn late(&self, verb: Verb) -> Failure {
        let (name, verb, limit_ms) = (&self.name, verb.name(), self.timeout.as_millis());
        Failure::new(
            Status::Unavailable,
            format!("{name} did not answer a {verb} in {limit_ms} ms"),
        )
    }

    /// The failure for an answer that does not belong to its request.
    pub(crate) fn nonsense(&self, verb: Verb) -> Failure {
        let (name, verb) = (&self.name, verb.name());
        Failure::new(Status::Io, format!("{name} answered a {verb} with something else"))
    }
}

impl BrickStream {
    /// The next frame. After an end or a failure there is none, and the caller stops asking.
    pub(crate) async fn next(&mut self) -> Result<ReplyFrame, Fault> {
        if let Some(frame) = self.first.take() {
            return Ok(frame);
        }
        let limit = self.link.timeout;
        match timeout(limit, self.receive()).await {
            Ok(frame) => frame,
            Err(_) => Err(Fault::Failed(self.link.late(self.verb))),
        }
    }

    /// Safe to cancel: no byte is lost.
    pub(crate) async fn receive(&mut self) -> Result<ReplyFrame, Fault> {
        let frame = self.frames.next().await;
        let received_bytes = self.frames.received_bytes();
        let new_bytes = received_bytes - self.counted_bytes;
        self.counted_bytes = received_bytes;
        self.link.received_bytes.fetch_add(new_bytes, Ordering::Relaxed);
        frame.map_err(|error| self.link.fault(error))
    }

    /// `data`, and what has arrived of the data that follows: together at most a frame, and at
    /// most `len_bytes_max` where `data` is not more.
    pub(crate) fn with_held_data(&mut self, data: Bytes, len_bytes_max: usize) -> Vec<Bytes> {
        let room = len_bytes_max.min(READ_FRAME_LEN_BYTES);
        let mut left_bytes = room.saturating_sub(data.len());
        let mut pieces = vec![data];
        while left_bytes > 0
            && let Some(data) = self.frames.next_data_held(left_bytes)
        {
            left_bytes -= data.len();
            pieces.push(data);
        }
        pieces
    }

    /// The failure that a client is told when the session is lost midway.
    pub(crate) fn lost(&self) -> Failure {
        let (name, verb) = (&self.link.name, self.verb.name());
        Failure::new(
            Status::Unavailable,
            format!("the connection to {name} was lost in the middle of a {verb}"),
        )
    }
}

/// Whether `reply` is of the kind that `request` asks for.
fn answers(request: &Request, reply: &Reply) -> bool {
    matches!(
        (request, reply),
        (Request::Lookup { .. }, Reply::Entry(_))
            | (Request::Getattr { .. }, Reply::Attr(_))
            | (Request::Getattrs { .. }, Reply::Entries(_))
            | (Request::Mutate { .. }, Reply::Mutated { .. })
            | (Request::Readlink { .. }, Reply::Target(_))
            | (Request::Open { .. }, Reply::Opened { .. })
            | (
                Request::Flush { .. }
                    | Request::Release { .. }
                    | Request::ReleaseMany { .. }
                    | Request::Fsync { .. }
                    | Request::Fsyncdir { .. }
                    | Request::Setlk { .. },
                Reply::Done
            )
            | (Request::Lseek { .. }, Reply::Offset { .. })
            | (Request::Getlk { .. }, Reply::Lock(_))
            | (Request::Statfs { .. }, Reply::Statfs(_))
            | (Request::Getxattr { .. } | Request::Listxattr { .. }, Reply::Xattr(_))
    )
}
