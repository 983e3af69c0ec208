//! Which handles an export gets: found out at start by trying.

use std::os::fd::AsFd;

use rustix::io::Errno;

use super::kernel::{KernelHandle, Lasting};
use crate::attr::stat;
use crate::error::BrickError;
use crate::export::Export;

/// How a brick identifies files and finds them by their handles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandleChoice {
    /// The best that works on this export.
    #[default]
    Auto,
    /// The kernel's handles, or no start.
    Kernel,
    /// The kernel's handles as identity, opened by where the file was seen last. For a process
    /// without `CAP_DAC_READ_SEARCH`; they do not outlive a restart of the brick.
    Map,
    /// Device, inode number and birth time as identity, opened likewise. For a file system whose
    /// handles are missing or do not last; also taken for [`HandleChoice::Map`] there.
    MapByStat,
}

/// What is used on one export.
#[derive(Clone, Copy, Debug)]
pub(super) enum Method {
    /// The kernel's handles, opened by the kernel.
    Kernel(Lasting),
    /// The kernel's handles, opened by place.
    Map(Lasting),
    /// Device, inode number and birth time, opened by place.
    MapByStat,
}

impl Method {
    /// Makes `choice` where it is possible.
    pub(super) fn choose(export: &Export, choice: HandleChoice) -> Result<Self, BrickError> {
        let tried = match choice {
            HandleChoice::MapByStat => return Ok(Self::MapByStat),
            _ => try_kernel(export),
        };
        match (choice, tried) {
            (HandleChoice::Map, Tried::Opens(fs) | Tried::Identifies(fs, _)) => Ok(Self::Map(fs)),
            (_, Tried::Opens(fs)) => Ok(Self::Kernel(fs)),
            (HandleChoice::Kernel, Tried::Identifies(_, reason) | Tried::No(reason)) => {
                Err(BrickError::KernelHandles { path: export.path().to_owned(), reason })
            }
            (_, Tried::Identifies(fs, _)) => Ok(Self::Map(fs)),
            (_, Tried::No(_)) => Ok(Self::MapByStat),
        }
    }

    /// The choice that this is.
    pub(super) fn choice(self) -> HandleChoice {
        match self {
            Self::Kernel(_) => HandleChoice::Kernel,
            Self::Map(_) => HandleChoice::Map,
            Self::MapByStat => HandleChoice::MapByStat,
        }
    }

    /// The file system, where the kernel's handles identify its files.
    pub(super) fn file_system(self) -> Option<Lasting> {
        match self {
            Self::Kernel(file_system) | Self::Map(file_system) => Some(file_system),
            Self::MapByStat => None,
        }
    }
}

/// What the kernel's handles are good for here.
enum Tried {
    Opens(Lasting),
    /// They identify files, and why they do not open them.
    Identifies(Lasting, String),
    /// Nothing, and why.
    No(String),
}

/// Makes the kernel's handle of the root, and opens it again.
fn try_kernel(export: &Export) -> Tried {
    let file_system = match export.file_system() {
        Ok((fs_type, _)) => match Lasting::of(fs_type) {
            Some(file_system) => file_system,
            None => {
                return Tried::No(format!("those of file system type {fs_type:#x} may not last"));
            }
        },
        Err(error) => return Tried::No(error.to_string()),
    };
    let handle = match KernelHandle::of(export.root()) {
        Ok(Some(handle)) => handle,
        Ok(None) => return Tried::No("the file system gives none that fits".into()),
        Err(error) => return Tried::No(error.to_string()),
    };
    match handle.open(export.root()).and_then(|fd| stat(fd.as_fd())) {
        Ok(stat) if stat.ino() == export.stat().ino() => Tried::Opens(file_system),
        Ok(_) => Tried::No("the handle of the root leads elsewhere".into()),
        Err(Errno::PERM) => {
            Tried::Identifies(file_system, "the process lacks CAP_DAC_READ_SEARCH".into())
        }
        Err(error) => Tried::Identifies(file_system, error.to_string()),
    }
}
