//! Compiled code of components, kept in a directory, so that a policy that was here before is back at
//! once.
//!
//! A file is named after the SHA-256 of its component and after what the code depends on (version and
//! settings of the compiler, features of the processor), and begins with the SHA-256 of the code. What
//! must hold: only code that this binary, or another one of the same compiler and settings, wrote here
//! is given out. So the directory has to be this user's own and closed to all others; a file that is
//! not whole, or not ours, is as good as none.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use portcullis_core::limits::{POLICY_CODE_LEN_BYTES_MAX, POLICY_CODES_MAX};
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};

use crate::compiler::Code;
use crate::engine::Engine;

/// Bytes of a SHA-256.
const DIGEST_LEN: usize = 32;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct CodeCache {
    dir: PathBuf,
}

impl CodeCache {
    /// The codes in `dir`, which is made where it is missing.
    pub(crate) fn open(dir: PathBuf) -> io::Result<Self> {
        private_dir(&dir)?;
        Ok(Self { dir })
    }

    /// The code of the component with this digest, if it is here.
    pub(crate) fn get(&self, engine: &Engine, digest: &str) -> Option<Code> {
        let path = self.path(engine, digest);
        match read(&path) {
            Ok(Some(code)) => Some(Code::vouched(code)),
            Ok(None) => {
                tracing::warn!(path = %path.display(), "compiled policy dropped: it is damaged");
                // A new one takes its place in any case.
                let _ = fs::remove_file(&path);
                None
            }
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(path = %path.display(), %error, "compiled policy not read");
                }
                None
            }
        }
    }

    /// Keeps code. Where that fails it is compiled again next time.
    pub(crate) fn put(&self, engine: &Engine, digest: &str, code: &Code) {
        let path = self.path(engine, digest);
        let sum = Sha256::digest(code.bytes());
        if let Err(error) = write_whole(&path, &[&sum, code.bytes()]).and_then(|()| self.tidy()) {
            tracing::warn!(path = %path.display(), %error, "compiled policy not kept");
        }
    }

    fn path(&self, engine: &Engine, digest: &str) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        engine.wasmtime.precompile_compatibility_hash().hash(&mut hasher);
        self.dir.join(format!("{digest}-{:016x}", hasher.finish()))
    }

    /// Removes what was not written for longest, where there is too much.
    fn tidy(&self) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            files.push((entry.metadata()?.modified()?, entry.path()));
        }
        files.sort();
        for (_, path) in files.iter().rev().skip(POLICY_CODES_MAX) {
            fs::remove_file(path)?;
        }
        Ok(())
    }
}

/// The content of a file of ours; `None` where it is none.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    let metadata = file.metadata()?;
    let len_bytes_max = POLICY_CODE_LEN_BYTES_MAX + DIGEST_LEN;
    let ours = metadata.is_file() && metadata.uid() == rustix::process::geteuid().as_raw();
    if !ours || metadata.len() > len_bytes_max as u64 {
        return Ok(None);
    }
    let mut sum = [0; DIGEST_LEN];
    if file.read_exact(&mut sum).is_err() {
        return Ok(None);
    }
    let mut code = Vec::new();
    file.take(POLICY_CODE_LEN_BYTES_MAX as u64).read_to_end(&mut code)?;
    Ok((Sha256::digest(&code)[..] == sum).then_some(code))
}

/// Makes a directory where it is missing; refuses one that others may write to, or read.
pub(crate) fn private_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let metadata = fs::symlink_metadata(dir)?;
    let ours = metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw();
    if !ours || metadata.mode() & 0o077 != 0 {
        let what = "must be a directory of this user's own with mode 0700";
        return Err(io::Error::other(what));
    }
    Ok(())
}

/// Writes a file so that under its name there is all of it, or what was there before.
pub(crate) fn write_whole(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let passing = path.with_extension("new");
    // One that a crash left.
    let _ = fs::remove_file(&passing);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&passing)
        .and_then(|mut file: File| {
            parts.iter().try_for_each(|part| file.write_all(part))?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&passing, path));
    if written.is_err() {
        let _ = fs::remove_file(&passing);
    }
    written?;
    let dir = path.parent().unwrap_or(Path::new("."));
    File::open(dir)?.sync_all()
}
