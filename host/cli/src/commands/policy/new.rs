//! `portcullis policy new`: a project that builds and passes its tests as it stands.
//!
//! The templates are those of `sdk/templates`. The project names the SDK by its path in a checkout of
//! Portcullis, and takes that checkout's `Cargo.lock`, so that it builds without a network wherever
//! Portcullis itself does.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use portcullis_core::limits::POLICY_NAME_LEN_MAX;

use super::kind::KindArgument;
use crate::error::CliError;
use crate::output::Output;

const MANIFEST: &str = include_str!("../../../../../sdk/templates/Cargo.toml.in");
const README: &str = include_str!("../../../../../sdk/templates/README.md.in");
const EVICTION: &str = include_str!("../../../../../sdk/templates/eviction.rs");
const PREFETCH: &str = include_str!("../../../../../sdk/templates/prefetch.rs");
const INLINING: &str = include_str!("../../../../../sdk/templates/inlining.rs");
/// Names that a crate cannot have, or that would hide one of Rust's own.
const TAKEN: &[&str] = &[
    "alloc",
    "as",
    "async",
    "await",
    "break",
    "const",
    "continue",
    "core",
    "crate",
    "dyn",
    "else",
    "enum",
    "extern",
    "false",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "let",
    "loop",
    "match",
    "mod",
    "move",
    "mut",
    "portcullis-core",
    "portcullis-sdk",
    "proc-macro",
    "pub",
    "ref",
    "return",
    "self",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "trait",
    "true",
    "type",
    "unsafe",
    "use",
    "where",
    "while",
];

/// Make a project for a policy
///
/// It builds and passes its tests as it stands: change it from there.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The policy's name, of a-z, 0-9 and -; also that of the directory, unless --dir is given
    name: String,
    /// What it decides
    #[arg(long, value_enum, default_value = "eviction")]
    kind: KindArgument,
    /// Where to put the project [default: NAME, here]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The directory `sdk` of a checkout of Portcullis [default: the one that this binary, or this
    /// directory, lies in]
    #[arg(long, value_name = "DIR")]
    sdk: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), CliError> {
    let name = &arguments.name;
    check(name)?;
    let sdk = find_sdk(arguments.sdk.as_deref())?;
    let dir = arguments.dir.clone().unwrap_or_else(|| PathBuf::from(name));
    if dir.exists() {
        return Err(CliError::Said(format!("{} is there already", dir.display())));
    }
    let Some(sdk_text) = sdk.to_str().filter(|path| !path.contains(['"', '\\', '\n'])) else {
        return Err(CliError::Said(format!("{} cannot be named in a manifest", sdk.display())));
    };
    let kind = arguments.kind.kind();
    let template = match arguments.kind {
        KindArgument::Eviction => EVICTION,
        KindArgument::Prefetch => PREFETCH,
        KindArgument::Inlining => INLINING,
    };
    let fill = |text: &str| {
        text.replace("{name}", name).replace("{sdk}", sdk_text).replace("{kind}", kind.name())
    };
    fs::create_dir_all(dir.join("src")).map_err(local(&dir))?;
    write(&dir.join("Cargo.toml"), &fill(MANIFEST))?;
    write(&dir.join("README.md"), &fill(README))?;
    write(&dir.join(".gitignore"), "/target\n")?;
    write(&dir.join("src/lib.rs"), template)?;
    let lock = sdk.join("../Cargo.lock");
    if lock.is_file() {
        let copy = dir.join("Cargo.lock");
        fs::copy(&lock, &copy).map_err(local(&copy))?;
    }
    let mut output = Output::stdout()?;
    let shown = dir.display();
    output.write(
        format!("{shown}: {} policy {name}; try `portcullis policy test {shown}`\n", kind.name())
            .as_bytes(),
    )?;
    output.flush()
}

fn check(name: &str) -> Result<(), CliError> {
    let is_of = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
    if !begins || name.len() > POLICY_NAME_LEN_MAX || !name.chars().all(is_of) {
        let what = "is no name for a policy: 1 to 64 of a-z, 0-9 and -, with a letter first";
        return Err(CliError::Said(format!("{name:?} {what}")));
    }
    if TAKEN.contains(&name) {
        return Err(CliError::Said(format!(
            "{name} means something else in Rust: name it otherwise"
        )));
    }
    Ok(())
}

/// The SDK: as given, or above this binary, or above this directory.
fn find_sdk(given: Option<&Path>) -> Result<PathBuf, CliError> {
    if let Some(sdk) = given {
        if !is_sdk(sdk) {
            let shown = sdk.display();
            return Err(CliError::Said(format!(
                "{shown} is not the SDK: name the directory `sdk` of a checkout of Portcullis"
            )));
        }
        return sdk.canonicalize().map_err(local(sdk));
    }
    let starts = [std::env::current_exe().ok(), std::env::current_dir().ok()];
    for start in starts.into_iter().flatten() {
        let found = start.ancestors().map(|dir| dir.join("sdk")).find(|sdk| is_sdk(sdk));
        if let Some(sdk) = found {
            return sdk.canonicalize().map_err(local(&sdk));
        }
    }
    Err(CliError::Said(
        "the SDK is not found: name the directory `sdk` of a checkout of Portcullis with --sdk"
            .to_owned(),
    ))
}

fn is_sdk(dir: &Path) -> bool {
    let manifest = fs::read_to_string(dir.join("Cargo.toml")).unwrap_or_default();
    manifest.lines().any(|line| line.trim() == r#"name = "portcullis-sdk""#)
}

fn write(path: &Path, text: &str) -> Result<(), CliError> {
    fs::write(path, text).map_err(local(path))
}

fn local(path: &Path) -> impl FnOnce(io::Error) -> CliError {
    let path = path.to_owned();
    move |source| CliError::Local { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_policies_and_crates() {
        for name in ["a", "second-chance", "w2"] {
            assert!(check(name).is_ok(), "{name}");
        }
        for name in ["", "2nd", "-a", "A", "a_b", "a/b", "test", "std", &"a".repeat(65)] {
            assert!(check(name).is_err(), "{name}");
        }
    }
}
