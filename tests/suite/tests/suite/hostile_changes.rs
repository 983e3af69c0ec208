//! Changes that no kernel would ask for: each is refused, and nothing is changed.

use portcullis_core::{Handle, Status};
use portcullis_suite::dial::{self, mutate};
use portcullis_suite::site::Site;
use portcullis_suite::{tree, view};
use portcullis_transport::{CallError, Connection, Connector, Role};
use portcullis_wire::Reply;
use portcullis_wire::message::{Mutated, Mutation};

fn start() -> (tempfile::TempDir, Site, tokio::runtime::Runtime) {
    let dir = tempfile::tempdir().expect("a directory");
    let export = dir.path().join("export");
    std::fs::create_dir(&export).expect("a directory");
    tree::small(&export);
    let site = Site::start(&export, &[]);
    (dir, site, tokio::runtime::Runtime::new().expect("a runtime"))
}

async fn client(site: &Site) -> (Connector, Connection) {
    dial::connect(site.gateway.ready(), &site.identity(), Role::Client, Role::Gateway)
        .await
        .expect("a client is admitted")
}

fn status<T: std::fmt::Debug>(result: Result<T, CallError>) -> Status {
    match result {
        Err(CallError::Failed(failure)) => failure.status,
        other => panic!("{other:?} where a failure belongs"),
    }
}

/// What was made.
fn made(answer: Result<Reply, CallError>) -> Handle {
    match answer {
        Ok(Reply::Mutated { result: Mutated::Entry(entry), .. }) => entry.handle,
        other => panic!("{other:?} where an entry belongs"),
    }
}

/// Everything that takes a name, with this name.
fn with_name(dir: Handle, file: Handle, name: &[u8]) -> Vec<Mutation> {
    let name = name.to_vec();
    vec![
        Mutation::Create { dir, name: name.clone(), mode: 0o644, flags: 0 },
        Mutation::Mkdir { dir, name: name.clone(), mode: 0o755 },
        Mutation::Mknod { dir, name: name.clone(), mode: 0o100_644, rdev: 0 },
        Mutation::Symlink { dir, name: name.clone(), target: b"x".to_vec() },
        Mutation::Link { handle: file, dir, name: name.clone() },
        Mutation::Unlink { dir, name: name.clone() },
        Mutation::Rmdir { dir, name: name.clone() },
        Mutation::Rename {
            dir,
            name: name.clone(),
            new_dir: dir,
            new_name: b"new".to_vec(),
            flags: 0,
        },
        Mutation::Rename { dir, name: b"top".to_vec(), new_dir: dir, new_name: name, flags: 0 },
    ]
}

/// S-ACCESS-3.
#[test]
fn no_change_reaches_out_of_the_export() {
    let (dir, site, runtime) = start();
    let before = view::tree(dir.path());
    runtime.block_on(async {
        let (_connector, connection) = client(&site).await;
        let root = dial::attach(&connection).await;
        let top = dial::lookup(&connection, root, b"top").await.expect("it is there").handle;
        let mut number = 0;
        let names: [&[u8]; 7] = [b"..", b".", b"", b"a/new", b"/tmp/new", b"../new", b"a\0b"];
        for name in names {
            for mutation in with_name(root, top, name) {
                number += 1;
                let shown = format!("{mutation:?}");
                let status = status(mutate(&connection, number, mutation).await);
                assert_eq!(status, Status::InvalidArgument, "{shown}");
            }
        }
        let long = vec![b'n'; 256];
        for mutation in with_name(root, top, &long) {
            number += 1;
            let status = status(mutate(&connection, number, mutation).await);
            assert_eq!(status, Status::NameTooLong);
        }
    });
    view::assert_same_tree("nothing was changed", &view::tree(dir.path()), &before);
}

/// S-ACCESS-3.
#[test]
fn a_forged_handle_changes_nothing() {
    let (dir, site, runtime) = start();
    let before = view::tree(dir.path());
    let outside = tempfile::tempdir().expect("a directory");
    let other = Site::start(outside.path(), &[]);
    runtime.block_on(async {
        let (_connector, connection) = client(&site).await;
        let root = dial::attach(&connection).await;
        let top = dial::lookup(&connection, root, b"top").await.expect("it is there").handle;
        let (_other_connector, other_connection) = client(&other).await;
        let foreign = dial::attach(&other_connection).await;
        let mut bytes = root.as_bytes().to_vec();
        bytes[0] ^= 1;
        let flipped = Handle::new(&bytes).expect("as long as before");
        let mut number = 0;
        for forged in [foreign, flipped, Handle::new(&[]).expect("short")] {
            let mut changes = with_name(forged, top, b"new");
            changes.truncate(8);
            changes.push(Mutation::Link { handle: forged, dir: root, name: b"new".to_vec() });
            for mutation in changes {
                number += 1;
                let shown = format!("{mutation:?}");
                let status = status(mutate(&connection, number, mutation).await);
                assert_eq!(status, Status::BadHandle, "{shown}");
            }
        }
    });
    view::assert_same_tree("nothing was changed", &view::tree(dir.path()), &before);
}

/// The same operation that arrives again, marked as a retry or not, over this connection or
/// another, is answered as the first time and done once. S-ATOMIC-2.
#[test]
fn an_operation_that_arrives_twice_is_done_once() {
    let (dir, site, runtime) = start();
    runtime.block_on(async {
        let (_connector, connection) = client(&site).await;
        let attached = connection.call(&dial::ATTACH).await;
        let Ok(Reply::Attached { root, life, .. }) = attached else { panic!("{attached:?}") };
        let mkdir = Mutation::Mkdir { dir: root.handle, name: b"made".to_vec(), mode: 0o755 };
        let first = connection.call(&dial::mutation(1, life, false, mkdir.clone())).await;
        let first = made(first);
        let again = connection.call(&dial::mutation(1, life, true, mkdir.clone())).await;
        assert_eq!(made(again), first, "not EEXIST");
        let (_second, other) = client(&site).await;
        dial::attach(&other).await;
        let third = other.call(&dial::mutation(1, life, true, mkdir.clone())).await;
        assert_eq!(made(third), first, "over another connection");
        // Another number is another operation.
        let new = other.call(&dial::mutation(2, life, false, mkdir)).await;
        let Err(CallError::Failed(failure)) = new else { panic!("{new:?}") };
        assert_eq!(failure.status, Status::Exists, "{failure}");
    });
    assert!(dir.path().join("export/made").is_dir());
}
