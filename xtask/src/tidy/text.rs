//! Rules for the lines of any file.

use super::Violation;

/// Words that say that something is unfinished. Split, so that this file does not hold them.
const UNFINISHED: &[&str] =
    &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("HA", "CK")];
/// Where people and machines keep their own files.
const HOMES: &[&str] =
    &[concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/"), concat!("/wo", "rk/")];

/// Every rule of this module, held against one file.
pub(super) fn check(path: &str, text: &str) -> Vec<Violation> {
    if matches!(path, "Cargo.lock" | "LICENSE") {
        return Vec::new();
    }
    let mut violations = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut found = |what: String| violations.push(Violation::new(path, index + 1, what));
        if let Some(word) = UNFINISHED.iter().find(|word| has_word(line, word)) {
            found(format!("unfinished: {word}; finish it, or say in an issue what is missing"));
        }
        if let Some(home) = HOMES.iter().find(|home| line.contains(*home)) {
            found(format!("a path of one machine ({home}...)"));
        }
        if line.ends_with([' ', '\t']) && !path.ends_with(".md") {
            found("white space at the end of the line".to_owned());
        }
    }
    violations
}

fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(is_part) && !line[at + word.len()..].starts_with(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        check("a/b.rs", text).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn unfinished_work_is_found_as_a_word_only() {
        let planted =
            format!("fine\n// {}: later\n// {}_LIST is a name\n", UNFINISHED[0], UNFINISHED[0]);
        assert_eq!(lines(&planted), [2]);
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        assert_eq!(lines(&format!("open(\"{}x\")\n/usr/share\n", HOMES[0])), [1]);
    }

    #[test]
    fn white_space_at_the_end_is_found_outside_markdown() {
        assert_eq!(lines("a \nb\n"), [1]);
        assert!(check("a.md", "a  \n").is_empty());
    }
}
