//! What the kernel tells of a change: fanotify(7) events with file handles.

/// An event, its handles still the kernel's.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Event<'a> {
    /// `FAN_...`.
    pub(super) mask: u64,
    /// The thread or process that made the change, 0 where we may not know.
    pub(super) by: i32,
    /// The directory, and the name in it; `.` for the directory itself.
    pub(super) at: Option<(RawHandle<'a>, &'a [u8])>,
    /// The file itself.
    pub(super) target: Option<RawHandle<'a>>,
}

/// A file handle as the kernel spells it (`struct file_handle`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RawHandle<'a> {
    pub(super) kind: i32,
    pub(super) bytes: &'a [u8],
}

/// Bytes of `struct fanotify_event_metadata`.
const METADATA_LEN: usize = 24;
/// Bytes of `struct fanotify_event_info_header`.
const HEADER_LEN: usize = 4;
/// Bytes of the file system's id, which follows it.
const FSID_LEN: usize = 8;

/// Takes one event from the front of what was read, `None` where there is none that we know.
pub(super) fn take<'a>(buffer: &mut &'a [u8]) -> Option<Event<'a>> {
    let whole = *buffer;
    let len = usize::try_from(u32_at(whole, 0)?).ok()?;
    let metadata_len = usize::from(u16_at(whole, 6)?);
    if *whole.get(4)? != libc::FANOTIFY_METADATA_VERSION || metadata_len < METADATA_LEN {
        return None;
    }
    let mut infos = whole.get(metadata_len..len)?;
    let mask = u64::from_ne_bytes(*whole.get(8..)?.first_chunk()?);
    let by = u32_at(whole, 20)? as i32;
    *buffer = whole.get(len..)?;
    let mut event = Event { mask, by, at: None, target: None };
    while let Some((kind, info)) = take_info(&mut infos) {
        match kind {
            libc::FAN_EVENT_INFO_TYPE_DFID_NAME => event.at = handle_and_rest(info),
            libc::FAN_EVENT_INFO_TYPE_DFID => {
                event.at = handle_and_rest(info).map(|(handle, _)| (handle, &b"."[..]));
            }
            libc::FAN_EVENT_INFO_TYPE_FID => {
                event.target = handle_and_rest(info).map(|(handle, _)| handle);
            }
            _ => {}
        }
    }
    Some(event)
}

fn take_info<'a>(infos: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let whole = *infos;
    let kind = *whole.first()?;
    let len = usize::from(u16_at(whole, 2)?);
    let info = whole.get(HEADER_LEN..len)?;
    *infos = whole.get(len..)?;
    Some((kind, info))
}

/// The handle, and the name after it, without its NUL.
fn handle_and_rest(info: &[u8]) -> Option<(RawHandle<'_>, &[u8])> {
    let handle = info.get(FSID_LEN..)?;
    let len = usize::try_from(u32_at(handle, 0)?).ok()?;
    let kind = u32_at(handle, 4)? as i32;
    let bytes = handle.get(8..8usize.checked_add(len)?)?;
    let rest = handle.get(8 + len..)?;
    let name = rest.split(|&byte| byte == 0).next().unwrap_or_default();
    Some((RawHandle { kind, bytes }, name))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(kind: u8, handle: &[u8], name: &[u8]) -> Vec<u8> {
        let mut info = vec![kind, 0, 0, 0];
        info.extend([0; FSID_LEN]);
        info.extend((handle.len() as u32).to_ne_bytes());
        info.extend(1i32.to_ne_bytes());
        info.extend(handle);
        info.extend(name);
        info.resize(info.len().next_multiple_of(4), 0);
        let len = (info.len() as u16).to_ne_bytes();
        info[2..4].copy_from_slice(&len);
        info
    }

    fn event(mask: u64, infos: &[Vec<u8>]) -> Vec<u8> {
        let infos = infos.concat();
        let mut event = ((METADATA_LEN + infos.len()) as u32).to_ne_bytes().to_vec();
        event.extend([libc::FANOTIFY_METADATA_VERSION, 0]);
        event.extend((METADATA_LEN as u16).to_ne_bytes());
        event.extend(mask.to_ne_bytes());
        event.extend((-1i32).to_ne_bytes());
        event.extend(77i32.to_ne_bytes());
        event.extend(infos);
        event
    }

    #[test]
    fn events_are_read_one_after_the_other() {
        let dir = info(libc::FAN_EVENT_INFO_TYPE_DFID_NAME, b"directory", b"name\0");
        let target = info(libc::FAN_EVENT_INFO_TYPE_FID, b"file", b"");
        let bytes =
            [event(libc::FAN_CREATE, &[dir, target]), event(libc::FAN_Q_OVERFLOW, &[])].concat();
        let mut rest = &bytes[..];
        let first = take(&mut rest).expect("an event");
        let [dir, file] = [&b"directory"[..], b"file"].map(|bytes| RawHandle { kind: 1, bytes });
        let wanted =
            Event { mask: libc::FAN_CREATE, by: 77, at: Some((dir, b"name")), target: Some(file) };
        assert_eq!(first, wanted);
        let second = take(&mut rest).expect("an event");
        assert_eq!((second.mask, second.at), (libc::FAN_Q_OVERFLOW, None));
        assert_eq!(take(&mut rest), None);
    }

    #[test]
    fn what_is_cut_off_or_altered_is_no_reason_to_read_beyond() {
        let dir = info(libc::FAN_EVENT_INFO_TYPE_DFID_NAME, b"directory", b"name\0");
        let whole = event(libc::FAN_MODIFY, &[dir]);
        for len in 0..whole.len() {
            let mut rest = &whole[..len];
            assert_eq!(take(&mut rest), None, "{len} bytes");
        }
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut altered = whole.clone();
                altered[at] = value;
                let mut rest = &altered[..];
                for _ in 0..8 {
                    let _ = take(&mut rest);
                }
            }
        }
    }
}
