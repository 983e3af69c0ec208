//! The numbers of requests.

macro_rules! opcodes {
    ($($name:ident = $number:literal,)*) => {
        /// What the kernel asks. Numbers that are not here are answered ENOSYS.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        #[allow(missing_docs, reason = "each is the FUSE request of its name")]
        pub enum Opcode {
            $($name = $number,)*
        }

        impl Opcode {
            /// The opcode of this number, `None` where the session does not know it.
            pub const fn of(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

opcodes! {
    Lookup = 1,
    Forget = 2,
    Getattr = 3,
    Setattr = 4,
    Readlink = 5,
    Symlink = 6,
    Mknod = 8,
    Mkdir = 9,
    Unlink = 10,
    Rmdir = 11,
    Rename = 12,
    Link = 13,
    Open = 14,
    Read = 15,
    Write = 16,
    Statfs = 17,
    Release = 18,
    Fsync = 20,
    Setxattr = 21,
    Getxattr = 22,
    Listxattr = 23,
    Removexattr = 24,
    Flush = 25,
    Init = 26,
    Opendir = 27,
    Readdir = 28,
    Releasedir = 29,
    Fsyncdir = 30,
    Getlk = 31,
    Setlk = 32,
    Setlkw = 33,
    Access = 34,
    Create = 35,
    Interrupt = 36,
    Destroy = 38,
    Ioctl = 39,
    BatchForget = 42,
    Fallocate = 43,
    Readdirplus = 44,
    Rename2 = 45,
    Lseek = 46,
    CopyFileRange = 47,
    Syncfs = 50,
    Tmpfile = 51,
    CopyFileRange64 = 53,
}

impl Opcode {
    /// Whether the kernel waits for an answer.
    pub const fn is_answered(self) -> bool {
        !matches!(self, Self::Forget | Self::BatchForget | Self::Interrupt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_opcode_comes_back_from_its_number() {
        let known = (0..5000).filter_map(Opcode::of).count();
        assert_eq!(known, 45);
        assert_eq!(Opcode::of(47), Some(Opcode::CopyFileRange));
        assert_eq!(Opcode::of(19), None);
    }
}
