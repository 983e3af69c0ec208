//! Entries as JSON objects, one a line.
//!
//! Names and paths are bytes and JSON is text. One that is not UTF-8 has replacement characters
//! in `path`, `name` or `target`, and its true bytes, in hexadecimal, in `path_hex`, `name_hex` or
//! `target_hex` beside it; those are absent otherwise. Fields of attributes are absent where the
//! attributes could not be read.

use std::borrow::Cow;
use std::fmt::Write;

use portcullis_core::entry::EntryRef;
use serde::Serialize;

use crate::text::device_numbers;

/// Which field says what an entry is called.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Label<'a> {
    /// `path`: its path in the volume.
    Path(&'a [u8]),
    /// `name`: its name in its directory.
    Name(&'a [u8]),
}

#[derive(Debug, Default, Serialize)]
struct EntryJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_hex: Option<String>,
    /// As `find -printf %y`.
    r#type: char,
    #[serde(skip_serializing_if = "Option::is_none")]
    ino: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocks: Option<u64>,
    /// Permission bits in octal, as `find -printf %m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nlink: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime_secs: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime_nanos: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ctime_secs: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ctime_nanos: Option<u32>,
    /// Major and minor number; of devices only.
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<(u32, u32)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_hex: Option<String>,
}

/// Appends an entry as one line.
pub(crate) fn push_entry(out: &mut Vec<u8>, label: Label<'_>, entry: &EntryRef<'_>) {
    let mut json = EntryJson { r#type: entry.kind.letter(), ..EntryJson::default() };
    match label {
        Label::Path(path) => (json.path, json.path_hex) = text(Some(path)),
        Label::Name(name) => (json.name, json.name_hex) = text(Some(name)),
    }
    (json.target, json.target_hex) = text(entry.target);
    if let Some(attr) = &entry.attr {
        json.ino = Some(attr.ino);
        json.size = Some(attr.size_bytes);
        json.blocks = Some(attr.blocks);
        json.mode = Some(format!("{:o}", attr.mode & 0o7777));
        json.nlink = Some(attr.nlink);
        json.uid = Some(attr.uid);
        json.gid = Some(attr.gid);
        (json.mtime_secs, json.mtime_nanos) = (Some(attr.mtime.secs), Some(attr.mtime.nanos));
        (json.ctime_secs, json.ctime_nanos) = (Some(attr.ctime.secs), Some(attr.ctime.nanos));
        json.device = (attr.rdev != 0).then(|| device_numbers(attr.rdev));
    }
    push_line(out, &json);
}

/// Appends a value as one line.
pub(crate) fn push_line(out: &mut Vec<u8>, value: &impl Serialize) {
    // Writing to memory does not fail, and our types have no keys but text.
    if serde_json::to_writer(&mut *out, value).is_ok() {
        out.push(b'\n');
    }
}

/// Text for people, and the bytes behind it where they are not that text.
fn text(bytes: Option<&[u8]>) -> (Option<Cow<'_, str>>, Option<String>) {
    let Some(bytes) = bytes else { return (None, None) };
    let shown = String::from_utf8_lossy(bytes);
    let hex = matches!(shown, Cow::Owned(_)).then(|| {
        bytes.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    });
    (Some(shown), hex)
}

#[cfg(test)]
mod tests {
    use portcullis_core::{Attr, FileKind, Handle, Timestamp};

    use super::*;

    fn line(label: Label<'_>, entry: &EntryRef<'_>) -> serde_json::Value {
        let mut out = Vec::new();
        push_entry(&mut out, label, entry);
        assert_eq!(out.pop(), Some(b'\n'));
        assert!(!out.contains(&b'\n'), "more than a line");
        serde_json::from_slice(&out).expect("JSON")
    }

    #[test]
    fn all_that_is_known_is_told_and_nothing_else() {
        let mtime = Timestamp { secs: -3, nanos: 5 };
        let attr = Attr { size_bytes: u64::MAX, mode: 0o100_644, mtime, ..Attr::default() };
        let entry = EntryRef {
            name: b"n",
            handle: Handle::new(b"h").expect("short"),
            attr: Some(attr),
            kind: FileKind::Regular,
            target: None,
            cookie: 0,
        };
        let json = line(Label::Path(b"/a\nb"), &entry);
        assert_eq!(json["path"], "/a\nb");
        assert_eq!(json["size"], u64::MAX);
        assert_eq!(json["mode"], "644");
        assert_eq!((&json["mtime_secs"], &json["mtime_nanos"]), (&(-3).into(), &5.into()));
        assert!(json.get("path_hex").is_none() && json.get("device").is_none());
        let json = line(Label::Name(b"n"), &EntryRef { attr: None, ..entry });
        assert_eq!(json, serde_json::json!({ "name": "n", "type": "f" }));
    }

    #[test]
    fn a_name_that_is_not_text_keeps_its_bytes() {
        let (shown, hex) = text(Some(b"a\xff\x00"));
        assert_eq!((shown.as_deref(), hex.as_deref()), (Some("a\u{fffd}\0"), Some("61ff00")));
    }
}
