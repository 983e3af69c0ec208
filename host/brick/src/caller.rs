//! On whose behalf a change is made: a thread takes on the caller's identity for one operation.
//!
//! So the file system itself gives new files their owner and group, minds the sticky bit and
//! setgid directories, and clears set-id bits. `setfsuid(2)` drops what root may do with files
//! (`CAP_DAC_OVERRIDE`, `CAP_FOWNER`, `CAP_FSETID`, `CAP_MKNOD` and their like) unless the caller
//! is root too. It needs a brick that may change its identity; any other makes all changes as
//! itself, and says so once.
//!
//! What must hold: no thread goes on with an identity that is not the brick's own.

use std::sync::OnceLock;

use portcullis_wire::message::Caller;
use rustix::fs::{Gid, Mode};
use rustix::io::{Errno, Result};
use rustix::process::{getegid, geteuid, getgroups, umask};
use rustix::thread::{CapabilitySet, capabilities, set_thread_groups};
use tracing::warn;

/// An id that no user and no group has: `chown(2)` and `setfsuid(2)` take it for "none".
const NO_ID: u32 = u32::MAX;
/// `nobody`: whoever may do nothing in particular.
const NOBODY: u32 = 65_534;

/// The caller without what root may do: its writes clear set-id bits.
pub(crate) fn unprivileged(caller: &Caller) -> Caller {
    let uid = if caller.uid == 0 { NOBODY } else { caller.uid };
    Caller { uid, ..caller.clone() }
}

/// The brick's own identity.
struct Own {
    uid: u32,
    gid: u32,
    groups: Vec<Gid>,
    may_change: bool,
}

impl Own {
    fn get() -> &'static Self {
        static OWN: OnceLock<Own> = OnceLock::new();
        OWN.get_or_init(|| {
            let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
            let uid = geteuid().as_raw();
            let capable = capabilities(None).is_ok_and(|sets| sets.effective.contains(needed));
            let groups = getgroups();
            let may_change = uid == 0 && capable && groups.is_ok();
            if !may_change {
                warn!(uid, "not root: every change is made as this user, whoever asked for it");
            }
            Own { uid, gid: getegid().as_raw(), groups: groups.unwrap_or_default(), may_change }
        })
    }
}

/// Whether changes are made as their callers.
pub(crate) fn changes_identity() -> bool {
    Own::get().may_change
}

/// To be called once, before the first file is made: callers have applied their own umask.
pub(crate) fn clear_umask() {
    umask(Mode::empty());
}

/// Does `work` on this thread as `caller`.
pub(crate) fn as_caller<T>(caller: &Caller, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let own = Own::get();
    if !own.may_change {
        return work();
    }
    let _assumed = Assumed::assume(own, caller)?;
    work()
}

