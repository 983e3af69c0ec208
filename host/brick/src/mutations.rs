//! A mutation's way: admitted once, applied as its caller, told to all who watch, answered.
//!
//! What must hold: an operation that is asked again is not applied again; the answer leaves when
//! everybody else has forgotten what is no longer true; what failed half way is told as well.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use portcullis_core::replay::{Admission, OpId};
use portcullis_core::watch::Change;
use portcullis_core::{Attr, Entry, Handle, Status};
use portcullis_transport::Body;
use portcullis_wire::Reply;
use portcullis_wire::message::{Caller, Failure, Mutated, Mutation};
use tokio::sync::oneshot;

use crate::answers::Asker;
use crate::mutate::{self, Changes, Place};
use crate::service::{BrickService, Session};
use crate::tree::Tree;
use crate::watcher;

/// What came of an operation, kept until its client has it.
#[derive(Clone, Debug)]
pub(crate) struct Applied {
    result: Result<(Mutated, Vec<Change>), Failure>,
    /// The session that was answered; files are open in no other.
    session: u64,
}

/// Applies a mutation, or answers what came of it before.
pub(crate) async fn mutate(
    service: &BrickService,
    session: &Arc<Session>,
    op: OpId,
    caller: Caller,
    mutation: Mutation,
    body: Body,
) -> Result<Reply, Failure> {
    let tree = &service.tree;
    // All of it first: what does not arrive whole was never begun.
    let body = body.collect().await;
    let body = body.map_err(|error| Failure::new(Status::BadFrame, error.to_string()))?;
    let harmless = is_harmless(session, &mutation);
    loop {
        let mut first = None;
        let admission = tree.replays.lock().begin(&op, harmless, || {
            let (waiter, finished) = oneshot::channel();
            first = Some(finished);
            waiter
        });
        match admission {
            Admission::Apply => {
                let (applied, dirs) = apply(tree, session, caller, mutation, body).await;
                let waiters = tree.replays.lock().finish(&op, applied.clone());
                for waiter in waiters {
                    // Whoever no longer waits needs no word.
                    let _ = waiter.send(());
                }
                return reply(applied.result, dirs);
            }
            Admission::Replay(applied) => {
                service.counters.replays.fetch_add(1, Ordering::Relaxed);
                let (repeated, asker) = (tree.clone(), session.asker());
                if let Ok((_, changes)) = &applied.result {
                    // Whoever asked first may have been lost before its answer, and with it those
                    // whom it would have told.
                    tree.watching.change(session.id(), changes).await;
                }
                let again = move || repeat(&repeated, &asker, applied, &mutation);
                // What its directories were like may be true no more.
                return reply(tree.workers.run(again).await, Vec::new());
            }
            Admission::Joined => {
                // Finished or given up: either way it is asked for anew.
                if let Some(first) = first {
                    let _ = first.await;
                }
            }
            Admission::Unknown => {
                let detail = "the brick was restarted meanwhile; look before you repeat it";
                return Err(Failure::new(Status::InDoubt, detail));
            }
            Admission::Answered => {
                let detail = "an operation whose answer its client has already";
                return Err(Failure::new(Status::InvalidArgument, detail));
            }
            Admission::Busy => {
                let detail = "the client has too many operations without an answer";
                return Err(Failure::new(Status::Busy, detail));
            }
        }
    }
}

fn reply(
    result: Result<(Mutated, Vec<Change>), Failure>,
    dirs: Vec<(Handle, Attr)>,
) -> Result<Reply, Failure> {
    result.map(|(result, changes)| Reply::Mutated { result, changes, dirs })
}

/// Whether applying it twice does no harm.
fn is_harmless(session: &Session, mutation: &Mutation) -> bool {
    let appends = match mutation {
        Mutation::Write { file, .. } => session.files.get(*file).is_ok_and(|file| file.is_append),
        _ => false,
    };
    mutation.is_idempotent() && !appends
}

/// Applies it, and waits until everybody who watches has forgotten what is no longer true; also what
/// the directories are like since.
async fn apply(
    tree: &Arc<Tree>,
    session: &Arc<Session>,
    caller: Caller,
    mutation: Mutation,
    body: Vec<Bytes>,
) -> (Applied, Vec<(Handle, Attr)>) {
    let (at, asker) = (tree.clone(), session.asker());
    let is_rename = matches!(mutation, Mutation::Rename { .. });
    let is_mkdir = matches!(mutation, Mutation::Mkdir { .. });
    let work = move || {
        let mut changes = Changes::default();
        let applier = Applier { tree: &at, asker: &asker, caller: &caller, body: &body };
        let places = mutation.dirs();
        let result = applier.apply(mutation, &mut changes);
        let dirs = if result.is_ok() { applier.dirs(places) } else { Vec::new() };
        if at.orphans.has_made_dir() {
            changes.attr(*at.handles.root());
        }
        Ok((result, changes.into_vec(), dirs))
    };
    let (result, changes, dirs) = match tree.workers.run(work).await {
        Ok(done) => done,
        // Nobody knows how far it came.
        Err(failure) => (Err(failure), vec![Change::All], Vec::new()),
    };
    if is_rename {
        for change in &changes {
            if let Change::Attr { handle } = change {
                tree.direct.moved(handle);
            }
        }
    }
    // A failure tells no changes: then the one who asked is told as all others are. So is the one who
    // made a directory that somebody was faster to fill.
    let is_filled = is_mkdir && changes.iter().any(|change| matches!(change, Change::Names { .. }));
    let origin = session.id().filter(|_| result.is_ok() && !is_filled);
    tree.watching.change(origin, &changes).await;
    let result = result.map(|mutated| (mutated, changes));
    (Applied { result, session: session.number }, dirs)
}

