//! What a file says of itself, whether this host takes it or not.

use std::path::Path;

use crate::component::{Names, PACKAGE};
use crate::error::PolicyError;
use crate::loaded::read;
use crate::words::CompiledWords;

/// Interfaces that a policy may have beside those of its kind.
const OPTIONAL: &[&str] = &["scoring", "state"];

/// A component that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspected {
    /// `eviction`, `prefetch` or `inlining`.
    pub kind: &'static str,
    /// As it gives it.
    pub name: String,
    /// As it gives it.
    pub version: String,
    /// The version of the interface that it was made for.
    pub interface: String,
    /// What it imports.
    pub imports: Vec<String>,
    /// What it exports.
    pub exports: Vec<String>,
    /// The optional interfaces among those.
    pub optional: Vec<&'static str>,
    /// Bytes of the component.
    pub len_bytes: u64,
    /// SHA-256 of the component in hexadecimal.
    pub digest: String,
}

/// Looks at the component in a file, and asks it who it is.
///
/// # Errors
/// Why it is no policy for this host.
pub fn inspect(path: &Path) -> Result<Inspected, PolicyError> {
    let shown = path.display().to_string();
    let bytes = read(path).map_err(|refusal| refusal.of(&shown))?;
    let compiled = CompiledWords::compile(&shown, &bytes)?;
    let (name, version) = compiled.describe()?;
    let names = Names::read(&bytes).map_err(|refusal| refusal.of(&shown))?;
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let has = |optional: &&&str| {
        let prefix = format!("{PACKAGE}{optional}@");
        names.exports.iter().any(|name| name.starts_with(&prefix))
    };
    let interface = names.exports.iter().find_map(|name| {
        let (_, version) = name.strip_prefix(PACKAGE)?.split_once('@')?;
        Some(version.to_owned())
    });
    Ok(Inspected {
        kind: compiled.kind(),
        name,
        version,
        interface: interface.unwrap_or_default(),
        imports: owned(&names.imports),
        exports: owned(&names.exports),
        optional: OPTIONAL.iter().filter(has).copied().collect(),
        len_bytes: bytes.len() as u64,
        digest: compiled.digest().to_owned(),
    })
}
