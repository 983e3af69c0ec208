//! Operations on several bricks, driven: core says what is asked next, here it is asked.
//!
//! An operation that was asked before, of another gateway, is not done again: what came of it its bricks
//! know, each by the client's own number, or the coordinator of its transaction.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use portcullis_core::replay::OpId;
use portcullis_core::volume::steps::{Call, End, Next, Operation, Steps};
use portcullis_core::volume::{Ask, Asked, Cause, DirId, LinkId, Place, Told, TxId};
use portcullis_core::{Entry, FileKind, Status};
use portcullis_wire::message::{Caller, Failure, Mutated, Mutation};

use crate::asks::Asks;
use crate::brick_link::BrickLink;
use crate::kept_answers::Fall;
use crate::random;
use crate::several::Joint;
use crate::volume::Volume;

/// How often an operation is begun anew whose bricks forgot what they held for it.
const TRIES_MAX: usize = 4;

/// How often an operation that was asked before waits for names which are held, some 2 s each time: a
/// brick takes up to 6 s to find out that a gateway has died.
const WAITS_MAX: usize = 6;

/// Numbers of the transactions that this gateway leads.
#[derive(Debug, Default)]
pub(crate) struct Led(Mutex<Numbers>);

#[derive(Debug, Default)]
struct Numbers {
    last: u64,
    under_way: HashSet<u64>,
}

/// One of them, until it is dropped.
pub(crate) struct Lead {
    volume: Arc<Volume>,
    pub(crate) tx: TxId,
}

impl Drop for Lead {
    fn drop(&mut self) {
        self.volume.led.0.lock().under_way.remove(&self.tx.number);
    }
}

impl Volume {
    /// A transaction that this gateway leads from now on.
    pub(crate) fn lead(self: &Arc<Self>) -> Lead {
        let mut numbers = self.led.0.lock();
        numbers.last += 1;
        let number = numbers.last;
        numbers.under_way.insert(number);
        Lead { volume: self.clone(), tx: TxId { gateway: self.own_ops.client(), number } }
    }

    /// Whether a transaction is one of this gateway that goes on.
    pub(crate) fn leads(&self, tx: TxId) -> bool {
        tx.gateway == self.own_ops.client() && self.led.0.lock().under_way.contains(&tx.number)
    }

    /// Sees to it that a brick has a copy of a directory.
    pub(crate) async fn ensure_copy(
        self: &Arc<Self>,
        id: DirId,
        brick: &BrickLink,
    ) -> Result<(), Failure> {
        let mut asks = Asks::new(self, Caller::ROOT);
        let operation = Operation::EnsureCopy { id, member: brick.number as u8 };
        let end = asks.run(operation, None).await;
        end.result.map(|_| ()).map_err(|status| asks.failure(status))
    }
}

impl Asks {
    /// Carries out a mutation of names.
    pub(crate) async fn carry_out(&mut self, joint: &Joint) -> Result<Mutated, Fall> {
        self.own_pointers(&joint.mutation).await;
        let (mut tries, mut waits) = (0, 0);
        while tries < TRIES_MAX {
            tries += 1;
            let lead = self.volume.lead();
            let operation = self.operation(&joint.mutation, lead.tx).map_err(Fall::Failed)?;
            let End { result, after } = self.run(operation, Some(joint)).await;
            self.tidy_up(after, lead);
            match result {
                Ok(entry) => return Ok(result_of(&joint.mutation, entry.map(|entry| *entry))),
                Err(Status::Busy) => {}
                // By what the gateway left that led it before, until that is undone.
                Err(Status::InUse) if joint.is_doubtful && waits < WAITS_MAX => {
                    (waits, tries) = (waits + 1, tries - 1);
                }
                Err(Status::InDoubt) => return Err(Fall::Unknown(self.doubt())),
                Err(status) => return Err(Fall::Failed(self.failure(status))),
            }
        }
        let detail = "other operations were in the way each time";
        Err(Fall::Failed(Failure::new(Status::InUse, detail)))
    }

    /// Runs an operation to its end.
    pub(crate) async fn run(&mut self, operation: Operation, joint: Option<&Joint>) -> End {
        let asked = match joint {
            Some(joint) => Some(self.asked(joint, &operation).await),
            None => None,
        };
        let (mut steps, mut next) = Steps::begin_asked(operation, asked);
        loop {
            match next {
                Next::End(end) => return end,
                Next::Ask(calls) => {
                    let told = match joint.filter(|_| calls.iter().all(is_whole)) {
                        Some(joint) => self.ask_whole(calls, joint.op, joint.is_doubtful).await,
                        None => self.ask_all(calls).await,
                    };
                    next = steps.told(told);
                }
            }
        }
    }

