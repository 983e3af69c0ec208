//! Embeds `policies/s3fifo.wasm` of the build directory, where `cargo xtask build` left it.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> std::io::Result<()> {
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let policies = build_dir(&out).join("policies");
    let component = policies.join("s3fifo.wasm");
    let found = component.is_file();
    // A file that is missing would run this script every time; its folder tells when it comes.
    fs::create_dir_all(&policies)?;
    let watched = if found { &component } else { &policies };
    println!("cargo::rerun-if-changed={}", watched.display());
    println!("cargo::rerun-if-changed=build.rs");
    let expression = if found {
        fs::copy(&component, out.join("s3fifo.wasm"))?;
        r#"Some(include_bytes!(concat!(env!("OUT_DIR"), "/s3fifo.wasm")))"#
    } else {
        "None"
    };
    let code = format!("pub(crate) const COMPONENT: Option<&[u8]> = {expression};\n");
    fs::write(out.join("builtin.rs"), code)
}

/// The build directory: the outermost one around `OUT_DIR` that carries cargo's mark, so that it
/// is right whatever `CARGO_TARGET_DIR` says.
fn build_dir(out: &Path) -> PathBuf {
    let marked = out.ancestors().filter(|dir| dir.join("CACHEDIR.TAG").is_file());
    marked.last().unwrap_or(Path::new("target")).to_owned()
}
