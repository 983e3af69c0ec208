//! open(2) with `O_CREAT` of a file that is there, and lies on another brick than its name does: the
//! arbiter of the name can only say so, and the file is opened, and cut, where it is.

use std::sync::Arc;

use portcullis_core::Entry;
use portcullis_core::watch::Change;
use portcullis_wire::message::{Caller, Failure, Mutated, Mutation, SetAttr};
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
        let (Mutation::Create { flags, .. }, Mutated::Entry(entry)) = (&asked.mutation, &*result)
        else {
            return Ok(());
        };
        let (handle, flags) = (entry.handle, *flags);
        let brick = self.volume.bricks.of(&handle);
        let Reply::Opened { file, mut attr } = self.open(handle, flags).await? else {
            return Err(brick.nonsense(portcullis_wire::message::Verb::Open));
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
        let entry = Entry { attr: Some(attr), kind: attr.kind(), ..entry.clone() };
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
                    volume.cache.forget(&made);
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
