//! What documents say of the code must be so: paths exist, names are found where they are said
//! to be, and every clause of the semantics and every row of what policies do wrong has a test that
//! exists.

use super::{File, Violation};

/// Documents that describe other things than the present tree.
const FREE: &[&str] = &["CHANGELOG.md"];
/// The document whose every clause names its test.
const SEMANTICS: &str = "docs/SEMANTICS.md";
/// The document with a table of what policies do wrong, each row with its tests.
const HOSTILE: &str = "docs/HOSTILE.md";
/// The document that lists all metrics, and the file that declares them.
const METRICS: (&str, &str) = ("docs/OPERATING.md", "host/gateway/src/metrics.rs");
/// Directories whose mention in a document must be a path that exists.
const ROOTS: &[&str] =
    &["host/", "wit/", "sdk/", "plugins/", "tests/", "examples/", "xtask/", "docs/", ".ci/"];

/// Holds every rule of this module against the documents among `files`.
pub(super) fn check(files: &[File]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| file.is_markdown()) {
        if FREE.contains(&file.path.as_str()) {
            continue;
        }
        for (index, line) in file.text.lines().enumerate() {
            let mut found = |what| violations.push(Violation::new(&file.path, index + 1, what));
            spans(line).filter_map(|span| mention(span, files)).for_each(&mut found);
            links(line).filter_map(|link| target(&file.path, link, files)).for_each(&mut found);
        }
    }
    if let Some(semantics) = files.iter().find(|file| file.path == SEMANTICS) {
        violations.extend(clauses(semantics, files));
    }
    if let Some(hostile) = files.iter().find(|file| file.path == HOSTILE) {
        violations.extend(rows(hostile, files));
    }
    violations.extend(metrics(files));
    violations
}

/// Metrics that are declared and not described, or described and not declared.
fn metrics(files: &[File]) -> Vec<Violation> {
    let text = |path| files.iter().find(|file| file.path == path).map(|file| &*file.text);
    let (Some(document), Some(declared)) = (text(METRICS.0), text(METRICS.1)) else {
        return Vec::new();
    };
    let (code, _tests) = declared.split_once("#[cfg(test)]").unwrap_or((declared, ""));
    let declared: Vec<&str> = code.split('"').filter(|word| is_metric(word)).collect();
    let described: Vec<&str> = document.split('`').filter(|word| is_metric(word)).collect();
    let lacking = declared.iter().filter(|name| !described.contains(name));
    let lacking = lacking.map(|name| Violation::new(METRICS.0, 1, format!("{name} is not there")));
    let gone = described.iter().filter(|name| !declared.contains(name));
    let gone = gone.map(|name| Violation::new(METRICS.0, 1, format!("there is no {name}")));
    lacking.chain(gone).collect()
}

fn is_metric(word: &str) -> bool {
    let rest = word.strip_prefix("portcullis_");
    rest.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
}

/// The code spans of a line.
fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// The targets of a line's links, `[text](target)`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

/// Judges a code span that is a path (`host/core/src/status.rs`) or a name in a file
/// (`host/core/src/status.rs::from_errno`).
fn mention(span: &str, files: &[File]) -> Option<String> {
    let is_path = |c: char| c.is_alphanumeric() || "/._-:".contains(c);
    if !ROOTS.iter().any(|root| span.starts_with(root)) || !span.chars().all(is_path) {
        return None;
    }
    let (path, name) = match span.split_once("::") {
        Some((path, name)) => (path, Some(name)),
        None => (span, None),
    };
    let path = path.trim_end_matches('/');
    let file = files.iter().find(|file| file.path == path);
    match (file, name) {
        (Some(_), None) => None,
        (Some(file), Some(name)) => {
            let last = name.rsplit("::").next().unwrap_or(name);
            (!has_word(&file.text, last)).then(|| format!("`{path}` does not name `{last}`"))
        }
        (None, _) => {
            let below = format!("{path}/");
            let is_dir = files.iter().any(|file| file.path.starts_with(&below));
            (!is_dir || name.is_some()).then(|| format!("`{path}` does not exist"))
        }
    }
}

