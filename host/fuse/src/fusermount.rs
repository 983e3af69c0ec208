//! Mounting without root, by the set-user-id program `fusermount3`.
//!
//! It opens `/dev/fuse`, mounts, and sends the descriptor over a socket whose number it reads from
//! `_FUSE_COMMFD`. We give it the socket as its standard input.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::error::FuseError;
use crate::mount::MountOptions;

/// Mounts; the connection.
pub(crate) fn mount(mountpoint: &Path, options: &MountOptions) -> Result<OwnedFd, FuseError> {
    let system = |source| FuseError::System { action: "running fusermount3", source };
    let (ours, theirs) = UnixStream::pair().map_err(system)?;
    let child = Command::new(program()?)
        .arg("-o")
        .arg(option_list(options))
        .arg("--")
        .arg(mountpoint)
        .env("_FUSE_COMMFD", "0")
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(system)?;
    // The child has the only other end, so this ends when it does.
    let device = receive_descriptor(&ours);
    let output = child.wait_with_output().map_err(system)?;
    match device {
        Ok(Some(device)) if output.status.success() => Ok(device),
        Err(error) => Err(system(error)),
        Ok(_) => Err(failure(&output.stderr)),
    }
}

/// Unmounts lazily, which is what it allows without root.
pub(crate) fn unmount(mountpoint: &Path) -> Result<(), FuseError> {
    let output = Command::new(program()?)
        .args(["-u", "-z", "--"])
        .arg(mountpoint)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| FuseError::System { action: "running fusermount3", source })?;
    if output.status.success() { Ok(()) } else { Err(failure(&output.stderr)) }
}

fn failure(stderr: &[u8]) -> FuseError {
    FuseError::Fusermount(String::from_utf8_lossy(stderr).trim().to_owned())
}

/// Where `fusermount3` is. Services are started without a PATH, so the usual places are tried too.
fn program() -> Result<PathBuf, FuseError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/bin".into(), "/bin".into()])
        .map(|dir| dir.join("fusermount3"))
        .find(|program| program.is_file())
        .ok_or(FuseError::FusermountMissing)
}

fn option_list(options: &MountOptions) -> String {
    let escaped = options.fsname.replace('\\', "\\\\").replace(',', "\\,");
    let mut list = format!("fsname={escaped},subtype={},default_permissions", options.subtype);
    for (set, name) in [
        (options.read_only, ",ro"),
        (options.nodev, ",nodev"),
        (options.nosuid, ",nosuid"),
        (options.noexec, ",noexec"),
        (options.allow_other, ",allow_other"),
    ] {
        list.push_str(if set { name } else { "" });
    }
    if let Some(max_read_bytes) = options.max_read_bytes {
        list.push_str(&format!(",max_read={max_read_bytes}"));
    }
    list
}

/// The descriptor sent over a socket, `None` where the other end closed without one.
fn receive_descriptor(socket: &UnixStream) -> std::io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, flags)?;
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_in_the_source_does_not_end_it() {
        let options = MountOptions {
            fsname: "pc://host:1/a,suid\\b".into(),
            subtype: "portcullis".into(),
            allow_other: false,
            read_only: true,
            nodev: true,
            nosuid: true,
            noexec: false,
            max_read_bytes: Some(65536),
        };
        assert_eq!(
            option_list(&options),
            "fsname=pc://host:1/a\\,suid\\\\b,subtype=portcullis,default_permissions,ro,nodev,nosuid,\
             max_read=65536"
        );
    }
}
