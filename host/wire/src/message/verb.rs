//! The names of the requests, for metrics and logs.

use serde::{Deserialize, Serialize};

macro_rules! verbs {
    ($($name:ident = $text:literal,)*) => {
        /// The verb of a request.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(rename_all = "lowercase")]
        #[allow(missing_docs, reason = "each is the request of its name")]
        pub enum Verb { $($name,)* }

        impl Verb {
            /// Every verb; `ALL[verb as usize] == verb`.
            pub const ALL: [Verb; [$($text,)*].len()] = [$(Verb::$name,)*];

            /// The name, as in metrics.
            pub const fn name(self) -> &'static str {
                match self { $(Verb::$name => $text,)* }
            }
        }
    };
}

verbs! {
    Attach = "attach",
    Renew = "renew",
    Detach = "detach",
    Lookup = "lookup",
    Getattr = "getattr",
    Readlink = "readlink",
    List = "list",
    Open = "open",
    Read = "read",
    Flush = "flush",
    Release = "release",
    Fsync = "fsync",
    Fsyncdir = "fsyncdir",
    Lseek = "lseek",
    Getlk = "getlk",
    Setlk = "setlk",
    Statfs = "statfs",
    Getxattr = "getxattr",
    Listxattr = "listxattr",
    Create = "create",
    Tmpfile = "tmpfile",
    Mkdir = "mkdir",
    Mknod = "mknod",
    Symlink = "symlink",
    Link = "link",
    Unlink = "unlink",
    Rmdir = "rmdir",
    Rename = "rename",
    Setattr = "setattr",
    Setxattr = "setxattr",
    Removexattr = "removexattr",
    Write = "write",
    Fallocate = "fallocate",
    CopyFileRange = "copy_file_range",
    Stats = "stats",
    Join = "join",
    Getattrs = "getattrs",
    Unfinished = "unfinished",
    Volume = "volume",
    Recall = "recall",
    Policy = "policy",
    Trace = "trace",
    Compare = "compare",
    ReadInPlace = "read_in_place",
}
