//! What an operation on several bricks asks of them: the steps are a state machine's
//! (`portcullis_core::volume::steps`), the way there and back is here.
//!
//! An ask whose session is lost is sent again over the next one under the same number. What must hold:
//! what bricks say was changed is kept, whatever comes of the operation; where an answer is missing
//! the machine is told so, and never that nothing was done.

use std::sync::Arc;

use portcullis_core::replay::OpId;
use portcullis_core::volume::steps::Call;
use portcullis_core::volume::{Ask, MemberId, Told};
use portcullis_core::watch::Change;
use portcullis_core::{Attr, Handle, Status};
use portcullis_wire::message::{Caller, Failure, Mutated, Mutation};
use portcullis_wire::{Reply, Request};
use tokio::task::JoinSet;

use crate::brick_call::Fault;
use crate::volume::Volume;

/// One operation on several bricks, on somebody's behalf.
pub(crate) struct Asks {
    pub(crate) volume: Arc<Volume>,
    pub(crate) caller: Caller,
    /// What is no longer true.
    pub(crate) changes: Vec<Change>,
    /// What directories are like since.
    pub(crate) dirs: Vec<(Handle, Attr)>,
    /// What bricks said of what they refused, the last for each status.
    failures: Vec<Failure>,
}

/// What a brick answered.
#[derive(Clone)]
pub(crate) struct Answer {
    pub(crate) told: Told,
    changes: Vec<Change>,
    dirs: Vec<(Handle, Attr)>,
    failure: Option<Failure>,
}

impl Asks {
    /// Nothing is asked yet.
    pub(crate) fn new(volume: &Arc<Volume>, caller: Caller) -> Self {
        let volume = volume.clone();
        let (changes, dirs, failures) = (Vec::new(), Vec::new(), Vec::new());
        Self { volume, caller, changes, dirs, failures }
    }

    /// Asks one brick, under a number of its own or under the client's.
    pub(crate) async fn ask(&mut self, member: MemberId, ask: Ask, op: Option<OpId>) -> Told {
        let volume = self.volume.clone();
        let answer = match ask {
            Ask::Touch { id } => volume.touch(id).await,
            ask => volume.ask_member(member, ask, op, &self.caller).await,
        };
        self.take_in(answer)
    }

    /// Asks several at once; answers in the same order.
    pub(crate) async fn ask_all(&mut self, calls: Vec<Call>) -> Vec<Told> {
        if calls.len() <= 1 {
            let mut told = Vec::with_capacity(1);
            for Call { member, ask } in calls {
                told.push(self.ask(member, ask, None).await);
            }
            return told;
        }
        let mut asking = JoinSet::new();
        for (at, Call { member, ask }) in calls.into_iter().enumerate() {
            let (volume, caller) = (self.volume.clone(), self.caller.clone());
            asking.spawn(async move {
                let answer = match ask {
                    Ask::Touch { id } => volume.touch(id).await,
                    ask => volume.ask_member(member, ask, None, &caller).await,
                };
                (at, answer)
            });
        }
        let mut answers = asking.join_all().await;
        answers.sort_by_key(|(at, _)| *at);
        answers.into_iter().map(|(_, answer)| self.take_in(answer)).collect()
    }

    pub(crate) fn take_in(&mut self, answer: Answer) -> Told {
        self.changes.extend(answer.changes);
        self.dirs.retain(|(dir, _)| !answer.dirs.iter().any(|(later, _)| later == dir));
        self.dirs.extend(answer.dirs);
        if let Some(failure) = answer.failure {
            self.failures.retain(|earlier| earlier.status != failure.status);
            self.failures.push(failure);
        }
        answer.told
    }

    /// The failure of this status, in the words of the brick that told it.
    pub(crate) fn failure(&self, status: Status) -> Failure {
        let told = self.failures.iter().find(|failure| failure.status == status);
        told.cloned().unwrap_or_else(|| status.into())
    }

    /// Why an answer is missing.
    pub(crate) fn doubt(&self) -> Failure {
        self.failures.last().cloned().unwrap_or_else(|| Status::InDoubt.into())
    }
}

impl Volume {
    /// Asks one brick, until it has answered or its deadline has come.
    pub(crate) async fn ask_member(
        self: &Arc<Self>,
        member: MemberId,
        ask: Ask,
        op: Option<OpId>,
        caller: &Caller,
    ) -> Answer {
        let brick = self.bricks.numbered(member).clone();
        let deadline = brick.deadline();
        let own = self.own_ops.begin();
        let mut op = op.unwrap_or_else(|| own.id());
        let (mut lost, mut sent) = (0, false);
        loop {
            let session = match brick.session(lost, deadline).await {
                Ok(session) => session,
                Err(failure) => return Answer::of(failure, sent),
            };
            if !op.retry {
                op.life = session.life;
            }
            let mutation = Mutation::Volume(ask.clone());
            let request = Request::Mutate { op, caller: caller.clone(), mutation };
            match brick.call_on(&session, &request, deadline).await {
                Ok(Reply::Mutated { result: Mutated::Told(told), mut changes, mut dirs }) => {
                    dirs.retain(|(dir, _)| self.bricks.of(dir).number == brick.number);
                    if is_about_empty_copy(&ask) {
                        changes.clear();
                    }
                    return Answer { told, changes, dirs, failure: None };
                }
                Ok(_) => return Answer::of(brick.nonsense(request.verb()), true),
                Err(Fault::Lost) => (lost, sent, op.retry) = (session.epoch, true, true),
                Err(Fault::Failed(failure)) => {
                    // Anything else the brick told of the first time that it was asked.
                    let is_open = matches!(
                        failure.status,
                        Status::Unavailable | Status::InDoubt | Status::Io | Status::BadFrame
                    );
                    return Answer::of(failure, is_open);
                }
            }
        }
    }
}

/// Whether an ask tells others to look for names in a copy that is new. Who asks knows that there are
/// none, and where another gateway was faster, was told so by then.
fn is_about_empty_copy(ask: &Ask) -> bool {
    matches!(ask, Ask::Enlist { .. } | Ask::MakeCopy { .. })
}

impl Answer {
    /// Nobody knows whether it was done.
    pub(crate) fn lost() -> Self {
        Self::of(Status::Unavailable.into(), true)
    }

    /// `is_open`: nobody knows whether it was done.
    fn of(failure: Failure, is_open: bool) -> Self {
        let told = if is_open { Told::Lost } else { Told::Failed(failure.status) };
        Self { told, changes: Vec::new(), dirs: Vec::new(), failure: Some(failure) }
    }
}
