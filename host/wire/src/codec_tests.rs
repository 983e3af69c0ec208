//! Every message there and back, and damaged frames.

use bytes::{Bytes, BytesMut};
use portcullis_core::ab::ShadowReport;
use portcullis_core::contents::packed;
use portcullis_core::limits::{
    CALLER_GROUPS_MAX, CHANGES_TOLD_MAX, HANDLE_LEN_MAX, INLINE_TOLD_DIRS_MAX, LINK_TARGET_LEN_MAX,
    NAME_LEN_MAX, POLICY_COMPONENT_LEN_BYTES_MAX, POLICY_CONFIG_LEN_BYTES_MAX,
};
use portcullis_core::replay::OpId;
use portcullis_core::volume::{
    Ask, Cause, Change as Placed, MemberSet, Place, Told, TxId, Unfinished,
};
use portcullis_core::watch::Change;
use portcullis_core::{Attr, ChunkBuilder, Entry, EntryRef, FileKind, Handle, Status, Timestamp};

use super::*;
use crate::message::policy::{PolicyName, PreviousPolicy, QuarantinedPolicy};
use crate::message::{
    Caller, Candidate, Compare, Compared, Lock, LockKind, LockOwner, LockSort, Membership, Mutated,
    Mutation, Notices, PolicyCommand, PolicyKind, PolicySource, PolicyStatus, SetAttr, SetTime,
    Statfs, TraceNames,
};

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

fn owner() -> LockOwner {
    LockOwner { client: u128::MAX - 1, owner: 3 }
}

fn membership() -> Membership {
    Membership { volume: 1 << 126, member: 1, count: 4, root_layout: 2, joined: MemberSet::of(1) }
}

fn lock() -> Lock {
    Lock {
        sort: LockSort::Posix,
        kind: LockKind::Write,
        start_bytes: 1,
        end_bytes: i64::MAX as u64,
        owner: owner(),
        pid: 77,
    }
}

fn policy_commands() -> Vec<Request> {
    let component =
        PolicySource::Component { name: "p.wasm".into(), len_bytes: 9, config_len_bytes: Some(2) };
    let native = PolicySource::Native { name: "lru".into() };
    let commands = [
        PolicyCommand::Status,
        PolicyCommand::Load { source: component.clone(), force: false },
        PolicyCommand::Swap { source: component, force: true },
        PolicyCommand::Swap { source: PolicySource::BuiltIn, force: false },
        PolicyCommand::Swap { source: native, force: false },
        PolicyCommand::Rollback,
        PolicyCommand::Panic,
    ];
    let request = |(at, command)| Request::Policy { kind: PolicyKind::ALL[at % 3], command };
    commands.into_iter().enumerate().map(request).collect()
}

#[test]
fn what_follows_a_policy_command_is_its_component_and_configuration() {
    let lens: Vec<u32> = policy_commands().iter().map(Request::body_len_bytes).collect();
    assert_eq!(lens, [0, 11, 11, 0, 0, 0, 0]);
    let source = |len_bytes, config| {
        let (name, config_len_bytes) = (String::new(), Some(config));
        PolicySource::Component { name, len_bytes, config_len_bytes }
    };
    let most = POLICY_COMPONENT_LEN_BYTES_MAX as u32;
    assert!(source(most, 0).is_within_limits());
    assert!(!source(most + 1, 0).is_within_limits());
    assert!(!source(0, POLICY_CONFIG_LEN_BYTES_MAX as u32 + 1).is_within_limits());
    // Lengths that together are more than fits are not taken for few.
    let command = PolicyCommand::Swap { source: source(u32::MAX, u32::MAX), force: false };
    assert_eq!(command.body_len_bytes(), u32::MAX);
}

