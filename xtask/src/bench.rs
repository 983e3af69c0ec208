//! `cargo xtask bench [NAME [ARGS]]`: ratios measured in one run, never a test.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::{build, run};

/// Each file here is one benchmark.
const BENCHES: &str = "tests/bench/src/bin";

/// Builds and runs one benchmark with `args`, or all of them one after the other.
pub(crate) fn bench(root: &Path, name: Option<&str>, args: &[String]) -> Result<ExitCode> {
    let mut names = names(root)?;
    if let Some(name) = name {
        if !names.iter().any(|known| known == name) {
            bail!("there is no benchmark `{name}`, only {}", names.join(", "));
        }
        names = vec![name.to_owned()];
    }
    build::build(root)?;
    run::run(&mut run::cargo(root, &["build", "--release", "--package", "portcullis-bench"]))?;
    for name in names {
        let run = ["run", "--quiet", "--release", "--package", "portcullis-bench", "--bin", &name];
        run::run(run::cargo(root, &run).arg("--").args(args))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn names(root: &Path) -> Result<Vec<String>> {
    let dir = root.join(BENCHES);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}
