//! Every operation on real directories, compared with what the local file system makes of it; what
//! the tests of names, attributes and content share.

mod attributes;
mod content;
mod names;

use std::path::{Path, PathBuf};
use std::time::Duration;

use portcullis_core::watch::Change;
use portcullis_wire::message::Caller;

use super::*;
use crate::caller::clear_umask;
use crate::testing::handles_of;

const USER: u32 = 4321;
const GROUP: u32 = 8765;

fn user() -> Caller {
    Caller::new(USER, GROUP, vec![1001])
}

/// An export, and short ways to change it.
struct Tree {
    path: PathBuf,
    mutator: Mutator,
    root: Handle,
}

impl Tree {
    fn new(path: &Path, choice: crate::HandleChoice) -> Self {
        clear_umask();
        let handles = handles_of(path, choice);
        let root = *handles.root();
        let orphans = Orphans::with_grace(handles.clone(), Duration::ZERO);
        Self { path: path.to_owned(), mutator: Mutator::new(handles, orphans), root }
    }

    fn at<'a>(&'a self, name: &'a str) -> Place<'a> {
        Place { dir: &self.root, name: name.as_bytes() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn write(&self, name: &str, content: &str) -> Handle {
        std::fs::write(self.path(name), content).expect("written");
        self.handle(name)
    }

    fn handle(&self, name: &str) -> Handle {
        let root = self.mutator.handles.directory(&self.root).expect("the root");
        self.mutator.handles.entry(&root, name.as_bytes()).expect("there").handle
    }

    fn names(&self) -> Vec<String> {
        let names = std::fs::read_dir(&self.path).expect("listed");
        let text = |name: std::io::Result<std::fs::DirEntry>| {
            name.expect("a name").file_name().into_string().expect("text")
        };
        let mut names: Vec<String> = names.map(text).collect();
        names.retain(|name| name != ".portcullis-orphans");
        names.sort();
        names
    }
}

fn status<T>(result: Result<T, Failure>) -> Result<(), Status> {
    result.map(drop).map_err(|failure| failure.status)
}

fn attr(handle: Handle) -> Change {
    Change::Attr { handle }
}

fn name(dir: Handle, name: &str) -> Change {
    Change::Name { dir, name: name.as_bytes().to_vec() }
}

/// Whether exactly these changes were told.
#[track_caller]
fn assert_told(changes: Changes, wanted: &[Change]) {
    let told = changes.into_vec();
    let all = wanted.iter().all(|change| told.contains(change));
    assert!(all && told.len() == wanted.len(), "told {told:?}, wanted {wanted:?}");
}

/// When nothing is kept any more that was removed just now.
fn in_a_while() -> std::time::Instant {
    std::time::Instant::now() + std::time::Duration::from_secs(60)
}