fn mutations() -> Vec<Mutation> {
    let (handle, dir) = (handle(), handle());
    let (name, new_name) = (b"\xffname".to_vec(), b"new".to_vec());
    let time = SetTime::At(Timestamp { secs: -1, nanos: 999_999_999 });
    let set = SetAttr { mode: Some(0o644), atime: Some(SetTime::Now), ..SetAttr::default() };
    vec![
        Mutation::Create { dir, name: name.clone(), mode: 0o644, flags: 0o2101 },
        Mutation::Tmpfile { dir, mode: 0o600, flags: 2 },
        Mutation::Mkdir { dir, name: name.clone(), mode: 0o755 },
        Mutation::Mknod { dir, name: name.clone(), mode: 0o020_600, rdev: 1 << 40 },
        Mutation::Symlink { dir, name: name.clone(), target: b"\xfft".to_vec() },
        Mutation::Link { handle, dir, name: name.clone() },
        Mutation::Unlink { dir, name: name.clone() },
        Mutation::Rmdir { dir, name: name.clone() },
        Mutation::Rename { dir, name: name.clone(), new_dir: dir, new_name, flags: 2 },
        Mutation::Setattr { handle, file: 9, set: SetAttr { mtime: Some(time), ..set } },
        Mutation::Setxattr { handle, name: b"user.a".to_vec(), len_bytes: 5, flags: 1 },
        Mutation::Removexattr { handle, name: b"user.a".to_vec() },
        Mutation::Write { file: 1, offset_bytes: 7, len_bytes: 1 << 20, kill_set_id: true },
        Mutation::Fallocate { file: 1, mode: 3, offset_bytes: 4096, len_bytes: 8192 },
        Mutation::CopyFileRange {
            file: 1,
            offset_bytes: 2,
            to_file: 3,
            to_offset_bytes: 4,
            len_bytes: 5,
        },
        Mutation::Volume(Ask::Commit {
            tx: TX,
            change: Placed::Move { from: place(), to: place(), replaced: Some(handle) },
            prepared: MemberSet::of(3),
            cause: Some(CAUSE),
        }),
        Mutation::Volume(Ask::TakeOver { tx: TX, cause: CAUSE }),
        Mutation::Volume(Ask::Own { place: place(), handle, uid: 1000 }),
        Mutation::Recall,
    ]
}

const TX: TxId = TxId { gateway: 1 << 99, number: 3 };
const CAUSE: Cause = Cause { client: 1 << 98, number: 8, oldest: 7, life: 6 };

fn place() -> Place {
    Place { dir: handle(), name: b"\xffname".to_vec() }
}

fn requests() -> Vec<Request> {
    let handle = handle();
    let op = OpId { client: 1 << 100, number: 8, oldest: 7, life: 6, retry: true };
    let caller = Caller::new(1, 2, vec![3, 4]);
    let mutate = |mutation| Request::Mutate { op, caller: caller.clone(), mutation };
    let mut requests = vec![
        Request::Attach { watch: true, client: 1 << 127, ended: 7 },
        Request::Renew,
        Request::Detach,
        Request::Lookup { dir: handle, name: vec![0xff; 255] },
        Request::Getattr { handle },
        Request::Readlink { handle },
        Request::List { dir: handle, after: vec![1, u64::MAX], acl: false, contents: None },
        Request::List { dir: handle, after: Vec::new(), acl: true, contents: Some(0) },
        Request::ReadInPlace { dirs: vec![(handle, 1), (handle, u32::MAX)] },
        Request::Open { handle, flags: 2 },
        Request::Read { file: 1, offset_bytes: u64::MAX, len_bytes: u32::MAX },
        Request::Flush { file: 1, owner: owner() },
        Request::Release { file: u64::MAX, unlock: Some(owner()) },
        Request::ReleaseMany { files: vec![1, u64::MAX] },
        Request::Fsync { file: 1, data_only: true },
        Request::Fsyncdir { dir: handle },
        Request::Lseek { file: 1, offset_bytes: 5, hole: true },
        Request::Getlk { file: 1, lock: lock() },
        Request::Setlk { file: 1, lock: lock(), wait: true },
        Request::Statfs { handle },
        Request::Getxattr { handle, name: b"user.a".to_vec() },
        Request::Listxattr { handle },
        Request::Stats,
        Request::Join { membership: None },
        Request::Unfinished,
        Request::Trace { names: TraceNames::Plain, for_ms: 60_000 },
        Request::Compare(Compare::ShadowStart {
            candidate: Candidate {
                name: "mine.wasm".to_owned(),
                component_len_bytes: 7,
                config_len_bytes: 1,
            },
            sample: 16,
            for_ms: 1,
        }),
        Request::Compare(Compare::Status),
        Request::Join { membership: Some(membership()) },
        Request::Getattrs { handles: vec![handle, handle] },
    ];
    requests.extend(policy_commands());
    requests.extend(mutations().into_iter().map(mutate));
    requests
}

