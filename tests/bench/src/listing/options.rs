//! The command line of the listing benchmark, and how large everything is.

use std::path::PathBuf;

use clap::Parser;

use crate::ROUNDS;
use crate::listing::rows;

/// Rounds of a short run.
const SHORT_ROUNDS: usize = 2;

/// Listings through Portcullis beside the local file system, a FUSE floor and other systems
#[derive(Clone, Debug, Parser)]
pub struct Options {
    /// A quick run on small trees; its figures are no judgement
    #[arg(long)]
    pub short: bool,
    /// Only these groups of rows; may be repeated
    #[arg(long, value_name = "NAME", value_parser = rows::NAMES)]
    pub only: Vec<String>,
    /// How many bricks: the rows of mounts are measured for each of these numbers
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1, 4, 16],
          value_parser = clap::value_parser!(u16).range(1..=64))]
    pub bricks: Vec<u16>,
    /// The eviction policy of the gateway, a component [default: what is built in]
    #[arg(long, value_name = "FILE")]
    pub eviction: Option<PathBuf>,
    /// Rounds of every measurement [default: 5, and 2 where it is short]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: Option<u16>,
    /// Leave GlusterFS, NFS-Ganesha, bindfs and mergerfs out
    #[arg(long)]
    pub no_peers: bool,
    /// Where the JSON goes [default: TARGET/bench/listing.json]
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// How large everything is. Numbers of entries, of one directory each.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Files of the wide directory.
    pub files: usize,
    /// Directories of the other wide directory.
    pub dirs: usize,
    /// The deep tree: so many levels of so many directories, each of the lowest with as many files.
    pub deep: Deep,
    /// The large directory: time to its first entry, memory of its cache.
    pub large: usize,
    /// The directory that is larger than the cache.
    pub huge: usize,
    /// From which size on the cost of an entry is followed up to `huge`.
    pub small: usize,
    /// Rounds of every measurement.
    pub rounds: usize,
}

/// A tree of equal directories.
#[derive(Clone, Copy, Debug)]
pub struct Deep {
    /// Levels of directories below the root.
    pub levels: u32,
    /// Directories in each, and files in each of the lowest.
    pub width: usize,
}

impl Deep {
    /// Directories, the root included.
    pub fn dirs(self) -> usize {
        (0..=self.levels).map(|level| self.width.pow(level)).sum()
    }

    /// Everything that find(1) prints, the root included.
    pub fn entries(self) -> usize {
        self.dirs() + self.width.pow(self.levels + 1)
    }
}

impl Options {
    /// Whether the group `name` is wanted.
    pub fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    /// The sizes of this run.
    pub fn sizes(&self) -> Sizes {
        let rounds = if self.short { SHORT_ROUNDS } else { ROUNDS };
        let rounds = self.rounds.map_or(rounds, usize::from);
        if self.short {
            Sizes {
                files: 5_000,
                dirs: 500,
                deep: Deep { levels: 3, width: 4 },
                large: 20_000,
                huge: 40_000,
                small: 2_000,
                rounds,
            }
        } else {
            Sizes {
                files: 100_000,
                dirs: 10_000,
                deep: Deep { levels: 3, width: 10 },
                large: 1_000_000,
                huge: 2_000_000,
                small: 10_000,
                rounds,
            }
        }
    }

    /// Where the JSON goes: a benchmark runs as `TARGET/PROFILE/NAME`.
    pub fn json_path(&self) -> PathBuf {
        let exe = std::env::current_exe().expect("a program knows its own path");
        let target = exe.ancestors().nth(2).expect("it lies in a build directory");
        self.json.clone().unwrap_or_else(|| target.join("bench/listing.json"))
    }

    /// Further arguments of every gateway.
    pub fn gateway_args(&self) -> Vec<String> {
        let eviction = self.eviction.as_ref();
        let policy = eviction.map(|file| ["--eviction".into(), file.display().to_string()]);
        policy.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deep_tree_is_as_large_as_find_says() {
        let deep = Deep { levels: 3, width: 10 };
        assert_eq!((deep.dirs(), deep.entries()), (1_111, 11_111));
    }

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        Options::command().debug_assert();
        let options = Options::parse_from(["listing", "--only", "find", "--bricks", "1,4"]);
        assert!(options.wants("find") && !options.wants("files"));
        assert_eq!(options.bricks, [1, 4]);
        assert!(Options::try_parse_from(["listing", "--only", "nothing"]).is_err());
    }
}
