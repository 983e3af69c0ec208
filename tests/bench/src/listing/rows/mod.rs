//! The rows of the table, one module a group.

pub mod deep;
pub mod first;
pub mod growth;
pub mod memory;
pub mod wide;

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::data;
use super::installation::Setup;
use super::options::{Options, Sizes};
use super::report::Report;

/// What can be measured alone. `files`, `acl`, `dirs` and `crawl` are rows of mounts over a wide
/// tree, `find` of `portcullis find`; `delay` and `requests` are over a deep tree.
pub const NAMES: [&str; 11] = [
    "files", "acl", "dirs", "crawl", "find", "delay", "requests", "first", "memory", "growth",
    "bricks",
];

/// What the groups share: the options, and trees that are made when they are first asked for.
#[derive(Debug)]
pub struct Bench {
    /// The command line.
    pub options: Options,
    /// How large everything is.
    pub sizes: Sizes,
    trees: TempDir,
}

/// Measures one or more groups.
type Measure = fn(&Bench, &mut Report);

/// Measures everything that is wanted. The trees go with what is answered, which takes a while.
pub fn all(options: Options, report: &mut Report) -> Bench {
    let sizes = options.sizes();
    let trees = tempfile::tempdir().expect("a temporary directory");
    let bench = Bench { options, sizes, trees };
    let groups: [(&[&str], Measure); 5] = [
        (&["files", "acl", "dirs", "crawl", "find", "bricks"], wide::measure),
        (&["delay", "requests"], deep::measure),
        (&["first"], first::measure),
        (&["memory"], memory::measure),
        (&["growth"], growth::measure),
    ];
    for (names, measure) in groups {
        if names.iter().any(|name| bench.options.wants(name)) {
            report.note_load(&format!("before {}", names.join(", ")));
            measure(&bench, report);
        }
    }
    report.note_load("at the end");
    bench
}

impl Bench {
    /// The wide tree.
    pub fn wide(&self) -> PathBuf {
        self.tree("wide", |path| data::wide(path, &self.sizes))
    }

    /// The deep tree.
    pub fn deep(&self) -> PathBuf {
        self.tree("deep", |path| data::deep(path, self.sizes.deep))
    }

    /// The tree of flat directories, with one of each of these sizes.
    pub fn flat(&self, entries: &[usize]) -> PathBuf {
        let path = self.tree("flat", |_| ());
        entries.iter().for_each(|&entries| drop(data::flat(&path, entries)));
        path
    }

    /// The exports of a volume of several bricks that holds the wide tree. Which brick holds a file
    /// is the volume's business, so it is made through a mount.
    pub fn wide_on(&self, bricks: usize) -> Vec<PathBuf> {
        if bricks == 1 {
            return vec![self.wide()];
        }
        let root = self.trees.path().join(format!("wide-on-{bricks}"));
        let exports: Vec<_> = (0..bricks).map(|brick| root.join(brick.to_string())).collect();
        if !root.exists() {
            exports.iter().for_each(|dir| std::fs::create_dir_all(dir).expect("a directory"));
            let exports = exports.clone();
            let setup = Setup { exports, ..self.setup(Path::new("")) }.mounted("").start();
            data::wide(setup.mountpoint(), &self.sizes);
        }
        exports
    }

    /// One brick and a gateway with the arguments of this run.
    pub fn setup(&self, export: &Path) -> Setup {
        Setup::of(export, &self.options.gateway_args())
    }

    fn tree(&self, name: &str, make: impl FnOnce(&Path)) -> PathBuf {
        let path = self.trees.path().join(name);
        if !path.exists() {
            eprintln!("making {name}");
            std::fs::create_dir(&path).expect("a directory");
            make(&path);
        }
        path
    }
}
