//! A cached lookup over QUIC against a bare quinn echo of the same sizes, in one process each way.

#![allow(clippy::panic, reason = "a benchmark that cannot go on has failed")]

use std::sync::Arc;
use std::time::Duration;

use portcullis_bench::{alternate, echo, print_policy, print_ratio};
use portcullis_brick::{Brick, BrickConfig};
use portcullis_core::Handle;
use portcullis_core::limits::LEASE_RENEW_MS;
use portcullis_gateway::{Gateway, GatewayConfig};
use portcullis_transport::{Connection, Connector, IdentitySet, Role};
use portcullis_wire::{Reply, ReplyFrame, Request, codec};

const FILES: usize = 1_000;
const REQUESTS: usize = 100_000;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let tree = tempfile::tempdir().expect("a directory");
    for file in 0..FILES {
        std::fs::write(tree.path().join(name(file)), b"").expect("a file");
    }
    let set = IdentitySet::generate().expect("identities");
    let gateway = runtime.block_on(serve(&set, tree.path()));
    let client = runtime.block_on(connect(&set, gateway, Role::Client));
    let root = match runtime.block_on(client.call(&Request::Attach {
        watch: true,
        client: 1,
        ended: 0,
    })) {
        Ok(Reply::Attached { root, .. }) => root.handle,
        other => panic!("attach: {other:?}"),
    };
    let renewing = client.clone();
    runtime.spawn(async move {
        // Ends with the connection.
        while renewing.call(&Request::Renew).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(LEASE_RENEW_MS)).await;
        }
    });
    for file in 0..FILES {
        runtime.block_on(lookup(&client, root, file));
    }
    let request = Request::Lookup { dir: root, name: name(0).into_bytes() };
    let request = codec::encode_request(&request).expect("a small request");
    let reply = runtime.block_on(client.call(&Request::Lookup { dir: root, name: name(0).into() }));
    let reply = ReplyFrame::Reply(reply.expect("an entry"));
    let answer_len_bytes = codec::encode_reply(&reply).expect("a small reply").len();
    let echo = runtime.block_on(echo::connect(answer_len_bytes));
    println!("lookup: {} bytes up, {answer_len_bytes} bytes down, stream by stream", request.len());

    for in_flight in [64, 1] {
        let requests = if in_flight == 1 { REQUESTS / 10 } else { REQUESTS };
        let mut ours = || {
            let client = client.clone();
            runtime.block_on(at_once(in_flight, requests, move |number| {
                let client = client.clone();
                async move { lookup(&client, root, number % FILES).await }
            }));
        };
        let mut floor = || {
            let (echo, request) = (echo.clone(), request.clone());
            runtime.block_on(at_once(in_flight, requests, move |_| {
                let (echo, request) = (echo.clone(), request.clone());
                async move { assert_eq!(echo::ask(&echo, &request).await, answer_len_bytes) }
            }));
        };
        let least = alternate(&mut [&mut ours, &mut floor]);
        let rate = |least: Duration| requests as f64 / least.as_secs_f64();
        println!(
            "{in_flight} in flight: {:.0} lookups/s, echo {:.0}/s",
            rate(least[0]),
            rate(least[1])
        );
        let bar = "at least 0.8";
        print_ratio("  rate against the echo", rate(least[0]) / rate(least[1]), bar);
    }
    let admin = runtime.block_on(connect(&set, gateway, Role::Admin));
    match runtime.block_on(admin.call(&Request::Stats)) {
        Ok(Reply::Stats(stats)) => {
            println!(
                "{} of {} lookups were hits",
                stats.cache.lookup_hits,
                stats.cache.lookup_hits + stats.cache.lookup_misses
            );
            print_policy(&stats);
        }
        other => panic!("stats: {other:?}"),
    }
}

fn name(file: usize) -> String {
    format!("file-{file:011}")
}

/// Starts a brick and a gateway; they end with the runtime.
async fn serve(set: &IdentitySet, tree: &std::path::Path) -> std::net::SocketAddr {
    let any = ([127, 0, 0, 1], 0).into();
    let identity = set.identity(Role::Brick).expect("an identity");
    let brick = Brick::bind(BrickConfig::new(tree, any), &identity).expect("a brick");
    let config = GatewayConfig { max_age_ms: u64::MAX, ..GatewayConfig::new(brick.local_addr()) };
    tokio::spawn(brick.serve(std::future::pending()));
    let identity = set.identity(Role::Gateway).expect("an identity");
    let gateway = Gateway::bind(config, &identity).expect("a gateway");
    let address = gateway.local_addr();
    tokio::spawn(gateway.serve(std::future::pending()));
    address
}

async fn connect(set: &IdentitySet, gateway: std::net::SocketAddr, role: Role) -> Connection {
    let identity = set.identity(role).expect("an identity");
    let connector = Connector::new(&identity, gateway).expect("a connector");
    connector.connect(gateway, Role::Gateway).await.expect("a connection")
}

async fn lookup(client: &Connection, root: Handle, file: usize) {
    let request = Request::Lookup { dir: root, name: name(file).into_bytes() };
    match client.call(&request).await {
        Ok(Reply::Entry(_)) => {}
        other => panic!("{}: {other:?}", name(file)),
    }
}

/// Asks `requests` times, `in_flight` at once.
async fn at_once<F: Future<Output = ()> + Send>(
    in_flight: usize,
    requests: usize,
    ask: impl Fn(usize) -> F + Send + Sync + 'static,
) {
    let ask = Arc::new(ask);
    let askers: Vec<_> = (0..in_flight)
        .map(|asker| {
            let ask = ask.clone();
            tokio::spawn(async move {
                for number in (asker..requests).step_by(in_flight) {
                    ask(number).await;
                }
            })
        })
        .collect();
    for asker in askers {
        asker.await.expect("it asks to the end");
    }
}
