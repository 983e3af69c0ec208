//! The admin endpoint: health, readiness and metrics over HTTP/1.
//!
//! It is for probes and scrapers on a trusted network: nothing here changes anything. What a peer
//! costs is bounded: connections at once, the time each has, the size of a request's head; bodies
//! are not read.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::metrics;
use crate::stats::Observer;

/// Connections served at once; further ones are closed at once.
const CONNECTIONS_MAX: usize = 64;
/// How long a connection may last, however slowly its peer reads.
const CONNECTION_MS_MAX: u64 = 30_000;
/// How long the head of a request may take to arrive.
const HEAD_MS_MAX: u64 = 5_000;
/// Bytes of a request's head; also what is buffered of a response.
const HEAD_LEN_BYTES_MAX: usize = 16 * 1024;
/// Headers of a request.
const HEADERS_MAX: usize = 64;
/// The pause after the system refused a connection (out of descriptors).
const ACCEPT_PAUSE_MS: u64 = 100;

const TEXT: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Listens on `address`.
pub(crate) fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Serves until `stopping`; requests under way are finished.
pub(crate) async fn serve(
    listener: TcpListener,
    observer: Arc<Observer>,
    stopping: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let tasks = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = stopping.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => match places.clone().try_acquire_owned() {
                Ok(place) => {
                    let connection = connection(stream, observer.clone(), stopping.clone());
                    tasks.spawn(async move {
                        connection.await;
                        drop(place);
                    });
                }
                Err(_) => debug!(%peer, "admin connection refused: too many"),
            },
            Err(error) => {
                warn!(%error, "an admin connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(ACCEPT_PAUSE_MS)).await;
            }
        }
    }
    tasks.close();
    tasks.wait().await;
}

async fn connection(stream: TcpStream, observer: Arc<Observer>, stopping: CancellationToken) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = respond(request.method(), request.uri().path(), &observer);
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(HEAD_MS_MAX))
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_LEN_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let served = async {
        tokio::select! {
            served = &mut connection => return served,
            () = stopping.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        connection.await
    };
    match tokio::time::timeout(Duration::from_millis(CONNECTION_MS_MAX), served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "admin connection"),
        Err(_) => debug!("admin connection closed: it lasted too long"),
    }
}

fn respond(method: &Method, path: &str, observer: &Observer) -> Response<Full<Bytes>> {
    let endpoint: fn(&Observer) -> (StatusCode, &'static str, String) = match path {
        "/healthz" => |_| (StatusCode::OK, TEXT, "ok\n".to_owned()),
        "/readyz" => |observer| match observer.ready() {
            Ok(()) => (StatusCode::OK, TEXT, "ready\n".to_owned()),
            Err(failure) => (StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("{failure}\n")),
        },
        "/metrics" => |observer| (StatusCode::OK, PROMETHEUS, metrics::render(&observer.stats())),
        _ => |_| {
            let text = "not found; there are /healthz, /readyz and /metrics\n";
            (StatusCode::NOT_FOUND, TEXT, text.to_owned())
        },
    };
    let allowed = method == Method::GET || method == Method::HEAD;
    let (status, kind, text) = if allowed {
        endpoint(observer)
    } else {
        (StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n".to_owned())
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if !allowed {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}
