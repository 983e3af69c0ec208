//! Mutations that may concern several bricks: driven through the steps of core, taken in as any other.
//!
//! What must hold: nobody is answered before every cache forgot what the operation made untrue, also
//! where it failed half way or nobody knows how it ended; one that was asked before is not begun again
//! (`kept_answers`).

use std::sync::Arc;

use portcullis_core::cache::Learnt;
use portcullis_core::replay::OpId;
use portcullis_core::watch::{Change, Reading};
use portcullis_core::{FileKind, Status};
use portcullis_wire::Reply;
use portcullis_wire::message::{Caller, Failure, Mutated, Mutation};

use crate::asks::Asks;
use crate::effects::{check, names, possible_changes};
use crate::kept_answers::{Admitted, Fall};
use crate::session::Session;

/// Whether a mutation may concern more than one brick of a volume that has several.
pub(crate) fn may_concern_several(mutation: &Mutation) -> bool {
    matches!(
        mutation,
        Mutation::Mkdir { .. }
            | Mutation::Link { .. }
            | Mutation::Unlink { .. }
            | Mutation::Rmdir { .. }
            | Mutation::Rename { .. }
    )
}

/// A mutation that may concern several bricks, and who asked for it.
pub(crate) struct Joint {
    pub(crate) op: OpId,
    /// It was asked before, and nobody here knows what came of it.
    pub(crate) is_doubtful: bool,
    pub(crate) mutation: Mutation,
}

impl Session {
    /// Changes something on several bricks for this client.
    pub(crate) async fn mutate_several(
        self: &Arc<Self>,
        op: OpId,
        caller: Caller,
        mutation: Mutation,
    ) -> Result<Reply, Failure> {
        check(&mutation)?;
        let kept = &self.volume.kept_answers;
        let is_doubtful = match kept.begin(&op, mutation.is_idempotent()) {
            Admitted::New => false,
            Admitted::Doubtful => true,
            Admitted::Answered(answer) => return answer,
            Admitted::Joined(answer) => {
                let given_up = |_| Err(Failure::new(Status::InDoubt, "it was given up"));
                return answer.await.unwrap_or_else(given_up);
            }
        };
        let joint = Joint { op, is_doubtful, mutation };
        let ended = self.carry_out(joint, caller).await;
        kept.finish(&op, ended)
    }

    async fn carry_out(self: &Arc<Self>, joint: Joint, caller: Caller) -> Result<Reply, Fall> {
        let volume = &self.volume;
        let stamp = volume.cache.begin_mutation();
        let reading = volume.watching.grantor().read();
        self.watch_subjects(&joint.mutation, &[None, None]);
        let mut asks = Asks::new(volume, caller);
        let result = asks.carry_out(&joint).await;
        let Asks { mut changes, mut dirs, .. } = asks;
        if let Err(Fall::Unknown(_)) = &result {
            changes.extend(possible_changes(&joint.mutation, &[None, None]));
        }
        let may_learn = !joint.is_doubtful && volume.may_cache();
        let mut learnt = match &result {
            Ok(result) if may_learn => learnt(&joint.mutation, result, &changes),
            _ => Vec::new(),
        };
        if may_learn {
            learnt.extend(dirs.iter().map(|&(handle, attr)| Learnt::Attr { handle, attr }));
        }
        volume.inlining.contents.forget(&changes);
        volume.cache.learn(volume.now_ms(), stamp, &changes, &learnt);
        let mut result = match result {
            Ok(result) => result,
            Err(fall) => {
                volume.tell(None, &changes).await;
                return Err(fall);
            }
        };
        if joint.is_doubtful
            && let Mutated::Entry(entry) = &result
            && entry.kind == FileKind::Directory
        {
            // It may have names by now.
            changes.push(Change::Names { dir: entry.handle });
        }
        self.settle_result(&mut result, reading, joint.is_doubtful).await;
        let grantor = volume.watching.grantor();
        dirs.retain(|(dir, _)| !joint.is_doubtful && !grantor.attr_changed_since(reading, dir));
        volume.tell(self.id(), &changes).await;
        Ok(Reply::Mutated { result, changes, dirs })
    }

    /// Watches what the client is told, and reads again what is missing or may be old.
    async fn settle_result(&self, result: &mut Mutated, reading: Reading, is_doubtful: bool) {
        self.watch_result(result, reading, is_doubtful).await;
        if let Mutated::Entry(entry) = result
            && entry.attr.is_none()
        {
            let read = self.volume.getattr(self.watched(), entry.handle).await;
            if let Ok(Reply::Attr(read)) = read {
                (entry.attr, entry.kind) = (Some(read), read.kind());
            }
        }
    }
}

/// What is true since an operation, as far as its result tells.
fn learnt(mutation: &Mutation, result: &Mutated, changes: &[Change]) -> Vec<Learnt> {
    match (mutation, names(mutation)[0], result) {
        (Mutation::Mkdir { .. }, Some((dir, name)), Mutated::Entry(entry)) => {
            let mut learnt = vec![Learnt::Entry { dir, name: name.to_vec(), entry: entry.clone() }];
            // Its home tells before another brick gets names of it.
            let dir = entry.handle;
            if !changes.contains(&Change::Names { dir }) {
                learnt.push(Learnt::EmptyDir { dir });
            }
            learnt
        }
        (Mutation::Unlink { .. } | Mutation::Rmdir { .. }, Some((dir, name)), _) => {
            vec![Learnt::Absent { dir, name: name.to_vec() }]
        }
        _ => Vec::new(),
    }
}
