//! `find -printf`: the formats of GNU find that a listing can answer, byte for byte the same.

use portcullis_client::Visit;
use portcullis_core::{Attr, Timestamp};

use crate::output::{push_decimal, push_octal, push_padded};

/// A format, taken apart once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    Field(Field),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Kind,
    SizeBytes,
    Mode,
    Uid,
    Gid,
    MtimeSecs,
    RelativePath,
    Path,
    Name,
    Target,
    Links,
    Ino,
}

impl Format {
    /// Takes a format apart.
    pub(crate) fn parse(format: &[u8]) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut text = Vec::new();
        let mut rest = format;
        while let [first, after @ ..] = rest {
            rest = match first {
                b'%' => {
                    let (field, after) = parse_directive(after)?;
                    match field {
                        None => text.push(b'%'),
                        Some(field) => {
                            if !text.is_empty() {
                                pieces.push(Piece::Text(std::mem::take(&mut text)));
                            }
                            pieces.push(Piece::Field(field));
                        }
                    }
                    after
                }
                b'\\' => {
                    let (byte, after) = parse_escape(after)?;
                    text.push(byte);
                    after
                }
                &other => {
                    text.push(other);
                    after
                }
            };
        }
        if !text.is_empty() {
            pieces.push(Piece::Text(text));
        }
        Ok(Self { pieces })
    }

    /// Whether an entry without attributes cannot be printed.
    pub(crate) fn needs_attr(&self) -> bool {
        use Field::{Gid, Ino, Links, Mode, MtimeSecs, SizeBytes, Uid};
        let of_attr = [SizeBytes, Mode, Uid, Gid, MtimeSecs, Links, Ino];
        self.pieces.iter().any(|piece| of_attr.iter().any(|of| *piece == Piece::Field(*of)))
    }

    /// Whether a symbolic link without its target cannot be printed.
    pub(crate) fn needs_target(&self) -> bool {
        self.pieces.contains(&Piece::Field(Field::Target))
    }

    /// Appends what the format says of an entry.
    pub(crate) fn push(&self, out: &mut Vec<u8>, visit: &Visit<'_>) {
        let attr = visit.entry.attr.unwrap_or_default();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text),
                Piece::Field(field) => field.push(out, visit, &attr),
            }
        }
    }
}

impl Field {
    fn push(self, out: &mut Vec<u8>, visit: &Visit<'_>, attr: &Attr) {
        match self {
            Field::Kind => out.push(visit.entry.kind.letter() as u8),
            Field::SizeBytes => push_decimal(out, attr.size_bytes),
            Field::Mode => push_octal(out, u64::from(attr.mode & 0o7777)),
            Field::Uid => push_decimal(out, u64::from(attr.uid)),
            Field::Gid => push_decimal(out, u64::from(attr.gid)),
            Field::MtimeSecs => push_time(out, attr.mtime),
            Field::RelativePath => out.extend_from_slice(visit.relative()),
            Field::Path => out.extend_from_slice(visit.path),
            Field::Name => out.extend_from_slice(name(visit)),
            Field::Target => out.extend_from_slice(visit.entry.target.unwrap_or_default()),
            Field::Links => push_decimal(out, u64::from(attr.nlink)),
            Field::Ino => push_decimal(out, attr.ino),
        }
    }
}

/// Seconds and ten digits of them: nanoseconds and a zero, as find prints them.
fn push_time(out: &mut Vec<u8>, time: Timestamp) {
    if time.secs < 0 {
        out.push(b'-');
    }
    push_decimal(out, time.secs.unsigned_abs());
    out.push(b'.');
    push_padded(out, u64::from(time.nanos), 9);
    out.push(b'0');
}

/// What follows the last slash; of a start with a slash at its end, the last name and the slash.
fn name<'a>(visit: &Visit<'a>) -> &'a [u8] {
    if visit.depth > 0 {
        return visit.entry.name;
    }
    let stem_len = visit.path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    let stem = &visit.path[..stem_len];
    let start = stem.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    &visit.path[start..visit.path.len().min(stem_len + 1)]
}