/// Judges a link to another file of the repository.
fn target(from: &str, link: &str, files: &[File]) -> Option<String> {
    let link = link.split_once('#').map_or(link, |(path, _)| path);
    if link.is_empty() || link.contains("://") {
        return None;
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let path = parts.join("/");
    let below = format!("{path}/");
    let exists = files.iter().any(|file| file.path == path || file.path.starts_with(&below));
    (!exists).then(|| format!("a link to {link}, which does not exist"))
}

/// Judges the clauses of the semantics: `**S-AREA-N**` begins one, `Test: ` + names end it, and
/// each test named carries the clause's id in the comment above it.
fn clauses(semantics: &File, files: &[File]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut open: Option<(usize, String)> = None;
    let mut ids = Vec::new();
    let mut found = |line, what| violations.push(Violation::new(&semantics.path, line, what));
    for (index, line) in semantics.text.lines().enumerate() {
        let line_number = index + 1;
        if let Some((id, _)) = line.strip_prefix("**S-").and_then(|rest| rest.split_once("**")) {
            ids.push(format!("S-{id}"));
            if let Some((started, id)) = open.replace((line_number, format!("S-{id}"))) {
                found(started, format!("{id} names no test"));
            }
        }
        if let Some(names) = line.trim_start().strip_prefix("Test: ") {
            let id = open.take().map(|(_, id)| id).unwrap_or_default();
            for name in spans(names) {
                match carries(name, &id, files) {
                    None => found(line_number, format!("there is no test `{name}`")),
                    Some(false) => found(line_number, format!("`{name}` does not carry {id}")),
                    Some(true) => {}
                }
            }
        }
    }
    if let Some((started, id)) = open {
        found(started, format!("{id} names no test"));
    }
    violations.extend(unknown_ids("clause", "S-", &ids, files));
    violations
}

/// Judges the rows of a table: `| H-N |` begins one, N rises, and its last cell names tests, each
/// of which carries the row's id in the comment above it.
fn rows(hostile: &File, files: &[File]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let (mut ids, mut last) = (Vec::new(), 0);
    let mut found = |line, what| violations.push(Violation::new(&hostile.path, line, what));
    for (index, line) in hostile.text.lines().enumerate() {
        let line_number = index + 1;
        let Some((number, _)) = line.strip_prefix("| H-").and_then(|rest| rest.split_once(" |"))
        else {
            continue;
        };
        let id = format!("H-{number}");
        let number = number.parse().unwrap_or(0);
        if number <= last {
            found(line_number, format!("{id} comes after H-{last}"));
        }
        last = number;
        let last_cell = line.trim_end().trim_end_matches('|').rsplit('|').next();
        let mut names = spans(last_cell.unwrap_or_default()).peekable();
        if names.peek().is_none() {
            found(line_number, format!("{id} names no test"));
        }
        for name in names {
            match carries(name, &id, files) {
                None => found(line_number, format!("there is no test `{name}`")),
                Some(false) => found(line_number, format!("`{name}` does not carry {id}")),
                Some(true) => {}
            }
        }
        ids.push(id);
    }
    violations.extend(unknown_ids("row", "H-", &ids, files));
    violations
}

/// Whether a test of this name has `id` in the comment above it; `None` where there is no such
/// test.
fn carries(name: &str, id: &str, files: &[File]) -> Option<bool> {
    let test = format!("fn {}(", name.rsplit("::").next().unwrap_or(name));
    let above = |file: &&File| {
        let at = file.text.find(&test)?;
        // A test within a module is indented.
        let above = file.text[..at].trim_end_matches(' ').lines().rev();
        let mut above = above.take_while(|line| !line.trim().is_empty());
        Some(above.any(|line| is_comment(line) && has_word(line, id)))
    };
    let mut tests = files.iter().filter(|file| file.is_rust()).filter_map(|file| above(&file));
    let first = tests.next()?;
    Some(first || tests.any(|carries| carries))
}

/// Ids that comments of tests carry and no clause or row has. `prefix` tells the ids apart.
fn unknown_ids(kind: &str, prefix: &str, ids: &[String], files: &[File]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| file.is_rust() && file.path.contains("tests/")) {
        let comments = file.text.lines().enumerate().filter(|(_, line)| is_comment(line));
        for (index, line) in comments {
            let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
            let ours = words.filter(|word| word.starts_with(prefix) && is_id(word));
            for word in ours.filter(|word| !ids.iter().any(|id| id == word)) {
                let what = format!("there is no {kind} {word}");
                violations.push(Violation::new(&file.path, index + 1, what));
            }
        }
    }
    violations
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// Whether a word is the id of a clause, `S-AREA-N`, or of a row, `H-N`.
fn is_id(word: &str) -> bool {
    let is_number =
        |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(number) = word.strip_prefix("H-") {
        return is_number(number);
    }
    let parts = word.strip_prefix("S-").and_then(|rest| rest.rsplit_once('-'));
    parts.is_some_and(|(area, number)| {
        !area.is_empty() && area.bytes().all(|byte| byte.is_ascii_uppercase()) && is_number(number)
    })
}

fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(path: &str, text: &str) -> Vec<File> {
        vec![
            File { path: path.to_owned(), text: text.to_owned() },
            File {
                path: "host/a/src/b.rs".to_owned(),
                text: "/// It is there (S-A-1).\n#[test]\nfn there() {}\n\nfn bare() {}\n\nmod tests {\n    \
                       /// S-A-1.\n    #[test]\n    fn indented() {}\n}\n"
                    .to_owned(),
            },
        ]
    }

    fn found(path: &str, text: &str) -> Vec<String> {
        check(&files(path, text)).into_iter().map(|violation| violation.what).collect()
    }

    #[test]
    fn a_path_that_does_not_exist_is_found() {
        assert_eq!(found("a.md", "see `host/a/src/c.rs`"), ["`host/a/src/c.rs` does not exist"]);
        assert_eq!(found("a.md", "`host/a/src/b.rs`, `host/a`, `host/{a,b}`"), [""; 0]);
    }

    #[test]
    fn a_name_that_is_not_there_is_found() {
        let gone = found("a.md", "`host/a/src/b.rs::gone`");
        assert_eq!(gone, ["`host/a/src/b.rs` does not name `gone`"]);
        assert_eq!(found("a.md", "`host/a/src/b.rs::there`"), [""; 0]);
    }

    #[test]
    fn a_link_to_nowhere_is_found() {
        assert_eq!(found("docs/a.md", "[b](c.md)"), ["a link to c.md, which does not exist"]);
        assert_eq!(found("docs/a.md", "[b](../host/a/src/b.rs#L1) [c](#here)"), [""; 0]);
    }

    #[test]
    fn a_clause_without_a_test_or_with_one_that_does_not_exist_is_found() {
        let clause = "**S-A-1** Words.\n";
        assert_eq!(found(SEMANTICS, clause), ["S-A-1 names no test"]);
        assert_eq!(
            found(SEMANTICS, &format!("**S-B-1** More.\n{clause}\nTest: `there`\n")),
            ["S-B-1 names no test"]
        );
        assert_eq!(
            found(SEMANTICS, &format!("{clause}Test: `bare`\n")),
            ["`bare` does not carry S-A-1"]
        );
        assert_eq!(
            found(SEMANTICS, &format!("{clause}Test: `gone`\n")),
            ["there is no test `gone`"]
        );
        assert_eq!(found(SEMANTICS, &format!("{clause}Test: `a::there`\n")), [""; 0]);
        assert_eq!(found(SEMANTICS, &format!("{clause}Test: `tests::indented`\n")), [""; 0]);
    }

    #[test]
    fn a_row_without_a_test_or_out_of_its_place_is_found() {
        let carries = File {
            path: "tests/suite/t.rs".to_owned(),
            text: "/// H-1: it is there.\nfn t() {}\n\n/// H-7.\nfn u() {}\n".to_owned(),
        };
        let rows = "| H-1 | seen | so | `t` |\n| H-3 | seen | so | |\n| H-3 | a | b | `u`, `v` |\n";
        let files = [File { path: HOSTILE.to_owned(), text: rows.to_owned() }, carries];
        let found: Vec<String> = check(&files).into_iter().map(|found| found.what).collect();
        assert_eq!(
            found,
            [
                "H-3 names no test",
                "H-3 comes after H-3",
                "`u` does not carry H-3",
                "there is no test `v`",
                "there is no row H-7"
            ]
        );
    }

    #[test]
    fn an_id_that_no_clause_has_is_found() {
        let files = [
            File { path: SEMANTICS.to_owned(), text: "**S-A-1** A.\nTest: `t`\n".to_owned() },
            File {
                path: "tests/suite/t.rs".to_owned(),
                text: "/// S-A-1, S-A-2.\nfn t() {}\n".to_owned(),
            },
        ];
        let found: Vec<String> = check(&files).into_iter().map(|found| found.what).collect();
        assert_eq!(found, ["there is no clause S-A-2"]);
    }

    #[test]
    fn a_metric_that_is_not_described_or_not_there_is_found() {
        let files = [
            File { path: METRICS.0.to_owned(), text: "`portcullis_a` `portcullis_b`".to_owned() },
            File {
                path: METRICS.1.to_owned(),
                text: "\"portcullis_b\" \"portcullis_c\"".to_owned(),
            },
        ];
        let found: Vec<String> = metrics(&files).into_iter().map(|found| found.what).collect();
        assert_eq!(found, ["portcullis_c is not there", "there is no portcullis_a"]);
    }
}
