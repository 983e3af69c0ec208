//! Which names may be asked for.

use portcullis_core::entry::is_valid_name;
use portcullis_core::limits::NAME_LEN_MAX;
use portcullis_core::{Handle, Status};
use portcullis_wire::message::Failure;

use crate::handles::Handles;
use crate::orphans::ORPHANS_DIR;
use crate::volume::VOLUME_DIR;

/// Whether `name` can be the name of anything; not of what the brick hides.
pub(crate) fn check(name: &[u8]) -> Result<(), Failure> {
    if name.len() > NAME_LEN_MAX {
        return Err(Status::NameTooLong.into());
    }
    if !is_valid_name(name) {
        let detail =
            "a name is one component: not empty, not . or .., without a slash or a NUL byte";
        return Err(Failure::new(Status::InvalidArgument, detail));
    }
    Ok(())
}

/// Whether the brick keeps `name` for itself, in the root.
pub(crate) fn is_own(name: &[u8]) -> bool {
    name == ORPHANS_DIR || name == VOLUME_DIR
}

fn is_hidden(handles: &Handles, dir: &Handle, name: &[u8]) -> bool {
    is_own(name) && dir == handles.root()
}

/// Checks the name of something that is there.
pub(crate) fn check_known(handles: &Handles, dir: &Handle, name: &[u8]) -> Result<(), Failure> {
    check(name)?;
    if is_hidden(handles, dir, name) { Err(Status::NotFound.into()) } else { Ok(()) }
}

/// Checks the name of something to be made.
pub(crate) fn check_new(handles: &Handles, dir: &Handle, name: &[u8]) -> Result<(), Failure> {
    check(name)?;
    if is_hidden(handles, dir, name) {
        return Err(Failure::new(Status::NotPermitted, "the brick keeps this name for itself"));
    }
    Ok(())
}