/// What was answered before, in the terms of the session that asks now. Blocks.
fn repeat(
    tree: &Tree,
    asker: &Asker,
    applied: Applied,
    mutation: &Mutation,
) -> Result<(Mutated, Vec<Change>), Failure> {
    let (mutated, changes) = applied.result?;
    let again = match (mutated, mutation) {
        (Mutated::Entry(entry), _) => Mutated::Entry(told(tree, asker, entry)),
        (
            Mutated::Created { entry, file },
            Mutation::Create { flags, .. } | Mutation::Tmpfile { flags, .. },
        ) => {
            let file = if applied.session == asker.session {
                file
            } else {
                asker.files.check_room()?;
                asker.files.insert(tree.mutator.open(&entry.handle, *flags)?, *flags)?
            };
            Mutated::Created { entry: told(tree, asker, entry), file }
        }
        (Mutated::Attr(_), Mutation::Setattr { handle, .. }) => {
            let attr = watcher::attr(asker.watcher.as_ref(), &tree.handles, handle)?;
            Mutated::Attr(tree.orphans.told(handle, attr))
        }
        (mutated, _) => mutated,
    };
    Ok((again, changes))
}

/// An entry as it is told to the one who made it.
fn told(tree: &Tree, asker: &Asker, entry: Entry) -> Entry {
    let Some(watcher) = &asker.watcher else { return entry };
    let entry = watcher.own(&tree.handles, entry);
    let attr = entry.attr.map(|attr| tree.orphans.told(&entry.handle, attr));
    Entry { attr, ..entry }
}

/// One operation being applied. Blocks.
struct Applier<'a> {
    tree: &'a Tree,
    asker: &'a Asker,
    caller: &'a Caller,
    body: &'a [Bytes],
}