fn changes() -> Vec<Change> {
    vec![
        Change::Attr { handle: handle() },
        Change::Name { dir: handle(), name: b"n".to_vec() },
        Change::Names { dir: handle() },
        Change::All,
    ]
}

fn mutated(result: Mutated) -> ReplyFrame {
    ReplyFrame::Reply(Reply::Mutated {
        result,
        changes: changes(),
        dirs: vec![(handle(), Attr { ino: 9, nlink: 3, ..Attr::default() })],
    })
}

fn replies() -> Vec<ReplyFrame> {
    let mut builder = ChunkBuilder::default();
    let entry_ref = EntryRef { cookie: 9, ..entry().as_ref(b"name", 0) }.to_entry();
    assert!(builder.push(&entry_ref.as_ref(b"name", 9)));
    vec![
        ReplyFrame::Reply(Reply::Attached {
            root: entry(),
            session: 3,
            lease_ms: 4000,
            life: u64::MAX,
            notices: Notices::Fanotify,
        }),
        ReplyFrame::Reply(Reply::Renewed { lease_ms: 1, life: u64::MAX }),
        ReplyFrame::Reply(Reply::Entry(Entry { attr: None, target: None, ..entry() })),
        ReplyFrame::Reply(Reply::Attr(Attr::default())),
        ReplyFrame::Reply(Reply::Target(Vec::new())),
        ReplyFrame::Reply(Reply::Opened { file: 3, attr: Attr::default() }),
        ReplyFrame::Reply(Reply::Done),
        ReplyFrame::Reply(Reply::Offset { offset_bytes: 5 }),
        ReplyFrame::Reply(Reply::Lock(Some(lock()))),
        ReplyFrame::Reply(Reply::Lock(None)),
        mutated(Mutated::Done),
        mutated(Mutated::Entry(entry())),
        mutated(Mutated::Created { entry: entry(), file: 7 }),
        mutated(Mutated::Attr(Attr::default())),
        mutated(Mutated::Written { len_bytes: 1 }),
        mutated(Mutated::Told(Told::Record(None))),
        mutated(Mutated::Told(Told::TakenOver { committed: Some((TX, vec![])) })),
        mutated(Mutated::Told(Told::Renamed { duties: vec![], moved: vec![] })),
        mutated(Mutated::NotAsked),
        ReplyFrame::Reply(Reply::Statfs(Statfs::default())),
        ReplyFrame::Reply(Reply::Xattr(b"a\0b".to_vec())),
        ReplyFrame::Reply(Reply::Stats(Box::default())),
        ReplyFrame::Reply(Reply::Joined { membership: Some(membership()), has_files: true }),
        ReplyFrame::Reply(Reply::Compared(Box::new(Compared {
            shadow: Some(ShadowReport { sample: 3, ..ShadowReport::default() }),
            ab: None,
        }))),
        ReplyFrame::Reply(Reply::Unfinished {
            orphans: vec![Unfinished::Prepared { tx: TX, coordinator: 2 }],
            led: Vec::new(),
        }),
        ReplyFrame::Reply(Reply::Entries(vec![None, Some(entry())])),
        ReplyFrame::Reply(Reply::Policy(Box::new(PolicyStatus {
            previous: Some(PreviousPolicy::default()),
            quarantined: vec![QuarantinedPolicy::default()],
            loaded: Some(PolicyName::default()),
            ..PolicyStatus::default()
        }))),
        ReplyFrame::Chunk(builder.finish(1).expect("one entry")),
        ReplyFrame::Contents(packed::pack([(0, &b""[..]), (127, b"abc")]).remove(0)),
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
        assert_eq!(decode_request(&only_frame(&frame)), Ok(request));
    }
    for reply in replies() {
        let bytes = encode_reply(&reply).expect("within limits");
        assert_eq!(decode_reply(only_frame(&bytes)), Ok(reply));
    }
}

