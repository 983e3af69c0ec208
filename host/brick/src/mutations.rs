//! A mutation's way: admitted once, applied as its caller, told to all who watch, answered.
//!
//! What must hold: an operation that is asked again is not applied again; the answer leaves when
//! everybody else has forgotten what is no longer true; what failed half way is told as well.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use portcullis_core::replay::{Admission, OpId};
use portcullis_core::volume::{Ask, DirId, Named, Pointer, Told, member_of};
use portcullis_core::watch::Change;
use portcullis_core::{Attr, Entry, FileKind, Handle, Status};
use portcullis_transport::Body;
use portcullis_wire::Reply;
use portcullis_wire::message::{Caller, Failure, Mutated, Mutation};
use tokio::sync::oneshot;

use crate::answers::{Asker, is_own};
use crate::mutate::{self, Changes, Place};
use crate::service::{BrickService, Session};
use crate::tree::Tree;
use crate::volume::asks::{self, check_arbiter};
use crate::volume::entering;
use crate::watcher;

/// What came of an operation, kept until its client has it.
#[derive(Clone, Debug)]
pub(crate) struct Applied {
    result: Result<(Mutated, Vec<Change>), Failure>,
    /// The session that was answered; files are open in no other.
    session: u64,
    /// The file that is to be opened lies on another member.
    is_elsewhere: bool,
}

impl Applied {
    fn of(result: Result<(Mutated, Vec<Change>), Failure>, session: u64) -> Self {
        Self { result, session, is_elsewhere: false }
    }

    /// Whether it is an answer: not where nothing was done, and other members are to be asked before
    /// the same operation is asked again.
    fn is_kept(&self) -> bool {
        let told =
            |told: &Told| matches!(self.result, Ok((Mutated::Told(ref is), _)) if is == told);
        !told(&Told::NoCopy) && !self.is_elsewhere
    }
}

