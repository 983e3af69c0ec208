//! The times of a directory that is spread over bricks: when a name was changed on another brick than
//! its home, the home is told before whoever made the change is answered.
//!
//! Changes of one directory that are made side by side share what is told: one touch is under way at a
//! time, and the next is for all that were made since it was sent. A home that is away is told when
//! it is back: a change that was made does not fail for want of a time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use portcullis_core::volume::{Ask, DirId, Told};
use portcullis_core::watch::Change;
use portcullis_core::{Attr, Handle};
use portcullis_wire::message::Caller;
use tokio::sync::oneshot;

use crate::asks::{Answer, Asks};
use crate::brick_link::BrickLink;
use crate::mutate::Asked;
use crate::volume::Volume;

/// Directories whose homes have to be told yet, at most; further ones keep their times.
const OWED_MAX: usize = 65_536;

/// See the module.
#[derive(Default)]
pub(crate) struct Touches {
    /// Directories that a home is being told of, and who waits for the next time.
    under_way: Mutex<HashMap<DirId, Vec<oneshot::Sender<Answer>>>>,
    owed: Mutex<HashSet<DirId>>,
}

impl Volume {
    /// Tells the homes of directories of which an ordinary mutation changed names elsewhere, and adds
    /// what became of that.
    pub(crate) async fn touch_dirs(
        self: &Arc<Self>,
        asked: &Asked,
        changes: &mut Vec<Change>,
        dirs: &mut Vec<(Handle, Attr)>,
    ) {
        if !self.bricks.are_several() {
            return;
        }
        let mut asks = Asks::new(self, Caller::ROOT);
        for id in changed_dirs(changes) {
            if usize::from(id.home()) != asked.brick.number {
                let answer = self.touch(id).await;
                asks.take_in(answer);
            }
        }
        changes.extend(asks.changes);
        dirs.extend(asks.dirs);
    }

    /// Tells the home of a directory, with others who ask for the same meanwhile.
    pub(crate) async fn touch(self: &Arc<Self>, id: DirId) -> Answer {
        let (told, answer) = oneshot::channel();
        let is_first = {
            let mut under_way = self.touches.under_way.lock();
            let is_first = !under_way.contains_key(&id);
            under_way.entry(id).or_default().push(told);
            is_first
        };
        if is_first {
            let touching = Touching { volume: self.clone(), id, is_over: false };
            tokio::spawn(touching.run());
        }
        answer.await.unwrap_or_else(|_| Answer::lost())
    }

    /// A brick is back: it is told of what it missed.
    pub(crate) async fn touch_owed(self: Arc<Self>, brick: Arc<BrickLink>) {
        let owed: Vec<DirId> = {
            let mut owed = self.touches.owed.lock();
            let is_its = |id: &DirId| usize::from(id.home()) == brick.number;
            owed.extract_if(is_its).collect()
        };
        let mut asks = Asks::new(&self, Caller::ROOT);
        for id in owed {
            let answer = self.touch(id).await;
            asks.take_in(answer);
        }
        asks.tell_all().await;
    }
}

/// One home is being told of a directory, until nobody waits for that any more.
struct Touching {
    volume: Arc<Volume>,
    id: DirId,
    is_over: bool,
}

impl Touching {
    async fn run(mut self) {
        while let Some(waiting) = self.next() {
            let Self { volume, id, .. } = &self;
            let ask = Ask::Touch { id: *id };
            let answer = volume.ask_member(id.home(), ask, None, &Caller::ROOT).await;
            if answer.told != Told::Done {
                let mut owed = volume.touches.owed.lock();
                if owed.len() < OWED_MAX {
                    owed.insert(*id);
                }
            }
            for told in waiting {
                // Whoever went away needs no answer.
                let _ = told.send(answer.clone());
            }
        }
    }

    /// Those for whom the home is to be told now.
    fn next(&mut self) -> Option<Vec<oneshot::Sender<Answer>>> {
        let mut under_way = self.volume.touches.under_way.lock();
        let waiting = under_way.get_mut(&self.id).map(std::mem::take)?;
        if waiting.is_empty() {
            under_way.remove(&self.id);
            self.is_over = true;
            return None;
        }
        Some(waiting)
    }
}

impl Drop for Touching {
    /// Where the task dies, those who wait are told that there is no answer.
    fn drop(&mut self) {
        if !self.is_over {
            self.volume.touches.under_way.lock().remove(&self.id);
        }
    }
}

/// The spread directories of which a name was changed.
fn changed_dirs(changes: &[Change]) -> Vec<DirId> {
    let mut dirs: Vec<DirId> = changes
        .iter()
        .filter_map(|change| match change {
            Change::Name { dir, .. } => DirId::of_handle(dir),
            _ => None,
        })
        .collect();
    dirs.sort_unstable();
    dirs.dedup();
    dirs
}
