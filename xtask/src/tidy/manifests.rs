//! Who depends on whom. The order of the layers is written here once more, on purpose: a new
//! edge between crates is a decision, not an accident.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Violation;
use crate::run;

/// A crate of ours and the crates of ours that it may use (for tests it may use more).
const LAYERS: &[(&str, &[&str])] = &[
    ("portcullis-core", &[]),
    ("portcullis-wire", &["portcullis-core"]),
    ("portcullis-transport", &["portcullis-core", "portcullis-wire"]),
    ("portcullis-policy", &["portcullis-core"]),
    ("portcullis-replay", &["portcullis-core"]),
    ("portcullis-brick", &["portcullis-core", "portcullis-wire", "portcullis-transport"]),
    (
        "portcullis-gateway",
        &["portcullis-core", "portcullis-wire", "portcullis-transport", "portcullis-policy"],
    ),
    ("portcullis-fuse", &[]),
    (
        "portcullis-client",
        &["portcullis-core", "portcullis-wire", "portcullis-transport", "portcullis-fuse"],
    ),
    (
        "portcullis-sdk",
        &[
            "portcullis-core",
            "portcullis-world-eviction",
            "portcullis-world-inlining",
            "portcullis-world-prefetch",
        ],
    ),
    ("portcullis-world-eviction", &[]),
    ("portcullis-world-inlining", &[]),
    ("portcullis-world-prefetch", &[]),
    ("portcullis-encode", &[]),
    ("portcullis-sim", &["portcullis-core", "portcullis-wire"]),
    ("portcullis-relay", &[]),
    ("portcullis-floor", &["portcullis-fuse"]),
    ("xtask", &["portcullis-encode"]),
];

/// Who may depend on a crate from outside.
const ROOMS: &[(&str, &[&str])] = &[
    ("bincode", &["portcullis-wire"]),
    ("wasmtime", &["portcullis-policy"]),
    ("quinn-proto", &["portcullis-transport"]),
    ("quinn", &["portcullis-transport", "portcullis-suite", "portcullis-bench"]),
    ("quinn-udp", &["portcullis-relay"]),
    ("flate2", &["portcullis", "portcullis-replay"]),
    ("ruzstd", &["portcullis-replay"]),
];

/// All that `core` and `wire` may depend on: nothing that does I/O or reads a clock.
const PURE: &[&str] = &[
    "bincode",
    "bytes",
    "foldhash",
    "hashbrown",
    "parking_lot",
    "portcullis-core",
    "serde",
    "serde_bytes",
    "siphasher",
    "thiserror",
];

/// Holds the rules of this module against the workspace.
pub(super) fn check(root: &Path) -> Result<Vec<Violation>> {
    let metadata = run::output(&mut run::cargo(
        root,
        &["metadata", "--quiet", "--format-version", "1", "--no-deps", "--offline"],
    ))?;
    let metadata: Value = serde_json::from_str(&metadata).context("cargo metadata")?;
    let mut violations = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let used = dependency["name"].as_str().unwrap_or_default();
            let for_tests = dependency["kind"] == "dev";
            violations.extend(edge(name, used, for_tests));
        }
    }
    Ok(violations)
}

/// Judges one dependency.
fn edge(name: &str, used: &str, for_tests: bool) -> Option<Violation> {
    let bad = |what: String| Some(Violation::new(&format!("{name}/Cargo.toml"), 1, what));
    if let Some((_, allowed)) = ROOMS.iter().find(|(room, _)| *room == used)
        && !allowed.contains(&name)
    {
        return bad(format!("only {} may depend on {used}", allowed.join(", ")));
    }
    if for_tests {
        return None;
    }
    if matches!(name, "portcullis-core" | "portcullis-wire") && !PURE.contains(&used) {
        return bad(format!("{name} is pure: it may not depend on {used}"));
    }
    let (_, allowed) = LAYERS.iter().find(|(layer, _)| *layer == name)?;
    if used.starts_with("portcullis") && !allowed.contains(&used) {
        return bad(format!("{name} may not depend on {used}: dependencies point one way"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_against_the_layers_is_found() {
        assert!(edge("portcullis-wire", "portcullis-transport", false).is_some());
        assert!(edge("portcullis-core", "portcullis-wire", false).is_some());
        assert!(edge("portcullis-brick", "portcullis-gateway", false).is_some());
        assert!(edge("portcullis-gateway", "portcullis-brick", false).is_some());
        assert!(edge("portcullis-gateway", "portcullis-brick", true).is_none());
        assert!(edge("portcullis-gateway", "portcullis-transport", false).is_none());
    }

    #[test]
    fn an_impure_core_is_found() {
        for used in ["tokio", "quinn", "wasmtime", "rustix", "rand"] {
            assert!(edge("portcullis-core", used, false).is_some(), "{used}");
        }
        assert!(edge("portcullis-core", "hashbrown", false).is_none());
    }

    #[test]
    fn a_crate_used_outside_its_room_is_found_also_in_tests() {
        assert!(edge("portcullis-gateway", "wasmtime", true).is_some());
        assert!(edge("portcullis-gateway", "bincode", false).is_some());
        assert!(edge("portcullis-policy", "wasmtime", false).is_none());
    }
}
