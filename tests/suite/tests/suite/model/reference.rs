//! A file system in memory, as simple as can be: what Linux does, for root, without times.

use std::collections::BTreeMap;

use portcullis_suite::view;
use rustix::fs::RenameFlags;
use rustix::io::Errno;

use super::real::summary;
use super::step::{SLOTS, Step};

/// Links followed in one resolution, as in the kernel.
const LINKS_MAX: u32 = 40;
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const S_IFLNK: u32 = 0o120_000;
const S_ISGID: u32 = 0o2000;

type Id = usize;
type Outcome<T> = Result<T, Errno>;

#[derive(Clone, Debug)]
enum Body {
    File(Vec<u8>),
    Dir(BTreeMap<String, Id>),
    Link(String),
}

#[derive(Clone, Debug)]
struct Node {
    body: Body,
    mode: u32,
    uid: u32,
    gid: u32,
    links: u64,
    xattrs: BTreeMap<&'static str, Vec<u8>>,
}

/// The file system. An open file stays what it was: nodes are never
/// used again.
#[derive(Debug)]
pub(super) struct Reference {
    nodes: Vec<Node>,
    slots: [Option<Id>; SLOTS],
}

/// Attributes in a line.
pub(super) fn attributes(mode: u32, links: u64, size: u64, uid: u32, gid: u32) -> String {
    format!("{mode:o} {links} {size} {uid} {gid}")
}

impl Default for Reference {
    fn default() -> Self {
        let root = Node {
            body: Body::Dir(BTreeMap::new()),
            mode: 0o755,
            uid: 0,
            gid: 0,
            links: 2,
            xattrs: BTreeMap::new(),
        };
        Self { nodes: vec![root], slots: [None; SLOTS] }
    }
}

/// Where a path leads: its directory, its last name, and what that stands for.
struct Place {
    dir: Id,
    name: String,
    id: Option<Id>,
}

impl Reference {
    /// Does a step and answers what has to come of it.
    pub(super) fn apply(&mut self, step: &Step) -> String {
        let outcome = match step {
            Step::Open { slot, path, create, truncate } => {
                self.open(path, *create, *truncate).map(|id| {
                    if let Some(was) = self.slots[*slot].replace(id) {
                        self.reap(was);
                    }
                    "ok".to_owned()
                })
            }
            Step::Close { slot } => {
                let Some(was) = self.slots[*slot].take() else { return "none".to_owned() };
                self.reap(was);
                return "ok".to_owned();
            }
            _ => match self.on_slot(step) {
                Some(None) => return "none".to_owned(),
                Some(Some(outcome)) => outcome,
                None => self.on_names(step).unwrap_or_else(|| self.on_paths(step)),
            },
        };
        outcome.unwrap_or_else(view::errno)
    }

    fn on_names(&mut self, step: &Step) -> Option<Outcome<String>> {
        let ok = |()| "ok".to_owned();
        let outcome = match step {
            Step::Create { path, mode } | Step::Mknod { path, mode } => {
                self.make(path, Body::File(Vec::new()), *mode).map(ok)
            }
            Step::Mkdir { path, mode } => {
                self.make(path, Body::Dir(BTreeMap::new()), *mode).map(ok)
            }
            Step::Symlink { target, path } => {
                self.make(path, Body::Link(target.clone()), 0o777).map(ok)
            }
            Step::Link { from, to } => self.link(from, to).map(ok),
            Step::Unlink { path } => self.unlink(path).map(ok),
            Step::Rmdir { path } => self.rmdir(path).map(ok),
            Step::Clear { name } => self.clear(name).map(ok),
            Step::Rename { from, to, flags } => self.rename(from, to, *flags).map(ok),
            Step::Lstat { path } => self.existing(path, false).map(|id| self.attr(id)),
            Step::Stat { path } => self.existing(path, true).map(|id| self.attr(id)),
            Step::Readlink { path } => {
                self.existing(path, false).and_then(|id| match &self.nodes[id].body {
                    Body::Link(target) => Ok(target.clone()),
                    _ => Err(Errno::INVAL),
                })
            }
            Step::List { path } => self.existing(path, true).and_then(|id| {
                let names = self.dir(id)?.keys();
                Ok(names.cloned().collect::<Vec<_>>().join(" "))
            }),
            _ => return None,
        };
        Some(outcome)
    }

