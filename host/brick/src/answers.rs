//! The answers to requests that change nothing and have one message. All of this blocks.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use portcullis_core::limits::GETATTRS_MAX;
use portcullis_core::volume::DirId;
use portcullis_core::{Attr, Entry, FileKind, Handle, Status};
use portcullis_wire::message::{Failure, Lock, LockOwner, LockSort};
use portcullis_wire::{Reply, Request};
use rustix::fs::readlinkat;
use rustix::io::Errno;

use crate::error::failure;
use crate::files::OpenFiles;
use crate::tree::Tree;
use crate::volume::asks::check_arbiter;
use crate::volume::is_own_xattr;
use crate::watcher::{self, Watcher};
use crate::{mutate, name, xattr};

/// Whom an answer is for.
#[derive(Clone)]
pub(crate) struct Asker {
    /// Its session.
    pub(crate) session: u64,
    /// Whether that is lost by now.
    pub(crate) is_closed: Arc<AtomicBool>,
    /// Its open files.
    pub(crate) files: Arc<OpenFiles>,
    /// Its watches, where it caches what it is told.
    pub(crate) watcher: Option<Watcher>,
}

impl Asker {
    /// A lock was taken for it: it is kept as long as the session, and a while longer.
    pub(crate) fn has_taken(&self, tree: &Tree, file: &Handle, lock: &Lock) {
        tree.locks.taken_by(file, lock, self.session);
        if self.is_closed.load(Ordering::SeqCst) {
            tree.locks.lose(self.session);
        }
    }
}

/// The answer to `request`.
pub(crate) fn answer(tree: &Tree, asker: &Asker, request: Request) -> Result<Reply, Failure> {
    let watcher = asker.watcher.as_ref();
    match request {
        Request::Lookup { dir, name } => lookup(tree, watcher, &dir, &name).map(Reply::Entry),
        Request::Getattr { handle } => {
            let attr = watcher::attr(watcher, &tree.handles, &handle)?;
            Ok(Reply::Attr(tree.orphans.told(&handle, attr)))
        }
        Request::Readlink { handle } => readlink(tree, watcher, &handle).map(Reply::Target),
        Request::Open { handle, flags } => open(tree, asker, &handle, flags),
        Request::Flush { file, owner } => {
            let file = asker.files.get(file)?;
            tree.locks.drop_owner(file.handle(), LockSort::Posix, owner);
            Ok(Reply::Done)
        }
        Request::Release { file, unlock } => release(tree, asker, file, unlock),
        Request::ReleaseMany { files } => {
            // Dropped one by one: the last of each closes it.
            files.into_iter().for_each(|file| drop(asker.files.release(file)));
            Ok(Reply::Done)
        }
        Request::Fsync { file, data_only } => {
            let file = asker.files.get(file)?;
            mutate::fsync(file.content().fd, data_only).map(|()| Reply::Done)
        }
        Request::Fsyncdir { dir } => match tree.mutator.fsyncdir(&dir) {
            // What has no names has none to write back.
            Err(failure) if failure.status == Status::NoCopy => Ok(Reply::Done),
            synced => synced.map(|()| Reply::Done),
        },
        Request::Lseek { file, offset_bytes, hole } => {
            let file = asker.files.get(file)?;
            let found = mutate::lseek(file.content().fd, offset_bytes, hole);
            found.map(|offset_bytes| Reply::Offset { offset_bytes })
        }
        Request::Getlk { file, lock } => {
            let file = asker.files.get(file)?;
            tree.locks.test(file.handle(), &lock).map(Reply::Lock)
        }
        Request::Setlk { file, lock, wait: _ } => setlk(tree, asker, file, &lock),
        Request::Statfs { handle } => {
            tree.handles.object(&handle)?;
            tree.handles.export().statfs().map(Reply::Statfs).map_err(failure)
        }
        Request::Getattrs { handles } => getattrs(tree, watcher, &handles),
        Request::Unfinished => {
            let member = tree.handles.member();
            let (orphans, led) =
                member.map(|member| member.transactions().unfinished()).unwrap_or_default();
            Ok(Reply::Unfinished { orphans, led })
        }
        Request::Getxattr { handle, name } => getxattr(tree, watcher, &handle, &name),
        Request::Listxattr { handle } => listxattr(tree, watcher, &handle),
        Request::Attach { .. }
        | Request::Join { .. }
        | Request::Renew
        | Request::Detach
        | Request::List { .. }
        | Request::Read { .. }
        | Request::Mutate { .. }
        | Request::Stats
        | Request::Policy { .. }
        | Request::Trace { .. }
        | Request::Compare(_)
        | Request::ReadInPlace { .. } => {
            let detail = "a gateway tells statistics and has policies, a brick does not";
            Err(Failure::new(Status::NotSupported, detail))
        }
    }
}

/// The root directory.
pub(crate) fn root(tree: &Tree, asker: &Asker) -> Result<Entry, Failure> {
    let entry = tree.handles.root_entry()?;
    let attr = watcher::attr(asker.watcher.as_ref(), &tree.handles, &entry.handle)?;
    Ok(Entry { attr: Some(attr), ..entry })
}

