//! QUIC endpoints with mutual TLS: [`Server`] admits peers of our CA, [`Connector`] reaches one.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use portcullis_core::limits;
use portcullis_wire::ALPN;
use quinn::congestion::CubicConfig;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    AckFrequencyConfig, ClientConfig, Endpoint, EndpointConfig, IdleTimeout, ServerConfig,
    TokioRuntime, TransportConfig, VarInt,
};
use quinn_proto::RandomConnectionIdGenerator;
use ring::hmac;
use rustix::net::sockopt;
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;

use crate::call::Connection;
use crate::error::TransportError;
use crate::identity::{Identity, Role};

/// A connection without a sign of life for this long is lost.
pub const IDLE_TIMEOUT_MS: u32 = 6_000;
/// How often a connection that has nothing to send shows that it lives.
pub const KEEP_ALIVE_MS: u64 = 1_500;
/// How long connecting may take.
pub const CONNECT_TIMEOUT_MS: u64 = 5_000;
/// What the kernel may hold of datagrams that arrive before they are read; what does not fit is lost
/// and has to be sent again.
const SOCKET_BUFFER_LEN_BYTES: usize = 16 * 1024 * 1024;
/// Bytes of a connection id (RFC 9000 5.1).
const CONNECTION_ID_LEN_BYTES: usize = 8;
/// Datagrams that quinn hands to the kernel in one call (its `MAX_TRANSMIT_SEGMENTS`). Together they
/// are one UDP message to the kernel, which refuses longer ones than IP can carry.
const DATAGRAMS_PER_SEND_MAX: u16 = 10;
/// Longest UDP message over IPv4: 65,535 less both headers.
const UDP_LEN_BYTES_MAX: u16 = 65_507;
/// Largest datagram probed for, on the way to the 9,000-byte frames of fast networks.
const DATAGRAM_LEN_BYTES_MAX: u16 = UDP_LEN_BYTES_MAX / DATAGRAMS_PER_SEND_MAX;
/// Bytes sent to a new peer before its first acknowledgement. More than RFC 9002 7.2 recommends:
/// 20 of the largest datagrams, about what one TCP connection of a browser page has.
const INITIAL_WINDOW_BYTES: u64 = 128 * 1024;
/// Datagrams that a peer may receive before it acknowledges them, where nothing is amiss. QUIC's own
/// 1 makes every third datagram of a transfer an acknowledgement.
const UNACKNOWLEDGED_MAX: u32 = 8;

const _: () = assert!(SOCKET_BUFFER_LEN_BYTES > limits::CONNECTION_WINDOW_BYTES as usize);
const _: () = assert!(KEEP_ALIVE_MS * 3 < IDLE_TIMEOUT_MS as u64);

/// A listening endpoint.
#[derive(Debug)]
pub struct Server {
    pub(crate) endpoint: Endpoint,
    pub(crate) role: Role,
}

impl Server {
    /// Listens on `address` (port 0: any) as the role of `identity`.
    ///
    /// # Errors
    /// The address is taken, or the identity does not hold together.
    pub fn bind(address: SocketAddr, identity: &Identity) -> Result<Self, TransportError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(
            Arc::new(roots(identity)?),
            provider.clone(),
        )
        .build()
        .map_err(|error| TransportError::Tls(rustls::Error::General(error.to_string())))?;
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![identity.certificate.clone()], identity.key.clone_key())?;
        tls.alpn_protocols = vec![ALPN.to_vec()];
        let tls = QuicServerConfig::try_from(tls)
            .map_err(|error| TransportError::Tls(rustls::Error::General(error.to_string())))?;
        let mut config = ServerConfig::with_crypto(Arc::new(tls));
        config.transport_config(Arc::new(transport()));
        let endpoint = listen(address, identity, config)
            .map_err(|source| TransportError::Bind { address, source })?;
        Ok(Self { endpoint, role: identity.role })
    }

    /// The address it listens on, its port known.
    ///
    /// # Errors
    /// The socket is gone.
    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.endpoint.local_addr()
    }
}

/// Makes connections as the role of one identity.
#[derive(Clone, Debug)]
pub struct Connector {
    endpoint: Endpoint,
    config: ClientConfig,
}

