//! Every message there and back, and damaged frames.

use bytes::{Bytes, BytesMut};
use portcullis_core::{Attr, ChunkBuilder, Entry, EntryRef, FileKind, Handle, Status};

use super::*;
use crate::message::Statfs;

fn handle() -> Handle {
    Handle::new(b"some handle").expect("short")
}

fn entry() -> Entry {
    Entry {
        handle: handle(),
        attr: Some(Attr { ino: 7, mode: 0o120_777, ..Attr::default() }),
        kind: FileKind::Symlink,
        target: Some(b"\xff/target".to_vec()),
    }
}

fn requests() -> Vec<Request> {
    let handle = handle();
    vec![
        Request::Attach,
        Request::Lookup { dir: handle, name: vec![0xff; 255] },
        Request::Getattr { handle },
        Request::Readlink { handle },
        Request::List { dir: handle, after: vec![1, u64::MAX] },
        Request::Open { handle },
        Request::Read { file: 1, offset_bytes: u64::MAX, len_bytes: u32::MAX },
        Request::Release { file: u64::MAX },
        Request::Statfs { handle },
        Request::Getxattr { handle, name: b"user.a".to_vec() },
        Request::Listxattr { handle },
        Request::Stats,
    ]
}

fn replies() -> Vec<ReplyFrame> {
    let mut builder = ChunkBuilder::default();
    let entry_ref = EntryRef { cookie: 9, ..entry().as_ref(b"name", 0) }.to_entry();
    assert!(builder.push(&entry_ref.as_ref(b"name", 9)));
    vec![
        ReplyFrame::Reply(Reply::Attached { root: entry() }),
        ReplyFrame::Reply(Reply::Entry(Entry { attr: None, target: None, ..entry() })),
        ReplyFrame::Reply(Reply::Attr(Attr::default())),
        ReplyFrame::Reply(Reply::Target(Vec::new())),
        ReplyFrame::Reply(Reply::Opened { file: 3, attr: Attr::default() }),
        ReplyFrame::Reply(Reply::Released),
        ReplyFrame::Reply(Reply::Statfs(Statfs::default())),
        ReplyFrame::Reply(Reply::Xattr(b"a\0b".to_vec())),
        ReplyFrame::Reply(Reply::Stats(Box::default())),
        ReplyFrame::Chunk(builder.finish(1).expect("one entry")),
        ReplyFrame::Data(Bytes::from_static(b"data")),
        ReplyFrame::Data(Bytes::new()),
        ReplyFrame::End { complete: false },
        ReplyFrame::Failure(Failure::new(Status::Stale, "gone")),
    ]
}

/// Takes the only frame of `bytes`.
fn only_frame(bytes: &Bytes) -> Frame {
    let mut buffer = BytesMut::from(&bytes[..]);
    let frame = frame::take(&mut buffer).expect("a frame").expect("a whole one");
    assert!(buffer.is_empty());
    frame
}

#[test]
fn every_request_and_reply_comes_back_as_it_was() {
    for request in requests() {
        let frame = encode_request(&request).expect("within limits");
        assert_eq!(decode_request(frame), Ok(request));
    }
    for reply in replies() {
        let bytes = encode_reply(&reply).expect("within limits");
        assert_eq!(decode_reply(only_frame(&bytes)), Ok(reply));
    }
}

#[test]
fn frames_arrive_whole_however_they_are_cut() {
    let all: Vec<u8> =
        replies().iter().flat_map(|reply| encode_reply(reply).expect("fits").to_vec()).collect();
    for piece_len in [1, 2, 3, 7, 64] {
        let mut buffer = BytesMut::new();
        let mut received = Vec::new();
        for piece in all.chunks(piece_len) {
            buffer.extend_from_slice(piece);
            while let Some(frame) = frame::take(&mut buffer).expect("a frame") {
                received.push(decode_reply(frame).expect("a reply"));
            }
        }
        assert_eq!(received, replies());
    }
}

#[test]
fn oversized_and_unknown_frames_are_refused_by_their_header() {
    let mut huge = BytesMut::from(&[0xff, 0xff, 0xff, 0x7f, 0x10][..]);
    assert!(matches!(frame::take(&mut huge), Err(CodecError::TooLong { .. })));
    let mut unknown = BytesMut::from(&[1, 0, 0, 0, 0x77, 0][..]);
    assert_eq!(frame::take(&mut unknown), Err(CodecError::Kind { kind: 0x77 }));
    let name = vec![b'n'; REQUEST_LEN_BYTES_MAX];
    let error = encode_request(&Request::Lookup { dir: handle(), name }).expect_err("too long");
    assert!(matches!(error, CodecError::TooLong { .. }), "{error}");
}

#[test]
fn what_follows_or_lacks_is_refused() {
    let frame = encode_request(&Request::Attach).expect("fits");
    let doubled = [&frame[..], &frame[..]].concat();
    assert!(matches!(decode_request(doubled.into()), Err(CodecError::Payload { .. })));
    for len in 0..frame.len() {
        assert_eq!(decode_request(frame.slice(..len)), Err(CodecError::Truncated));
    }
    let reply = encode_reply(&ReplyFrame::End { complete: true }).expect("fits");
    let error = decode_request(reply).expect_err("a reply is no request");
    assert_eq!(error, CodecError::Misplaced { kind: FrameKind::End });
}

/// Each bit of each message flipped: an error or another message, never a panic, and never more
/// memory than the frame could carry.
#[test]
fn damaged_messages_never_panic() {
    for request in requests() {
        let frame = encode_request(&request).expect("fits");
        for at in HEADER_LEN..frame.len() {
            for bit in 0..8 {
                let mut damaged = frame.to_vec();
                damaged[at] ^= 1 << bit;
                drop(decode_request(damaged.into()));
            }
        }
    }
    for reply in replies() {
        let bytes = encode_reply(&reply).expect("fits");
        for at in HEADER_LEN..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.to_vec();
                damaged[at] ^= 1 << bit;
                drop(decode_reply(only_frame(&damaged.into())));
            }
        }
    }
}

#[test]
fn verbs_are_numbered_by_their_place() {
    for (number, verb) in crate::message::Verb::ALL.into_iter().enumerate() {
        assert_eq!(verb as usize, number, "{verb:?}");
    }
    for request in requests() {
        assert!(!request.verb().name().is_empty());
    }
}
