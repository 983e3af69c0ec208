//! Operations on several bricks, driven: core says what is asked next, here it is asked.
//!
//! An operation that was asked before, of another gateway, is begun again only where one brick can tell
//! whether it was done; else nobody knows.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use portcullis_core::volume::steps::{Call, End, Next, Operation, Steps};
use portcullis_core::volume::{Ask, DirId, LinkId, Place, Told, TxId};
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
        let end = end.map_err(|fall| fall.failure().clone())?;
        end.result.map(|_| ()).map_err(|status| asks.failure(status))
    }
}

impl Asks {
    /// Carries out a mutation of names.
    pub(crate) async fn carry_out(&mut self, joint: &Joint) -> Result<Mutated, Fall> {
        for _ in 0..TRIES_MAX {
            let lead = self.volume.lead();
            let operation = self.operation(&joint.mutation, lead.tx).map_err(Fall::Failed)?;
            let End { result, after } = self.run(operation, Some(joint)).await?;
            self.tidy_up(after, lead);
            match result {
                Ok(entry) => return Ok(result_of(&joint.mutation, entry.map(|entry| *entry))),
                Err(Status::Busy) => {}
                Err(Status::InDoubt) => return Err(Fall::Unknown(self.doubt())),
                Err(status) => return Err(Fall::Failed(self.failure(status))),
            }
        }
        let detail = "other operations were in the way each time";
        Err(Fall::Failed(Failure::new(Status::InUse, detail)))
    }

    /// Runs an operation to its end.
    pub(crate) async fn run(
        &mut self,
        operation: Operation,
        joint: Option<&Joint>,
    ) -> Result<End, Fall> {
        let is_doubtful = joint.is_some_and(|joint| joint.is_doubtful);
        let (mut steps, mut next) = Steps::begin(operation);
        loop {
            match next {
                Next::End(end) => return Ok(end),
                Next::Ask(calls) => {
                    let op = joint.filter(|_| calls.iter().all(is_whole)).map(|joint| joint.op);
                    let is_known = |call: &Call| is_whole(call) || is_about_copies(call);
                    if is_doubtful && !calls.iter().all(is_known) {
                        return Err(in_doubt());
                    }
                    let told = match op {
                        Some(op) => self.ask_whole(calls, op, is_doubtful).await,
                        None => self.ask_all(calls).await,
                    };
                    if is_doubtful && told.contains(&Told::Elsewhere) {
                        return Err(in_doubt());
                    }
                    next = steps.told(told);
                }
            }
        }
    }

    /// Asks for what one brick may do alone, under the client's own number.
    async fn ask_whole(
        &mut self,
        calls: Vec<Call>,
        mut op: portcullis_core::replay::OpId,
        is_doubtful: bool,
    ) -> Vec<Told> {
        let mut told = Vec::with_capacity(calls.len());
        for Call { member, ask } in calls {
            let bricks = &self.volume.bricks;
            op.retry = is_doubtful;
            if is_doubtful {
                // The client knows one number for the lives of all bricks.
                let is_same = op.life == bricks.life();
                op.life = if is_same { bricks.numbered(member).last_life() } else { 0 };
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

/// Whether an ask does not change what anybody sees, whatever became of the operation; or does what
/// is left to be done of one that was done.
fn is_about_copies(call: &Call) -> bool {
    matches!(
        call.ask,
        Ask::ExpectCopy { .. }
            | Ask::Enlist { .. }
            | Ask::MakeCopy { .. }
            | Ask::Touch { .. }
            | Ask::Finish { .. }
            | Ask::RemoveBody { .. }
            | Ask::Forget { .. }
    )
}

fn in_doubt() -> Fall {
    let detail = "it was asked of another gateway, or an earlier life of this one: nobody knows whether \
                  it was applied";
    Fall::Unknown(Failure::new(Status::InDoubt, detail))
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
