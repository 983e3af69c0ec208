//! The content of small files, read while their directory is listed.
//!
//! Content goes out only where it is certainly that of the attributes it goes out with: the file is opened by
//! its name, is the one that was told, and has the same size and times before its content is read and
//! after. A change that comes later is told to the peer, which watches the file by then; so only peers that
//! watch are given any.
//!
//! What must hold: nothing is opened but regular files, and what the brick may open for reading itself, as
//! when it is asked to open a file; access times stay as they are; no reading waits for a lease on
//! the file to be given back. A file that cannot be had that way goes out without its content.

use std::os::fd::AsFd;

use portcullis_core::limits::{INLINE_BYTES_MAX, INLINE_LISTING_BYTES_MAX, INLINE_SETTLED_MS};
use portcullis_core::{Attr, Entry, FileKind, Timestamp};
use portcullis_wire::message::Notices;
use rustix::buffer::spare_capacity;
use rustix::fs::OFlags;
use rustix::io::{Errno, read};

use crate::attr::{Stat, stat};
use crate::handles::{Directory, Handles, birth_now};

/// What one listing may bring along.
pub(crate) struct Contents {
    size_bytes_max: u64,
    left_bytes: u64,
    /// Changes are only looked for now and then: a file that changed just now may do so again within one
    /// tick of its times, and nobody would know.
    has_to_settle: bool,
}

impl Contents {
    /// Contents of files of at most so many bytes, for a peer that is told of changes in this way; `None`
    /// where it is not told of all of them.
    pub(crate) fn new(size_bytes_max: u32, notices: Notices) -> Option<Self> {
        (notices != Notices::None).then(|| Self {
            size_bytes_max: u64::from(size_bytes_max).min(INLINE_BYTES_MAX),
            left_bytes: INLINE_LISTING_BYTES_MAX,
            has_to_settle: notices == Notices::Polling,
        })
    }

    /// The content of `name` in `dir`, which was found to be `entry`.
    pub(crate) fn read(
        &mut self,
        handles: &Handles,
        dir: &Directory,
        name: &[u8],
        entry: &Entry,
    ) -> Option<Vec<u8>> {
        let attr = entry.attr.filter(|_| entry.kind == FileKind::Regular)?;
        if attr.size_bytes > self.size_bytes_max.min(self.left_bytes)
            || self.has_to_settle && !is_settled(attr.ctime)
        {
            return None;
        }
        let content = read_whole(handles, dir, name, entry, &attr).ok()??;
        self.left_bytes -= content.len() as u64;
        Some(content)
    }
}

fn is_settled(ctime: Timestamp) -> bool {
    let ms = |time: Timestamp| time.secs.saturating_mul(1_000) + i64::from(time.nanos / 1_000_000);
    ms(birth_now()).saturating_sub(ms(ctime)) >= INLINE_SETTLED_MS as i64
}

