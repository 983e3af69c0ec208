//! What the admin address serves.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use portcullis_suite::site::Site;
use portcullis_suite::{find, tree};

#[test]
fn health_and_metrics_are_served() {
    let dir = tempfile::tempdir().expect("a directory");
    tree::small(dir.path());
    let address = free_address();
    let mut site = Site::start(dir.path(), &["--admin", &address]);
    assert_eq!(get(&address, "/healthz").0, 200);
    portcullis_suite::wait::until("the brick is connected", || {
        (get(&address, "/readyz").0 == 200).then_some(())
    });
    let _ = find::through(&site, "/", "%P\\0");
    let (status, metrics) = get(&address, "/metrics");
    assert_eq!(status, 200);
    for line in metrics.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        assert!(name.starts_with("portcullis_"), "{line}");
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
    assert!(metrics.contains("# TYPE portcullis_"), "{metrics}");
    let sum = |verb: &str| -> f64 {
        let has = |line: &&str| line.contains("brick") && line.contains(&format!("\"{verb}\""));
        let value = |line: &str| line.rsplit_once(' ')?.1.parse::<f64>().ok();
        metrics.lines().filter(has).filter_map(value).sum()
    };
    assert_eq!(sum("list"), 4.0, "{metrics}");
    assert_eq!(get(&address, "/nothing").0, 404);
    site.kill_brick();
    portcullis_suite::wait::until("readyz tells of the loss", || {
        (get(&address, "/readyz").0 == 503).then_some(())
    });
    assert_eq!(get(&address, "/healthz").0, 200, "the process itself is well");
    assert_eq!(get(&address, "/metrics").0, 200);
}

/// An address that nobody listens on. Another process may take it before we do; then the test
/// fails with "in use".
fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
    listener.local_addr().expect("its address").to_string()
}

/// Status and body of a GET.
fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("the admin address answers");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")
        .expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("UTF-8");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.expect("a status"), body.to_owned())
}

#[test]
fn the_admin_address_bounds_what_it_reads() {
    let dir = tempfile::tempdir().expect("a directory");
    let address = free_address();
    let site = Site::start(dir.path(), &["--admin", &address]);
    let mut stream = TcpStream::connect(&address).expect("the admin address answers");
    // A head without end. The server stops reading it; either side may notice first.
    for _ in 0..64 {
        if stream.write_all(&[b'a'; 64 << 10]).is_err() {
            break;
        }
    }
    drop(stream);
    assert_eq!(get(&address, "/healthz").0, 200);
    assert!(site.run("ls", "/", &[]).status.success());
    assert!(Path::new(&format!("/proc/{}", site.gateway.id())).exists());
}
