//! What a brick keeps of being a member of a volume: one small file of text.
//!
//! What must hold: it is there whole or not at all, also after a crash; a file that does not read as
//! it was written is an error, never no membership, for then the brick would give out its files
//! under other handles.

use std::os::fd::BorrowedFd;
use std::str::FromStr;

use portcullis_core::volume::MemberSet;
use portcullis_wire::message::Membership;
use rustix::fs::{Mode, OFlags, fsync, openat, renameat};
use rustix::io::{Errno, Result, read, write};

/// The file, in the hidden directory.
const NAME: &str = "member";
/// It is written under this name first.
const NEW_NAME: &str = "member.new";
/// The first line; its number changes with what follows.
const TITLE: &str = "portcullis volume 2";
/// More than it has.
const LEN_BYTES_MAX: usize = 256;

/// The membership kept in `dir`; `None` where there is none. `BADMSG` for a file that is damaged or
/// of another version.
pub(super) fn load(dir: BorrowedFd<'_>) -> Result<Option<Membership>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match openat(dir, NAME, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        file => file?,
    };
    let mut text = [0; LEN_BYTES_MAX];
    let len = read(&file, &mut text)?;
    let text = std::str::from_utf8(&text[..len]).map_err(|_| Errno::BADMSG)?;
    parse(text).ok_or(Errno::BADMSG).map(Some)
}

/// Keeps `membership` in `dir`.
pub(super) fn store(dir: BorrowedFd<'_>, membership: &Membership) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let file = openat(dir, NEW_NAME, flags, Mode::RUSR | Mode::WUSR)?;
    let text = print(membership);
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let written = write(&file, rest)?;
        rest = &rest[written..];
    }
    fsync(&file)?;
    renameat(dir, NEW_NAME, dir, NAME)
}

fn print(membership: &Membership) -> String {
    let Membership { volume, member, count, root_layout, joined } = membership;
    let joined = joined.bits();
    format!(
        "{TITLE}\nid {volume:032x}\nmember {member}\ncount {count}\nroot {root_layout}\n\
         joined {joined:x}\n"
    )
}

fn parse(text: &str) -> Option<Membership> {
    let mut lines = text.lines();
    if lines.next() != Some(TITLE) {
        return None;
    }
    let mut value = |key: &str| lines.next()?.strip_prefix(key)?.strip_prefix(' ');
    let volume = u128::from_str_radix(value("id")?, 16).ok()?;
    let number = |value: &str| u8::from_str(value).ok();
    let membership = Membership {
        volume,
        member: number(value("member")?)?,
        count: number(value("count")?)?,
        root_layout: number(value("root")?)?,
        joined: MemberSet::of_bits(u64::from_str_radix(value("joined")?, 16).ok()?),
    };
    (print(&membership) == text).then_some(membership)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn what_is_stored_is_loaded_and_what_is_damaged_is_no_membership_of_none() {
        let dir = tempfile::tempdir().expect("a directory");
        let fd = std::fs::File::open(dir.path()).expect("opened");
        assert_eq!(load(fd.as_fd()), Ok(None));
        for count in [2, 3, 255] {
            let joined = MemberSet::of_bits(u64::from(count));
            let volume = u128::MAX - 7;
            let membership = Membership { volume, member: 1, count, root_layout: 2, joined };
            store(fd.as_fd(), &membership).expect("stored");
            assert_eq!(load(fd.as_fd()), Ok(Some(membership)));
        }
        let whole = std::fs::read(dir.path().join(NAME)).expect("read");
        for len in 0..whole.len() {
            std::fs::write(dir.path().join(NAME), &whole[..len]).expect("written");
            assert_eq!(load(fd.as_fd()), Err(Errno::BADMSG), "{len} bytes");
        }
    }
}
