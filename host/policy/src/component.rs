//! What a component is at its outside, with our own words for whatever is wrong with it.
//!
//! The bytes are read to their end before anything is made of them, and names and versions are
//! checked before the compiler, which is slow and has the largest surface, sees any of it.

use portcullis_core::limits::POLICY_COMPONENT_LEN_BYTES_MAX;
use semver::Version;
use sha2::{Digest, Sha256};
use wasmparser::{Encoding, Parser, Payload};
use wasmtime::component::Component;

use crate::bindings::{VERSION, VERSIONS};
use crate::error::Refusal;
use crate::guest::readable;

/// Where the interfaces of policies come from.
pub(crate) const PACKAGE: &str = "portcullis:policy/";
/// What the host gives.
const IMPORTS: &[&str] = &["log"];

/// What a component is for.
pub(crate) struct World {
    /// Its interface.
    pub(crate) name: &'static str,
    /// What it is, with its article, before the word policy.
    article: &'static str,
    /// What it must have.
    exports: &'static [&'static str],
}

/// What decides what leaves the cache.
pub(crate) const EVICTION: World =
    World { name: "eviction", article: "an eviction", exports: &["control", "eviction"] };
/// What decides what is listed ahead.
pub(crate) const PREFETCH: World =
    World { name: "prefetch", article: "a prefetch", exports: &["control", "prefetch"] };

/// What decides what content travels along.
pub(crate) const INLINING: World =
    World { name: "inlining", article: "an inlining", exports: &["control", "inlining"] };
/// All of them.
const WORLDS: &[&World] = &[&EVICTION, &PREFETCH, &INLINING];

/// A component that names nothing we do not have. Cloning shares its code.
#[derive(Clone)]
pub(crate) struct Compiled {
    pub(crate) component: Component,
    /// SHA-256 of its bytes, in hexadecimal.
    pub(crate) digest: String,
}

/// Reads the bytes to their end and refuses what is no policy of `world` for this host.
pub(crate) fn inspect(world: &World, bytes: &[u8]) -> Result<(), Refusal> {
    check(world, &Names::read(bytes)?)
}

/// The world that a component is for.
pub(crate) fn world_of(bytes: &[u8]) -> Result<&'static World, Refusal> {
    Ok(Names::read(bytes)?.world())
}

/// What a component imports and exports at its outside.
#[derive(Default)]
pub(crate) struct Names<'a> {
    pub(crate) imports: Vec<&'a str>,
    pub(crate) exports: Vec<&'a str>,
}

impl<'a> Names<'a> {
    /// The world that it is for; the first one where it is for none, which then says what is missing.
    fn world(&self) -> &'static World {
        let has = |name| self.exports.iter().any(|export| interface(export) == Some(name));
        WORLDS.iter().find(|world| has(world.name)).unwrap_or(&WORLDS[0])
    }

    /// Reads the bytes to their end.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, Refusal> {
        if bytes.len() > POLICY_COMPONENT_LEN_BYTES_MAX {
            return Err(Refusal::TooLarge);
        }
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

fn check(world: &World, names: &Names<'_>) -> Result<(), Refusal> {
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
    let missing = world
        .exports
        .iter()
        .find(|export| !names.exports.iter().any(|name| interface(name) == Some(export)));
    match missing {
        Some(export) => {
            Err(Refusal::Export { export: format!("{PACKAGE}{export}"), kind: world.article })
        }
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
    let is_known = |ours: &&str| track(found).is_some() && track(found) == track(ours);
    if VERSIONS.iter().any(is_known) {
        return Ok(());
    }
    Err(Refusal::Version { found: readable(found), ours: VERSION })
}

/// SHA-256 in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
