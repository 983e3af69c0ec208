//! The trees that are listed. Names have 16 bytes; files are empty, since only their names and
//! attributes are asked for.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};

use super::options::{Deep, Sizes};

/// Threads that make files: what waits for a server waits side by side.
const MAKERS: usize = 8;

/// The directory of files in a wide tree.
pub const FILES: &str = "files";
/// The directory of directories in a wide tree.
pub const DIRS: &str = "dirs";

/// A wide tree in `root`: [`FILES`] and [`DIRS`].
pub fn wide(root: &Path, sizes: &Sizes) {
    make_files(&make_dir(root.join(FILES)), sizes.files);
    let dirs = make_dir(root.join(DIRS));
    shared(sizes.dirs, |number| {
        make_dir(dirs.join(dir_name(number)));
    });
}

/// What find(1) prints of a wide tree, its root included.
pub fn wide_entries(sizes: &Sizes) -> usize {
    3 + sizes.files + sizes.dirs
}

/// A deep tree in `root`.
pub fn deep(root: &Path, deep: Deep) {
    fn below(dir: &Path, deep: Deep, level: u32) {
        if level == deep.levels {
            return make_files(dir, deep.width);
        }
        for number in 0..deep.width {
            below(&make_dir(dir.join(dir_name(number))), deep, level + 1);
        }
    }
    below(root, deep, 0);
}

/// A directory of `entries` files in `root`, named by their number.
pub fn flat(root: &Path, entries: usize) -> PathBuf {
    let dir = root.join(flat_name(entries));
    if !dir.exists() {
        make_files(&make_dir(dir.clone()), entries);
    }
    dir
}

/// The name of such a directory.
pub fn flat_name(entries: usize) -> String {
    format!("flat-{entries}")
}

/// The name of a file of a tree.
pub fn file_name(number: usize) -> String {
    format!("file-{number:011}")
}

/// The name of a directory of a tree.
pub fn dir_name(number: usize) -> String {
    format!("dir-{number:012}")
}

fn make_dir(path: PathBuf) -> PathBuf {
    fs::create_dir(&path).expect("a directory is made");
    path
}

fn make_files(dir: &Path, count: usize) {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let dir = File::from(rustix::fs::open(dir, flags, Mode::empty()).expect("it is there"));
    let mode = Mode::from_raw_mode(0o644);
    shared(count, |number| {
        rustix::fs::mknodat(&dir, file_name(number), FileType::RegularFile, mode, 0)
            .expect("a file is made");
    });
}

/// Calls `make` for each number below `count`, in several threads.
fn shared(count: usize, make: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        for maker in 0..MAKERS {
            let make = &make;
            scope.spawn(move || (maker..count).step_by(MAKERS).for_each(make));
        }
    });
}
