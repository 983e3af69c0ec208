//! How servers begin and end.

use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use portcullis_core::limits::CHUNK_ENTRIES_MAX;
use portcullis_suite::process::Server;
use portcullis_suite::site::{self, Site};
use portcullis_suite::{binary, dial, tree};
use portcullis_transport::Role;
use portcullis_wire::{ReplyFrame, Request};

/// S-FAIL-3.
#[test]
fn sigterm_ends_servers_with_0() {
    let dir = tempfile::tempdir().expect("a directory");
    tree::small(dir.path());
    let mut site = Site::start(dir.path(), &[]);
    assert!(site.run("ls", "/", &[]).status.success());
    site.gateway.terminate();
    assert_eq!(site.gateway.wait().code(), Some(0));
    let brick = site.brick.take().expect("the brick is up");
    brick.terminate();
    assert_eq!(brick.wait().code(), Some(0));
}

/// A listing that does not fit the windows of its stream is half-way while nobody reads it.
/// S-FAIL-3, S-LIST-2.
#[test]
fn sigterm_lets_a_listing_in_flight_finish() {
    const FILES: usize = 60_000;
    let dir = tempfile::tempdir().expect("a directory");
    tree::wide(dir.path(), 1, FILES);
    let site = Site::start(dir.path(), &[]);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let told = runtime.block_on(async {
        let (_connector, connection) =
            dial::connect(site.gateway.ready(), &site.identity(), Role::Client, Role::Gateway)
                .await
                .expect("connected");
        let root = dial::attach(&connection).await;
        let dir = dial::lookup(&connection, root, b"directory-000000").await.expect("it is there");
        let list = Request::List { dir: dir.handle, after: Vec::new(), acl: false, contents: None };
        let mut stream = connection.stream(&list).await.expect("a stream");
        let mut told = match stream.next().await {
            Ok(ReplyFrame::Chunk(chunk)) => chunk.count(),
            other => panic!("{other:?} where a first chunk belongs"),
        };
        assert!(told <= CHUNK_ENTRIES_MAX);
        site.gateway.terminate();
        loop {
            match stream.next().await {
                Ok(ReplyFrame::Chunk(chunk)) => told += chunk.count(),
                Ok(ReplyFrame::End { complete: true }) => return told,
                other => panic!("{other:?} after {told} entries"),
            }
        }
    });
    assert_eq!(told, FILES);
    assert_eq!(site.gateway.wait().code(), Some(0));
}

#[test]
fn serve_is_a_brick_and_a_gateway_in_one_process() {
    let dir = tempfile::tempdir().expect("a directory");
    tree::small(dir.path());
    let other = tempfile::tempdir().expect("a directory");
    let mut serve = Command::new(binary());
    serve.arg("serve").arg(dir.path());
    let server = Server::start(&mut serve, &other.path().join("log"));
    assert!(server.ready().contains(':'), "{}", server.ready());
    server.terminate();
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn demo_compares_two_walks_with_the_local_one() {
    let dir = tempfile::tempdir().expect("a directory");
    tree::wide(dir.path(), 5, 200);
    let demo = Command::new(binary()).arg("demo").arg(dir.path()).output().expect("it runs");
    let stdout = String::from_utf8_lossy(&demo.stdout);
    let stderr = String::from_utf8_lossy(&demo.stderr);
    assert_eq!(demo.status.code(), Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("equal"), "{stdout}");
    assert!(stdout.contains("1006") || stdout.contains("1,006"), "entries: {stdout}");
}

#[test]
fn an_identity_is_private_and_never_overwritten() {
    use std::os::unix::fs::PermissionsExt;

    let dir = tempfile::tempdir().expect("a directory");
    let id = dir.path().join("id");
    site::identity(&id);
    for file in std::fs::read_dir(&id).expect("it was made") {
        let file = file.expect("an entry");
        let mode = file.metadata().expect("its mode").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", file.path());
    }
    let before = std::fs::read(id.join("ca.key")).expect("a key");
    let again = Command::new(binary()).args(["identity", "init", "--dir"]).arg(&id).output();
    refused(&again.expect("it runs"), &["exists"]);
    assert_eq!(std::fs::read(id.join("ca.key")).expect("a key"), before);
}

#[test]
fn a_brick_that_cannot_start_says_why_in_one_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let id = dir.path().join("id");
    site::identity(&id);
    let file = dir.path().join("file");
    std::fs::write(&file, "").expect("a file");
    let holder = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let taken = holder.local_addr().expect("its address").to_string();
    let brick = |export: &Path, listen: &str, id: &Path| {
        let mut command = Command::new(binary());
        command.arg("brick").arg("--export").arg(export).args(["--listen", listen]);
        refusing(command.arg("--identity").arg(id))
    };
    let nowhere = dir.path().join("nowhere");
    refused(&brick(&nowhere, "127.0.0.1:0", &id), &["nowhere", "no such directory"]);
    refused(&brick(&file, "127.0.0.1:0", &id), &["file", "not a directory"]);
    refused(&brick(dir.path(), "127.0.0.1:0", &nowhere), &["nowhere", "identity init"]);
    refused(&brick(dir.path(), &taken, &id), &[&taken, "in use"]);
    std::fs::write(id.join("brick.pem"), "not a certificate").expect("it is ours");
    refused(&brick(dir.path(), "127.0.0.1:0", &id), &["brick.pem"]);
}

#[test]
fn a_gateway_that_cannot_start_says_why_in_one_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let site = Site::start(dir.path(), &[]);
    let brick = site.brick.as_ref().expect("the brick is up").ready().to_owned();
    let gateway = |args: &[&str]| {
        let mut command = Command::new(binary());
        command.args(["gateway", "--brick", &brick, "--listen", "127.0.0.1:0", "--identity"]);
        refusing(command.arg(site.identity()).args(args))
    };
    refused(&gateway(&["--eviction", "nowhere.wasm"]), &["nowhere.wasm"]);
    let holder = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let taken = holder.local_addr().expect("its address").to_string();
    refused(&gateway(&["--admin", &taken]), &[&taken, "in use"]);
}

/// Runs a server that is expected to fail. Bounded by timeout(1), should it not.
fn refusing(command: &Command) -> Output {
    let mut bounded = Command::new("timeout");
    bounded.arg("60").arg(command.get_program()).args(command.get_args());
    bounded.stdin(Stdio::null()).output().expect("timeout(1) runs")
}

/// It ended with 1, printed nothing but one line on stderr, and that line holds all of `words`.
fn refused(output: &Output, words: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert_eq!(output.stdout, b"", "nothing is ready");
    for word in words {
        assert!(stderr.contains(word), "{word:?} is not in {stderr:?}");
    }
}
