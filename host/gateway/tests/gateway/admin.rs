//! Who may ask what, and the admin endpoint.

use std::net::SocketAddr;
use std::time::Duration;

use portcullis_core::Status;
use portcullis_gateway::{Gateway, GatewayConfig, GatewayError};
use portcullis_transport::{IdentitySet, Role};
use portcullis_wire::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{any_port, serve_with, until};
use crate::tree;

/// Sends `head` and gives the status line and the rest of what comes back.
async fn http(address: SocketAddr, head: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The server may answer and close before it has read everything.
    let _ = stream.write_all(head.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    let (status, rest) = answer.split_once("\r\n").unwrap_or_default();
    (status.to_owned(), rest.to_owned())
}

async fn ask(address: SocketAddr, method: &str, path: &str) -> (String, String) {
    http(address, &format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"))
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn health_readiness_and_metrics_are_served() {
    let dir = tree::flat(5);
    let (mut brick, stand) = serve_with(dir.path(), |config| config.admin = Some(any_port()));
    let admin = stand.admin_address.unwrap();
    let client = stand.client().await;
    let root = client.root().await;
    client.list(root).await;
    client.list(root).await;
    assert_eq!(ask(admin, "GET", "/healthz").await.0, "HTTP/1.1 200 OK");
    assert_eq!(ask(admin, "GET", "/readyz").await.0, "HTTP/1.1 200 OK");
    let (status, metrics) = ask(admin, "GET", "/metrics?x=y").await;
    assert_eq!(status, "HTTP/1.1 200 OK");
    for line in [
        "content-type: text/plain; version=0.0.4; charset=utf-8\r",
        "portcullis_requests_total{verb=\"list\"} 2",
        "portcullis_cache_hits_total{kind=\"list\"} 1",
        "portcullis_cache_entries 5",
        &format!("portcullis_brick_up{{brick=\"{}\"}} 1", brick.address),
        &format!("portcullis_brick_requests_total{{brick=\"{}\",verb=\"list\"}} 1", brick.address),
    ] {
        assert!(metrics.split('\n').any(|have| have == line), "{line} is missing from\n{metrics}");
    }
    for (method, path, expected) in [
        ("GET", "/", "HTTP/1.1 404 Not Found"),
        ("GET", "/metrics/x", "HTTP/1.1 404 Not Found"),
        ("POST", "/metrics", "HTTP/1.1 405 Method Not Allowed"),
        ("DELETE", "/healthz", "HTTP/1.1 405 Method Not Allowed"),
    ] {
        assert_eq!(ask(admin, method, path).await.0, expected, "{method} {path}");
    }
    let (status, head) = ask(admin, "HEAD", "/metrics").await;
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(head.ends_with("\r\n\r\n"), "a head without a body: {head}");

    brick.kill();
    let (status, why) = until("the gateway is not ready", async || {
        let answer = ask(admin, "GET", "/readyz").await;
        (answer.0 != "HTTP/1.1 200 OK").then_some(answer)
    })
    .await;
    assert_eq!(status, "HTTP/1.1 503 Service Unavailable");
    assert!(why.contains(&brick.address.to_string()), "{why}");
    assert_eq!(ask(admin, "GET", "/healthz").await.0, "HTTP/1.1 200 OK");
    stand.stop().await;
    assert!(TcpStream::connect(admin).await.is_err(), "the endpoint ended with the gateway");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_admin_connection_costs_is_bounded() {
    let dir = tree::flat(1);
    let (_brick, stand) = serve_with(dir.path(), |config| config.admin = Some(any_port()));
    let admin = stand.admin_address.unwrap();
    let long = format!("GET /healthz HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(100_000));
    let (status, _) = http(admin, &long).await;
    assert!(!status.contains("200"), "{status}");
    let many = format!("GET /healthz HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(1_000));
    let (status, _) = http(admin, &many).await;
    assert!(!status.contains("200"), "{status}");

    let mut idle = Vec::new();
    for _ in 0..64 {
        let mut stream = TcpStream::connect(admin).await.unwrap();
        stream.write_all(b"GET /hea").await.unwrap();
        idle.push(stream);
    }
    until("further connections are closed", async || {
        (ask(admin, "GET", "/healthz").await.0.is_empty()).then_some(())
    })
    .await;
    let mut end = Vec::new();
    let first = idle.first_mut().unwrap();
    // Well before its time is over in any case.
    tokio::time::timeout(Duration::from_secs(15), first.read_to_end(&mut end))
        .await
        .expect("a head that does not come in time ends its connection")
        .unwrap();
    drop(idle);
    until("there is room again", async || {
        (ask(admin, "GET", "/healthz").await.0 == "HTTP/1.1 200 OK").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_get_what_is_theirs() {
    let dir = tree::flat(1);
    let (_brick, stand) = serve_with(dir.path(), |_| ());
    let client = stand.client().await;
    let failure = client.call(Request::Stats).await.unwrap_err();
    assert_eq!(failure.status, Status::WrongRole);
    assert!(failure.detail.contains("admin"), "{failure}");
    for role in [Role::Brick, Role::Gateway] {
        let connection = stand.connect(role).await;
        let reason = connection.closed().await;
        assert!(reason.contains("clients and admins"), "{reason}");
    }
    let stats = stand.stats().await;
    assert_eq!((stats.refused_connections, stats.failures["WrongRole"]), (2, 1));
    assert!(stats.resident_bytes > 1 << 20 && stats.version == env!("CARGO_PKG_VERSION"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_cannot_work_is_refused_clearly() {
    let ids = IdentitySet::generate().unwrap();
    let identity = ids.identity(Role::Gateway).unwrap();
    let refused = |change: &dyn Fn(&mut GatewayConfig)| -> GatewayError {
        let mut config = GatewayConfig::new(any_port());
        change(&mut config);
        Gateway::bind(config, &identity).err().expect("refused")
    };
    let twice = refused(&|config| config.bricks.push(any_port()));
    assert!(twice.to_string().contains("given twice"), "{twice}");
    let none = refused(&|config| config.bricks.clear());
    assert!(matches!(none, GatewayError::Bricks { count: 0 }), "{none}");
    let small = refused(&|config| config.cache_bytes = 1000);
    assert!(small.to_string().contains("at least 1048576 bytes"), "{small}");
    let hasty = refused(&|config| config.brick_timeout_ms = 0);
    assert!(matches!(hasty, GatewayError::NoBrickTimeout), "{hasty}");
    let taken = std::net::TcpListener::bind(any_port()).unwrap();
    let address = taken.local_addr().unwrap();
    let admin = refused(&|config| config.admin = Some(address));
    assert!(admin.to_string().contains(&address.to_string()), "{admin}");
}
