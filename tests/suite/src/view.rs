//! What a file system shows, as text: two views of one file are compared as strings, errors
//! included.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

/// Where the brick keeps removed files that are open: in the exported directory it is there, and
/// no part of what is compared.
pub const ORPHANS: &str = ".portcullis-orphans";
/// The most bytes of extended attributes that are looked at.
const XATTR_BYTES_MAX: usize = 65_536;

/// An error as text, by its number.
pub fn error(error: &std::io::Error) -> String {
    errno(Errno::from_io_error(error).expect("a system error"))
}

/// An error number as text.
pub fn errno(errno: Errno) -> String {
    format!("error {}", errno.raw_os_error())
}

/// The attributes of the file at `path`, a link not followed: type, mode, links, size, owner,
/// group, device number and both times. The size of a directory is left out: it tells of the
/// disk's past, and each kind of file system has its own.
pub fn attr(path: &Path) -> String {
    let attr = match fs::symlink_metadata(path) {
        Ok(attr) => attr,
        Err(why) => return error(&why),
    };
    let size = if attr.is_dir() { 0 } else { attr.size() };
    format!(
        "{:o} nlink={} size={size} {}:{} rdev={} mtime={}.{:09} ctime={}.{:09}",
        attr.mode(),
        attr.nlink(),
        attr.uid(),
        attr.gid(),
        attr.rdev(),
        attr.mtime(),
        attr.mtime_nsec(),
        attr.ctime(),
        attr.ctime_nsec(),
    )
}

/// The type of the file at `path`, or the error.
pub fn kind(path: &Path) -> String {
    match fs::symlink_metadata(path) {
        Ok(attr) => kind_of(attr.file_type()).to_owned(),
        Err(why) => error(&why),
    }
}

fn kind_of(kind: fs::FileType) -> &'static str {
    match kind {
        kind if kind.is_file() => "file",
        kind if kind.is_dir() => "directory",
        kind if kind.is_symlink() => "link",
        kind if kind.is_fifo() => "fifo",
        kind if kind.is_socket() => "socket",
        _ => "device",
    }
}

/// The names in a directory that begin with `prefix`, each with the type that the listing tells,
/// in order; or the error.
pub fn names(dir: &Path, prefix: &str) -> String {
    let listed = fs::read_dir(dir).and_then(|entries| {
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            if name != ORPHANS && name.as_bytes().starts_with(prefix.as_bytes()) {
                names.push(format!("{}={}", name.display(), kind_of(entry.file_type()?)));
            }
        }
        Ok(names)
    });
    match listed {
        Ok(mut names) => {
            names.sort();
            names.join(" ")
        }
        Err(why) => error(&why),
    }
}

/// What opening and reading gives: the content, or the error. A fifo is opened without waiting
/// for a writer, and a link is not followed.
pub fn content(path: &Path) -> String {
    let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY).bits();
    let mut bytes = Vec::new();
    let read = fs::File::options()
        .read(true)
        .custom_flags(flags as i32)
        .open(path)
        .and_then(|mut file| file.read_to_end(&mut bytes));
    match read {
        Ok(_) => bytes.escape_ascii().to_string(),
        Err(why) => error(&why),
    }
}

/// Content in short: what is too long to be shown is told by its length and a sum (FNV-1a).
pub fn digest(bytes: &[u8]) -> String {
    const SHOWN_BYTES_MAX: usize = 64;
    if bytes.len() <= SHOWN_BYTES_MAX {
        return bytes.escape_ascii().to_string();
    }
    let sum = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{} bytes, {sum:016x}", bytes.len())
}

/// The value of an extended attribute, or the error.
pub fn xattr(path: &Path, name: &str) -> String {
    let mut value = vec![0; XATTR_BYTES_MAX];
    match rustix::fs::lgetxattr(path, name, &mut value) {
        Ok(len) => value[..len].escape_ascii().to_string(),
        Err(why) => errno(why),
    }
}

/// Everything below `root`: for each path its attributes but the times, with its content or its
/// target, and its `user.` attributes.
pub fn tree(root: &Path) -> BTreeMap<String, String> {
    let mut tree = BTreeMap::new();
    below(root, root, &mut tree);
    tree
}

fn below(root: &Path, dir: &Path, tree: &mut BTreeMap<String, String>) {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    for entry in entries {
        let entry = entry.expect("an entry");
        if entry.file_name() == ORPHANS {
            continue;
        }
        let path = entry.path();
        let attr = attr(&path);
        let (attr, _times) = attr.split_once(" mtime=").unwrap_or((&attr, ""));
        let kind = kind(&path);
        let more = match kind.as_str() {
            "file" => fs::read(&path).map_or_else(|why| error(&why), |bytes| digest(&bytes)),
            "link" => fs::read_link(&path).map_or_else(
                |why| error(&why),
                |target| target.as_os_str().as_bytes().escape_ascii().to_string(),
            ),
            _ => String::new(),
        };
        let relative = path.strip_prefix(root).expect("it lies below");
        let relative = relative.as_os_str().as_bytes().escape_ascii().to_string();
        tree.insert(relative, format!("{attr} {more}"));
        if kind == "directory" {
            below(root, &path, tree);
        }
    }
}

/// Fails where two trees differ, showing the first differences.
///
/// # Panics
/// They differ.
pub fn assert_same_tree(
    what: &str,
    one: &BTreeMap<String, String>,
    other: &BTreeMap<String, String>,
) {
    let paths = one.keys().chain(other.keys()).collect::<std::collections::BTreeSet<_>>();
    let differences: Vec<String> = paths
        .into_iter()
        .filter(|path| one.get(*path) != other.get(*path))
        .map(|path| format!("{path}:\n  {:?}\n  {:?}", one.get(path), other.get(path)))
        .collect();
    let shown: Vec<&String> = differences.iter().take(10).collect();
    assert!(differences.is_empty(), "{what}: {} differences: {shown:#?}", differences.len());
}
