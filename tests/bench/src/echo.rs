//! A bare quinn echo: the floor of any request over QUIC. One bidirectional stream a request, as
//! ours; TLS with a throw-away certificate; quinn's defaults.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

use bytes::Bytes;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, Endpoint, ServerConfig, TransportConfig};
use rustls::RootCertStore;
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};

/// Requests that may be under way, as ours.
const STREAMS_MAX: u32 = portcullis_core::limits::REQUESTS_IN_FLIGHT_MAX;
/// Any port of this machine.
const ANY: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
/// Longest message.
const MESSAGE_LEN_BYTES_MAX: usize = 64 * 1024;

/// Serves answers of `answer_len_bytes` until the runtime ends, and connects to it.
pub async fn connect(answer_len_bytes: usize) -> Connection {
    connect_to(move |connection| serve(connection, answer_len_bytes)).await
}

/// Serves one connection by `serve` until the runtime ends, and connects to it.
pub(crate) async fn connect_to<F>(
    serve: impl FnOnce(Connection) -> F + Send + 'static,
) -> Connection
where
    F: Future<Output = ()> + Send,
{
    dial(listen(serve)).await
}

/// Where one connection is served, and by whom.
pub(crate) struct Listening {
    address: SocketAddr,
    certificate: CertificateDer<'static>,
}

/// Serves one connection by `serve` until the runtime ends.
pub(crate) fn listen<F>(serve: impl FnOnce(Connection) -> F + Send + 'static) -> Listening
where
    F: Future<Output = ()> + Send,
{
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(vec!["echo".to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate").der().clone();
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let mut config = ServerConfig::with_single_cert(vec![certificate.clone()], key.into())
        .expect("a server configuration");
    let mut transport = TransportConfig::default();
    transport.max_concurrent_bidi_streams(STREAMS_MAX.into());
    config.transport_config(Arc::new(transport));
    let server = Endpoint::server(config, ANY).expect("a server");
    let address = server.local_addr().expect("an address");
    tokio::spawn(async move {
        let connection = server.accept().await.expect("a client").await.expect("a connection");
        serve(connection).await;
    });
    Listening { address, certificate }
}

/// Connects to what [`listen`] serves.
pub(crate) async fn dial(Listening { address, certificate }: Listening) -> Connection {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("a certificate");
    let tls = rustls::ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_protocol_versions(&[&rustls::version::TLS13])
    .expect("TLS 1.3")
    .with_root_certificates(roots)
    .with_no_client_auth();
    let tls = QuicClientConfig::try_from(tls).expect("QUIC");
    let client = Endpoint::client(ANY).expect("a client");
    client
        .connect_with(ClientConfig::new(Arc::new(tls)), address, "echo")
        .expect("a configuration")
        .await
        .expect("a connection")
}

async fn serve(connection: Connection, answer_len_bytes: usize) {
    let answer = Bytes::from(vec![7; answer_len_bytes]);
    while let Ok((mut send, mut recv)) = connection.accept_bi().await {
        let answer = answer.clone();
        tokio::spawn(async move {
            if recv.read_to_end(MESSAGE_LEN_BYTES_MAX).await.is_ok()
                && send.write_chunk(answer).await.is_ok()
            {
                // Fails only where the client is gone.
                let _ = send.finish();
            }
        });
    }
}

/// Asks once.
pub async fn ask(connection: &Connection, request: &Bytes) -> usize {
    let (mut send, mut recv) = connection.open_bi().await.expect("a stream");
    send.write_chunk(request.clone()).await.expect("it is sent");
    send.finish().expect("it ends");
    recv.read_to_end(MESSAGE_LEN_BYTES_MAX).await.expect("an answer").len()
}
