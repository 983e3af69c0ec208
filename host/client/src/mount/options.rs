//! The options of `mount -o`, as they stand on a command line or in fstab.

use super::MountError;

/// How long the kernel may use names and attributes without asking, unless told otherwise.
pub const ATTR_TTL_MS: u64 = 1000;

/// Options that are for mount(8), systemd and fstab, and mean nothing to a mount itself.
const FOREIGN: [&str; 13] = [
    "_netdev", "nofail", "fail", "auto", "noauto", "user", "nouser", "users", "nousers", "owner",
    "group", "defaults", "exec",
];
/// Options that hold in any case.
const IMPLIED: [&str; 5] = ["ro", "nodev", "nosuid", "default_permissions", "noatime"];
const KNOWN: &str = "ro, nodev, nosuid, noexec, exec, noatime, default_permissions, allow_other, \
    attr_ttl_ms=N, fsname=TEXT; and, without effect here, those of mount(8) and systemd: _netdev, \
    nofail, noauto, user, x-...";

/// How to mount. Always read-only, without device files and set-user-id, and with the kernel's
/// permission checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Other users may use the mount. Root's mounts are for everybody in any case.
    pub allow_other: bool,
    /// Nothing can be executed.
    pub noexec: bool,
    /// How long the kernel may use names and attributes without asking.
    pub attr_ttl_ms: u64,
    /// The source that mount tables show, `pc://HOST:PORT/PATH` if none is given.
    pub fsname: Option<String>,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self { allow_other: false, noexec: false, attr_ttl_ms: ATTR_TTL_MS, fsname: None }
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
            ("attr_ttl_ms", Some(value)) => {
                self.attr_ttl_ms = value
                    .parse()
                    .map_err(|_| format!("{value} is not a number of milliseconds"))?;
            }
            ("fsname", Some(value)) => self.fsname = Some(value.to_owned()),
            ("rw", None) => return Err("mounts are read-only: leave it out".into()),
            ("dev" | "suid", None) => {
                return Err("device files and set-user-id programs never work on a mount".into());
            }
            ("allow_other" | "noexec", Some(_)) => return Err("it takes no value".into()),
            ("attr_ttl_ms" | "fsname", None) => return Err("it needs a value".into()),
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
        let expected = MountOptions { noexec: true, attr_ttl_ms: 250, ..MountOptions::default() };
        assert_eq!(parse(list), Ok(expected));
        assert_eq!(parse(""), Ok(MountOptions::default()));
        assert_eq!(parse("defaults,,ro"), Ok(MountOptions::default()));
    }

    #[test]
    fn dashes_and_underscores_are_the_same_and_the_later_option_holds() {
        let options = parse("attr-ttl-ms=1,attr_ttl_ms=2,noexec,exec,allow-other").unwrap();
        assert_eq!((options.attr_ttl_ms, options.noexec, options.allow_other), (2, false, true));
    }

    #[test]
    fn what_is_not_known_is_named_with_what_is() {
        for (list, named) in [
            ("ro,acl", "acl"),
            ("rw", "rw"),
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
