//! Compiled in a child, and kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::host::TestHost;
use super::{LIMITS, built};
use crate::{Compiler, LoadOptions, PolicyChoice, PolicyControl, PolicySetup};

fn start(state: &Path, compiler: Compiler) -> PolicyControl {
    let host = Arc::new(TestHost::new(LIMITS.capacity_bytes));
    let setup = PolicySetup {
        compiler,
        state: Some(state.to_owned()),
        ..PolicySetup::new(PolicyChoice::Native, LIMITS)
    };
    PolicyControl::start(host, setup).unwrap_or_else(|error| panic!("{error}"))
}

/// A compiler that does what a shell is told.
fn shell(script: &str) -> Compiler {
    let args = vec!["-c".to_owned(), script.to_owned()];
    Compiler::Child { program: PathBuf::from("/bin/sh"), args }
}

fn load(control: &PolicyControl) -> Result<(), String> {
    let choice = PolicyChoice::File(built("lru"));
    let loaded = control.load(choice, LoadOptions::default());
    loaded.map(drop).map_err(|error| error.to_string())
}

/// The only file of the directory of compiled code.
fn code(state: &Path) -> PathBuf {
    let mut files = fs::read_dir(state.join("compiled")).expect("it is there");
    let file = files.next().expect("something was compiled").expect("an entry").path();
    assert!(files.next().is_none(), "one component was compiled");
    file
}

/// A compiler that does nothing shows where no compiler is asked.
#[test]
fn compiled_code_is_used_again_and_a_damaged_one_is_compiled_anew() {
    let state = tempfile::tempdir().expect("a directory");
    load(&start(state.path(), Compiler::InProcess)).expect("it is compiled");
    let file = code(state.path());
    let whole = fs::read(&file).expect("it can be read");
    load(&start(state.path(), shell("exit 1"))).expect("it is there already");

    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    for bad in [&damaged[..], &whole[..whole.len() / 2], &whole[..10], b""] {
        fs::write(&file, bad).expect("it is ours");
        let refused = load(&start(state.path(), shell("exit 1"))).expect_err("nobody compiles");
        assert!(refused.contains("cannot be compiled"), "{refused}");
        assert!(!file.exists(), "what is damaged is removed");
        load(&start(state.path(), Compiler::InProcess)).expect("it is compiled anew");
        assert_eq!(fs::read(&file).expect("it can be read"), whole, "and kept");
    }
}

#[test]
fn a_compiler_that_fails_refuses_the_policy_and_says_why() {
    let cases = [
        ("cat > /dev/null; echo it is too warm >&2; exit 1", "cannot be compiled: it is too warm"),
        ("kill -9 $$", "the compiler was ended by signal 9: it may take 60 s of CPU time"),
        ("cat > /dev/null", "cannot be compiled"),
        ("cat > /dev/null; echo no code", "cannot be compiled"),
    ];
    for (script, why) in cases {
        let state = tempfile::tempdir().expect("a directory");
        let refused = load(&start(state.path(), shell(script))).expect_err("there is no code");
        assert!(refused.contains(why), "{script}: {refused}");
        assert_eq!(refused.lines().count(), 1, "{refused}");
    }
    let state = tempfile::tempdir().expect("a directory");
    let missing = Compiler::Child { program: "/nonexistent".into(), args: Vec::new() };
    let refused = load(&start(state.path(), missing)).expect_err("there is no compiler");
    assert!(refused.contains("the compiler cannot be started"), "{refused}");
}

#[test]
fn so_many_codes_are_kept() {
    let state = tempfile::tempdir().expect("a directory");
    let compiled = state.path().join("compiled");
    let control = start(state.path(), Compiler::InProcess);
    for number in 0..portcullis_core::limits::POLICY_CODES_MAX + 20 {
        fs::write(compiled.join(format!("old-{number}")), "old").expect("it is ours");
    }
    load(&control).expect("it is compiled");
    let left = fs::read_dir(compiled).expect("it is there").count();
    assert_eq!(left, portcullis_core::limits::POLICY_CODES_MAX);
    load(&start(state.path(), shell("exit 1"))).expect("the newest is kept");
}
