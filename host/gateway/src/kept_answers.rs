//! Answers to operations on several bricks, kept so that a client which lost its connection and asks
//! again is told what came of the first time.
//!
//! Bricks keep the answers to operations on one of them, and what came of those on several; what is
//! kept here is the answer itself, and who waits for it.

use std::collections::HashSet;

use parking_lot::Mutex;
use portcullis_core::Status;
use portcullis_core::replay::{Admission, OpId, Replays};
use portcullis_wire::Reply;
use portcullis_wire::message::Failure;
use tokio::sync::oneshot;

/// Operations remembered that failed before anything was done.
const UNAPPLIED_MAX: usize = 65_536;
/// The life of these answers; operations that are asked again are said to be of another one, so that
/// one which is not known here is known not to be.
const LIFE: u64 = 1;

type Answer = Result<Reply, Failure>;

/// See the module.
#[derive(Debug)]
pub(crate) struct KeptAnswers {
    replays: Mutex<Replays<Answer, oneshot::Sender<Answer>>>,
    unapplied: Mutex<HashSet<(u128, u64)>>,
}

/// What is to be done with an operation.
#[expect(clippy::large_enum_variant, reason = "looked at once and taken apart")]
pub(crate) enum Admitted {
    /// It is asked for the first time, or was not applied when it was.
    New,
    /// It was asked before, of another gateway or another life of this one.
    Doubtful,
    /// This is the answer.
    Answered(Answer),
    /// The answer is being made.
    Joined(oneshot::Receiver<Answer>),
}

/// How an operation on several bricks failed.
#[derive(Debug)]
pub(crate) enum Fall {
    /// Nothing was changed.
    Failed(Failure),
    /// Whether anything was changed is not known.
    Unknown(Failure),
}

impl Fall {
    /// What the client is told.
    pub(crate) fn failure(&self) -> &Failure {
        match self {
            Fall::Failed(failure) | Fall::Unknown(failure) => failure,
        }
    }
}

impl Default for KeptAnswers {
    fn default() -> Self {
        Self { replays: Mutex::new(Replays::new(LIFE)), unapplied: Mutex::default() }
    }
}

impl KeptAnswers {
    /// An operation arrives. `harmless`: applying it twice does no harm. What is new or doubtful ends
    /// with [`KeptAnswers::finish`].
    pub(crate) fn begin(&self, op: &OpId, harmless: bool) -> Admitted {
        let mut joined = None;
        let mut begin = |op: &OpId| {
            let op = OpId { life: 0, ..*op };
            self.replays.lock().begin(&op, harmless, || {
                let (waiter, answer) = oneshot::channel();
                joined = Some(answer);
                waiter
            })
        };
        let fresh = OpId { retry: false, ..*op };
        let (admission, is_doubtful) = match begin(op) {
            Admission::Unknown => {
                let was_unapplied = self.unapplied.lock().remove(&(op.client, op.number));
                (begin(&fresh), !was_unapplied)
            }
            admission => (admission, false),
        };
        let busy = || Failure::new(Status::Busy, "too many operations without an answer");
        match admission {
            Admission::Apply if is_doubtful => Admitted::Doubtful,
            Admission::Apply => Admitted::New,
            Admission::Replay(answer) => Admitted::Answered(answer),
            Admission::Joined => match joined {
                Some(answer) => Admitted::Joined(answer),
                None => Admitted::Answered(Err(busy())),
            },
            Admission::Busy => Admitted::Answered(Err(busy())),
            Admission::Unknown | Admission::Answered => {
                Admitted::Answered(Err(Status::InDoubt.into()))
            }
        }
    }

    /// An operation has ended: keeps its answer, and tells all who wait for it.
    pub(crate) fn finish(&self, op: &OpId, ended: Result<Reply, Fall>) -> Answer {
        let is_final = !matches!(
            &ended,
            Err(Fall::Unknown(_)) | Err(Fall::Failed(Failure { status: Status::Unavailable, .. }))
        );
        if let Err(Fall::Failed(_)) = &ended
            && !is_final
        {
            let mut unapplied = self.unapplied.lock();
            if unapplied.len() >= UNAPPLIED_MAX {
                unapplied.clear();
            }
            unapplied.insert((op.client, op.number));
        }
        let answer = ended.map_err(|fall| fall.failure().clone());
        let mut replays = self.replays.lock();
        let waiters =
            if is_final { replays.finish(op, answer.clone()) } else { replays.abandon(op) };
        drop(replays);
        for waiter in waiters {
            // Whoever went away meanwhile needs no answer.
            let _ = waiter.send(answer.clone());
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(number: u64, retry: bool) -> OpId {
        OpId { client: 1, number, oldest: 1, life: 7, retry }
    }

    fn away() -> Failure {
        Status::Unavailable.into()
    }

    #[test]
    fn an_operation_asked_again_is_told_what_came_of_it() {
        let kept = KeptAnswers::default();
        assert!(matches!(kept.begin(&op(1, false), false), Admitted::New));
        let Admitted::Joined(mut answer) = kept.begin(&op(1, true), false) else {
            panic!("it is under way");
        };
        kept.finish(&op(1, false), Ok(Reply::Done)).expect("it went well");
        assert_eq!(answer.try_recv(), Ok(Ok(Reply::Done)));
        assert!(matches!(kept.begin(&op(1, true), false), Admitted::Answered(Ok(Reply::Done))));
    }

    #[test]
    fn one_of_another_gateway_is_doubtful_and_one_that_was_not_applied_is_new() {
        let kept = KeptAnswers::default();
        assert!(matches!(kept.begin(&op(1, true), false), Admitted::Doubtful));
        kept.finish(&op(1, true), Err(Fall::Unknown(away()))).expect_err("it is told so");
        assert!(matches!(kept.begin(&op(1, true), false), Admitted::Doubtful));
        assert!(matches!(kept.begin(&op(2, false), false), Admitted::New));
        kept.finish(&op(2, false), Err(Fall::Failed(away()))).expect_err("it is told so");
        assert!(matches!(kept.begin(&op(2, true), false), Admitted::New));
        assert!(matches!(kept.begin(&op(3, true), true), Admitted::New), "it does no harm");
    }

    #[test]
    fn a_refusal_is_an_answer() {
        let kept = KeptAnswers::default();
        assert!(matches!(kept.begin(&op(1, false), false), Admitted::New));
        let refused = Fall::Failed(Status::Exists.into());
        kept.finish(&op(1, false), Err(refused)).expect_err("it is told so");
        assert!(matches!(kept.begin(&op(1, true), false), Admitted::Answered(Err(_))));
    }
}
