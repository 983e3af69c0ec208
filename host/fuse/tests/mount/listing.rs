//! Directory positions: exactly once, whatever the buffers, and back to any position given out.

use std::fs::File;
use std::mem::MaybeUninit;
use std::path::Path;

use rustix::fs::{RawDir, SeekFrom};

use crate::memory::{MemoryTree, Quirk};
use crate::{Mounted, mount, require_mount};

const COUNT: usize = 20_000;

fn many() -> Mounted {
    let tree = MemoryTree::new();
    for n in 0..COUNT {
        // Names of many lengths, so that records end everywhere in the buffers.
        let name = format!("{n}-{}", "x".repeat(n * 31 % 200));
        tree.file(name.as_bytes(), b"", Quirk::None);
    }
    mount(tree)
}

/// What getdents64 gives from where `dir` stands, with a buffer of this size: names and positions.
fn read_on(dir: &File, buffer_len: usize, limit: usize) -> Vec<(Vec<u8>, i64)> {
    let mut buffer = vec![MaybeUninit::uninit(); buffer_len];
    let mut entries = RawDir::new(dir, &mut buffer);
    let mut seen = Vec::new();
    while seen.len() < limit {
        let Some(entry) = entries.next() else { break };
        let entry = entry.unwrap();
        seen.push((entry.file_name().to_bytes().to_vec(), entry.next_entry_cookie() as i64));
    }
    seen
}

fn open(path: &Path) -> File {
    File::open(path).unwrap()
}

#[test]
fn every_entry_comes_exactly_once_in_small_and_large_buffers() {
    require_mount!("every_entry_comes_exactly_once_in_small_and_large_buffers");
    let mounted = many();
    for buffer_len in [280, 1000, 4096, 32 * 1024, 1 << 20] {
        let mut names: Vec<_> = read_on(&open(mounted.path()), buffer_len, usize::MAX)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names.len(), COUNT + 2, "buffer of {buffer_len}");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), COUNT + 2, "buffer of {buffer_len}");
    }
}

#[test]
fn seeking_to_any_position_resumes_after_its_entry() {
    require_mount!("seeking_to_any_position_resumes_after_its_entry");
    let mounted = many();
    let dir = open(mounted.path());
    let all = read_on(&dir, 32 * 1024, usize::MAX);
    for index in [0, 1, 2, 3, 189, 190, 191, 5000, COUNT, COUNT + 1].into_iter().rev() {
        let (_, position) = &all[index];
        rustix::fs::seek(&dir, SeekFrom::Start(*position as u64)).unwrap();
        let next = read_on(&dir, 4096, 1);
        assert_eq!(next.first(), all.get(index + 1), "after entry {index}");
    }
    rustix::fs::seek(&dir, SeekFrom::Start(0)).unwrap();
    assert_eq!(read_on(&dir, 32 * 1024, usize::MAX), all);
}

#[test]
fn many_readers_of_one_directory_each_see_all_of_it() {
    require_mount!("many_readers_of_one_directory_each_see_all_of_it");
    let mounted = many();
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let seen = read_on(&open(mounted.path()), 32 * 1024, usize::MAX);
                assert_eq!(seen.len(), COUNT + 2);
            });
        }
    });
}