    fn on_paths(&mut self, step: &Step) -> Outcome<String> {
        let ok = "ok".to_owned();
        match step {
            Step::Read { path } => {
                let id = self.existing(path, true)?;
                self.file(id).map(|bytes| summary(bytes))
            }
            Step::Write { path, offset, byte, len } => {
                let id = self.existing(path, true)?;
                write(self.file(id)?, *offset, *byte, *len);
                Ok(ok)
            }
            Step::Append { path, byte, len } => {
                let id = self.existing(path, true)?;
                let end = self.file(id)?.len() as u64;
                write(self.file(id)?, end, *byte, *len);
                Ok(ok)
            }
            Step::Truncate { path, len } => {
                let id = self.existing(path, true)?;
                self.file(id)?.resize(*len as usize, 0);
                Ok(ok)
            }
            Step::Chmod { path, mode } => {
                let id = self.existing(path, true)?;
                self.nodes[id].mode = *mode;
                Ok(ok)
            }
            Step::Lchown { path, uid, gid } => {
                let id = self.existing(path, false)?;
                (self.nodes[id].uid, self.nodes[id].gid) = (*uid, *gid);
                Ok(ok)
            }
            Step::Utimens { path, secs } => self.existing(path, false).map(|_| format!("{secs} 5")),
            Step::Setxattr { path, name, value } => {
                let id = self.existing(path, false)?;
                self.not_link(id, Errno::PERM)?;
                self.nodes[id].xattrs.insert(name, value.clone());
                Ok(ok)
            }
            Step::Getxattr { path, name } => {
                let id = self.existing(path, false)?;
                let value = self.nodes[id].xattrs.get(name).ok_or(Errno::NODATA)?;
                Ok(value.escape_ascii().to_string())
            }
            Step::Removexattr { path, name } => {
                let id = self.existing(path, false)?;
                self.not_link(id, Errno::PERM)?;
                self.nodes[id].xattrs.remove(name).map(|_| ok).ok_or(Errno::NODATA)
            }
            _ => panic!("{step:?} is done elsewhere"),
        }
    }

    fn on_slot(&mut self, step: &Step) -> Option<Option<Outcome<String>>> {
        let ok = || Ok("ok".to_owned());
        let slot = match step {
            Step::Pwrite { slot, .. }
            | Step::Pread { slot, .. }
            | Step::Fstat { slot }
            | Step::Ftruncate { slot, .. }
            | Step::Fchmod { slot, .. }
            | Step::Punch { slot, .. }
            | Step::Fsync { slot } => *slot,
            _ => return None,
        };
        let Some(id) = self.slots[slot] else { return Some(None) };
        if let Step::Fstat { .. } = step {
            return Some(Some(Ok(self.attr(id))));
        }
        if let Step::Fchmod { mode, .. } = step {
            self.nodes[id].mode = *mode;
            return Some(Some(ok()));
        }
        let Body::File(bytes) = &mut self.nodes[id].body else { panic!("only files are opened") };
        let outcome = match step {
            Step::Pwrite { offset, byte, len, .. } => {
                write(bytes, *offset, *byte, *len);
                ok()
            }
            Step::Pread { offset, len, .. } => {
                let start = (*offset as usize).min(bytes.len());
                let end = (start + len).min(bytes.len());
                Ok(summary(&bytes[start..end]))
            }
            Step::Ftruncate { len, .. } => {
                bytes.resize(*len as usize, 0);
                ok()
            }
            Step::Punch { offset, len, .. } => {
                let start = (*offset as usize).min(bytes.len());
                let end = ((*offset + *len) as usize).min(bytes.len());
                bytes[start..end].fill(0);
                ok()
            }
            _ => ok(),
        };
        Some(Some(outcome))
    }

    /// Follows a path to its last name, and that too where it is a link and `follow` says so.
    fn place(&self, path: &str, follow: bool) -> Outcome<Place> {
        let mut dir = 0;
        let mut left: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
        let mut links = 0;
        loop {
            let Some(name) = left.pop() else { return Err(Errno::NOENT) };
            let is_last = left.is_empty();
            if name == "." {
                if is_last {
                    return Ok(Place { dir, name, id: Some(dir) });
                }
                continue;
            }
            let id = self.dir(dir)?.get(&name).copied();
            let target = match id.map(|id| &self.nodes[id].body) {
                Some(Body::Link(target)) if !is_last || follow => target,
                _ if is_last => return Ok(Place { dir, name, id }),
                None => return Err(Errno::NOENT),
                _ => {
                    dir = id.expect("it is there");
                    continue;
                }
            };
            links += 1;
            if links > LINKS_MAX {
                return Err(Errno::LOOP);
            }
            left.extend(target.split('/').rev().map(str::to_owned));
        }
    }

