//! What a component is at its outside, with our own words for whatever is wrong with it.
//!
//! The bytes are read to their end before anything is made of them, and names and versions are
//! checked before the compiler, which is slow and has the largest surface, sees any of it.

use portcullis_core::limits::POLICY_COMPONENT_LEN_BYTES_MAX;
use semver::Version;
use sha2::{Digest, Sha256};
use wasmparser::{Encoding, Parser, Payload};
use wasmtime::component::Component;

use crate::bindings::VERSION;
use crate::error::Refusal;
use crate::guest::readable;

/// Where the interfaces of policies come from.
const PACKAGE: &str = "portcullis:policy/";
/// What the host gives.
const IMPORTS: &[&str] = &["log"];
/// What an eviction policy must have.
const EXPORTS: &[&str] = &["control", "eviction"];

/// A component that names nothing we do not have. Cloning shares its code.
#[derive(Clone)]
pub(crate) struct Compiled {
    pub(crate) component: Component,
    /// SHA-256 of its bytes, in hexadecimal.
    pub(crate) digest: String,
}

/// Reads the bytes to their end and refuses what is no policy for this host.
pub(crate) fn inspect(bytes: &[u8]) -> Result<(), Refusal> {
    if bytes.len() > POLICY_COMPONENT_LEN_BYTES_MAX {
        return Err(Refusal::TooLarge);
    }
    check(&Names::read(bytes)?)
}

/// What a component imports and exports at its outside.
#[derive(Default)]
struct Names<'a> {
    imports: Vec<&'a str>,
    exports: Vec<&'a str>,
}

impl<'a> Names<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, Refusal> {
        if !bytes.starts_with(b"\0asm") {
            let reason = "it does not begin as WebAssembly does";
            return Err(Refusal::NotAComponent(reason.to_owned()));
        }
        let bad = |error: wasmparser::BinaryReaderError| Refusal::NotAComponent(error.to_string());
        let mut names = Names::default();
        // How many components and modules we are inside of.
        let mut depth = 0;
        for payload in Parser::new(0).parse_all(bytes) {
            match payload.map_err(bad)? {
                Payload::Version { encoding: Encoding::Module, .. } if depth == 0 => {
                    return Err(Refusal::Module);
                }
                Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
                Payload::End(_) => depth -= 1,
                Payload::ComponentImportSection(section) if depth == 0 => {
                    for import in section {
                        names.imports.push(import.map_err(bad)?.name.name);
                    }
                }
                Payload::ComponentExportSection(section) if depth == 0 => {
                    for export in section {
                        names.exports.push(export.map_err(bad)?.name.name);
                    }
                }
                _ => {}
            }
        }
        Ok(names)
    }
}

fn check(names: &Names<'_>) -> Result<(), Refusal> {
    for name in names.imports.iter().chain(&names.exports) {
        if let Some((_, version)) = name.strip_prefix(PACKAGE).and_then(|name| name.split_once('@'))
        {
            check_version(version)?;
        }
    }
    for name in &names.imports {
        let ours = interface(name).is_some_and(|interface| IMPORTS.contains(&interface));
        if !ours {
            return Err(Refusal::Import { import: readable(name) });
        }
    }
    let missing = EXPORTS
        .iter()
        .find(|export| !names.exports.iter().any(|name| interface(name) == Some(export)));
    match missing {
        Some(export) => Err(Refusal::Export { export: format!("{PACKAGE}{export}") }),
        None => Ok(()),
    }
}

/// The interface of ours that a name means.
fn interface(name: &str) -> Option<&str> {
    let (interface, _version) = name.strip_prefix(PACKAGE)?.split_once('@')?;
    Some(interface)
}

/// Versions that differ only in what may be added compatibly are one track: before 1.0 those of
/// one minor version, later those of one major version.
fn check_version(found: &str) -> Result<(), Refusal> {
    let track = |version: &str| {
        let Version { major, minor, .. } = Version::parse(version).ok()?;
        Some(if major == 0 { (0, minor) } else { (major, 0) })
    };
    if track(found).is_some() && track(found) == track(VERSION) {
        return Ok(());
    }
    Err(Refusal::Version { found: readable(found), ours: VERSION })
}

/// SHA-256 in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
