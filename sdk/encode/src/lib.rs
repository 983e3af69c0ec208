//! From a policy that was compiled to a WebAssembly module to the component that a host loads.
//!
//! A module that the SDK made carries the description of its world; into one of another compiler
//! [`describe`] puts it. What must hold: a component that comes out imports nothing but what hosts give.

use std::path::{Path, PathBuf};
use std::{fs, io};

use thiserror::Error;
use wit_component::{ComponentEncoder, DecodedWasm, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// The newest version of the interface.
const WIT: &str = include_str!("../../../wit/0.1.0/policy.wit");
/// What a component may import, whatever the version.
const IMPORTS: &[&str] = &["portcullis:policy/log"];

/// Why a module does not become a component.
#[derive(Debug, Error)]
pub enum EncodeError {
    /// The module cannot be read, or the component not written.
    #[error("{path}: {source}")]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not a module that describes a world of policies.
    #[error("it does not become a component: {0}")]
    Unfit(String),
    /// Nothing was registered in it.
    #[error(
        "it exports no policy: name its type in `register_eviction!`, `register_prefetch!` or \
         `register_inlining!`"
    )]
    Empty,
    /// It needs what no host gives.
    #[error(
        "it imports {import}, which no host gives: no file, clock, network or randomness of the \
         standard library can be used in a policy"
    )]
    Import {
        /// What it needs.
        import: String,
    },
}

/// Encodes a module as a component.
///
/// # Errors
/// What is wrong with the module.
pub fn encode(module: &[u8]) -> Result<Vec<u8>, EncodeError> {
    let component = ComponentEncoder::default()
        .validate(true)
        .module(module)
        .and_then(|encoder| encoder.encode())
        .map_err(|error| EncodeError::Unfit(format!("{error:#}")))?;
    let decoded = wit_component::decode(&component)
        .map_err(|error| EncodeError::Unfit(format!("{error:#}")))?;
    let DecodedWasm::Component(resolve, world) = decoded else {
        return Err(EncodeError::Unfit("it is a WIT package".to_owned()));
    };
    for key in resolve.worlds[world].imports.keys() {
        let import = resolve.name_world_key(key);
        let (interface, _version) = import.split_once('@').unwrap_or((&import, ""));
        if !IMPORTS.contains(&interface) {
            return Err(EncodeError::Import { import });
        }
    }
    if resolve.worlds[world].exports.is_empty() {
        return Err(EncodeError::Empty);
    }
    Ok(component)
}

/// Puts the description of the world of a kind (`eviction`, `prefetch`, `inlining`) into a module whose
/// exports bear the names of the interface.
///
/// # Errors
/// It is no module.
pub fn describe(module: &mut Vec<u8>, kind: &str) -> Result<(), EncodeError> {
    let unfit = |error: &dyn std::fmt::Display| EncodeError::Unfit(error.to_string());
    if !module.starts_with(b"\0asm") {
        return Err(EncodeError::Unfit("it does not begin as WebAssembly does".to_owned()));
    }
    let mut resolve = Resolve::default();
    let package = resolve.push_str("policy.wit", WIT).map_err(|error| unfit(&error))?;
    let world = resolve
        .select_world(&[package], Some(&format!("{kind}-policy")))
        .map_err(|error| unfit(&error))?;
    embed_component_metadata(module, &resolve, world, StringEncoding::UTF8)
        .map_err(|error| unfit(&error))
}

/// Encodes the module in a file, after it was described where a kind is given, and writes the component to
/// another file, if that does not have it already: whoever reads it meanwhile sees the old one or the new
/// one.
///
/// # Errors
/// What is wrong with the module, or with a file.
pub fn encode_file(module: &Path, kind: Option<&str>, component: &Path) -> Result<(), EncodeError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| EncodeError::File { path, source }
    };
    let mut bytes = fs::read(module).map_err(failed(module))?;
    if let Some(kind) = kind {
        describe(&mut bytes, kind)?;
    }
    let bytes = encode(&bytes)?;
    if fs::read(component).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    let fresh = component.with_extension("wasm.new");
    fs::write(&fresh, &bytes).map_err(failed(&fresh))?;
    fs::rename(&fresh, component).map_err(failed(component))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_policy_is_refused_with_words() {
        let empty = encode(b"\0asm\x01\0\0\0").expect_err("nothing is in it");
        assert!(matches!(empty, EncodeError::Empty | EncodeError::Unfit(_)), "{empty}");
        let text = encode(b"#!/bin/sh").expect_err("it is a script");
        assert!(text.to_string().contains("does not become a component"), "{text}");
        let mut text = b"#!/bin/sh".to_vec();
        assert!(describe(&mut text, "eviction").is_err());
        let mut bare = b"\0asm\x01\0\0\0".to_vec();
        describe(&mut bare, "eviction").expect("it is a module");
        let bare = encode(&bare).expect_err("it exports nothing").to_string();
        assert!(bare.contains("does not become a component"), "{bare}");
        let missing = encode_file(Path::new("/nonexistent/a.wasm"), None, Path::new("/none"));
        let missing = missing.expect_err("there is no such file").to_string();
        assert!(missing.starts_with("/nonexistent/a.wasm: "), "{missing}");
    }
}
