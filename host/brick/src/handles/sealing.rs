//! Which kind a handle is, and its tag put on and checked.
//!
//! Where the brick is a member of a volume other than the first, the handles that it makes begin
//! with its number ([`portcullis_core::volume::member_of`]): what follows is as it would be without.
//! What must hold: a handle that another member made, or this brick before it was one, is stale,
//! whatever else it says.

use portcullis_core::volume::{KIND_MEMBER, KIND_SPREAD, MemberId, Owner, member_of};
use portcullis_core::{Handle, Status};
use portcullis_wire::message::Failure;
use rustix::io::Errno;

use super::{Handles, KERNEL};

/// Bytes before the kind, in a handle that says whose it is.
const OWNER_LEN: usize = 2;

/// The kind of a handle, among those of one brick; nothing is checked. `None` for what is none of
/// these.
pub(super) fn kind(handle: &Handle) -> Option<u8> {
    match *handle.as_bytes() {
        [KIND_MEMBER, _, kind, ..] => Some(kind),
        [KIND_SPREAD | KIND_MEMBER, ..] | [] => None,
        [kind, ..] => Some(kind),
    }
}

/// Whether no place is needed to find the file of a handle with these bytes.
pub(super) fn is_found_by_itself(handle: &[u8]) -> bool {
    matches!(handle, [KERNEL | KIND_SPREAD, ..] | [KIND_MEMBER, _, KERNEL, ..])
}

impl Handles {
    /// The handle whose body is `parts`; `OVERFLOW` where they are too long.
    pub(super) fn seal(&self, parts: &[&[u8]]) -> Result<Handle, Errno> {
        self.seal_for(self.member().map(|member| member.number()), parts)
    }

    /// The same where the brick is this member of a volume.
    pub(super) fn seal_for(
        &self,
        member: Option<MemberId>,
        parts: &[&[u8]],
    ) -> Result<Handle, Errno> {
        let sealed = match member {
            None | Some(0) => self.key.seal(parts),
            Some(number) => self.key.seal_after(&[KIND_MEMBER, number], parts),
        };
        sealed.ok_or(Errno::OVERFLOW)
    }

    /// The body of a handle that this brick made: its kind, which is there, and the rest.
    pub(super) fn unseal<'a>(&self, handle: &'a Handle) -> Result<&'a [u8], Failure> {
        if let Some(member) = self.member()
            && member_of(handle) != Owner::Member(member.number())
        {
            let detail = "of another member of the volume; look the file up again";
            return Err(Failure::new(Status::Stale, detail));
        }
        let body = self.key.unseal(handle).and_then(|body| match body {
            [KIND_MEMBER, rest @ ..] if self.member().is_some() => rest.get(OWNER_LEN - 1..),
            body => Some(body),
        });
        body.filter(|body| !body.is_empty()).ok_or_else(|| {
            Failure::new(
                Status::BadHandle,
                "forged, or made for another export or by another identity; look the file up again",
            )
        })
    }
}
