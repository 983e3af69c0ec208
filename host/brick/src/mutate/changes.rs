//! What a mutation made untrue, collected as it goes on.
//!
//! It is handed along, not answered: an operation that fails half way has changed something too.

use portcullis_core::Handle;
use portcullis_core::watch::Change;

/// The changes of one mutation, each once.
#[derive(Debug, Default)]
pub(crate) struct Changes(Vec<Change>);

impl Changes {
    /// Attributes or content of a file changed.
    pub(crate) fn attr(&mut self, handle: Handle) {
        self.push(Change::Attr { handle });
    }

    /// What a name stands for changed, and so did the directory.
    pub(crate) fn name(&mut self, dir: Handle, name: &[u8]) {
        self.push(Change::Name { dir, name: name.to_vec() });
        self.attr(dir);
    }

    /// Any name of a directory changed.
    pub(crate) fn names(&mut self, dir: Handle) {
        self.push(Change::Names { dir });
    }

    /// A directory is gone, with all that could be said of it.
    pub(crate) fn removed_dir(&mut self, dir: Handle) {
        self.attr(dir);
        self.names(dir);
    }

    /// All of them.
    pub(crate) fn into_vec(self) -> Vec<Change> {
        self.0
    }

    fn push(&mut self, change: Change) {
        if !self.0.contains(&change) {
            self.0.push(change);
        }
    }
}
