//! Rules for Rust files, judged by their syntax.

use anyhow::{Context, Result};
use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Violation;

/// Lines of a file before its tests.
const FILE_LINES_MAX: usize = 600;
/// Lines of a function, signature included.
const FUNCTION_LINES_MAX: usize = 80;

/// A crate that is named in one place only.
struct Room {
    name: &'static str,
    only_in: &'static str,
}

const ROOMS: &[Room] = &[
    Room { name: "bincode", only_in: "host/wire/src/codec.rs" },
    Room { name: "wasmtime", only_in: "host/policy/" },
];

/// What `host/core` cannot name: it does no I/O, reads no clock and draws no random numbers.
const NOT_IN_CORE: &[&str] = &["Instant", "SystemTime", "RandomState"];
/// Modules of `std` that do I/O.
const STD_NOT_IN_CORE: &[&str] = &["fs", "net", "process", "env", "thread", "io"];

/// Every rule of this module, held against one file.
pub(super) fn check(path: &str, text: &str) -> Result<Vec<Violation>> {
    let cannot = || format!("{path} is not Rust");
    let file = syn::parse_file(text).with_context(cannot)?;
    let lines = lines_before_tests(path, &file, text);
    let mut rules = Rules { path, lines_before_tests: lines, violations: Vec::new() };
    rules.file_length();
    rules.module_comment(&file);
    rules.visit_file(&file);
    rules.tokens(text.parse().map_err(|_| anyhow::anyhow!(cannot()))?);
    Ok(rules.violations)
}

struct Rules<'a> {
    path: &'a str,
    lines_before_tests: usize,
    violations: Vec<Violation>,
}

impl Rules<'_> {
    fn found(&mut self, line: usize, what: String) {
        self.violations.push(Violation::new(self.path, line, what));
    }

    fn file_length(&mut self) {
        let lines = self.lines_before_tests;
        if lines > FILE_LINES_MAX {
            self.found(lines, format!("{lines} lines before its tests, over {FILE_LINES_MAX}"));
        }
    }

    fn module_comment(&mut self, file: &syn::File) {
        if !file.attrs.iter().any(|attribute| attribute.path().is_ident("doc")) {
            self.found(1, "it does not begin with `//!` sentences: what is it for?".to_owned());
        }
    }

    fn function_length(&mut self, name: &syn::Ident, body: &syn::Block) {
        let start = name.span().start().line;
        let lines = body.span().end().line + 1 - start;
        if lines > FUNCTION_LINES_MAX {
            self.found(start, format!("`{name}` has {lines} lines, over {FUNCTION_LINES_MAX}"));
        }
    }

    /// Judges names that code uses; comments and strings may say them.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (index, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(ident) => {
                    self.name(ident, tokens.get(index + 1..).unwrap_or_default());
                }
                _ => {}
            }
        }
    }

    fn name(&mut self, ident: &proc_macro2::Ident, after: &[TokenTree]) {
        let line = ident.span().start().line;
        if let Some(room) = ROOMS.iter().find(|room| ident == room.name)
            && !self.path.starts_with(room.only_in)
        {
            self.found(line, format!("only {} names {}", room.only_in, room.name));
        }
        if !self.path.starts_with("host/core/src/") || line > self.lines_before_tests {
            return;
        }
        if NOT_IN_CORE.iter().any(|banned| ident == banned) {
            self.found(line, format!("core does not know {ident}: time and chance are arguments"));
        }
        if let [TokenTree::Punct(_), TokenTree::Punct(_), TokenTree::Ident(module), ..] = after
            && ident == "std"
            && STD_NOT_IN_CORE.iter().any(|banned| module == banned)
        {
            self.found(line, format!("core does no I/O, so nothing of std::{module}"));
        }
    }
}

impl<'ast> Visit<'ast> for Rules<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function_length(&item.sig.ident, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function_length(&item.sig.ident, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if attribute.path().is_ident("ignore") {
            let line = attribute.span().start().line;
            self.found(line, "a test that never runs: make it run or remove it".to_owned());
        }
    }
}

fn lines_before_tests(path: &str, file: &syn::File, text: &str) -> usize {
    if path.ends_with("tests.rs") {
        return 0;
    }
    let is_tests = |item: &&syn::Item| match item {
        syn::Item::Mod(module) => module.content.is_some() && module.attrs.iter().any(is_cfg_test),
        _ => false,
    };
    let tests = file.items.iter().find(is_tests);
    tests.map_or(text.lines().count(), |item| item.span().start().line - 1)
}

fn is_cfg_test(attribute: &syn::Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute.parse_args::<syn::Ident>().is_ok_and(|condition| condition == "test")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let violations = check(path, text).expect("it is Rust");
        violations.into_iter().map(|violation| violation.to_string()).collect()
    }

    fn one(path: &str, text: &str, expected: &str) {
        let found = found(path, text);
        assert!(found.len() == 1 && found[0].contains(expected), "{found:?}");
    }

    #[test]
    fn a_long_file_is_found_and_its_tests_do_not_count() {
        let long = "const A: u8 = 0;\n".repeat(FILE_LINES_MAX);
        one("a.rs", &format!("//! A.\n{long}"), "lines before its tests");
        let short = "const A: u8 = 0;\n".repeat(FILE_LINES_MAX - 1);
        let tests = format!("//! A.\n{short}#[cfg(test)]\nmod tests {{\n{long}}}\n");
        assert_eq!(found("a.rs", &tests), [""; 0]);
    }

    #[test]
    fn a_long_function_is_found_also_as_a_method() {
        let body = "let _ = 0;\n".repeat(FUNCTION_LINES_MAX);
        let function = format!("fn long() {{\n{body}}}\n");
        one("a.rs", &format!("//! A.\n{function}"), "a.rs:2: `long` has 82 lines");
        one("a.rs", &format!("//! A.\nimpl B {{\n{function}}}\n"), "a.rs:3: `long` has 82 lines");
    }

    #[test]
    fn a_file_without_a_module_comment_is_found() {
        one("a.rs", "// A.\nfn a() {}\n", "does not begin");
    }

    #[test]
    fn a_test_that_never_runs_is_found_inside_modules() {
        one("a.rs", "//! A.\nmod tests {\n#[test]\n#[ignore]\nfn a() {}\n}\n", "a.rs:4: a test");
        one("a.rs", "//! A.\n#[ignore = \"slow\"]\nfn a() {}\n", "a test that never runs");
    }

    #[test]
    fn a_crate_named_outside_its_room_is_found_but_not_in_comments() {
        for room in ROOMS {
            let text = format!(
                "//! Not by {}.\nuse {}::x;\nconst A: &str = \"{}\";\n",
                room.name, room.name, room.name
            );
            one("host/gateway/src/a.rs", &text, "only");
        }
        assert_eq!(found("host/policy/src/a.rs", "//! A.\nuse wasmtime::Store;\n"), [""; 0]);
    }

    #[test]
    fn clocks_chance_and_io_are_found_in_core_only() {
        for line in ["use std::time::Instant;", "fn a() { let _ = std::fs::read(\"a\"); }"] {
            let text = format!("//! A.\n{line}\n");
            one("host/core/src/a.rs", &text, "core");
            assert_eq!(found("host/brick/src/a.rs", &text), [""; 0]);
        }
        assert_eq!(found("host/core/src/a.rs", "//! A.\nuse std::sync::Arc;\n"), [""; 0]);
        let test = "//! A.\n#[cfg(test)]\nmod tests {\nuse std::thread;\n}\n";
        assert_eq!(found("host/core/src/a.rs", test), [""; 0]);
    }
}
