//! What comes of a mutation, on this side: the cache takes it in, other clients are told and waited
//! for, and whoever asked is answered last.
//!
//! What must hold: what was asked for before may be older than what others changed meanwhile, so the
//! answer to a repetition teaches nothing; attributes that others changed on the way are read again;
//! a mutation whose answer comes too late for its client is still taken in.

use std::sync::Arc;

use portcullis_core::cache::Learnt;
use portcullis_core::limits::{LINK_TARGET_LEN_MAX, WRITE_LEN_BYTES_MAX, XATTR_LEN_BYTES_MAX};
use portcullis_core::replay::OpId;
use portcullis_core::watch::{Change, Reading};
use portcullis_core::{Attr, FileKind, Handle, Status};
use portcullis_transport::Body;
use portcullis_wire::message::{Caller, Failure, Mutated, Mutation};
use portcullis_wire::{Reply, ReplyFrame};

use crate::brick_call::{BrickStream, Fault};
use crate::brick_link::BrickLink;
use crate::brick_session::BrickSession;
use crate::mutate::{Asked, Files, Made, Outcome};
use crate::open_file::{AtBrick, OpenFile};
use crate::session::Session;
use crate::session_files::{Place, release_at_brick};
use crate::several;
use crate::volume::{Volume, check_name};

impl Session {
    /// Changes something for this client.
    pub(crate) async fn mutate(
        self: &Arc<Self>,
        op: OpId,
        caller: Caller,
        mutation: Mutation,
        body: Body,
    ) -> Result<Reply, Failure> {
        if op.retry && self.volume.bricks.are_several() {
            self.volume.bricks.meet().await;
        }
        if self.volume.bricks.are_several() && several::may_concern_several(&mutation) {
            return self.mutate_several(op, caller, mutation).await;
        }
        let volume = &self.volume;
        let mut asked = Asked::new(self, op, caller, mutation, body)?;
        let creates = matches!(asked.mutation, Mutation::Create { .. } | Mutation::Tmpfile { .. });
        let place = if creates { Some(self.reserve()?) } else { None };
        let stamp = volume.cache.begin_mutation();
        let reading = volume.watching.grantor().read();
        self.watch_subjects(&asked.mutation, &asked.files);
        let marked = volume.mark(&asked.mutation).await?;
        let outcome = asked.send(self).await;
        let mut refreshed = Vec::new();
        volume.refresh(marked, &mut refreshed).await;
        match outcome {
            Outcome::Made(made) => {
                let Made { mut result, mut changes, mut dirs, session, repeated } = *made;
                volume.touch_dirs(&asked, &mut changes, &mut dirs).await;
                changes.extend(refreshed);
                let may_learn = !repeated && volume.may_cache();
                let learnt =
                    if may_learn { learnt(&asked.mutation, &result, &dirs) } else { Vec::new() };
                volume.inlining.contents.forget(&changes);
                volume.cache.learn(volume.now_ms(), stamp, &changes, &learnt);
                let mut kept = self.keep_open(&asked, &mut result, &session, repeated, place).await;
                if kept.is_ok() {
                    kept = self.open_found(&asked, &mut result, &mut changes).await;
                }
                self.watch_result(&mut result, reading, repeated).await;
                let grantor = volume.watching.grantor();
                dirs.retain(|(dir, _)| !repeated && !grantor.attr_changed_since(reading, dir));
                volume.tell(self.id(), &changes).await;
                kept?;
                self.complete(&asked, &mut result, repeated).await;
                Ok(Reply::Mutated { result, changes, dirs })
            }
            Outcome::Failed(failure) => Err(failure),
            Outcome::Unknown(failure, late) => {
                let changes = possible_changes(&asked.mutation, &asked.files);
                volume.forget(&changes);
                volume.tell(self.id(), &changes).await;
                if let Some(late) = late {
                    tokio::spawn(volume.clone().take_late(*late));
                }
                Err(failure)
            }
        }
    }

    /// Registers watches on everything that this client may learn of from the answer.
    pub(crate) fn watch_subjects(&self, mutation: &Mutation, files: &Files) {
        let Some(watched) = self.watched() else { return };
        for change in possible_changes(mutation, files) {
            match change {
                Change::Attr { handle } => watched.watch_attr(&handle),
                Change::Name { dir, .. } => watched.watch_names(&dir),
                Change::Names { .. } | Change::All => {}
            }
        }
        if let Some(from) = &files[0] {
            // Of a copy: its pages were not changed, but may be cached.
            watched.watch_attr(&from.handle);
        }
    }

