//! Which policy an operator swapped in last, kept in a directory so that it is active again after a
//! restart.
//!
//! The directory has a file `active` of `key value` lines, and beside it the component and its
//! configuration, named after their SHA-256. What must hold: the file is replaced as a whole, after what
//! it names is there; what is read is checked against its SHA-256.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use portcullis_core::eviction::s3fifo::S3Fifo;
use portcullis_core::limits::{POLICY_COMPONENT_LEN_BYTES_MAX, POLICY_CONFIG_LEN_BYTES_MAX};

use crate::codes::{private_dir, write_whole};
use crate::component::sha256;
use crate::guest::readable;
use crate::loaded::PolicyChoice;

/// The first line of the file `active`.
const HEAD: &str = "portcullis-policy 1";
const ACTIVE: &str = "active";
/// Longest file `active` that is read.
const ACTIVE_LEN_BYTES_MAX: usize = 4096;

/// A policy by what is kept of it.
enum Kept {
    BuiltIn,
    Native { name: String },
    Component { name: String, digest: String, config_digest: String },
}

/// What was active last, and whether the panic switch was on.
pub(crate) type Last = (Result<PolicyChoice, String>, bool);

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct SavedPolicies {
    dir: PathBuf,
}

impl SavedPolicies {
    /// The policies kept in `dir`, which is made where it is missing.
    pub(crate) fn open(dir: PathBuf) -> io::Result<Self> {
        private_dir(&dir)?;
        Ok(Self { dir })
    }

    /// Keeps what a policy is made of, so that it can be named as the active one.
    fn keep(&self, choice: &PolicyChoice) -> io::Result<Kept> {
        Ok(match choice {
            PolicyChoice::BuiltIn => Kept::BuiltIn,
            PolicyChoice::Native => Kept::Native { name: S3Fifo::NAME.to_owned() },
            PolicyChoice::File(_) => return Err(io::Error::other("it was not read")),
            PolicyChoice::Named(name) => Kept::Native { name: name.clone() },
            PolicyChoice::Bytes { name, bytes, config } => {
                let (digest, config_digest) = (sha256(bytes), sha256(config));
                self.keep_file(&format!("{digest}.wasm"), bytes)?;
                self.keep_file(&format!("{config_digest}.config"), config)?;
                Kept::Component { name: readable(name), digest, config_digest }
            }
        })
    }

    fn keep_file(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.dir.join(name);
        let is_there = read(&path, bytes.len()).is_ok_and(|there| there == bytes);
        if is_there { Ok(()) } else { write_whole(&path, &[bytes]) }
    }

    /// Says which policy is active, and removes what is needed neither for it nor for `also`.
    pub(crate) fn save(
        &self,
        active: &PolicyChoice,
        also: Option<&PolicyChoice>,
        is_panic: bool,
    ) -> io::Result<()> {
        let (active, also) = (self.keep(active)?, also.map(|also| self.keep(also)).transpose()?);
        let source = match &active {
            Kept::BuiltIn => "source built-in\n".to_owned(),
            Kept::Native { name } => format!("source native\nname {name}\n"),
            Kept::Component { name, digest, config_digest } => format!(
                "source component\nname {name}\nsha256 {digest}\nconfig-sha256 {config_digest}\n"
            ),
        };
        let panic = if is_panic { "on" } else { "off" };
        let text = format!("{HEAD}\n{source}panic {panic}\n");
        write_whole(&self.dir.join(ACTIVE), &[text.as_bytes()])?;
        self.tidy(&[Some(active), also])
    }

    fn tidy(&self, kept: &[Option<Kept>]) -> io::Result<()> {
        for entry in fs::read_dir(&self.dir)? {
            let name = entry?.file_name();
            let Some(name) = name.to_str() else { continue };
            let Some(digest) = name.strip_suffix(".wasm").or(name.strip_suffix(".config")) else {
                continue;
            };
            let is_needed = kept.iter().flatten().any(|kept| match kept {
                Kept::Component { digest: component, config_digest, .. } => {
                    digest == component || digest == config_digest
                }
                Kept::BuiltIn | Kept::Native { .. } => false,
            });
            if !is_needed {
                fs::remove_file(self.dir.join(name))?;
            }
        }
        Ok(())
    }

    /// The policy that was active last, or what of it is damaged or missing, and whether the panic
    /// switch was on; `None` where none was ever swapped in.
    ///
    /// # Errors
    /// Nothing can be read of it.
    pub(crate) fn restore(&self) -> Result<Option<Last>, String> {
        let bytes = match read(&self.dir.join(ACTIVE), ACTIVE_LEN_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("{ACTIVE}: {error}")),
        };
        let text = String::from_utf8(bytes).map_err(|_| format!("{ACTIVE} is not text"))?;
        let mut lines = text.lines();
        if lines.next() != Some(HEAD) {
            return Err(format!("{ACTIVE} does not begin with {HEAD:?}"));
        }
        let fields: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(' ')).collect();
        let field = |name: &str| {
            let found = fields.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| *value).ok_or_else(|| format!("{ACTIVE} has no {name:?}"))
        };
        let is_panic = field("panic")? == "on";
        Ok(Some((self.choice(&field), is_panic)))
    }

    fn choice<'a>(
        &self,
        field: &impl Fn(&str) -> Result<&'a str, String>,
    ) -> Result<PolicyChoice, String> {
        Ok(match field("source")? {
            "built-in" => PolicyChoice::BuiltIn,
            "native" => PolicyChoice::Named(field("name")?.to_owned()),
            "component" => PolicyChoice::Bytes {
                name: field("name")?.to_owned(),
                bytes: self.content(field("sha256")?, "wasm", POLICY_COMPONENT_LEN_BYTES_MAX)?,
                config: self.content(
                    field("config-sha256")?,
                    "config",
                    POLICY_CONFIG_LEN_BYTES_MAX,
                )?,
            },
            other => return Err(format!("{ACTIVE}: {other:?} is no source")),
        })
    }

    fn content(&self, digest: &str, kind: &str, len_bytes_max: usize) -> Result<Vec<u8>, String> {
        if digest.len() != 64 || !digest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(format!("{ACTIVE}: {digest:?} is no SHA-256"));
        }
        let name = format!("{digest}.{kind}");
        let bytes = read(&self.dir.join(&name), len_bytes_max)
            .map_err(|error| format!("{name}: {error}"))?;
        if sha256(&bytes) == digest { Ok(bytes) } else { Err(format!("{name} is damaged")) }
    }
}

fn read(path: &Path, len_bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(len_bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > len_bytes_max { Err(io::Error::other("is too large")) } else { Ok(bytes) }
}
