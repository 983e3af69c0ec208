//! A comparison on the live cache, kept for after a restart of the gateway.
//!
//! One file says how far it is, another is the candidate, another its configuration. The first is
//! written last, and at once or not at all.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use portcullis_core::ab::Experiment;
use portcullis_policy::PolicyChoice;
use serde::{Deserialize, Serialize};

/// Where it is kept.
#[derive(Clone, Debug)]
pub(crate) struct KeptSplit {
    dir: PathBuf,
    /// Of the hashes of the cache, so that the same directories are in the same halves.
    seed: u64,
}

/// What was kept.
pub(super) struct Kept {
    pub(super) experiment: Experiment,
    pub(super) candidate: PolicyChoice,
}

#[derive(Serialize, Deserialize)]
struct Progress {
    seed: u64,
    experiment: Experiment,
    candidate: String,
    is_component: bool,
}

const PROGRESS: &str = "progress.json";
const COMPONENT: &str = "candidate.wasm";
const CONFIG: &str = "candidate.config";

impl KeptSplit {
    /// In a directory of the gateway's state, which is made. What is there tells the seed, or else it is
    /// `seed`.
    pub(crate) fn open(state: &Path, seed: u64) -> io::Result<Self> {
        let dir = state.join("ab");
        // As the whole directory of the state has to be.
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let seed = match read(&dir) {
            Ok(Some(progress)) => progress.seed,
            Ok(None) => seed,
            Err(error) => {
                tracing::warn!("what was kept of a comparison cannot be read: {error}");
                seed
            }
        };
        Ok(Self { dir, seed })
    }

    /// The seed of the cache's hashes.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Keeps how far it is.
    pub(super) fn save(&self, experiment: &Experiment, candidate: &PolicyChoice) -> io::Result<()> {
        let (name, is_component) = match candidate {
            PolicyChoice::Bytes { name, bytes, config } => {
                write(&self.dir, COMPONENT, bytes)?;
                write(&self.dir, CONFIG, config)?;
                (name.clone(), true)
            }
            PolicyChoice::Named(name) => (name.clone(), false),
            other => {
                let what = format!("{other:?} is no candidate");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
        };
        let progress = Progress {
            seed: self.seed,
            experiment: experiment.clone(),
            candidate: name,
            is_component,
        };
        write(&self.dir, PROGRESS, &serde_json::to_vec(&progress)?)
    }

    /// What there is to go on with; `None` where there is nothing.
    pub(super) fn restore(&self) -> io::Result<Option<Kept>> {
        let Some(progress) = read(&self.dir)? else { return Ok(None) };
        let candidate = if progress.is_component {
            PolicyChoice::Bytes {
                name: progress.candidate,
                bytes: fs::read(self.dir.join(COMPONENT))?,
                config: fs::read(self.dir.join(CONFIG))?,
            }
        } else {
            PolicyChoice::Named(progress.candidate)
        };
        Ok(Some(Kept { experiment: progress.experiment, candidate }))
    }

    /// There is nothing to go on with.
    pub(super) fn clear(&self) {
        match fs::remove_file(self.dir.join(PROGRESS)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("a comparison that has ended would be begun again: {error}");
            }
            _ => {}
        }
    }
}

fn read(dir: &Path) -> io::Result<Option<Progress>> {
    match fs::read(dir.join(PROGRESS)) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a file at once or not at all.
fn write(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = dir.join(format!("{name}.new"));
    fs::write(&new, bytes)?;
    fs::File::open(&new)?.sync_all()?;
    fs::rename(new, dir.join(name))
}