fn parse_directive(rest: &[u8]) -> Result<(Option<Field>, &[u8]), String> {
    let field = match rest {
        [b'%', ..] => None,
        [b'y', ..] => Some(Field::Kind),
        [b's', ..] => Some(Field::SizeBytes),
        [b'm', ..] => Some(Field::Mode),
        [b'U', ..] => Some(Field::Uid),
        [b'G', ..] => Some(Field::Gid),
        [b'P', ..] => Some(Field::RelativePath),
        [b'p', ..] => Some(Field::Path),
        [b'f', ..] => Some(Field::Name),
        [b'l', ..] => Some(Field::Target),
        [b'n', ..] => Some(Field::Links),
        [b'i', ..] => Some(Field::Ino),
        [b'T', b'@', rest @ ..] => return Ok((Some(Field::MtimeSecs), rest)),
        _ => {
            let given = String::from_utf8_lossy(&rest[..rest.len().min(2)]).into_owned();
            return Err(format!(
                "no directive %{given} here; there are %y %s %m %U %G %T@ %P %p %f %l %n %i and %%"
            ));
        }
    };
    Ok((field, &rest[1..]))
}

fn parse_escape(rest: &[u8]) -> Result<(u8, &[u8]), String> {
    let byte = match rest.first() {
        Some(b'a') => 0x07,
        Some(b'b') => 0x08,
        Some(b'f') => 0x0c,
        Some(b'n') => b'\n',
        Some(b'r') => b'\r',
        Some(b't') => b'\t',
        Some(b'v') => 0x0b,
        Some(b'\\') => b'\\',
        Some(b'0'..=b'7') => {
            let digits = rest.iter().take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
            let value =
                rest[..digits].iter().fold(0_u32, |value, byte| value * 8 + u32::from(byte - b'0'));
            return Ok((value as u8, &rest[digits..]));
        }
        _ => {
            let given = String::from_utf8_lossy(&rest[..rest.len().min(1)]).into_owned();
            return Err(format!(
                "no escape \\{given} here; there are \\a \\b \\f \\n \\r \\t \\v \\\\ and \\NNN"
            ));
        }
    };
    Ok((byte, &rest[1..]))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::path::Path;
    use std::process::Command;
    use std::time::{Duration, SystemTime};

    use portcullis_core::entry::EntryRef;
    use portcullis_core::{FileKind, Handle};
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    const FORMATS: &[&[u8]] = &[
        b"%y %s %m %U %G %T@ %P|%p|%f|%l|%n|%i|%%\\n",
        b"%P\\0",
        b"\\101\\60\\0601\\tx\\\\y\\a\\b\\f\\r\\v\\n",
        b"no newline: %f;",
    ];

    /// What `format` says of `path` through our code, its attributes as the system tells them.
    fn ours(format: &[u8], start: &[u8], path: &Path, depth: usize) -> Vec<u8> {
        let meta = fs::symlink_metadata(path).expect("it is there");
        let target = fs::read_link(path).ok();
        let attr = Attr {
            ino: meta.ino(),
            size_bytes: meta.size(),
            mtime: Timestamp { secs: meta.mtime(), nanos: meta.mtime_nsec() as u32 },
            mode: meta.mode(),
            nlink: meta.nlink() as u32,
            uid: meta.uid(),
            gid: meta.gid(),
            ..Attr::default()
        };
        let bytes = path.as_os_str().as_bytes();
        let entry = EntryRef {
            name: if depth == 0 { b"" } else { path.file_name().expect("named").as_bytes() },
            handle: Handle::new(b"h").expect("short"),
            attr: Some(attr),
            kind: FileKind::of_mode(meta.mode()),
            target: target.as_deref().map(|target| target.as_os_str().as_bytes()),
            cookie: 0,
        };
        let path = if depth == 0 { start } else { bytes };
        let mut out = Vec::new();
        let visit = Visit { path, start_len: start.len(), depth, entry };
        Format::parse(format).expect("a good format").push(&mut out, &visit);
        out
    }

    fn theirs(format: &[u8], start: &[u8], arguments: &[&str]) -> Vec<u8> {
        let output = Command::new("find")
            .arg(OsStr::from_bytes(start))
            .args(arguments)
            .arg("-printf")
            .arg(OsStr::from_bytes(format))
            .env("LC_ALL", "C")
            .output()
            .expect("find runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    fn odd_files(dir: &Path) {
        let at = |name: &[u8]| dir.join(OsStr::from_bytes(name));
        for name in [&b"plain"[..], b"\xff\xfe not text", b"new\nline", b"%s\\n", b" ", b"-print"] {
            fs::write(at(name), name).expect("written");
        }
        fs::set_permissions(at(b"plain"), PermissionsExt::from_mode(0o4755)).expect("set");
        fs::set_permissions(at(b" "), PermissionsExt::from_mode(0o000)).expect("set");
        for (name, shift) in [(&b"-print"[..], 0), (b"plain", 1_234_567_890_123_456_789_u64)] {
            let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(shift);
            fs::File::options()
                .write(true)
                .open(at(name))
                .expect("opened")
                .set_modified(time)
                .expect("set");
        }
        let before = SystemTime::UNIX_EPOCH - Duration::from_millis(2_500);
        fs::File::open(at(b"new\nline")).expect("opened").set_modified(before).expect("set");
        symlink(OsStr::from_bytes(b"\xf0 to\nnowhere"), at(b"link")).expect("made");
        fs::hard_link(at(b"plain"), at(b"second name")).expect("made");
        fs::create_dir(at(b"dir")).expect("made");
        mknodat(CWD, at(b"fifo"), FileType::Fifo, Mode::RUSR, 0).expect("made");
        let _socket = std::os::unix::net::UnixListener::bind(at(b"socket")).expect("made");
    }

    #[test]
    fn all_is_printed_as_find_prints_it() {
        let dir = tempfile::tempdir().expect("a directory");
        odd_files(dir.path());
        let start = dir.path().as_os_str().as_bytes();
        for format in FORMATS {
            for file in fs::read_dir(dir.path()).expect("listed") {
                let file = file.expect("an entry");
                let meta = file.metadata().expect("attributes");
                let ino = meta.ino().to_string();
                let expected = theirs(format, start, &["-maxdepth", "1", "-inum", &ino]);
                let found = ours(format, start, &file.path(), 1);
                if meta.nlink() > 1 && !meta.is_dir() {
                    // find prints both names.
                    assert!(expected.windows(found.len()).any(|part| part == found));
                    continue;
                }
                assert_eq!(found, expected, "{:?}", file.file_name());
            }
            for slashes in ["", "/", "///"] {
                let start = [start, slashes.as_bytes()].concat();
                let expected = theirs(format, &start, &["-maxdepth", "0"]);
                assert_eq!(ours(format, &start, dir.path(), 0), expected, "{slashes}");
            }
        }
    }

    #[test]
    fn what_is_not_known_is_refused_with_what_is() {
        for (format, said) in [
            (&b"%Q"[..], "%Q"),
            (b"%", "there are"),
            (b"%TY", "%T"),
            (b"%5s", "%5s"),
            (b"\\q", "\\q"),
            (b"\\", "there are"),
        ] {
            let error = Format::parse(format).expect_err("not a format");
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn a_format_knows_what_it_needs() {
        let parse = |format: &str| Format::parse(format.as_bytes()).expect("good");
        assert!(!parse("%y %P %p %f %l").needs_attr());
        for field in ["%s", "%m", "%U", "%G", "%T@", "%n", "%i"] {
            assert!(parse(field).needs_attr(), "{field}");
        }
        assert!(parse("%l").needs_target() && !parse("%p").needs_target());
    }
}