    fn existing(&self, path: &str, follow: bool) -> Outcome<Id> {
        self.place(path, follow)?.id.ok_or(Errno::NOENT)
    }

    fn dir(&self, id: Id) -> Outcome<&BTreeMap<String, Id>> {
        match &self.nodes[id].body {
            Body::Dir(names) => Ok(names),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn names(&mut self, id: Id) -> &mut BTreeMap<String, Id> {
        match &mut self.nodes[id].body {
            Body::Dir(names) => names,
            _ => panic!("a place lies in a directory"),
        }
    }

    fn file(&mut self, id: Id) -> Outcome<&mut Vec<u8>> {
        match &mut self.nodes[id].body {
            Body::File(bytes) => Ok(bytes),
            _ => Err(Errno::ISDIR),
        }
    }

    fn is_dir(&self, id: Id) -> bool {
        matches!(self.nodes[id].body, Body::Dir(_))
    }

    fn not_link(&self, id: Id, errno: Errno) -> Outcome<()> {
        if matches!(self.nodes[id].body, Body::Link(_)) { Err(errno) } else { Ok(()) }
    }

    fn attr(&self, id: Id) -> String {
        let node = &self.nodes[id];
        let (kind, size) = match &node.body {
            Body::File(bytes) => (S_IFREG, bytes.len()),
            Body::Dir(_) => (S_IFDIR, 0),
            Body::Link(target) => (S_IFLNK, target.len()),
        };
        attributes(kind | node.mode, node.links, size as u64, node.uid, node.gid)
    }

    fn add(&mut self, place: Place, body: Body, mode: u32) -> Id {
        let is_dir = matches!(body, Body::Dir(_));
        let inherits = self.nodes[place.dir].mode & S_ISGID != 0;
        let gid = if inherits { self.nodes[place.dir].gid } else { 0 };
        let mode = if inherits && is_dir { mode | S_ISGID } else { mode };
        let links = if is_dir { 2 } else { 1 };
        self.nodes.push(Node { body, mode, uid: 0, gid, links, xattrs: BTreeMap::new() });
        let id = self.nodes.len() - 1;
        self.names(place.dir).insert(place.name, id);
        self.nodes[place.dir].links += u64::from(is_dir);
        id
    }

    fn make(&mut self, path: &str, body: Body, mode: u32) -> Outcome<()> {
        let place = self.place(path, false)?;
        if place.id.is_some() {
            return Err(Errno::EXIST);
        }
        self.add(place, body, mode);
        Ok(())
    }

    fn open(&mut self, path: &str, create: bool, truncate: bool) -> Outcome<Id> {
        let place = self.place(path, true)?;
        let id = match place.id {
            Some(id) => id,
            None if create => self.add(place, Body::File(Vec::new()), 0o644),
            None => return Err(Errno::NOENT),
        };
        let bytes = self.file(id)?;
        if truncate {
            bytes.clear();
        }
        Ok(id)
    }

    fn link(&mut self, from: &str, to: &str) -> Outcome<()> {
        let id = self.existing(from, false)?;
        let place = self.place(to, false)?;
        if place.id.is_some() {
            return Err(Errno::EXIST);
        }
        if self.is_dir(id) {
            return Err(Errno::PERM);
        }
        self.names(place.dir).insert(place.name, id);
        self.nodes[id].links += 1;
        Ok(())
    }

    fn unlink(&mut self, path: &str) -> Outcome<()> {
        let place = self.place(path, false)?;
        let id = place.id.ok_or(Errno::NOENT)?;
        if self.is_dir(id) {
            return Err(Errno::ISDIR);
        }
        self.names(place.dir).remove(&place.name);
        self.nodes[id].links -= 1;
        self.reap(id);
        Ok(())
    }

    /// Forgets the content of a file that nobody can reach any more.
    fn reap(&mut self, id: Id) {
        if self.nodes[id].links == 0
            && !self.slots.contains(&Some(id))
            && let Body::File(bytes) = &mut self.nodes[id].body
        {
            *bytes = Vec::new();
        }
    }

    fn rmdir(&mut self, path: &str) -> Outcome<()> {
        let place = self.place(path, false)?;
        let id = place.id.ok_or(Errno::NOENT)?;
        if !self.dir(id)?.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        self.names(place.dir).remove(&place.name);
        self.nodes[place.dir].links -= 1;
        self.nodes[id].links = 0;
        Ok(())
    }

    fn clear(&mut self, path: &str) -> Outcome<()> {
        let place = self.place(path, false)?;
        let id = place.id.ok_or(Errno::NOENT)?;
        if !self.is_dir(id) {
            return self.unlink(path);
        }
        let below: Vec<String> =
            self.dir(id)?.keys().map(|name| format!("{path}/{name}")).collect();
        for path in below {
            self.clear(&path)?;
        }
        self.rmdir(path)
    }

    /// Whether a step exchanges names of different directories of which one is a directory's.
    pub(super) fn gives_dirs_other_parents(&self, step: &Step) -> bool {
        let Step::Rename { from, to, flags } = step else { return false };
        let (Ok(old), Ok(new)) = (self.place(from, false), self.place(to, false)) else {
            return false;
        };
        let mut exchanged = [old.id, new.id].into_iter().flatten();
        flags.contains(RenameFlags::EXCHANGE)
            && old.dir != new.dir
            && exchanged.any(|id| self.is_dir(id))
    }

    fn rename(&mut self, from: &str, to: &str, flags: RenameFlags) -> Outcome<()> {
        let (old, new) = (self.place(from, false)?, self.place(to, false)?);
        let id = old.id.ok_or(Errno::NOENT)?;
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        match new.id {
            Some(_) if flags.contains(RenameFlags::NOREPLACE) => return Err(Errno::EXIST),
            None if exchange => return Err(Errno::NOENT),
            _ => {}
        }
        if self.is_below(new.dir, id) {
            return Err(Errno::INVAL);
        }
        if new.id.is_some_and(|over| self.is_below(old.dir, over)) {
            return Err(if exchange { Errno::INVAL } else { Errno::NOTEMPTY });
        }
        if new.id == Some(id) {
            return Ok(());
        }
        if exchange {
            let over = new.id.expect("looked at above");
            self.names(old.dir).insert(old.name, over);
            self.names(new.dir).insert(new.name, id);
            let (one, other) = (u64::from(self.is_dir(id)), u64::from(self.is_dir(over)));
            self.nodes[old.dir].links += other;
            self.nodes[old.dir].links -= one;
            self.nodes[new.dir].links += one;
            self.nodes[new.dir].links -= other;
            return Ok(());
        }
        if let Some(over) = new.id {
            match (self.is_dir(id), self.is_dir(over)) {
                (true, false) => return Err(Errno::NOTDIR),
                (false, true) => return Err(Errno::ISDIR),
                (true, true) if !self.dir(over)?.is_empty() => return Err(Errno::NOTEMPTY),
                (true, true) => self.nodes[new.dir].links -= 1,
                (false, false) => {
                    self.nodes[over].links -= 1;
                    self.reap(over);
                }
            }
        }
        let moved = u64::from(self.is_dir(id));
        self.names(old.dir).remove(&old.name);
        self.names(new.dir).insert(new.name, id);
        self.nodes[old.dir].links -= moved;
        self.nodes[new.dir].links += moved;
        Ok(())
    }

    /// Whether directory `dir` is `top` or lies below it.
    fn is_below(&self, dir: Id, top: Id) -> bool {
        dir == top
            || match &self.nodes[top].body {
                Body::Dir(names) => names.values().any(|id| self.is_below(dir, *id)),
                _ => false,
            }
    }

    /// All of it, in the form of [`portcullis_suite::view::tree`].
    pub(super) fn tree(&self) -> BTreeMap<String, String> {
        let mut tree = BTreeMap::new();
        self.below(0, "", &mut tree);
        tree
    }

    fn below(&self, dir: Id, path: &str, tree: &mut BTreeMap<String, String>) {
        let Body::Dir(names) = &self.nodes[dir].body else { return };
        for (name, id) in names {
            let path = format!("{path}{name}");
            let node = &self.nodes[*id];
            let (kind, size, more) = match &node.body {
                Body::File(bytes) => (S_IFREG, bytes.len(), view::digest(bytes)),
                Body::Dir(_) => (S_IFDIR, 0, String::new()),
                Body::Link(target) => (S_IFLNK, target.len(), target.clone()),
            };
            let (mode, links) = (kind | node.mode, node.links);
            let owner = format!("{}:{}", node.uid, node.gid);
            tree.insert(
                path.clone(),
                format!("{mode:o} nlink={links} size={size} {owner} rdev=0 {more}"),
            );
            self.below(*id, &format!("{path}/"), tree);
        }
    }
}

fn write(bytes: &mut Vec<u8>, offset: u64, byte: u8, len: usize) {
    if len == 0 {
        return;
    }
    let (start, end) = (offset as usize, offset as usize + len);
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[start..end].fill(byte);
}
