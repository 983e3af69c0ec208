//! open(2) with `O_CREAT` of a file that is there, and lies on another brick than its name does: the
//! arbiter of the name can only say so, and the file is opened, and cut, where it is.

use std::sync::Arc;

use portcullis_core::volume::Told;
use portcullis_core::watch::Change;
use portcullis_core::{Entry, Status};
use portcullis_wire::message::{Caller, Failure, Mutated, Mutation, SetAttr, Verb};
use portcullis_wire::{Reply, Request};

use crate::brick_call::Fault;
use crate::mutate::Asked;
use crate::session::Session;

/// open(2), asm-generic.
const O_TRUNC: u32 = 0o1000;

impl Session {
    /// Opens what a creation found, and adds what that made untrue.
    pub(crate) async fn open_found(
        self: &Arc<Self>,
        asked: &Asked,
        result: &mut Mutated,
        changes: &mut Vec<Change>,
    ) -> Result<(), Failure> {
        let (Mutation::Create { dir, name, flags, .. }, Mutated::Told(Told::Elsewhere)) =
            (&asked.mutation, &*result)
        else {
            return Ok(());
        };
        let (volume, flags) = (&self.volume, *flags);
        let found = volume.ask_name(dir, name, volume.bricks.deadline()).await;
        let entry = match found {
            Ok(Reply::Entry(entry)) => entry,
            // It was removed in between: asked again, the file is made.
            Err(failure) if failure.status == Status::NotFound => return Err(Status::Busy.into()),
            Ok(_) => return Err(asked.brick.nonsense(Verb::Lookup)),
            Err(failure) => return Err(failure),
        };
        let Reply::Opened { file, mut attr } = self.open(entry.handle, flags).await? else {
            return Err(volume.bricks.of(&entry.handle).nonsense(Verb::Open));
        };
        if flags & O_TRUNC != 0 {
            match self.truncate(file, &asked.caller, changes).await {
                Ok(Mutated::Attr(cut)) => attr = cut,
                Ok(_) => {}
                Err(failure) => {
                    let _ = self.release(file, None).await;
                    return Err(failure);
                }
            }
        }
        let entry = Entry { attr: Some(attr), kind: attr.kind(), ..entry };
        *result = Mutated::Created { entry, file };
        Ok(())
    }

    async fn truncate(
        &self,
        file: u64,
        caller: &Caller,
        changes: &mut Vec<Change>,
    ) -> Result<Mutated, Failure> {
        let volume = &self.volume;
        let open = self.file(file)?;
        let brick = volume.bricks.of(&open.handle);
        let own = volume.own_ops.begin();
        let mut lost = 0;
        loop {
            let (session, file) = open.at_brick(volume, lost, brick.deadline()).await?;
            // To cut a file twice does no harm.
            let op = portcullis_core::replay::OpId { life: session.life, ..own.id() };
            let set = SetAttr { size_bytes: Some(0), ..SetAttr::default() };
            let mutation = Mutation::Setattr { handle: open.handle, file, set };
            let request = Request::Mutate { op, caller: caller.clone(), mutation };
            match brick.call_on(&session, &request, brick.deadline()).await {
                Ok(Reply::Mutated { result, changes: made, .. }) => {
                    volume.forget(&made);
                    changes.extend(made);
                    return Ok(result);
                }
                Ok(_) => return Err(brick.nonsense(request.verb())),
                Err(Fault::Lost) => lost = session.epoch,
                Err(Fault::Failed(failure)) => return Err(failure),
            }
        }
    }
}