    /// Registers watches on what was learnt from the answer alone. What others changed meanwhile is
    /// not told.
    pub(crate) async fn watch_result(
        &self,
        result: &mut Mutated,
        reading: Reading,
        repeated: bool,
    ) {
        let (Mutated::Entry(entry) | Mutated::Created { entry, .. }) = result else { return };
        let grantor = self.volume.watching.grantor();
        if let Some(watched) = self.watched() {
            watched.watch_attr(&entry.handle);
        }
        if let Some(watched) = self.watched()
            && entry.kind == FileKind::Directory
        {
            watched.watch_names(&entry.handle);
            if grantor.names_changed_since(reading, &entry.handle) {
                // It is no longer the empty directory that the client takes it for.
                let names = Change::Names { dir: entry.handle };
                self.volume.tell(None, &[names]).await;
            }
        }
        if repeated || grantor.attr_changed_since(reading, &entry.handle) {
            entry.attr = None;
        }
    }

    /// Reads attributes again that are missing from an answer, or that are as old as its first.
    async fn complete(&self, asked: &Asked, result: &mut Mutated, repeated: bool) {
        match result {
            Mutated::Entry(entry) | Mutated::Created { entry, .. } if entry.attr.is_none() => {
                let read = self.volume.getattr(self.watched(), entry.handle).await;
                if let Ok(Reply::Attr(read)) = read {
                    entry.attr = Some(read);
                }
            }
            Mutated::Attr(attr) if repeated => {
                let Mutation::Setattr { handle, .. } = asked.mutation else { return };
                let read = self.volume.getattr(self.watched(), handle).await;
                if let Ok(Reply::Attr(read)) = read {
                    *attr = read;
                }
            }
            _ => {}
        }
    }

    /// Gives a file that was created and opened its id on the client's connection.
    async fn keep_open(
        self: &Arc<Self>,
        asked: &Asked,
        result: &mut Mutated,
        session: &BrickSession,
        repeated: bool,
        place: Option<Place<'_>>,
    ) -> Result<(), Failure> {
        let (Mutation::Create { flags, .. } | Mutation::Tmpfile { flags, .. }) = asked.mutation
        else {
            return Ok(());
        };
        let (Mutated::Created { entry, file }, Some(place)) = (result, place) else {
            return Ok(());
        };
        let at_brick = AtBrick { epoch: session.epoch, file: *file };
        // The first answer may have given the same open file to the client's lost connection.
        if repeated && self.volume.clients.is_open(entry.handle, at_brick).await {
            let Reply::Opened { file: again, .. } = self.open(entry.handle, flags).await? else {
                return Ok(());
            };
            *file = again;
            return Ok(());
        }
        *file = self.register(place, OpenFile::new(entry.handle, flags, at_brick));
        Ok(())
    }
}

impl Volume {
    /// Waits for the answer to a mutation that is nobody's any more, for as long as the session
    /// with the brick lasts. With the session everything is forgotten anyway.
    async fn take_late(
        self: Arc<Self>,
        (mut stream, brick, epoch): (BrickStream, Arc<BrickLink>, u64),
    ) {
        match stream.receive().await {
            Ok(ReplyFrame::Reply(Reply::Mutated { result, changes, .. })) => {
                self.forget(&changes);
                self.tell(None, &changes).await;
                if let Mutated::Created { file, .. } = result {
                    release_at_brick(&brick, epoch, &[file]).await;
                }
            }
            Ok(ReplyFrame::Failure(failure)) => {
                tracing::debug!(%failure, "an operation failed after its deadline");
            }
            Err(Fault::Lost) => {}
            Ok(_) | Err(Fault::Failed(_)) => self.recalled(&[Change::All]).await,
        }
    }
}

