//! Who asks.

use std::ffi::CStr;

/// Who asks: the credentials that the kernel sent along, as the pid namespace and the user
/// namespace of the mounting process see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User for file access (fsuid).
    pub uid: u32,
    /// Group for file access (fsgid).
    pub gid: u32,
    /// Thread, 0 where it has no number in the pid namespace of the mounting process, or where the
    /// kernel asks on its own account.
    pub pid: u32,
    /// Number of the request, never used again in the life of the mount.
    pub unique: u64,
}

impl Caller {
    /// The supplementary groups of the thread that asks, from `Groups:` in `/proc/PID/status`
    /// (proc_pid_status(5)): a system call or three, tens of microseconds. Nothing is kept between
    /// calls, since a thread may change its groups at any time.
    ///
    /// Empty where the thread cannot be seen, and where what is seen has other credentials than
    /// the request: then it is not who asked (it is gone, and its number was given out again).
    /// The credentials of a thread that waits for an answer do not change.
    pub fn groups(&self) -> Vec<u32> {
        if self.pid == 0 {
            return Vec::new();
        }
        match std::fs::read(format!("/proc/{}/status", self.pid)) {
            Ok(status) => self.groups_in(&status),
            Err(_) => Vec::new(),
        }
    }

    fn groups_in(&self, status: &[u8]) -> Vec<u32> {
        // `Uid:` and `Gid:` each have the real, effective, saved and file access id.
        let fs_id = |name| numbers(status, name).nth(3);
        if fs_id(c"Uid:") == Some(self.uid) && fs_id(c"Gid:") == Some(self.gid) {
            numbers(status, c"Groups:").collect()
        } else {
            Vec::new()
        }
    }
}

/// The numbers of one line.
fn numbers<'a>(status: &'a [u8], name: &'static CStr) -> impl Iterator<Item = u32> + 'a {
    status
        .split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(name.to_bytes()))
        .unwrap_or_default()
        .split(u8::is_ascii_whitespace)
        .filter_map(|word| std::str::from_utf8(word).ok()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &[u8] = b"Name:\tGroups:\t7\nUmask:\t0022\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\n\
        FDSize:\t64\nGroups:\t10 27 4294967294 \nNStgid:\t1\n";

    fn caller(uid: u32, gid: u32) -> Caller {
        Caller { uid, gid, pid: 1, unique: 2 }
    }

    #[test]
    fn groups_are_those_of_their_line() {
        assert_eq!(caller(4, 8).groups_in(STATUS), [10, 27, 4_294_967_294]);
        assert_eq!(caller(4, 8).groups_in(b"Uid:\t4 4 4 4\nGid:\t8 8 8 8\nGroups:\t\n"), [0; 0]);
        assert_eq!(caller(4, 8).groups_in(b"garbage\n\n:"), [0; 0]);
    }

    #[test]
    fn a_thread_with_other_credentials_is_not_who_asked() {
        assert_eq!(caller(2, 8).groups_in(STATUS), [0; 0]);
        assert_eq!(caller(4, 6).groups_in(STATUS), [0; 0]);
    }

    #[test]
    fn the_groups_of_this_thread_are_what_the_kernel_says() {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        let pid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let mut expected: Vec<_> =
            rustix::process::getgroups().unwrap().iter().map(|group| group.as_raw()).collect();
        let mut seen = Caller { uid, gid, pid, unique: 0 }.groups();
        expected.sort_unstable();
        seen.sort_unstable();
        assert_eq!(seen, expected);
        assert_eq!(Caller { uid, gid, pid: 0, unique: 0 }.groups(), [0; 0]);
    }
}