    /// Who asked for an operation, and in which life of the brick that would coordinate it.
    async fn asked(&self, joint: &Joint, operation: &Operation) -> Asked {
        let OpId { client, number, oldest, life, .. } = joint.op;
        let bricks = &self.volume.bricks;
        let life = match operation.coordinator() {
            Some(member) if joint.is_doubtful => bricks.life_of(member, life),
            Some(member) => {
                let brick = bricks.numbered(member);
                // Where it cannot be reached, nothing is committed.
                let session = brick.session(0, brick.deadline()).await;
                session.map_or(0, |session| session.life)
            }
            None => 0,
        };
        Asked { cause: Cause { client, number, oldest, life }, is_again: joint.is_doubtful }
    }

    /// Asks for what one brick may do alone, under the client's own number.
    async fn ask_whole(&mut self, calls: Vec<Call>, mut op: OpId, is_doubtful: bool) -> Vec<Told> {
        let (mut told, client_life) = (Vec::with_capacity(calls.len()), op.life);
        for Call { member, ask } in calls {
            let life = self.volume.bricks.life_of(member, client_life);
            op.retry = is_doubtful;
            if is_doubtful {
                op.life = life;
            }
            told.push(self.ask(member, ask, Some(op)).await);
        }
        told
    }

    /// Asks what tidies up, while whoever asked is answered.
    fn tidy_up(&self, after: Vec<Call>, lead: Lead) {
        if after.is_empty() {
            return;
        }
        let mut asks = Asks::new(&self.volume, self.caller.clone());
        tokio::spawn(async move {
            asks.ask_all(after).await;
            asks.tell_all().await;
            drop(lead);
        });
    }

    /// Everybody forgets what these asks made untrue, where nobody else sees to that.
    pub(crate) async fn tell_all(&mut self) {
        let changes = std::mem::take(&mut self.changes);
        self.volume.forget(&changes);
        self.volume.tell(None, &changes).await;
    }

    /// The operation that carries out a mutation.
    fn operation(&self, mutation: &Mutation, tx: TxId) -> Result<Operation, Failure> {
        let place =
            |dir: &portcullis_core::Handle, name: &[u8]| Place { dir: *dir, name: name.to_vec() };
        Ok(match mutation {
            Mutation::Mkdir { dir, name, mode } => {
                let place = place(dir, name);
                let layout = self.volume.bricks.all().len() as u8;
                let id = DirId::new(layout, place.arbiter(), random_bytes());
                let id = id.ok_or(Status::BadHandle)?;
                Operation::Mkdir { place, mode: *mode, id }
            }
            Mutation::Link { handle, dir, name } => {
                Operation::Link { tx, handle: *handle, place: place(dir, name), link: link_id() }
            }
            Mutation::Unlink { dir, name } => Operation::Unlink { tx, place: place(dir, name) },
            Mutation::Rmdir { dir, name } => Operation::Rmdir { tx, place: place(dir, name) },
            Mutation::Rename { dir, name, new_dir, new_name, flags } => {
                let (from, to) = (place(dir, name), place(new_dir, new_name));
                Operation::Rename { tx, from, to, flags: *flags, link: link_id() }
            }
            _ => return Err(Status::InvalidArgument.into()),
        })
    }
}

/// Whether an ask may be an operation by itself, whose answer a brick keeps.
fn is_whole(call: &Call) -> bool {
    matches!(
        call.ask,
        Ask::Mkdir { .. }
            | Ask::Unlink { .. }
            | Ask::Rmdir { .. }
            | Ask::Rename { .. }
            | Ask::Link { .. }
    )
}

/// What the client is told of an operation that went well.
fn result_of(mutation: &Mutation, entry: Option<Entry>) -> Mutated {
    match (mutation, entry) {
        (_, Some(entry)) => Mutated::Entry(entry),
        // Read next.
        (Mutation::Link { handle, .. }, None) => {
            let kind = FileKind::Regular;
            Mutated::Entry(Entry { handle: *handle, attr: None, kind, target: None })
        }
        (_, None) => Mutated::Done,
    }
}

/// A hidden name.
fn link_id() -> LinkId {
    u128::from(random()) << 64 | u128::from(random())
}

fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    for piece in bytes.chunks_mut(8) {
        let len = piece.len();
        piece.copy_from_slice(&random().to_le_bytes()[..len]);
    }
    bytes
}