#[test]
fn changes_and_their_acknowledgement_come_back_as_they_were() {
    let tell = Tell { number: 9, changes: changes() };
    let frame = only_frame(&encode_recall(&tell).expect("fits"));
    assert_eq!(decode_recall(&frame), Ok(tell));
    assert_eq!(decode_recalled(&frame), Err(CodecError::Misplaced { kind: FrameKind::Recall }));
    let frame = only_frame(&encode_recalled(9).expect("fits"));
    assert_eq!(decode_recalled(&frame), Ok(9));
}

#[test]
fn the_largest_tell_and_the_largest_request_fit_their_frames() {
    let name = vec![b'n'; NAME_LEN_MAX];
    let dir = Handle::new(&[7; HANDLE_LEN_MAX]).expect("the longest");
    let changes = vec![Change::Name { dir, name: name.clone() }; CHANGES_TOLD_MAX];
    assert!(encode_recall(&Tell { number: 1, changes }).is_ok());
    let op = OpId { client: 1, number: 1, oldest: 1, life: 1, retry: false };
    let target = vec![b't'; LINK_TARGET_LEN_MAX];
    let mutation = Mutation::Symlink { dir, name, target };
    let caller = Caller::new(1, 1, vec![1; CALLER_GROUPS_MAX]);
    assert!(encode_request(&Request::Mutate { op, caller, mutation }).is_ok());
    let dirs = vec![(dir, 1); INLINE_TOLD_DIRS_MAX];
    assert!(encode_request(&Request::ReadInPlace { dirs }).is_ok());
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
fn contents_have_the_bytes_of_the_protocol_and_others_are_refused() {
    let run = packed::pack([(1, &b"ab"[..])]).remove(0);
    let bytes = encode_reply(&ReplyFrame::Contents(run)).expect("fits");
    assert_eq!(bytes[..], [7, 0, 0, 0, 0x14, 1, 2, 0, 0, 0, b'a', b'b']);
    for payload in [&b""[..], &[1, 3, 0, 0, 0, b'a'], &[1, 255, 255, 255, 255], &[1, 0, 0, 0, 0, 1]]
    {
        let frame = Frame { kind: FrameKind::Contents, payload: Bytes::copy_from_slice(payload) };
        assert!(matches!(decode_reply(frame), Err(CodecError::Contents(_))), "{payload:?}");
    }
}

#[test]
fn what_follows_or_lacks_is_refused() {
    let bytes = encode_request(&Request::Renew).expect("fits");
    let mut frame = only_frame(&bytes);
    frame.payload = [&frame.payload[..], &[0]].concat().into();
    assert!(matches!(decode_request(&frame), Err(CodecError::Payload { .. })));
    for len in 0..bytes.len() {
        assert_eq!(frame::take(&mut BytesMut::from(&bytes[..len])), Ok(None));
    }
    let reply = encode_reply(&ReplyFrame::End { complete: true }).expect("fits");
    let error = decode_request(&only_frame(&reply)).expect_err("a reply is no request");
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
                drop(decode_request(&only_frame(&damaged.into())));
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