impl Applier<'_> {
    fn apply(&self, mutation: Mutation, changes: &mut Changes) -> Result<Mutated, Failure> {
        let (mutator, caller) = (&self.tree.mutator, self.caller);
        match mutation {
            Mutation::Create { dir, name, mode, flags } => {
                self.asker.files.check_room()?;
                self.watch_names(&dir)?;
                let at = Place { dir: &dir, name: &name };
                let (entry, opened) = mutator.create(caller, at, flags, mode, changes)?;
                let file = self.asker.files.insert(opened, flags)?;
                Ok(Mutated::Created { entry: told(self.tree, self.asker, entry), file })
            }
            Mutation::Tmpfile { dir, mode, flags } => {
                self.asker.files.check_room()?;
                let (entry, opened) = mutator.tmpfile(caller, &dir, flags, mode)?;
                let file = self.asker.files.insert(opened, flags)?;
                Ok(Mutated::Created { entry: told(self.tree, self.asker, entry), file })
            }
            Mutation::Mkdir { dir, name, mode } => {
                let made =
                    self.entry(&dir, &name, |at| mutator.mkdir(caller, at, mode, changes))?;
                self.watch_made(&made, changes);
                Ok(made)
            }
            Mutation::Mknod { dir, name, mode, rdev } => {
                self.entry(&dir, &name, |at| mutator.mknod(caller, at, mode, rdev, changes))
            }
            Mutation::Symlink { dir, name, target } => {
                self.entry(&dir, &name, |at| mutator.symlink(caller, at, &target, changes))
            }
            Mutation::Link { handle, dir, name } => {
                self.entry(&dir, &name, |at| mutator.link(caller, &handle, at, changes))
            }
            Mutation::Unlink { dir, name } => {
                let at = Place { dir: &dir, name: &name };
                mutator.unlink(caller, at, changes).map(|()| Mutated::Done)
            }
            Mutation::Rmdir { dir, name } => {
                let at = Place { dir: &dir, name: &name };
                mutator.rmdir(caller, at, changes).map(|()| Mutated::Done)
            }
            Mutation::Rename { dir, name, new_dir, new_name, flags } => {
                let from = Place { dir: &dir, name: &name };
                let to = Place { dir: &new_dir, name: &new_name };
                mutator.rename(caller, from, to, flags, changes).map(|()| Mutated::Done)
            }
            other => self.apply_to_file(other, changes),
        }
    }

    fn apply_to_file(&self, mutation: Mutation, changes: &mut Changes) -> Result<Mutated, Failure> {
        let (mutator, files, caller) = (&self.tree.mutator, &self.asker.files, self.caller);
        // A caller who is not root may not keep the set-id bits of what it writes to.
        let kill = (caller.uid != 0).then_some(caller);
        match mutation {
            Mutation::Setattr { handle, file, set } => {
                let file = if file == 0 { None } else { Some(files.get(file)?) };
                if file.as_ref().is_some_and(|file| *file.handle() != handle) {
                    return Err(Failure::new(Status::InvalidArgument, "another file is open"));
                }
                // Watched before the attributes are read that are answered.
                watcher::object(self.asker.watcher.as_ref(), &self.tree.handles, &handle)?;
                let fd = file.as_ref().map(|file| file.content().fd);
                mutator.setattr(caller, &handle, fd, &set, changes).map(Mutated::Attr)
            }
            Mutation::Setxattr { handle, name, flags, len_bytes: _ } => {
                let value = self.body.concat();
                let set = mutator.setxattr(caller, &handle, &name, &value, flags, changes);
                set.map(|()| Mutated::Done)
            }
            Mutation::Removexattr { handle, name } => {
                mutator.removexattr(caller, &handle, &name, changes).map(|()| Mutated::Done)
            }
            Mutation::Write { file, offset_bytes, kill_set_id, len_bytes: _ } => {
                let file = files.get(file)?;
                self.watch_content(file.handle());
                let offset = (!file.is_append).then_some(offset_bytes);
                let kill = kill_set_id.then_some(caller);
                let written = mutate::write(file.content(), offset, self.body, kill, changes)?;
                Ok(Mutated::Written { len_bytes: written as u64 })
            }
            Mutation::Fallocate { file, mode, offset_bytes, len_bytes } => {
                let file = files.get(file)?;
                self.watch_content(file.handle());
                let at = file.content();
                mutate::allocate(at, mode, offset_bytes, len_bytes, kill, changes)?;
                Ok(Mutated::Done)
            }
            Mutation::CopyFileRange { file, offset_bytes, to_file, to_offset_bytes, len_bytes } => {
                let (from, to) = (files.get(file)?, files.get(to_file)?);
                self.watch_content(to.handle());
                let from = (from.content(), offset_bytes);
                let to = (to.content(), to_offset_bytes);
                let len_bytes = mutate::copy_file_range(from, to, len_bytes, kill, changes)?;
                Ok(Mutated::Written { len_bytes })
            }
            // The rest is applied to names.
            _ => Err(Status::NotSupported.into()),
        }
    }

    /// What the directories are like now, for the one who caches it.
    fn dirs(&self, dirs: [Option<Handle>; 2]) -> Vec<(Handle, Attr)> {
        let Some(watcher) = &self.asker.watcher else { return Vec::new() };
        let attr = |dir: Handle| {
            // Gone already, or not to be read: it is asked for again.
            let attr = watcher::attr(Some(watcher), &self.tree.handles, &dir).ok()?;
            Some((dir, attr))
        };
        dirs.into_iter().flatten().filter_map(attr).collect()
    }

    fn entry(
        &self,
        dir: &Handle,
        name: &[u8],
        make: impl FnOnce(Place<'_>) -> Result<Entry, Failure>,
    ) -> Result<Mutated, Failure> {
        self.watch_names(dir)?;
        let entry = make(Place { dir, name })?;
        Ok(Mutated::Entry(told(self.tree, self.asker, entry)))
    }

    /// The one who made a directory may take it for empty, unless somebody was faster to fill it.
    fn watch_made(&self, made: &Mutated, changes: &mut Changes) {
        let Mutated::Entry(entry) = made else { return };
        let handles = &self.tree.handles;
        let is_empty = || {
            self.watch_names(&entry.handle).ok()?;
            let dir = handles.directory(&entry.handle).ok()?;
            let dir = handles.export().open_for_list(dir.fd.as_fd()).ok()?;
            let mut names = rustix::fs::Dir::read_from(dir).ok()?;
            let is_dots = |name: &std::ffi::CStr| matches!(name.to_bytes(), b"." | b"..");
            Some(names.all(|entry| entry.is_ok_and(|entry| is_dots(entry.file_name()))))
        };
        if self.asker.watcher.is_some() && is_empty() != Some(true) {
            changes.names(entry.handle);
        }
    }

    /// The one who asks may keep the content that it writes. Changes of other programs are looked
    /// for since the file was opened.
    fn watch_content(&self, handle: &Handle) {
        if let Some(watcher) = &self.asker.watcher {
            watcher.session().watched.watch_attr(handle);
        }
    }

    /// The one who asks may keep what the name stands for.
    fn watch_names(&self, dir: &Handle) -> Result<(), Failure> {
        if let Some(watcher) = &self.asker.watcher {
            watcher.names(&self.tree.handles.directory(dir)?);
        }
        Ok(())
    }
}
