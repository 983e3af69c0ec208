//! Any bytes on a stream, and any certificate in the handshake: a peer that does not behave.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use portcullis_wire::ALPN;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, Endpoint};
use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// Connects with the certificate of `role` in `identity`, or with none, and a protocol name of
/// the caller's choice.
///
/// # Errors
/// What the handshake says.
pub async fn connect(
    address: &str,
    identity: &Path,
    role: Option<&str>,
    alpn: &[u8],
) -> Result<(Endpoint, Connection), quinn::ConnectionError> {
    let address: SocketAddr = address.parse().expect("an address");
    let mut roots = RootCertStore::empty();
    roots.add(certificate(&identity.join("ca.pem"))).expect("a CA");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_root_certificates(roots);
    let mut tls = match role {
        None => tls.with_no_client_auth(),
        Some(role) => {
            let key = PrivateKeyDer::from_pem_file(identity.join(format!("{role}.key")));
            let chain = vec![certificate(&identity.join(format!("{role}.pem")))];
            tls.with_client_auth_cert(chain, key.expect("a key")).expect("they fit")
        }
    };
    tls.alpn_protocols = vec![alpn.to_vec()];
    let tls = QuicClientConfig::try_from(tls).expect("a cipher for QUIC");
    let endpoint = Endpoint::client(([127, 0, 0, 1], 0).into()).expect("a socket");
    let config = ClientConfig::new(Arc::new(tls));
    let connecting = endpoint.connect_with(config, address, "gateway.portcullis");
    let connection = connecting.expect("a valid name").await?;
    Ok((endpoint, connection))
}

/// Connects as a well-behaved client would.
pub async fn client(address: &str, identity: &Path) -> (Endpoint, Connection) {
    connect(address, identity, Some("client"), ALPN).await.expect("a client is admitted")
}

/// Sends `bytes` on a stream of their own and answers what comes back, up to 64 KiB.
///
/// # Errors
/// What the stream says.
pub async fn exchange(connection: &Connection, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let (mut send, mut recv) = connection.open_bi().await.map_err(|error| error.to_string())?;
    // A server may refuse before it has read everything.
    let _ = send.write_all(bytes).await;
    let _ = send.finish();
    recv.read_to_end(64 * 1024).await.map_err(|error| error.to_string())
}

fn certificate(path: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(path).expect("a certificate")
}
