//! `portcullis policy build`: from a project to a component.
//!
//! Cargo compiles the project for `wasm32-unknown-unknown`, and what comes out is encoded as a component
//! (`sdk/encode`).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use portcullis_encode::encode_file;

use super::kind::KindArgument;
use crate::error::CliError;
use crate::output::Output;

const WASM_TARGET: &str = "wasm32-unknown-unknown";
/// Cargo's profile for policies, which `policy new` writes into the manifest.
const PROFILE: &str = "policy";

/// Build a policy
///
/// Compiles a project that `policy new` made and encodes it as a component; or encodes a module that
/// another compiler made.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The project, or a WebAssembly module whose exports bear the names of the interface
    #[arg(default_value = ".")]
    path: PathBuf,
    /// What it decides, where it is a module
    #[arg(long, value_enum, requires = "output")]
    kind: Option<KindArgument>,
    /// Where to put the component [default: PATH/target/NAME.wasm]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Fetch nothing from a network
    #[arg(long)]
    offline: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), CliError> {
    let path = &arguments.path;
    let component = match (arguments.kind, &arguments.output) {
        (Some(kind), Some(output)) => {
            encode_file(path, Some(kind.kind().name()), output).map_err(|error| {
                CliError::Said(format!("{} does not become a policy: {error}", path.display()))
            })?;
            output.clone()
        }
        _ if path.is_file() => {
            return Err(CliError::Said(format!(
                "{} is no project: to encode a module, say its --kind and --output",
                path.display()
            )));
        }
        _ => build(path, arguments.output.as_deref(), arguments.offline)?,
    };
    let mut output = Output::stdout()?;
    output.write(format!("{}\n", component.display()).as_bytes())?;
    output.flush()
}

/// Builds the project in `dir`; answers where the component is.
pub(super) fn build(dir: &Path, output: Option<&Path>, offline: bool) -> Result<PathBuf, CliError> {
    let mut cargo = cargo(dir, offline)?;
    cargo.args(["build", "--quiet", "--lib", "--target", WASM_TARGET, "--profile", PROFILE]);
    cargo.args(["--message-format", "json-render-diagnostics"]);
    let built = cargo.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let built = built.map_err(|source| CliError::System { what: "cargo cannot be run", source })?;
    if !built.status.success() {
        return Err(CliError::Said(format!(
            "{} does not build: cargo says why above (a missing target is installed by \
             `rustup target add {WASM_TARGET}`)",
            dir.display()
        )));
    }
    let (name, module) = artifact(&String::from_utf8_lossy(&built.stdout), dir)?;
    let component = match output {
        Some(path) => path.to_owned(),
        None => dir.join("target").join(name).with_extension("wasm"),
    };
    if let Some(parent) = component.parent() {
        let failed = |source| CliError::Local { path: parent.to_owned(), source };
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    encode_file(&module, None, &component).map_err(|error| {
        CliError::Said(format!("{} does not become a policy: {error}", dir.display()))
    })?;
    Ok(component)
}

/// Cargo in the project.
pub(super) fn cargo(dir: &Path, offline: bool) -> Result<Command, CliError> {
    if !dir.join("Cargo.toml").is_file() {
        let shown = dir.display();
        return Err(CliError::Said(format!(
            "{shown} has no Cargo.toml: `portcullis policy new` makes a project"
        )));
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(dir);
    if offline {
        cargo.env("CARGO_NET_OFFLINE", "true");
    }
    Ok(cargo)
}

/// The package and the module in what cargo said: the one that lies in `dir`.
fn artifact(messages: &str, dir: &Path) -> Result<(String, PathBuf), CliError> {
    let manifest = dir.join("Cargo.toml");
    let manifest = manifest.canonicalize().unwrap_or(manifest);
    for line in messages.lines() {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else { continue };
        let of_ours = message["manifest_path"].as_str().map(Path::new) == Some(&manifest);
        if message["reason"] != "compiler-artifact" || !of_ours {
            continue;
        }
        let files = message["filenames"].as_array().into_iter().flatten();
        let module = files.filter_map(|file| file.as_str()).find(|file| file.ends_with(".wasm"));
        let package = message["package_id"].as_str().and_then(package_name);
        if let (Some(module), Some(name)) = (module, package) {
            return Ok((name.to_owned(), PathBuf::from(module)));
        }
    }
    Err(CliError::Said(format!(
        "{} makes no module: its manifest needs `crate-type = [\"cdylib\", \"rlib\"]` under [lib]",
        dir.display()
    )))
}

/// The name in a package id, `path+file:///DIR#NAME@VERSION`, or `...DIR#VERSION` where the directory
/// is called like the package.
fn package_name(id: &str) -> Option<&str> {
    let (path, rest) = id.rsplit_once('#')?;
    match rest.split_once('@') {
        Some((name, _version)) => Some(name),
        None => path.rsplit('/').next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_has_its_name_in_its_id() {
        assert_eq!(package_name("path+file:///a/mine#0.1.0"), Some("mine"));
        assert_eq!(package_name("path+file:///a/b#mine@0.1.0"), Some("mine"));
        assert_eq!(package_name("none"), None);
    }

    #[test]
    fn the_module_of_the_project_is_found_among_those_of_its_dependencies() {
        let line = |dir: &str, file: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"path+file://{dir}#0.1.0","manifest_path":"{dir}/Cargo.toml","filenames":["{file}"]}}"#
            )
        };
        let messages = [
            "no json".to_owned(),
            line("/nonexistent/sdk", "/t/sdk.rlib"),
            line("/nonexistent/mine", "/t/mine.wasm"),
        ];
        let found = artifact(&messages.join("\n"), Path::new("/nonexistent/mine"));
        assert_eq!(found.ok(), Some(("mine".to_owned(), PathBuf::from("/t/mine.wasm"))));
        let none = artifact(&messages[..2].join("\n"), Path::new("/nonexistent/mine"));
        assert!(none.is_err_and(|error| error.to_string().contains("cdylib")));
    }
}