/// `None` where the file is another one by now, or has changed.
fn read_whole(
    handles: &Handles,
    dir: &Directory,
    name: &[u8],
    entry: &Entry,
    attr: &Attr,
) -> Result<Option<Vec<u8>>, Errno> {
    let export = handles.export();
    let path = export.open_name(dir.fd.as_fd(), name)?;
    let found = stat(path.as_fd())?;
    if !is_as_told(&found, attr)
        || export.crosses(&found)
        || handles.handle_of(path.as_fd(), &found)? != entry.handle
    {
        return Ok(None);
    }
    // Not blocking: whoever has a lease on it (fcntl(2), F_SETLEASE) would be waited for.
    let flags = OFlags::RDONLY | OFlags::NOATIME | OFlags::NONBLOCK;
    let file = export.open_file(path.as_fd(), flags)?;
    let size_bytes = attr.size_bytes as usize;
    // One more, to see that it ends there.
    let mut content = Vec::with_capacity(size_bytes + 1);
    loop {
        match read(&file, spare_capacity(&mut content)) {
            Ok(0) => break,
            Ok(_) if content.len() > size_bytes => return Ok(None),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    let is_same = content.len() == size_bytes && is_as_told(&stat(file.as_fd())?, attr);
    Ok(is_same.then_some(content))
}

fn is_as_told(stat: &Stat, attr: &Attr) -> bool {
    let now = stat.attr();
    stat.kind() == FileKind::Regular
        && (now.size_bytes, now.mtime, now.ctime) == (attr.size_bytes, attr.mtime, attr.ctime)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use super::*;
    use crate::HandleChoice;
    use crate::testing::handles_of;

    struct Site {
        handles: std::sync::Arc<Handles>,
        root: Directory,
    }

    impl Site {
        fn new(path: &Path) -> Self {
            let handles = handles_of(path, HandleChoice::Auto);
            let root = handles.directory(handles.root()).expect("the root");
            Self { handles, root }
        }

        fn entry(&self, name: &str) -> Entry {
            self.handles.entry(&self.root, name.as_bytes()).expect("there")
        }

        fn read(&self, contents: &mut Contents, name: &str, entry: &Entry) -> Option<Vec<u8>> {
            contents.read(&self.handles, &self.root, name.as_bytes(), entry)
        }
    }

    fn contents(size_bytes_max: u32) -> Contents {
        Contents::new(size_bytes_max, Notices::Fanotify).expect("changes are told")
    }

    #[test]
    fn small_files_come_whole_and_empty_ones_are_content_too() {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, content) in [("empty", ""), ("small", "abc"), ("large", "abcd")] {
            std::fs::write(dir.path().join(name), content).expect("written");
        }
        symlink("small", dir.path().join("link")).expect("linked");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            dir.path().join("fifo"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o644),
            0,
        )
        .expect("made");
        let site = Site::new(dir.path());
        let read = |size, name| site.read(&mut contents(size), name, &site.entry(name));
        assert_eq!(read(3, "small"), Some(b"abc".to_vec()));
        assert_eq!(read(0, "empty"), Some(Vec::new()));
        assert_eq!(read(0, "small"), None);
        assert_eq!(read(3, "large"), None);
        assert_eq!((read(9, "link"), read(9, "fifo")), (None, None));
        assert!(Contents::new(9, Notices::None).is_none());
    }

    #[test]
    fn what_is_no_longer_as_it_was_told_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("a"), "abc").expect("written");
        std::fs::write(path("b"), "xyz").expect("written");
        let site = Site::new(dir.path());
        let (a, b) = (site.entry("a"), site.entry("b"));
        assert_eq!(site.read(&mut contents(9), "b", &b), Some(b"xyz".to_vec()));
        // Another file, though it had the same times and size.
        let of_another = Entry { handle: a.handle, ..b.clone() };
        assert_eq!(site.read(&mut contents(9), "b", &of_another), None);
        let of_another_size =
            Entry { attr: b.attr.map(|attr| Attr { size_bytes: 2, ..attr }), ..b.clone() };
        assert_eq!(site.read(&mut contents(9), "b", &of_another_size), None);
        crate::testing::wait_for_the_next_tick();
        std::fs::set_permissions(path("b"), std::fs::Permissions::from_mode(0o600)).expect("set");
        assert_eq!(site.read(&mut contents(9), "b", &b), None);
    }

    #[test]
    fn where_changes_are_only_looked_for_a_file_has_to_settle() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("a"), "abc").expect("written");
        let site = Site::new(dir.path());
        let mut polled = Contents::new(9, Notices::Polling).expect("changes are told");
        assert_eq!(site.read(&mut polled, "a", &site.entry("a")), None);
        assert!(is_settled(Timestamp { secs: birth_now().secs - 60, nanos: 0 }));
    }

    #[test]
    fn access_times_stay() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a");
        std::fs::write(&path, "abc").expect("written");
        let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(5);
        let file = std::fs::File::options().write(true).open(&path).expect("open");
        file.set_times(std::fs::FileTimes::new().set_accessed(long_ago)).expect("set");
        let site = Site::new(dir.path());
        assert!(site.read(&mut contents(9), "a", &site.entry("a")).is_some());
        let accessed = std::fs::metadata(&path).and_then(|meta| meta.accessed()).expect("a time");
        assert_eq!(accessed, long_ago);
    }

    #[test]
    fn one_listing_brings_no_more_than_its_share() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("a"), "abc").expect("written");
        let site = Site::new(dir.path());
        let mut contents = Contents { left_bytes: 5, ..contents(9) };
        assert!(site.read(&mut contents, "a", &site.entry("a")).is_some());
        assert_eq!(site.read(&mut contents, "a", &site.entry("a")), None);
    }
}