/// Refuses names and lengths that cannot be, before they cost anything.
pub(crate) fn check(mutation: &Mutation) -> Result<(), Failure> {
    if let Mutation::Volume(_) | Mutation::Recall = mutation {
        let detail = "parts of a change are asked of bricks, by gateways";
        return Err(Failure::new(Status::WrongRole, detail));
    }
    for (_, name) in names(mutation).into_iter().flatten() {
        check_name(name)?;
    }
    let (len_bytes, max_bytes) = match mutation {
        Mutation::Write { len_bytes, .. } => (*len_bytes as usize, WRITE_LEN_BYTES_MAX as usize),
        Mutation::Setxattr { len_bytes, .. } => (*len_bytes as usize, XATTR_LEN_BYTES_MAX),
        Mutation::Symlink { target, .. } => (target.len(), LINK_TARGET_LEN_MAX),
        _ => return Ok(()),
    };
    if len_bytes <= max_bytes {
        return Ok(());
    }
    let verb = mutation.verb().name();
    let detail = format!("a {verb} of {len_bytes} bytes, over the limit of {max_bytes}");
    let status = match mutation {
        Mutation::Symlink { .. } => Status::NameTooLong,
        Mutation::Setxattr { .. } => Status::TooLong,
        _ => Status::InvalidArgument,
    };
    Err(Failure::new(status, detail))
}

/// The names that a mutation is about.
pub(crate) fn names(mutation: &Mutation) -> [Option<(Handle, &[u8])>; 2] {
    match mutation {
        Mutation::Create { dir, name, .. }
        | Mutation::Mkdir { dir, name, .. }
        | Mutation::Mknod { dir, name, .. }
        | Mutation::Symlink { dir, name, .. }
        | Mutation::Link { dir, name, .. }
        | Mutation::Unlink { dir, name }
        | Mutation::Rmdir { dir, name } => [Some((*dir, name)), None],
        Mutation::Rename { dir, name, new_dir, new_name, .. } => {
            [Some((*dir, name)), Some((*new_dir, new_name))]
        }
        _ => [None, None],
    }
}

/// Everything named by a mutation that it may change. What a name stood for is known to the brick
/// only.
pub(crate) fn possible_changes(mutation: &Mutation, files: &Files) -> Vec<Change> {
    let mut changes = Vec::with_capacity(4);
    for (dir, name) in names(mutation).into_iter().flatten() {
        changes.push(Change::Name { dir, name: name.to_vec() });
        changes.push(Change::Attr { handle: dir });
    }
    match *mutation {
        Mutation::Link { handle, .. }
        | Mutation::Setattr { handle, .. }
        | Mutation::Setxattr { handle, .. }
        | Mutation::Removexattr { handle, .. } => changes.push(Change::Attr { handle }),
        Mutation::CopyFileRange { .. } => {
            changes.extend(files[1].iter().map(|to| Change::Attr { handle: to.handle }));
        }
        _ => changes.extend(files[0].iter().map(|open| Change::Attr { handle: open.handle })),
    }
    changes
}

/// What is true since a mutation, as far as its answer tells. Of a name that was moved nothing: two
/// names of one file both stay (rename(2)).
fn learnt(mutation: &Mutation, result: &Mutated, dirs: &[(Handle, Attr)]) -> Vec<Learnt> {
    let [first, _] = names(mutation);
    let entry = match result {
        Mutated::Entry(entry) | Mutated::Created { entry, .. } => Some(entry),
        _ => None,
    };
    let mut learnt = match (mutation, first, entry) {
        (Mutation::Tmpfile { .. }, _, Some(entry)) => {
            let attr = entry.attr.map(|attr| Learnt::Attr { handle: entry.handle, attr });
            attr.into_iter().collect()
        }
        (Mutation::Setattr { handle, .. }, ..) => match result {
            Mutated::Attr(attr) => vec![Learnt::Attr { handle: *handle, attr: *attr }],
            _ => Vec::new(),
        },
        (Mutation::Unlink { .. } | Mutation::Rmdir { .. }, Some((dir, name)), _) => {
            vec![Learnt::Absent { dir, name: name.to_vec() }]
        }
        (_, Some((dir, name)), Some(entry)) => {
            let mut learnt = vec![Learnt::Entry { dir, name: name.to_vec(), entry: entry.clone() }];
            if matches!(mutation, Mutation::Mkdir { .. }) {
                learnt.push(Learnt::EmptyDir { dir: entry.handle });
            }
            learnt
        }
        _ => Vec::new(),
    };
    learnt.extend(dirs.iter().map(|&(handle, attr)| Learnt::Attr { handle, attr }));
    learnt
}
