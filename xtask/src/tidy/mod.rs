//! The rules of the house that no compiler knows, each a function from text to violations.
//!
//! [`source`] judges Rust files by their syntax, [`text`] all files by their lines, [`docs`]
//! what documents say of the code, and [`manifests`] who depends on whom. Each rule has a test
//! that plants a violation and one that the repository itself passes them all.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};

mod docs;
mod manifests;
mod source;
mod text;

/// A rule broken, and where.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    path: String,
    line: usize,
    what: String,
}

impl Violation {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// A file of the repository: its path from the root, and its text.
struct File {
    path: String,
    text: String,
}

impl File {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn is_markdown(&self) -> bool {
        self.path.ends_with(".md")
    }
}

/// Holds every rule against the repository.
pub(crate) fn check(root: &Path) -> Result<Vec<Violation>> {
    let mut files = Vec::new();
    collect(root, "", &mut files)?;
    let mut violations = manifests::check(root)?;
    for file in &files {
        violations.extend(text::check(&file.path, &file.text));
        if file.is_rust() {
            violations.extend(source::check(&file.path, &file.text)?);
        }
    }
    violations.extend(docs::check(&files));
    Ok(violations)
}

/// Prints violations; `true` where there is none.
pub(crate) fn report(violations: &[Violation]) -> bool {
    for violation in violations {
        eprintln!("tidy: {violation}");
    }
    violations.is_empty()
}

/// Reads all text files below `root`, but those that git does not keep either.
fn collect(root: &Path, below: &str, files: &mut Vec<File>) -> Result<()> {
    let dir = root.join(below);
    let cannot = || format!("cannot read {}", dir.display());
    for entry in std::fs::read_dir(&dir).with_context(cannot)? {
        let entry = entry.with_context(cannot)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
        if entry.file_type()?.is_dir() {
            if !matches!(name.as_str(), ".git" | "target") {
                collect(root, &path, files)?;
            }
        } else if let Ok(text) = String::from_utf8(std::fs::read(entry.path())?) {
            files.push(File { path, text });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_keeps_its_rules() {
        let violations = check(&crate::run::root().expect("a root")).expect("it can be read");
        assert!(report(&violations), "{} violations, listed above", violations.len());
    }
}
