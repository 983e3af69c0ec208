//! Space and inodes of the bricks' file systems, in all: told once a second at most, and never waited
//! for long. While a brick does not answer, the last that it told is counted, so that `df` ends.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use portcullis_core::{Handle, Status};
use portcullis_wire::message::{Failure, Statfs, Verb};
use portcullis_wire::{Reply, Request};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::volume::Volume;

/// How long an answer is repeated without asking.
const FRESH_MS: u64 = 1_000;
/// How long a brick may take.
const STATFS_MS_MAX: u64 = 2_000;

/// What each brick told last. An export is one file system, so it is true of every file.
#[derive(Debug, Default)]
pub(crate) struct LastStatfs(Mutex<Vec<Option<(Instant, Statfs)>>>);

impl Volume {
    /// Space and inodes.
    pub(crate) async fn statfs(self: &Arc<Self>, handle: Handle) -> Result<Reply, Failure> {
        let count = self.bricks.all().len();
        if count == 1 {
            return Ok(Reply::Statfs(self.statfs_of(0, Some(handle)).await?));
        }
        let mut asking = JoinSet::new();
        for brick in 0..count {
            let volume = self.clone();
            asking.spawn(async move { volume.statfs_of(brick, None).await });
        }
        let told = asking.join_all().await;
        // Space of a brick that was never there since this gateway started is not known.
        let known: Vec<_> = told.iter().filter_map(|told| told.as_ref().ok()).copied().collect();
        match told.into_iter().find_map(Result::err) {
            Some(failure) if known.is_empty() => Err(failure),
            _ => Ok(Reply::Statfs(sum(&known))),
        }
    }

    /// Of one brick, by a file of it or by its root.
    async fn statfs_of(
        self: &Arc<Self>,
        brick: usize,
        handle: Option<Handle>,
    ) -> Result<Statfs, Failure> {
        let last = self.last_statfs.0.lock().get(brick).copied().flatten();
        if let Some((told, statfs)) = last
            && told.elapsed() < Duration::from_millis(FRESH_MS)
        {
            return Ok(statfs);
        }
        let link = &self.bricks.all()[brick];
        let deadline = link.deadline().min(Instant::now() + Duration::from_millis(STATFS_MS_MAX));
        let answer = async {
            let handle = match handle {
                Some(handle) => handle,
                None => link.session(0, deadline).await?.root.handle,
            };
            let request = Request::Statfs { handle };
            let answer = link.call(&request, deadline).await;
            answer.inspect_err(|failure| self.note(&request, failure))
        };
        match (answer.await, last) {
            (Ok(Reply::Statfs(statfs)), _) => {
                let mut known = self.last_statfs.0.lock();
                let count = known.len().max(brick + 1);
                known.resize(count, None);
                known[brick] = Some((Instant::now(), statfs));
                Ok(statfs)
            }
            (Ok(_), _) => Err(link.nonsense(Verb::Statfs)),
            (Err(Failure { status: Status::Unavailable, .. }), Some((_, statfs))) => Ok(statfs),
            (Err(failure), _) => Err(failure),
        }
    }
}

/// All of them together, in the largest of their units.
fn sum(parts: &[Statfs]) -> Statfs {
    let unit_bytes = parts.iter().map(|part| part.fragment_bytes).max().unwrap_or(0).max(1);
    let mut all = Statfs { fragment_bytes: unit_bytes, ..Statfs::default() };
    all.block_bytes = parts.iter().map(|part| part.block_bytes).max().unwrap_or(0);
    all.name_len_max = parts.iter().map(|part| part.name_len_max).min().unwrap_or(0);
    for part in parts {
        let in_unit = |blocks: u64| {
            (u128::from(blocks) * u128::from(part.fragment_bytes) / u128::from(unit_bytes)) as u64
        };
        all.blocks += in_unit(part.blocks);
        all.blocks_free += in_unit(part.blocks_free);
        all.blocks_available += in_unit(part.blocks_available);
        all.files += part.files;
        all.files_free += part.files_free;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_space_of_bricks_with_other_units_is_added_in_bytes() {
        let small = Statfs { fragment_bytes: 1024, blocks: 8, blocks_free: 4, ..Statfs::default() };
        let large = Statfs { fragment_bytes: 4096, blocks: 3, files: 7, ..Statfs::default() };
        let all = sum(&[small, large]);
        assert_eq!((all.fragment_bytes, all.blocks, all.blocks_free), (4096, 5, 1));
        assert_eq!(all.files, 7);
    }
}
