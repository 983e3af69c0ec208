//! The options of `mount -o`, as they stand on a command line or in fstab.

use portcullis_core::limits::{LEASE_MS, MOUNT_CONTENT_BYTES};
use portcullis_core::prefetch::PrefetchChoice;

use super::MountError;

/// How long the kernel may use names and attributes without asking, unless told otherwise. It is
/// told of changes, and never uses them longer than the lease lasts.
pub const ATTR_TTL_MS: u64 = LEASE_MS;
/// Memory for names and attributes, unless told otherwise.
pub const CACHE_BYTES: u64 = 64 * 1024 * 1024;

/// Options that are for mount(8), systemd and fstab, and mean nothing to a mount itself.
const FOREIGN: [&str; 13] = [
    "_netdev", "nofail", "fail", "auto", "noauto", "user", "nouser", "users", "nousers", "owner",
    "group", "defaults", "exec",
];
/// Options that hold in any case.
const IMPLIED: [&str; 4] = ["nodev", "nosuid", "default_permissions", "noatime"];
const KNOWN: &str = "rw, ro, nodev, nosuid, noexec, exec, noatime, default_permissions, \
    allow_other, acl, timeout=SECONDS, attr_ttl_ms=N, cache=BYTES, contents=BYTES, prefetch=none|crawl, fsname=TEXT; and, without effect here, those of mount(8) and systemd: _netdev, \
    nofail, noauto, user, x-...";

/// How to mount. Always without device files and set-user-id, and with the kernel's permission
/// checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Nothing can be changed.
    pub read_only: bool,
    /// Other users may use the mount. Root's mounts are for everybody in any case.
    pub allow_other: bool,
    /// Nothing can be executed.
    pub noexec: bool,
    /// Bytes of memory for names and attributes; 0: nothing is remembered here.
    pub cache_bytes: u64,
    /// Bytes of memory for contents of small files that the gateway sends along; 0: it sends none.
    pub content_bytes: u64,
    /// What is listed before the kernel asks for it. It takes memory, and so is nothing without.
    pub prefetch: PrefetchChoice,
    /// POSIX access lists are shown and hold.
    pub acl: bool,
    /// How long a request may wait for its server, in milliseconds; 0: as long as it takes, `None`:
    /// not said here.
    pub timeout_ms: Option<u64>,
    /// How long the kernel may use names and attributes without asking, at most.
    pub attr_ttl_ms: u64,
    /// The source that mount tables show, `pc://HOST:PORT/PATH` if none is given.
    pub fsname: Option<String>,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            allow_other: false,
            noexec: false,
            cache_bytes: CACHE_BYTES,
            content_bytes: MOUNT_CONTENT_BYTES,
            prefetch: PrefetchChoice::default(),
            acl: false,
            timeout_ms: None,
            attr_ttl_ms: ATTR_TTL_MS,
            fsname: None,
        }
    }
}

