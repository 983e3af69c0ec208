//! Peers that do not behave: each gets a clear error of its own and disturbs nobody else.

use std::sync::Arc;

use portcullis_core::{Handle, Status};
use portcullis_suite::site::{self, Site};
use portcullis_suite::{dial, raw, tree};
use portcullis_transport::{CallError, Connection, Role};
use portcullis_wire::frame::FrameKind;
use portcullis_wire::message::Failure;
use portcullis_wire::{ALPN, ReplyFrame, Request, codec, frame};

/// A site over a small tree, and a runtime to talk to it.
fn start() -> (tempfile::TempDir, Site, tokio::runtime::Runtime) {
    let dir = tempfile::tempdir().expect("a directory");
    tree::small(dir.path());
    let site = Site::start(dir.path(), &[]);
    (dir, site, tokio::runtime::Runtime::new().expect("a runtime"))
}

async fn client(site: &Site) -> (portcullis_transport::Connector, Connection) {
    dial::connect(site.gateway.ready(), &site.identity(), Role::Client, Role::Gateway)
        .await
        .expect("a client is admitted")
}

/// The failure in the bytes of an answer.
fn failure(answer: &[u8]) -> Failure {
    let mut buffer = bytes::BytesMut::from(answer);
    let frame = frame::take(&mut buffer).expect("a frame").expect("a whole one");
    match codec::decode_reply(frame).expect("it decodes") {
        ReplyFrame::Failure(failure) => failure,
        other => panic!("{other:?} where a failure belongs"),
    }
}

fn failed(result: Result<impl std::fmt::Debug, CallError>) -> Failure {
    match result {
        Err(CallError::Failed(failure)) => failure,
        other => panic!("{other:?} where a failure belongs"),
    }
}

/// S-FAIL-4.
#[test]
fn a_bad_frame_fails_its_own_stream_and_is_counted() {
    let (_dir, site, runtime) = start();
    let too_long = {
        let mut bytes = u32::MAX.to_le_bytes().to_vec();
        bytes.push(FrameKind::Request as u8);
        bytes
    };
    let oversized = {
        let mut bytes = (64u32 << 10).to_le_bytes().to_vec();
        bytes.push(FrameKind::Request as u8);
        bytes.resize(64 << 10, 0);
        bytes
    };
    let request = codec::encode_request(&dial::ATTACH).expect("a request").to_vec();
    let unknown_request = {
        let mut bytes = request.clone();
        bytes[5..9].copy_from_slice(&999u32.to_le_bytes());
        bytes
    };
    let trailing = [&request[..], b"more"].concat();
    let twice = [&request[..], &request[..]].concat();
    let misplaced = {
        let mut bytes = request.clone();
        bytes[4] = FrameKind::Chunk as u8;
        bytes
    };
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("nothing", Vec::new()),
        ("noise", (0..200).map(|n| (n * 37 + 11) as u8).collect()),
        ("truncated header", request[..3].to_vec()),
        ("truncated payload", request[..request.len() - 1].to_vec()),
        ("unknown kind", vec![0, 0, 0, 0, 0x77]),
        ("length of 4 GiB", too_long),
        ("oversized", oversized),
        ("unknown request", unknown_request),
        ("trailing bytes", trailing),
        ("two requests", twice),
        ("a reply as a request", misplaced),
    ];
    runtime.block_on(async {
        let (_endpoint, connection) = raw::client(site.gateway.ready(), &site.identity()).await;
        let (_connector, bystander) = client(&site).await;
        for (what, bytes) in &cases {
            let answer = raw::exchange(&connection, bytes).await;
            let answer = answer.unwrap_or_else(|error| panic!("{what}: {error}"));
            let failure = failure(&answer);
            assert_eq!(failure.status, Status::BadFrame, "{what}: {failure}");
            assert!(!failure.detail.is_empty(), "{what}: it says what was wrong");
            dial::attach(&bystander).await;
        }
        // The same connection still works.
        let answer = raw::exchange(&connection, &request).await.expect("an answer");
        assert!(!answer.is_empty() && answer[4] == FrameKind::Reply as u8);
    });
    assert_eq!(site.stats().bad_frames, cases.len() as u64);
    let log = site.gateway.log();
    assert_eq!(log.matches("bad request").count(), 1, "logged once a connection:\n{log}");
}

