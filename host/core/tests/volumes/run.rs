//! An operation under way, as a gateway leads it.

use portcullis_core::Status;
use portcullis_core::volume::{
    Ask, Asked, Call, DirId, Duty, End, MemberId, Next, Operation, Place, Steps, Told, TxId,
};

use crate::member::Request;

/// What a gateway is asked to do.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// open(2) with `O_CREAT | O_EXCL`.
    Create(Place),
    /// chmod(2) of a spread directory.
    Chmod { tx: TxId, id: DirId, mode: u32 },
    /// What core leads.
    Volume(Operation),
}

/// Requests, and the members that they go to.
pub(crate) type Batch = Vec<(MemberId, Request)>;

/// What comes next.
pub(crate) enum Then {
    Ask(Batch),
    End { result: Result<(), Status>, after: Batch },
}

enum Stage {
    /// The file is asked for.
    Creating,
    /// Its directory is to be copied first.
    Copying(Steps),
    /// The home of its directory is told.
    Touching,
    /// An intent is asked for.
    Marking,
    /// The attributes are changed at home.
    Setting,
    /// And then on the copies.
    Refreshing(Steps, Result<(), Status>),
    /// Core knows.
    Steps(Steps),
}

pub(crate) struct Run {
    pub(crate) op: Op,
    /// It was asked before, and whoever was may be at it yet.
    is_again: bool,
    stage: Stage,
}

impl Run {
    /// An operation, and what it asks first.
    pub(crate) fn begin(op: Op, asked: Asked) -> (Self, Then) {
        let (stage, then) = match &op {
            Op::Create(place) => (Stage::Creating, create(place)),
            Op::Chmod { tx, id, .. } => {
                let mark = Ask::Mark { tx: *tx, id: *id };
                (Stage::Marking, ask(id.home(), Request::Ask(mark)))
            }
            Op::Volume(operation) => {
                let (steps, next) = Steps::begin_asked(operation.clone(), Some(asked));
                (Stage::Steps(steps), then(next))
            }
        };
        (Self { op, is_again: asked.is_again, stage }, then)
    }

    /// The answers to what was asked.
    pub(crate) fn told(&mut self, mut told: Vec<Told>) -> Then {
        let first = told.first().cloned();
        match (&mut self.stage, &self.op) {
            (Stage::Steps(steps), _) => then(steps.told(told)),
            (Stage::Refreshing(steps, result), _) => match then(steps.told(told)) {
                Then::End { after, .. } => Then::End { result: *result, after },
                asks => asks,
            },
            (Stage::Copying(steps), Op::Create(place)) => match then(steps.told(told)) {
                Then::End { result: Ok(()), .. } => {
                    self.stage = Stage::Creating;
                    create(place)
                }
                Then::End { .. } if self.is_again => end(Err(Status::InDoubt)),
                other => other,
            },
            (Stage::Creating, Op::Create(place)) => match (first, DirId::of_handle(&place.dir)) {
                (Some(Told::Made(_)), Some(id)) if id.home() != place.arbiter() => {
                    self.stage = Stage::Touching;
                    ask(id.home(), Request::Ask(Ask::Touch { id }))
                }
                (Some(Told::Made(_)), _) => end(Ok(())),
                (Some(Told::NoCopy), Some(id)) => {
                    let operation = Operation::EnsureCopy { id, member: place.arbiter() };
                    let (steps, next) = Steps::begin(operation);
                    self.stage = Stage::Copying(steps);
                    then(next)
                }
                (other, _) => end(Err(failure(other))),
            },
            (Stage::Touching, _) => end(Ok(())),
            (Stage::Marking, Op::Chmod { id, mode, .. }) => match first {
                Some(Told::Done) => {
                    self.stage = Stage::Setting;
                    ask(id.home(), Request::Setattr(*id, *mode))
                }
                Some(Told::Failed(status)) => end(Err(status)),
                _ => end(Err(Status::InDoubt)),
            },
            (Stage::Setting, Op::Chmod { tx, id, .. }) => {
                let result = match told.pop() {
                    Some(Told::Done) => Ok(()),
                    other => Err(failure(other)),
                };
                let duties = vec![Duty::Refresh { id: *id }];
                let operation = Operation::Complete { tx: *tx, coordinator: id.home(), duties };
                let (steps, next) = Steps::begin(operation);
                self.stage = Stage::Refreshing(steps, result);
                then(next)
            }
            _ => unreachable!("a stage of another operation"),
        }
    }
}

fn create(place: &Place) -> Then {
    ask(place.arbiter(), Request::Create(place.clone()))
}

fn ask(member: MemberId, request: Request) -> Then {
    Then::Ask(vec![(member, request)])
}

fn end(result: Result<(), Status>) -> Then {
    Then::End { result, after: Vec::new() }
}

fn failure(told: Option<Told>) -> Status {
    match told {
        Some(Told::Failed(status)) => status,
        _ => Status::InDoubt,
    }
}

fn then(next: Next) -> Then {
    match next {
        Next::Ask(calls) => Then::Ask(batch(calls)),
        Next::End(End { result, after }) => {
            Then::End { result: result.map(drop), after: batch(after) }
        }
    }
}

fn batch(calls: Vec<Call>) -> Batch {
    calls.into_iter().map(|call| (call.member, Request::Ask(call.ask))).collect()
}
