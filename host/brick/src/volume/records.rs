//! What a name is at its arbiter: read, and made.

use std::os::fd::AsFd;

use portcullis_core::volume::{LinkId, Named, Place, Pointer, Record};
use portcullis_core::{Entry, Status};
use portcullis_wire::message::Failure;
use rustix::fs::{AtFlags, Gid, Uid, chownat, symlinkat, unlinkat};
use rustix::io::{Errno, Result as IoResult};

use super::Member;
use super::noted::Check;
use super::shelves::Shelves;
use crate::attr::stat;
use crate::handles::{Directory, Handles};

/// What a name is, with the entry of a body.
pub(super) struct Found {
    pub(super) record: Record,
    /// The file itself, where the name is no pointer.
    pub(super) body: Option<Entry>,
}

impl Found {
    /// The pointer that it is.
    pub(super) fn pointer(&self) -> Option<Pointer> {
        match self.record.what {
            Named::Pointer(pointer) => Some(pointer),
            Named::Body { .. } => None,
        }
    }
}

/// What `name` is in a directory; `None` where it is not there.
pub(super) fn find(handles: &Handles, dir: &Directory, name: &[u8]) -> IoResult<Option<Found>> {
    let fd = match handles.export().open_name(dir.fd.as_fd(), name) {
        Err(Errno::NOENT) => return Ok(None),
        fd => fd?,
    };
    let uid = stat(fd.as_fd())?.attr().uid;
    if let Some(pointer) = handles.pointer_of(fd.as_fd())? {
        let record = Record { what: Named::Pointer(pointer), uid };
        return Ok(Some(Found { record, body: None }));
    }
    let entry = match handles.entry(dir, name) {
        Err(Errno::NOENT) => return Ok(None),
        entry => entry?,
    };
    let what = Named::Body { handle: entry.handle, kind: entry.kind };
    Ok(Some(Found { record: Record { what, uid }, body: Some(entry) }))
}

/// Makes the symbolic link that is a pointer, aside, and answers its name there
/// ([`Copies::new_dir`](super::copies::Copies::new_dir)).
pub(super) fn make_aside(
    handles: &Handles,
    member: &Member,
    name: &str,
    pointer: &Pointer,
    uid: u32,
) -> IoResult<()> {
    let aside = member.copies().new_dir();
    let target = Member::target_of(pointer, |bytes| handles.tag(bytes));
    match unlinkat(aside, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error),
    }
    symlinkat(&target[..], aside, name)?;
    let at = stat_owner(aside, name)?;
    if at != uid {
        let uid = Some(Uid::from_raw(uid));
        chownat(aside, name, uid, None::<Gid>, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}

fn stat_owner(dir: std::os::fd::BorrowedFd<'_>, name: &str) -> IoResult<u32> {
    Ok(crate::attr::stat_name(dir, name.as_bytes())?.attr().uid)
}

/// The path of a hidden name of a file, from [`Member::bodies`].
pub(super) fn body_path(link: LinkId) -> String {
    Shelves::path(body_part(link), &body_name(link))
}

pub(super) fn body_name(link: LinkId) -> String {
    format!("{link:032x}")
}

/// Which part a hidden name lies in.
pub(super) fn body_part(link: LinkId) -> u8 {
    (link >> 120) as u8
}

/// Whether a commit was done that was noted in an earlier life of the brick.
pub(super) fn was_done(handles: &Handles, member: &Member, check: &Check) -> bool {
    let found = |place: &Place| -> Result<Option<Found>, Failure> {
        let dir = match handles.directory(&place.dir) {
            Err(failure) if matches!(failure.status, Status::NoCopy | Status::Stale) => {
                return Ok(None);
            }
            dir => dir?,
        };
        find(handles, &dir, &place.name).map_err(crate::error::failure)
    };
    match check {
        Check::Done => true,
        Check::NameIs(place, pointer) => {
            found(place).is_ok_and(|found| found.and_then(|it| it.pointer()) == Some(*pointer))
        }
        Check::NameGone(place) => found(place).is_ok_and(|found| found.is_none()),
        Check::Swapped(place, handle, link) => {
            let stands_for = found(place).ok().flatten().map(|it| it.record.what.handle());
            if stands_for.is_some_and(|stands_for| stands_for != *handle) {
                // What it stood for has its name yet, and nothing leads to the hidden one.
                let _ = unlinkat(member.bodies().dir(), body_path(*link), AtFlags::empty());
            }
            stands_for == Some(*handle)
        }
        Check::LinkGone(link) => {
            let path = body_path(*link);
            let at = crate::attr::stat_name(member.bodies().dir(), path.as_bytes());
            at.err() == Some(Errno::NOENT)
        }
    }
}
