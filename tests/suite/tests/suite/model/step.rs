//! What is done: one call, or two that belong together. Few names and few directories, so that
//! steps meet.

use rustix::fs::RenameFlags;

/// Files that may be open at once.
pub(super) const SLOTS: usize = 6;
pub(super) const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
/// Where in a file, and how much: small, around a page, around the kernel's largest requests.
const OFFSETS: [u64; 7] = [0, 1, 100, 4_095, 4_096, 20_000, 140_000];
const LENGTHS: [usize; 6] = [0, 1, 10, 4_096, 5_000, 70_000];
/// No bit that a umask of 022 would take away.
const FILE_MODES: [u32; 4] = [0o644, 0o600, 0o755, 0o400];
const DIR_MODES: [u32; 4] = [0o755, 0o700, 0o2755, 0o1755];

/// A sequence that depends on its seed alone (splitmix64).
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One to three names.
    fn path(&mut self) -> String {
        let depth = [1, 1, 1, 2, 2, 3][self.below(6)];
        let names: Vec<&str> = (0..depth).map(|_| self.of(&NAMES)).collect();
        names.join("/")
    }
}

/// One step. Paths are relative to the root.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "each is the call of its name")]
pub(super) enum Step {
    /// open(2) with O_CREAT and O_EXCL, and close.
    Create {
        path: String,
        mode: u32,
    },
    Mkdir {
        path: String,
        mode: u32,
    },
    /// A regular file by mknod(2).
    Mknod {
        path: String,
        mode: u32,
    },
    Symlink {
        target: String,
        path: String,
    },
    Link {
        from: String,
        to: String,
    },
    Unlink {
        path: String,
    },
    Rmdir {
        path: String,
    },
    Rename {
        from: String,
        to: String,
        flags: RenameFlags,
    },
    Lstat {
        path: String,
    },
    Stat {
        path: String,
    },
    Readlink {
        path: String,
    },
    List {
        path: String,
    },
    /// open for reading, read all, close.
    Read {
        path: String,
    },
    /// open for writing, pwrite, close.
    Write {
        path: String,
        offset: u64,
        byte: u8,
        len: usize,
    },
    /// open with O_APPEND, write, close.
    Append {
        path: String,
        byte: u8,
        len: usize,
    },
    /// open for writing, ftruncate, close.
    Truncate {
        path: String,
        len: u64,
    },
    Chmod {
        path: String,
        mode: u32,
    },
    Lchown {
        path: String,
        uid: u32,
        gid: u32,
    },
    /// utimensat(2) to a given mtime, and what stat says of it then.
    Utimens {
        path: String,
        secs: i64,
    },
    Setxattr {
        path: String,
        name: &'static str,
        value: Vec<u8>,
    },
    Getxattr {
        path: String,
        name: &'static str,
    },
    Removexattr {
        path: String,
        name: &'static str,
    },
    /// Opens for reading and writing and keeps the file.
    Open {
        slot: usize,
        path: String,
        create: bool,
        truncate: bool,
    },
    Close {
        slot: usize,
    },
    Pwrite {
        slot: usize,
        offset: u64,
        byte: u8,
        len: usize,
    },
    Pread {
        slot: usize,
        offset: u64,
        len: usize,
    },
    Fstat {
        slot: usize,
    },
    Ftruncate {
        slot: usize,
        len: u64,
    },
    Fchmod {
        slot: usize,
        mode: u32,
    },
    /// fallocate(2) with PUNCH_HOLE.
    Punch {
        slot: usize,
        offset: u64,
        len: u64,
    },
    Fsync {
        slot: usize,
    },
    /// Removes what the name stands for, and all below it.
    Clear {
        name: &'static str,
    },
}

impl Step {
    /// The next step of a sequence.
    pub(super) fn random(random: &mut Random) -> Self {
        match random.below(100) {
            0..=55 => Self::on_names(random),
            56..=79 => Self::on_paths(random),
            _ => Self::on_slots(random),
        }
    }

    fn on_names(random: &mut Random) -> Self {
        let path = random.path();
        let mode = random.of(&FILE_MODES);
        match random.below(16) {
            0..=1 => Self::Create { path, mode },
            2..=3 => Self::Mkdir { path, mode: random.of(&DIR_MODES[..2]) },
            4 => Self::Mknod { path, mode },
            5 => Self::Symlink { target: random.path(), path },
            6 => Self::Link { from: random.path(), to: path },
            7..=8 => Self::Unlink { path },
            9 => Self::Rmdir { path },
            10..=11 => {
                let flags = match random.below(4) {
                    0 => RenameFlags::NOREPLACE,
                    1 => RenameFlags::EXCHANGE,
                    _ => RenameFlags::empty(),
                };
                Self::Rename { from: random.path(), to: path, flags }
            }
            12 => Self::Lstat { path },
            13 => Self::Stat { path },
            14 => Self::Readlink { path },
            _ if random.chance(20) => Self::List { path: ".".to_owned() },
            _ => Self::List { path },
        }
    }

    fn on_paths(random: &mut Random) -> Self {
        let path = random.path();
        let byte = b'A' + random.below(26) as u8;
        let name = random.of(&["user.one", "user.two"]);
        match random.below(11) {
            0..=1 => Self::Read { path },
            2 => Self::Write { path, offset: random.of(&OFFSETS), byte, len: random.of(&LENGTHS) },
            3 => Self::Append { path, byte, len: random.of(&LENGTHS) },
            4 => Self::Truncate { path, len: random.of(&OFFSETS) },
            5 => {
                let modes = if random.chance(50) { FILE_MODES } else { DIR_MODES };
                Self::Chmod { path, mode: random.of(&modes) & 0o1777 }
            }
            6 => {
                let (uid, gid) = (random.below(3) as u32, random.below(3) as u32);
                Self::Lchown { path, uid, gid }
            }
            7 => Self::Utimens { path, secs: random.below(2_000_000_000) as i64 },
            8 => {
                let value = random.of(&[&b""[..], b"value", b"with\0zero\0", b"x"]).to_vec();
                Self::Setxattr { path, name, value }
            }
            9 => Self::Getxattr { path, name },
            _ => Self::Removexattr { path, name },
        }
    }

    fn on_slots(random: &mut Random) -> Self {
        let slot = random.below(SLOTS);
        let (offset, len) = (random.of(&OFFSETS), random.of(&LENGTHS));
        let byte = b'a' + random.below(26) as u8;
        match random.below(14) {
            0..=3 => {
                let (create, truncate) = (random.chance(40), random.chance(20));
                Self::Open { slot, path: random.path(), create, truncate }
            }
            4 => Self::Close { slot },
            5..=6 => Self::Pwrite { slot, offset, byte, len },
            7..=8 => Self::Pread { slot, offset, len },
            9 => Self::Fstat { slot },
            10 => Self::Ftruncate { slot, len: offset },
            11 => Self::Fchmod { slot, mode: random.of(&FILE_MODES) },
            12 => Self::Punch { slot, offset, len: len.max(1) as u64 },
            _ => Self::Fsync { slot },
        }
    }
}