#[test]
fn a_request_that_is_never_finished_holds_up_nobody() {
    let (_dir, site, runtime) = start();
    runtime.block_on(async {
        let (_endpoint, connection) = raw::client(site.gateway.ready(), &site.identity()).await;
        let mut open = Vec::new();
        for _ in 0..500 {
            let (mut send, recv) = connection.open_bi().await.expect("a stream");
            send.write_all(&[9, 0]).await.expect("it is sent");
            open.push((send, recv));
        }
        let (_connector, bystander) = client(&site).await;
        dial::attach(&bystander).await;
    });
    assert!(site.run("ls", "/", &[]).status.success());
}

#[test]
fn a_certificate_of_another_ca_is_refused() {
    let (_dir, site, runtime) = start();
    let foreign = site.scratch("foreign");
    site::identity(&foreign);
    // The client does not trust the server.
    let ls = std::process::Command::new(portcullis_suite::binary())
        .args(["ls", &site.url("/"), "--identity"])
        .arg(&foreign)
        .output()
        .expect("it runs");
    let stderr = String::from_utf8_lossy(&ls.stderr);
    assert_eq!(ls.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("certificate"), "{stderr}");
    // Nor does the server trust a client that does not care.
    let mixed = site.scratch("mixed");
    std::fs::create_dir(&mixed).expect("a directory");
    std::fs::copy(site.identity().join("ca.pem"), mixed.join("ca.pem")).expect("copied");
    for file in ["client.pem", "client.key"] {
        std::fs::copy(foreign.join(file), mixed.join(file)).expect("copied");
    }
    for role in [Some("client"), None] {
        runtime.block_on(async {
            // In TLS 1.3 a client learns only after its handshake that it was refused.
            let connected = raw::connect(site.gateway.ready(), &mixed, role, ALPN).await;
            if let Ok((_endpoint, connection)) = connected {
                let request = codec::encode_request(&dial::ATTACH).expect("a request");
                let answer = raw::exchange(&connection, &request).await;
                assert!(answer.is_err(), "{role:?} was answered {answer:?}");
            }
        });
    }
    assert!(site.run("ls", "/", &[]).status.success());
}

#[test]
fn another_protocol_is_refused() {
    let (_dir, site, runtime) = start();
    runtime.block_on(async {
        let address = site.gateway.ready();
        let other = raw::connect(address, &site.identity(), Some("client"), b"h3").await;
        assert!(other.is_err(), "a peer that speaks something else is admitted");
    });
    assert!(site.run("ls", "/", &[]).status.success());
}

/// S-FAIL-4.
#[test]
fn a_role_may_do_only_its_own() {
    let (_dir, site, runtime) = start();
    let brick = site.brick.as_ref().expect("the brick is up").ready().to_owned();
    runtime.block_on(async {
        // A client at a brick: whoever reads past the gateway would see past its rules.
        let (_connector, connection) =
            dial::connect(&brick, &site.identity(), Role::Client, Role::Brick)
                .await
                .expect("the handshake is between members of one CA");
        let refused = connection.call(&dial::ATTACH).await;
        let why = match refused {
            Err(CallError::Lost(why)) => why,
            Err(CallError::Failed(failure)) => failure.to_string(),
            other => panic!("a client is admitted by a brick: {other:?}"),
        };
        assert!(why.contains("role"), "{why}");
        // A brick as a client of the gateway.
        let (_connector, connection) =
            dial::connect(site.gateway.ready(), &site.identity(), Role::Brick, Role::Gateway)
                .await
                .expect("the handshake is between members of one CA");
        let refused = connection.call(&dial::ATTACH).await;
        assert!(refused.is_err(), "a brick is admitted as a client: {refused:?}");
        // A client asks what only an admin may.
        let (_connector, connection) = client(&site).await;
        let refused = failed(connection.call(&Request::Stats).await);
        assert_eq!(refused.status, Status::WrongRole, "{refused}");
        // A gateway's place is not a brick's, and the client notices.
        let wrong = dial::connect(&brick, &site.identity(), Role::Client, Role::Gateway).await;
        assert!(wrong.is_err(), "a brick passes for a gateway");
    });
}