fn lookup(
    tree: &Tree,
    watcher: Option<&Watcher>,
    dir: &Handle,
    name: &[u8],
) -> Result<Entry, Failure> {
    name::check_known(&tree.handles, dir, name)?;
    check_arbiter(&tree.handles, dir, name)?;
    let dir = watcher::directory(watcher, &tree.handles, dir)?.ok_or(Status::NotFound)?;
    watcher::entry(watcher, &tree.handles, &dir, name).map_err(|error| match error {
        Errno::NOENT if tree.handles.export().is_removed(dir.fd.as_fd()) => Status::Stale.into(),
        _ => failure(error),
    })
}

/// What files are that names elsewhere lead to.
fn getattrs(tree: &Tree, watcher: Option<&Watcher>, handles: &[Handle]) -> Result<Reply, Failure> {
    if handles.len() > GETATTRS_MAX {
        let detail = format!("{} files; at most {GETATTRS_MAX} at once", handles.len());
        return Err(Failure::new(Status::InvalidArgument, detail));
    }
    let entry = |handle: &Handle| {
        let object = watcher::object(watcher, &tree.handles, handle)?;
        let kind = object.stat.kind();
        let target = match kind {
            FileKind::Symlink => {
                Some(readlinkat(&object.fd, c"", Vec::new()).map_err(failure)?.into_bytes())
            }
            _ => None,
        };
        let has_no_acl = tree.handles.access_lists().has_none(object.fd.as_fd(), kind);
        let attr = tree.orphans.told(handle, object.stat.attr());
        let attr = Some(Attr { has_no_acl, ..attr });
        Ok(Entry { handle: *handle, attr, kind, target })
    };
    let told = |handle: &Handle| match entry(handle) {
        Ok(entry) => Ok(Some(entry)),
        Err(Failure { status: Status::Stale | Status::NoCopy | Status::BadHandle, .. }) => Ok(None),
        Err(failure) => Err(failure),
    };
    handles.iter().map(told).collect::<Result<_, Failure>>().map(Reply::Entries)
}

fn getxattr(
    tree: &Tree,
    watcher: Option<&Watcher>,
    handle: &Handle,
    name: &[u8],
) -> Result<Reply, Failure> {
    if is_own(handle, name) {
        return Err(Status::NoAttribute.into());
    }
    let object = watcher::object(watcher, &tree.handles, handle);
    let object = object.map_err(|failure| match failure.status {
        // `ls -l` asks each name, and knows what this answer means.
        Status::CrossDevice => Status::NotSupported.into(),
        _ => failure,
    })?;
    xattr::getxattr(object.fd.as_fd(), name).map(Reply::Xattr)
}

fn listxattr(tree: &Tree, watcher: Option<&Watcher>, handle: &Handle) -> Result<Reply, Failure> {
    match watcher::object(watcher, &tree.handles, handle) {
        Ok(object) => {
            let mut names = xattr::listxattr(object.fd.as_fd())?;
            if DirId::of_handle(handle).is_some() {
                names = without_own(&names);
            }
            Ok(Reply::Xattr(names))
        }
        Err(failure) if failure.status == Status::CrossDevice => Ok(Reply::Xattr(Vec::new())),
        Err(failure) => Err(failure),
    }
}

/// Whether the brick keeps an extended attribute for itself.
pub(crate) fn is_own(handle: &Handle, name: &[u8]) -> bool {
    is_own_xattr(name) && DirId::of_handle(handle).is_some()
}

fn without_own(names: &[u8]) -> Vec<u8> {
    let names = names.split_inclusive(|&byte| byte == 0);
    names
        .filter(|name| !is_own_xattr(name.strip_suffix(b"\0").unwrap_or(name)))
        .flatten()
        .copied()
        .collect()
}

fn readlink(tree: &Tree, watcher: Option<&Watcher>, handle: &Handle) -> Result<Vec<u8>, Failure> {
    let object = watcher::object(watcher, &tree.handles, handle)?;
    if object.stat.kind() != FileKind::Symlink {
        return Err(Failure::new(Status::InvalidArgument, "not a symbolic link"));
    }
    Ok(readlinkat(&object.fd, c"", Vec::new()).map_err(failure)?.into_bytes())
}

fn open(tree: &Tree, asker: &Asker, handle: &Handle, flags: u32) -> Result<Reply, Failure> {
    let place = asker.files.reserve()?;
    let opened = tree.mutator.open(handle, flags)?;
    let mut attr = opened.attr;
    if let Some(watcher) = &asker.watcher {
        let stat = crate::attr::stat(opened.fd.as_fd()).map_err(failure)?;
        watcher.attr(handle, opened.fd.as_fd(), &stat);
        let stat = crate::attr::stat(opened.fd.as_fd()).map_err(failure)?;
        attr = tree.orphans.told(handle, stat.attr());
    }
    let file = asker.files.insert(place, opened, flags);
    Ok(Reply::Opened { file, attr })
}

fn release(
    tree: &Tree,
    asker: &Asker,
    file: u64,
    unlock: Option<LockOwner>,
) -> Result<Reply, Failure> {
    let file = asker.files.release(file)?;
    if let Some(owner) = unlock {
        tree.locks.drop_owner(file.handle(), LockSort::Flock, owner);
    }
    Ok(Reply::Done)
}

fn setlk(tree: &Tree, asker: &Asker, file: u64, lock: &Lock) -> Result<Reply, Failure> {
    let file = asker.files.get(file)?;
    tree.locks.set(file.handle(), lock)?;
    asker.has_taken(tree, file.handle(), lock);
    Ok(Reply::Done)
}
