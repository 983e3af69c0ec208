//! What a name stands for: asked of its arbiter and, where the file lies elsewhere, there as well.

use portcullis_core::{Handle, Status};
use portcullis_wire::message::{Failure, Verb};
use portcullis_wire::{Reply, Request};
use tokio::time::Instant;

use crate::volume::Volume;

/// How often a name is looked up again that leads to a file which is gone when it is asked for.
const LOOKUPS_MAX: usize = 4;

impl Volume {
    /// Asks bricks for the entry `name` of `dir`.
    pub(crate) async fn ask_name(
        &self,
        dir: &Handle,
        name: &[u8],
        deadline: Instant,
    ) -> Result<Reply, Failure> {
        let arbiter = self.bricks.arbiter(dir, name);
        let request = Request::Lookup { dir: *dir, name: name.to_vec() };
        for _ in 0..LOOKUPS_MAX {
            let Reply::Entry(mut entry) = arbiter.call(&request, deadline).await? else {
                return Err(arbiter.nonsense(Verb::Lookup));
            };
            let brick = self.bricks.of(&entry.handle);
            if entry.attr.is_some() || brick.number == arbiter.number {
                return Ok(Reply::Entry(entry));
            }
            let getattrs = Request::Getattrs { handles: vec![entry.handle] };
            match brick.call(&getattrs, deadline).await? {
                Reply::Entries(mut entries) if entries.len() == 1 => match entries.remove(0) {
                    Some(found) => {
                        (entry.attr, entry.target) = (found.attr, found.target);
                        return Ok(Reply::Entry(entry));
                    }
                    // It was removed in between, and so was its name.
                    None => continue,
                },
                _ => return Err(brick.nonsense(Verb::Getattrs)),
            }
        }
        Err(Failure::new(Status::Stale, "the file of this name is gone"))
    }
}