/// The caller's identity on this thread, until it is dropped.
struct Assumed(&'static Own);

impl Assumed {
    fn assume(own: &'static Own, caller: &Caller) -> Result<Self> {
        if caller.uid == NO_ID || caller.gid == NO_ID || caller.groups.contains(&NO_ID) {
            return Err(Errno::INVAL);
        }
        let assumed = Self(own);
        let groups: Vec<Gid> = caller.groups.iter().map(|&gid| Gid::from_raw(gid)).collect();
        set_thread_groups(&groups)?;
        if set_fs_ids(caller.uid, caller.gid) { Ok(assumed) } else { Err(Errno::PERM) }
    }
}

impl Drop for Assumed {
    fn drop(&mut self) {
        let restored = set_fs_ids(self.0.uid, self.0.gid);
        if set_thread_groups(&self.0.groups).is_err() || !restored {
            // Anything this thread did from now on would be done as somebody else.
            std::process::abort();
        }
    }
}

/// Sets the ids by which this thread, and no other, reaches files; `false` where that failed.
fn set_fs_ids(uid: u32, gid: u32) -> bool {
    set_fs_id(libc::SYS_setfsgid, gid) && set_fs_id(libc::SYS_setfsuid, uid)
}

fn set_fs_id(call: libc::c_long, id: u32) -> bool {
    // SAFETY: both calls take one integer and touch no memory. The answer is the id before, so
    // that only a second call, with an id that is never set, tells whether the first one worked.
    unsafe {
        libc::syscall(call, id);
        libc::syscall(call, NO_ID) as u32 == id
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn caller() -> Caller {
        Caller { uid: 4321, gid: 8765, groups: vec![999, 1001] }
    }

    /// What the kernel says of this thread, from /proc/thread-self/status.
    fn told(field: &str) -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("a status");
        let line = status.lines().find(|line| line.starts_with(field)).expect("the field");
        line[field.len()..].split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn skip() -> bool {
        let skip = !changes_identity();
        if skip {
            eprintln!("skipped: caller: not root");
        }
        skip
    }

    #[test]
    fn a_thread_is_the_caller_for_the_time_of_the_work_only() {
        if skip() {
            return;
        }
        let before = [told("Uid:"), told("Gid:"), told("Groups:"), told("CapEff:")];
        let (uid, gid, groups) = as_caller(&caller(), || {
            let other = std::thread::spawn(|| told("Uid:")).join().expect("a thread");
            assert!(other.ends_with(" 4321"), "a new thread is like the one that made it: {other}");
            Ok((told("Uid:"), told("Gid:"), told("Groups:")))
        })
        .expect("done");
        assert!(uid.ends_with(" 4321") && gid.ends_with(" 8765"), "{uid} {gid}");
        assert_eq!(groups, "999 1001");
        assert_eq!([told("Uid:"), told("Gid:"), told("Groups:"), told("CapEff:")], before);
    }

    #[test]
    fn other_threads_stay_who_they_are() {
        if skip() {
            return;
        }
        let (asks, asked) = std::sync::mpsc::sync_channel::<()>(1);
        let (tells, answer) = std::sync::mpsc::sync_channel(1);
        let other = std::thread::spawn(move || {
            asked.recv().expect("asked");
            tells.send(told("Uid:")).expect("told");
        });
        let other_uid = as_caller(&caller(), || {
            asks.send(()).expect("asked");
            Ok(answer.recv().expect("an answer"))
        });
        other.join().expect("it ends");
        assert!(other_uid.expect("done").ends_with(" 0"));
    }

    #[test]
    fn a_panic_restores_the_brick() {
        if skip() {
            return;
        }
        let before = told("Uid:");
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _ =
                as_caller(&caller(), || -> Result<()> { std::panic::resume_unwind(Box::new(1)) });
        }));
        assert!(panicked.is_err());
        assert_eq!(told("Uid:"), before);
    }

    #[test]
    fn files_belong_to_the_caller_and_what_it_may_not_do_fails() {
        if skip() {
            return;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        let closed = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(dir.path(), closed).expect("changed");
        let denied = as_caller(&caller(), || Ok(std::fs::write(&path, b"").is_err()));
        assert_eq!(denied, Ok(true), "the directory is root's alone");
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(dir.path(), open).expect("changed");
        let made = as_caller(&caller(), || Ok(std::fs::write(&path, b"").is_ok()));
        assert_eq!(made, Ok(true));
        let metadata = std::fs::metadata(&path).expect("there");
        assert_eq!((metadata.uid(), metadata.gid()), (4321, 8765));
    }

    #[test]
    fn an_id_that_stands_for_none_does_not_make_a_root_of_anybody() {
        if skip() {
            return;
        }
        for nobody in [
            Caller { uid: NO_ID, ..caller() },
            Caller { gid: NO_ID, ..caller() },
            Caller { groups: vec![NO_ID], ..caller() },
        ] {
            assert_eq!(as_caller(&nobody, || Ok(())), Err(Errno::INVAL));
        }
    }
}
