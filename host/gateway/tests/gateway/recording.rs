//! Recordings of what is asked: who may, what they tell, and that they end.

use portcullis_core::Status;
use portcullis_core::trace::{Header, Operation, Record, What};
use portcullis_transport::{ReplyStream, Role};
use portcullis_wire::message::TraceNames;
use portcullis_wire::{ReplyFrame, Request};

use crate::harness::{Stand, frame, serve, serve_with};
use crate::tree;

/// A recording as it comes.
struct Recording {
    stream: ReplyStream,
    bytes: Vec<u8>,
    header: Header,
}

impl Recording {
    /// One that has begun.
    async fn start(stand: &Stand, names: TraceNames, for_ms: u64) -> Self {
        let admin = stand.connect(Role::Admin).await;
        let stream = admin.stream(&Request::Trace { names, for_ms }).await.unwrap();
        let (header, bytes) = (Header::default(), Vec::new());
        let mut recording = Self { stream, bytes, header };
        loop {
            assert!(recording.more().await, "it ended before it began");
            if let Some((header, len)) = Header::take(&recording.bytes).unwrap() {
                recording.header = header;
                recording.bytes.drain(..len);
                return recording;
            }
        }
    }

    async fn more(&mut self) -> bool {
        match frame(&mut self.stream).await {
            ReplyFrame::Data(data) => {
                self.bytes.extend_from_slice(&data);
                true
            }
            ReplyFrame::End { complete: true } => false,
            other => panic!("{other:?} in a recording"),
        }
    }

    /// All that comes, until as many requests have begun.
    async fn requests(&mut self, count: usize) -> Vec<(What, Operation, u64)> {
        loop {
            let (mut at, mut found, mut begun) = (0, Vec::new(), 0);
            while let Some((record, len)) = Record::take(&self.bytes[at..]).unwrap() {
                at += len;
                begun += usize::from(record.begins);
                if record.what != What::Lost {
                    found.push((record.what, record.operation, record.key));
                }
            }
            if begun >= count {
                return found;
            }
            assert!(self.more().await, "it ended after {begun} requests");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_tells_what_was_asked_and_what_was_cached_before() {
    let dir = tree::flat(40);
    let (_brick, stand) = serve_with(dir.path(), |config| config.cache_bytes = 4 << 20);
    let client = stand.client().await;
    let root = client.root().await;
    client.lookup(root, b"name-1").await.unwrap();
    let mut recording = Recording::start(&stand, TraceNames::Hashed, 60_000).await;
    assert_eq!(recording.header.capacity_bytes, 4 << 20);
    assert!(recording.header.policy.starts_with("s3-fifo"), "{:?}", recording.header);
    client.lookup(root, b"name-1").await.unwrap();
    assert_eq!(client.lookup(root, b"no such name").await, Err(Status::NotFound));
    client.lookup(root, b"name-2").await.unwrap();
    let told = recording.requests(3).await;
    let of = |what| told.iter().filter(move |(is, ..)| *is == what).collect::<Vec<_>>();
    // The root's own attributes are cached, too.
    assert_eq!(of(What::Resident).len(), 2, "{told:?}");
    assert_eq!(of(What::Hit).len(), 1, "{told:?}");
    assert!(of(What::Resident).iter().any(|(.., key)| *key == of(What::Hit)[0].2), "{told:?}");
    assert_eq!(of(What::Missed).len(), 2, "{told:?}");
    assert!(told.iter().all(|(_, operation, _)| *operation == Operation::Lookup), "{told:?}");
    client.list(root).await;
    let told = recording.requests(4).await;
    assert!(told.iter().any(|told| matches!(told, (What::Came, Operation::List, _))), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_ends_by_its_time_and_is_for_admins() {
    let dir = tree::flat(1);
    let (_brick, stand) = serve(dir.path());
    let mut recording = Recording::start(&stand, TraceNames::Plain, 1).await;
    while recording.more().await {}
    let client = stand.client().await;
    let request = Request::Trace { names: TraceNames::Plain, for_ms: 1 };
    match frame(&mut client.stream(request).await).await {
        ReplyFrame::Failure(failure) => assert_eq!(failure.status, Status::WrongRole),
        other => panic!("{other:?}"),
    }
}