/// S-ACCESS-3.
#[test]
fn a_forged_handle_reaches_nothing() {
    let (dir, site, runtime) = start();
    let outside = tempfile::tempdir().expect("a directory");
    std::fs::write(outside.path().join("secret"), "secret").expect("a file");
    let other = Site::start(outside.path(), &[]);
    runtime.block_on(async {
        let (_connector, connection) = client(&site).await;
        let root = dial::attach(&connection).await;
        let (_other_connector, other_connection) = client(&other).await;
        let foreign = dial::attach(&other_connection).await;
        let mut forged =
            vec![Handle::new(&[]).expect("short"), Handle::new(&[0; 63]).expect("long")];
        forged.push(foreign);
        for at in 0..root.as_bytes().len() {
            let mut bytes = root.as_bytes().to_vec();
            bytes[at] ^= 1;
            forged.push(Handle::new(&bytes).expect("as long as before"));
        }
        forged.push(Handle::new(&root.as_bytes()[..root.as_bytes().len() - 1]).expect("shorter"));
        for handle in forged {
            let getattr = failed(connection.call(&Request::Getattr { handle }).await);
            assert_eq!(getattr.status, Status::BadHandle, "{handle:?}: {getattr}");
            let lookup = failed(dial::lookup(&connection, handle, b"secret").await);
            assert_eq!(lookup.status, Status::BadHandle, "{handle:?}: {lookup}");
            let open = failed(connection.call(&Request::Open { handle, flags: 0 }).await);
            assert_eq!(open.status, Status::BadHandle, "{handle:?}: {open}");
        }
        assert!(connection.call(&Request::Getattr { handle: root }).await.is_ok());
    });
    drop(dir);
}

/// S-ACCESS-3, S-ENTRY-3.
#[test]
fn a_name_never_leads_out_of_its_directory() {
    let (_dir, site, runtime) = start();
    runtime.block_on(async {
        let (_connector, connection) = client(&site).await;
        let root = dial::attach(&connection).await;
        let long = vec![b'n'; 256];
        let cases: [(&[u8], Status); 8] = [
            (b"..", Status::InvalidArgument),
            (b".", Status::InvalidArgument),
            (b"", Status::InvalidArgument),
            (b"a/one", Status::InvalidArgument),
            (b"/etc", Status::InvalidArgument),
            (b"a\0b", Status::InvalidArgument),
            (&long, Status::NameTooLong),
            (b"nothing", Status::NotFound),
        ];
        for (name, status) in cases {
            let lookup = failed(dial::lookup(&connection, root, name).await);
            assert_eq!(lookup.status, status, "{}: {lookup}", name.escape_ascii());
        }
    });
}

/// S-READ-2.
#[test]
fn an_open_file_belongs_to_its_connection() {
    let (_dir, site, runtime) = start();
    runtime.block_on(async {
        let (_one, connection) = client(&site).await;
        let (_other, stranger) = client(&site).await;
        let root = dial::attach(&connection).await;
        let top = dial::lookup(&connection, root, b"top").await.expect("it is there");
        let opened = connection.call(&Request::Open { handle: top.handle, flags: 0 }).await;
        let Ok(portcullis_wire::Reply::Opened { file, .. }) = opened else {
            panic!("open answered {opened:?}")
        };
        let read = Request::Read { file, offset_bytes: 0, len_bytes: 10 };
        let stolen = failed(stranger.call(&read).await);
        assert_eq!(stolen.status, Status::BadFile, "{stolen}");
        let huge = Request::Read { file, offset_bytes: 0, len_bytes: u32::MAX };
        let refused = failed(connection.call(&huge).await);
        assert_eq!(refused.status, Status::InvalidArgument, "{refused}");
        let mut stream = connection.stream(&read).await.expect("a stream");
        assert_eq!(
            stream.next().await.ok(),
            Some(ReplyFrame::Data(bytes::Bytes::from_static(b"t")))
        );
        let released = connection.call(&Request::Release { file, unlock: None }).await;
        assert!(released.is_ok(), "{released:?}");
        let again = failed(connection.call(&read).await);
        assert_eq!(again.status, Status::BadFile, "{again}");
    });
}

/// A thousand peers that connect, send noise and vanish leave nothing behind.
#[test]
fn peers_that_vanish_leave_nothing_behind() {
    let (_dir, site, runtime) = start();
    let address: Arc<str> = site.gateway.ready().into();
    let identity: Arc<std::path::Path> = site.identity().into();
    runtime.block_on(async {
        for _ in 0..10 {
            let mut peers = tokio::task::JoinSet::new();
            for _ in 0..20 {
                let (address, identity) = (address.clone(), identity.clone());
                peers.spawn(async move {
                    let (_endpoint, connection) = raw::client(&address, &identity).await;
                    let (mut send, _recv) = connection.open_bi().await.expect("a stream");
                    send.write_all(b"noi").await.expect("it is sent");
                    connection.close(7u32.into(), b"gone");
                });
            }
            while let Some(peer) = peers.join_next().await {
                peer.expect("no panic");
            }
        }
    });
    portcullis_suite::wait::until("all connections but ours are gone", || {
        (site.stats().connections <= 1).then_some(())
    });
}