impl Connector {
    /// A connector for addresses of the family of `peer` (IPv4 or IPv6).
    ///
    /// # Errors
    /// No socket, or the identity does not hold together.
    pub fn new(identity: &Identity, peer: SocketAddr) -> Result<Self, TransportError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots(identity)?)
            .with_client_auth_cert(vec![identity.certificate.clone()], identity.key.clone_key())?;
        tls.alpn_protocols = vec![ALPN.to_vec()];
        let tls = QuicClientConfig::try_from(tls)
            .map_err(|error| TransportError::Tls(rustls::Error::General(error.to_string())))?;
        let mut config = ClientConfig::new(Arc::new(tls));
        config.transport_config(Arc::new(transport()));
        let address: SocketAddr = match peer {
            SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
            SocketAddr::V6(_) => ([0u16; 8], 0).into(),
        };
        let endpoint = bind(address)
            .and_then(|socket| {
                let runtime = Arc::new(TokioRuntime);
                let mut config = EndpointConfig::default();
                take_large_datagrams(&mut config);
                Endpoint::new(config, None, socket, runtime)
            })
            .map_err(|source| TransportError::Bind { address, source })?;
        Ok(Self { endpoint, config })
    }

    /// Connects to the server at `address`, which must prove to be a `role`.
    ///
    /// # Errors
    /// It cannot be reached within [`CONNECT_TIMEOUT_MS`], or is someone else.
    pub async fn connect(
        &self,
        address: SocketAddr,
        role: Role,
    ) -> Result<Connection, TransportError> {
        let failed = |reason: String| TransportError::Connect { role, address, reason };
        let connecting = self
            .endpoint
            .connect_with(self.config.clone(), address, role.dns_name())
            .map_err(|error| failed(error.to_string()))?;
        let limit = Duration::from_millis(CONNECT_TIMEOUT_MS);
        match tokio::time::timeout(limit, connecting).await {
            Ok(Ok(connection)) => Ok(Connection::new(connection)),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed(format!("no answer in {CONNECT_TIMEOUT_MS} ms"))),
        }
    }

    /// Waits until closed connections have told their peers, for a bounded time.
    pub async fn wait_idle(&self) {
        let limit = Duration::from_millis(CONNECT_TIMEOUT_MS);
        if tokio::time::timeout(limit, self.endpoint.wait_idle()).await.is_err() {
            tracing::debug!("a peer did not acknowledge the end of its connection");
        }
    }
}

/// A server that was restarted tells its old peers so at once ("stateless reset", RFC 9000 10.3):
/// its reset key outlives the process, since it comes from the private key and the address.
/// Otherwise they would wait for [`IDLE_TIMEOUT_MS`] before they connect again.
fn listen(
    address: SocketAddr,
    identity: &Identity,
    config: ServerConfig,
) -> std::io::Result<Endpoint> {
    let socket = bind(address)?;
    let secret = hmac::Key::new(hmac::HMAC_SHA256, identity.key.secret_der());
    let label = format!("portcullis stateless reset {}", socket.local_addr()?);
    let reset_key = hmac::sign(&secret, label.as_bytes());
    let reset_key = hmac::Key::new(hmac::HMAC_SHA256, reset_key.as_ref());
    let mut endpoint = EndpointConfig::new(Arc::new(reset_key));
    // The default generator knows its own ids only and lets those of the old process drop.
    endpoint.cid_generator(|| Box::new(RandomConnectionIdGenerator::new(CONNECTION_ID_LEN_BYTES)));
    take_large_datagrams(&mut endpoint);
    Endpoint::new(endpoint, Some(config), socket, Arc::new(TokioRuntime))
}

/// A peer probes for datagrams no larger than we say we take.
fn take_large_datagrams(config: &mut EndpointConfig) {
    let is_set = config.max_udp_payload_size(DATAGRAM_LEN_BYTES_MAX).is_ok();
    debug_assert!(is_set, "within what RFC 9000 18.2 allows");
}

/// A socket whose buffers hold what a window lets a peer send while this process is not running.
fn bind(address: SocketAddr) -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    // With the privilege beyond what the system allows everybody, else as far as that.
    if sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER_LEN_BYTES).is_err() {
        let _ = sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER_LEN_BYTES);
    }
    let _ = sockopt::set_socket_send_buffer_size(&socket, SOCKET_BUFFER_LEN_BYTES);
    Ok(socket)
}

fn roots(identity: &Identity) -> Result<RootCertStore, TransportError> {
    let mut roots = RootCertStore::empty();
    roots.add(identity.ca.clone())?;
    Ok(roots)
}

fn transport() -> TransportConfig {
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(limits::REQUESTS_IN_FLIGHT_MAX))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .stream_receive_window(VarInt::from_u32(limits::STREAM_WINDOW_BYTES))
        .receive_window(VarInt::from_u32(limits::CONNECTION_WINDOW_BYTES))
        .send_window(limits::SEND_WINDOW_BYTES)
        .datagram_receive_buffer_size(None)
        .max_idle_timeout(Some(IdleTimeout::from(VarInt::from_u32(IDLE_TIMEOUT_MS))))
        .keep_alive_interval(Some(Duration::from_millis(KEEP_ALIVE_MS)));
    let mut congestion = CubicConfig::default();
    congestion.initial_window(INITIAL_WINDOW_BYTES);
    config.congestion_controller_factory(Arc::new(congestion));
    let mut acknowledgements = AckFrequencyConfig::default();
    acknowledgements.ack_eliciting_threshold(VarInt::from_u32(UNACKNOWLEDGED_MAX));
    config.ack_frequency_config(Some(acknowledgements));
    let mut discovery = quinn::MtuDiscoveryConfig::default();
    discovery.upper_bound(DATAGRAM_LEN_BYTES_MAX);
    config.mtu_discovery_config(Some(discovery));
    config
}
