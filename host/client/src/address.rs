//! Where something lies: `pc://HOST:PORT/PATH`.
//!
//! HOST is an IPv4 address, an IPv6 address in brackets or a host name. PATH is everything after
//! the authority, byte for byte: names are bytes, so nothing in it is percent-decoded. Empty
//! components and `.` are skipped; `..` is refused, since a volume has no parent and a walk up
//! would mean something else on each side of a symbolic link.

use std::ffi::OsStr;
use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt;

use portcullis_core::limits::NAME_LEN_MAX;
use thiserror::Error;

const SCHEME: &[u8] = b"pc://";
const HOST_LEN_MAX: usize = 253;

/// Why a text is not an address.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{given}: {reason}; an address has the form pc://HOST:PORT/PATH")]
pub struct AddressError {
    /// What was given, for people.
    pub given: String,
    /// What is wrong with it.
    pub reason: String,
}

/// A gateway and a path in its volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    host: String,
    port: u16,
    given: Vec<u8>,
    path_start: usize,
}

impl Address {
    /// Reads an address as a user gives it.
    ///
    /// # Errors
    /// Says which part is wrong.
    pub fn parse(given: &OsStr) -> Result<Self, AddressError> {
        let given = given.as_bytes();
        let wrong = |reason: String| AddressError {
            given: String::from_utf8_lossy(given).into_owned(),
            reason,
        };
        let rest = given
            .strip_prefix(SCHEME)
            .ok_or_else(|| wrong("it does not begin with pc://".into()))?;
        let authority_len = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
        let authority = std::str::from_utf8(&rest[..authority_len])
            .map_err(|_| wrong("the host is not text".into()))?;
        let (host, port) = split_authority(authority).map_err(wrong)?;
        check_path(&rest[authority_len..]).map_err(wrong)?;
        Ok(Self {
            host: host.to_owned(),
            port,
            given: given.to_vec(),
            path_start: SCHEME.len() + authority_len,
        })
    }

    /// The address of the root of the volume behind the gateway at `gateway`.
    pub fn root_of(gateway: SocketAddr) -> Self {
        let authority = format!("pc://{gateway}");
        Self {
            host: gateway.ip().to_string(),
            port: gateway.port(),
            path_start: authority.len(),
            given: format!("{authority}/").into_bytes(),
        }
    }

    /// The host, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The path, from its first slash on; empty where none was given, which means the root.
    pub fn path(&self) -> &[u8] {
        &self.given[self.path_start..]
    }

    /// The whole address as it was given.
    pub fn given(&self) -> &[u8] {
        &self.given
    }

    /// Host and port, as messages name the gateway.
    pub fn authority(&self) -> String {
        String::from_utf8_lossy(&self.given[SCHEME.len()..self.path_start]).into_owned()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.given))
    }
}

/// The names in a path: what lies between its slashes, without empty ones and `.`.
pub fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|name| !name.is_empty() && *name != b".")
}

/// Whether each component can be a name.
pub(crate) fn check_path(path: &[u8]) -> Result<(), String> {
    for name in components(path) {
        let shown = String::from_utf8_lossy(name);
        if name == b".." {
            return Err("a path cannot go up with `..`".into());
        }
        if name.contains(&0) {
            return Err(format!("{shown:?} contains a NUL byte, which no name has"));
        }
        if name.len() > NAME_LEN_MAX {
            let len = name.len();
            return Err(format!("a name of {len} bytes, over the {NAME_LEN_MAX} a name can have"));
        }
    }
    Ok(())
}

fn split_authority(authority: &str) -> Result<(&str, u16), String> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) =
            rest.split_once(']').ok_or("the bracket of an IPv6 address is not closed")?;
        let port = after.strip_prefix(':').ok_or("it names no port")?;
        host.parse::<Ipv6Addr>().map_err(|_| format!("[{host}] is no IPv6 address"))?;
        (host, port)
    } else {
        let (host, port) = authority.rsplit_once(':').ok_or("it names no port")?;
        if host.contains(':') {
            return Err("an IPv6 address stands in brackets, as in [::1]:4433".into());
        }
        (host, port)
    };
    if host.is_empty() {
        return Err("it names no host".into());
    }
    if host.len() > HOST_LEN_MAX || host.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(format!("{host:?} is no host name"));
    }
    // `u16::from_str` would take a sign.
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    match port.parse() {
        Ok(number) if digits && number > 0 => Ok((host, number)),
        _ => Err(format!("{port:?} is no port (1 to 65535)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Address, AddressError> {
        Address::parse(OsStr::new(text))
    }

    #[test]
    fn hosts_ports_and_paths_are_told_apart() {
        for (text, host, port, path) in [
            ("pc://127.0.0.1:4433/", "127.0.0.1", 4433, "/"),
            ("pc://127.0.0.1:4433", "127.0.0.1", 4433, ""),
            ("pc://[::1]:1/a/b", "::1", 1, "/a/b"),
            ("pc://store.example:65535/a%20b:c", "store.example", 65535, "/a%20b:c"),
        ] {
            let address = parse(text).expect(text);
            assert_eq!((address.host(), address.port()), (host, port), "{text}");
            assert_eq!(address.path(), path.as_bytes(), "{text}");
            assert_eq!(address.to_string(), text);
        }
        assert_eq!(parse("pc://[::1]:9/x").expect("fine").authority(), "[::1]:9");
        let gateway = "[::1]:7".parse().expect("an address");
        assert_eq!(Address::root_of(gateway), parse("pc://[::1]:7/").expect("fine"));
    }

    #[test]
    fn a_name_that_is_not_text_is_kept_byte_for_byte() {
        let address = Address::parse(OsStr::from_bytes(b"pc://h:1/\xff\xfe%41")).expect("fine");
        assert_eq!(address.path(), b"/\xff\xfe%41");
    }

    #[test]
    fn components_skip_nothing_but_empty_names_and_dots() {
        let names: Vec<&[u8]> = components(b"//a/./.b/...//c/").collect();
        assert_eq!(names, [&b"a"[..], b".b", b"...", b"c"]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let long = format!("pc://h:1/{}", "x".repeat(256));
        for (text, said) in [
            ("http://h:1/", "pc://"),
            ("pc://h/", "no port"),
            ("pc://:1/", "no host"),
            ("pc://h:/", "no port"),
            ("pc://h:0/", "no port"),
            ("pc://h:+1/", "no port"),
            ("pc://h:65536/", "no port"),
            ("pc://::1:5/", "brackets"),
            ("pc://[::1/", "not closed"),
            ("pc://[::1]/", "no port"),
            ("pc://[zz]:1/", "no IPv6"),
            ("pc://a b:1/", "no host name"),
            ("pc://h:1/a/../b", "`..`"),
            (&long, "256 bytes"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