fn wake(waiters: Vec<oneshot::Sender<()>>) {
    for waiter in waiters {
        // Whoever no longer waits needs no word.
        let _ = waiter.send(());
    }
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
            Admission::Apply if matches!(mutation, Mutation::Recall) => {
                // Nothing was ever asked by this number; whoever asks it now is the first.
                wake(tree.replays.lock().abandon(&op));
                return reply(Ok((Mutated::NotAsked, Vec::new())), Vec::new());
            }
            Admission::Apply => {
                let (applied, dirs) = apply(tree, session, caller, mutation, body).await;
                wake(if applied.is_kept() {
                    tree.replays.lock().finish(&op, applied.clone())
                } else {
                    tree.replays.lock().abandon(&op)
                });
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
    let is_rename = matches!(
        mutation,
        Mutation::Rename { .. }
            | Mutation::Volume(Ask::Rename { .. } | Ask::Commit { .. } | Ask::Finish { .. })
    );
    let is_mkdir = matches!(mutation, Mutation::Mkdir { .. } | Mutation::Volume(Ask::Mkdir { .. }));
    let is_create = matches!(mutation, Mutation::Create { .. });
    let entered = match tree.handles.member() {
        Some(member) => {
            let root = tree.handles.root();
            entering::enter(member, root, session.number, &mutation).await
        }
        None => Ok(None),
    };
    let entered = match entered {
        Ok(entered) => entered,
        Err(failure) => return (Applied::of(Err(failure), session.number), Vec::new()),
    };
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
    let worked = tree.workers.run(work).await;
    // Those who wait for these names wait for no acknowledgements.
    drop(entered);
    let (result, changes, dirs) = match worked {
        Ok((Err(failure), changes, _)) if failure.status == Status::NoCopy => {
            (Ok(Mutated::Told(Told::NoCopy)), changes, Vec::new())
        }
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
    let is_elsewhere = is_create && matches!(result, Ok((Mutated::Told(Told::Elsewhere), _)));
    (Applied { is_elsewhere, ..Applied::of(result, session.number) }, dirs)
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
                let place = asker.files.reserve()?;
                asker.files.insert(place, tree.mutator.open(&entry.handle, *flags)?, *flags)
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
pub(crate) fn told(tree: &Tree, asker: &Asker, entry: Entry) -> Entry {
    let Some(watcher) = &asker.watcher else { return entry };
    let entry = watcher.own(&tree.handles, entry);
    let attr = entry.attr.map(|attr| tree.orphans.told(&entry.handle, attr));
    Entry { attr, ..entry }
}

/// What is told where a file is to be opened whose name is a pointer.
fn elsewhere(pointer: &Pointer) -> Result<Mutated, Failure> {
    match Named::Pointer(*pointer).kind() {
        FileKind::Directory => Err(Status::IsDirectory.into()),
        FileKind::Symlink => Err(Status::Loop.into()),
        _ => Ok(Mutated::Told(Told::Elsewhere)),
    }
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
        self.check_member(&mutation)?;
        match mutation {
            Mutation::Volume(ask) => self.apply_ask(ask, changes),
            Mutation::Create { dir, name, mode, flags } => {
                let place = self.asker.files.reserve()?;
                self.watch_names(&dir)?;
                let at = Place { dir: &dir, name: &name };
                let created = mutator.create(caller, at, flags, mode, changes);
                if created.as_ref().is_err_and(|failure| failure.status == Status::Loop)
                    && let Some(pointer) = self.pointer(&dir, &name)
                {
                    return elsewhere(&pointer);
                }
                let (entry, opened) = created?;
                let file = self.asker.files.insert(place, opened, flags);
                Ok(Mutated::Created { entry: told(self.tree, self.asker, entry), file })
            }
            Mutation::Tmpfile { dir, mode, flags } => {
                let place = self.asker.files.reserve()?;
                let (entry, opened) = mutator.tmpfile(caller, &dir, flags, mode)?;
                let file = self.asker.files.insert(place, opened, flags);
                Ok(Mutated::Created { entry: told(self.tree, self.asker, entry), file })
            }
            Mutation::Mkdir { dir, name, mode } => {
                let made =
                    self.entry(&dir, &name, |at| mutator.mkdir(caller, at, mode, changes))?;
                if let Mutated::Entry(entry) = &made {
                    self.watch_made(entry, changes);
                }
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

    /// What a member of a volume does not do, since it concerns others or would deceive them.
    fn check_member(&self, mutation: &Mutation) -> Result<(), Failure> {
        let handles = &self.tree.handles;
        let Some(member) = handles.member() else { return Ok(()) };
        let refuse = |detail: &str| Err(Failure::new(Status::InvalidArgument, detail));
        match mutation {
            Mutation::Mkdir { .. }
            | Mutation::Unlink { .. }
            | Mutation::Rmdir { .. }
            | Mutation::Rename { .. } => {
                refuse("several bricks may have a part in this: ask a gateway that knows them all")
            }
            Mutation::Symlink { target, .. } if Pointer::is_reserved(target) => {
                refuse("the bricks of a volume keep links to .portcullis: for themselves")
            }
            Mutation::Create { dir, name, .. }
            | Mutation::Mknod { dir, name, .. }
            | Mutation::Symlink { dir, name, .. }
            | Mutation::Link { dir, name, .. } => check_arbiter(handles, dir, name),
            Mutation::Setxattr { handle, name, .. } | Mutation::Removexattr { handle, name }
                if is_own(handle, name) =>
            {
                let detail = "the brick keeps this attribute for itself";
                Err(Failure::new(Status::NotPermitted, detail))
            }
            _ => member.check_refreshed(handles, mutation),
        }
    }

    fn apply_ask(&self, ask: Ask, changes: &mut Changes) -> Result<Mutated, Failure> {
        if let Ask::Mkdir { place, .. } | Ask::Link { place, .. } = &ask {
            self.watch_names(&place.dir)?;
        }
        let told = asks::apply(self.tree, self.asker, self.caller, ask, changes)?;
        if let Told::Made(entry) = &told
            && entry.kind == FileKind::Directory
        {
            self.watch_made(entry, changes);
        }
        Ok(Mutated::Told(told))
    }

    /// What a name leads to that is a pointer.
    fn pointer(&self, dir: &Handle, name: &[u8]) -> Option<Pointer> {
        let handles = &self.tree.handles;
        handles.pointer_by_name(&handles.directory(dir).ok()?, name)
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
        let handles = &self.tree.handles;
        // A copy away from home knows the directory's attributes as little as anybody.
        let is_home = |dir: &Handle| {
            handles.member().is_none_or(|member| member_of(dir).home() == member.number())
        };
        let attr = |dir: Handle| {
            // Gone already, or not to be read: it is asked for again.
            let attr = watcher::attr(Some(watcher), handles, &dir).ok()?;
            Some((dir, attr))
        };
        dirs.into_iter().flatten().filter(is_home).filter_map(attr).collect()
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
    fn watch_made(&self, entry: &Entry, changes: &mut Changes) {
        let handles = &self.tree.handles;
        let is_empty = || {
            self.watch_names(&entry.handle).ok()?;
            let dir = handles.directory(&entry.handle).ok()?;
            let dir = handles.export().open_for_list(dir.fd.as_fd()).ok()?;
            let mut names = rustix::fs::Dir::read_from(dir).ok()?;
            let is_dots = |name: &std::ffi::CStr| matches!(name.to_bytes(), b"." | b"..");
            let is_empty = names.all(|entry| entry.is_ok_and(|entry| is_dots(entry.file_name())));
            Some(is_empty && self.has_no_copies(&entry.handle)?)
        };
        if self.asker.watcher.is_some() && is_empty() != Some(true) {
            changes.names(entry.handle);
        }
    }

    /// Whether no other member has names of a directory that was made here, or is about to: then who
    /// watches its names here is told before one has.
    fn has_no_copies(&self, dir: &Handle) -> Option<bool> {
        let handles = &self.tree.handles;
        let Some(member) = handles.member().filter(|_| DirId::of_handle(dir).is_some()) else {
            return Some(true);
        };
        let dir = handles.directory(dir).ok()?;
        Some(member.cards().read(dir.fd.as_fd()).ok()?.copies.is_empty())
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
