//! The times of a directory that is spread over bricks: when a name was changed on another brick than
//! its home, the home is told before whoever made the change is answered.
//!
//! A home that is away is told when it is back: a change that was made does not fail for want of a time.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use portcullis_core::volume::steps::Call;
use portcullis_core::volume::{Ask, DirId};
use portcullis_core::watch::Change;
use portcullis_core::{Attr, Handle};
use portcullis_wire::message::Caller;

use crate::asks::Asks;
use crate::brick_link::BrickLink;
use crate::mutate::Asked;
use crate::volume::Volume;

/// Directories whose homes have to be told yet, at most; further ones keep their times.
const OWED_MAX: usize = 65_536;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct OwedTouches(Mutex<HashSet<DirId>>);

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
        let is_elsewhere = |id: &DirId| usize::from(id.home()) != asked.brick.number;
        let changed = changed_dirs(changes).into_iter().filter(is_elsewhere).collect::<Vec<_>>();
        if changed.is_empty() {
            return;
        }
        let mut asks = Asks::new(self, asked.caller.clone());
        self.touch(&mut asks, &changed).await;
        changes.extend(asks.changes);
        dirs.extend(asks.dirs);
    }

    /// Tells the homes of these directories.
    async fn touch(self: &Arc<Self>, asks: &mut Asks, dirs: &[DirId]) {
        let touch = |&id: &DirId| Call { member: id.home(), ask: Ask::Touch { id } };
        asks.ask_all(dirs.iter().map(touch).collect()).await;
    }

    /// The homes of these directories are to be told when they are back.
    pub(crate) fn owe_touches(&self, dirs: impl Iterator<Item = DirId>) {
        let mut dirs = dirs.peekable();
        if dirs.peek().is_none() {
            return;
        }
        let mut table = self.owed_touches.0.lock();
        for id in dirs {
            if table.len() < OWED_MAX {
                table.insert(id);
            }
        }
    }

    /// A brick is back: it is told of what it missed.
    pub(crate) async fn touch_owed(self: Arc<Self>, brick: Arc<BrickLink>) {
        let owed: Vec<DirId> = {
            let mut table = self.owed_touches.0.lock();
            let is_its = |id: &DirId| usize::from(id.home()) == brick.number;
            let owed = table.iter().copied().filter(is_its).collect();
            table.retain(|id| !is_its(id));
            owed
        };
        if owed.is_empty() {
            return;
        }
        let mut asks = Asks::new(&self, Caller::ROOT);
        self.touch(&mut asks, &owed).await;
        asks.tell_all().await;
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