impl MountOptions {
    /// Takes over one comma-separated list, as after `-o`. Of options that contradict each other
    /// the later one holds.
    ///
    /// # Errors
    /// An option that is not known, or whose value makes no sense; the message lists what is known.
    pub fn apply(&mut self, list: &str) -> Result<(), MountError> {
        for option in list.split(',').map(str::trim).filter(|option| !option.is_empty()) {
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (option, None),
            };
            self.set(name, value).map_err(|reason| MountError::Option {
                option: option.to_owned(),
                reason,
                known: KNOWN,
            })?;
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        // mount(8) conventions differ on which of the two joins words.
        let name = if name.starts_with('_') { name.to_owned() } else { name.replace('-', "_") };
        match (name.as_str(), value) {
            ("allow_other", None) => self.allow_other = true,
            ("noexec", None) => self.noexec = true,
            ("ro", None) => self.read_only = true,
            ("rw", None) => self.read_only = false,
            ("acl", None) => self.acl = true,
            ("noacl", None) => self.acl = false,
            ("timeout", Some(value)) => {
                let seconds: u32 =
                    value.parse().map_err(|_| format!("{value} is not a number of seconds"))?;
                self.timeout_ms = Some(u64::from(seconds) * 1000);
            }
            ("attr_ttl_ms", Some(value)) => {
                self.attr_ttl_ms = value
                    .parse()
                    .map_err(|_| format!("{value} is not a number of milliseconds"))?;
            }
            ("cache", Some(value)) => {
                self.cache_bytes =
                    value.parse().map_err(|_| format!("{value} is not a number of bytes"))?;
            }
            ("contents", Some(value)) => {
                self.content_bytes =
                    value.parse().map_err(|_| format!("{value} is not a number of bytes"))?;
            }
            ("prefetch", Some(value)) => {
                self.prefetch = value.parse()?;
            }
            ("fsname", Some(value)) => self.fsname = Some(value.to_owned()),
            ("dev" | "suid", None) => {
                return Err("device files and set-user-id programs never work on a mount".into());
            }
            ("allow_other" | "noexec" | "acl" | "noacl" | "ro" | "rw", Some(_)) => {
                return Err("it takes no value".into());
            }
            ("attr_ttl_ms" | "cache" | "contents" | "fsname" | "prefetch" | "timeout", None) => {
                return Err("it needs a value".into());
            }
            (name, value) => {
                if name == "exec" {
                    self.noexec = false;
                }
                let any_value = name.starts_with("x_") || name == "comment";
                let no_value = IMPLIED.contains(&name) || FOREIGN.contains(&name);
                if !any_value && (!no_value || value.is_some()) {
                    return Err("it is not known".into());
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(list: &str) -> Result<MountOptions, String> {
        let mut options = MountOptions::default();
        options.apply(list).map_err(|error| error.to_string())?;
        Ok(options)
    }

    #[test]
    fn a_line_of_fstab_is_understood() {
        let list = "ro,_netdev,nosuid,nodev,nofail,noauto,user,x-systemd.automount,\
            x-systemd.idle-timeout=10min,comment=ours,attr_ttl_ms=250,noexec";
        let expected = MountOptions {
            read_only: true,
            noexec: true,
            attr_ttl_ms: 250,
            ..MountOptions::default()
        };
        assert_eq!(parse(list), Ok(expected));
        assert_eq!(parse(""), Ok(MountOptions::default()));
        assert_eq!(parse("defaults,,ro,rw"), Ok(MountOptions::default()));
    }

    #[test]
    fn dashes_and_underscores_are_the_same_and_the_later_option_holds() {
        let options = parse("attr-ttl-ms=1,attr_ttl_ms=2,noexec,exec,allow-other").unwrap();
        assert_eq!((options.attr_ttl_ms, options.noexec, options.allow_other), (2, false, true));
    }

    #[test]
    fn a_timeout_is_in_seconds_and_none_waits_for_ever() {
        let timeout = |list| parse(list).unwrap().timeout_ms;
        assert_eq!((timeout("timeout=5"), timeout("timeout=0")), (Some(5_000), Some(0)));
        assert_eq!(timeout("rw,acl"), None);
        assert_eq!(parse("cache=0").unwrap().cache_bytes, 0);
        assert!(parse("acl").unwrap().acl && !parse("acl,noacl").unwrap().acl);
    }

    #[test]
    fn what_is_not_known_is_named_with_what_is() {
        for (list, named) in [
            ("ro,acls", "acls"),
            ("acl=1", "acl=1"),
            ("timeout=soon", "soon"),
            ("timeout", "timeout"),
            ("suid", "suid"),
            ("attr_ttl_ms=soon", "soon"),
            ("attr_ttl_ms", "attr_ttl_ms"),
            ("allow_other=yes", "allow_other=yes"),
            ("ro=1", "ro=1"),
        ] {
            let error = parse(list).unwrap_err();
            assert!(error.contains(named) && error.contains("attr_ttl_ms=N"), "{list}: {error}");
        }
    }
}
