//! Reaching a gateway: its host name, its addresses, one connection.

use std::net::SocketAddr;
use std::time::Duration;

use portcullis_transport::{Connection, Connector, Identity, Role, TransportError};

use crate::address::Address;
use crate::error::ClientError;

/// Addresses of one host name that are tried.
const ADDRESSES_MAX: usize = 8;
/// What a connection that ends is left to tell the gateway so.
const CLOSE_MS: u64 = 5;

/// Makes connections to one gateway.
#[derive(Debug)]
pub(crate) struct Dialer {
    address: Address,
    gateway: String,
    identity: Identity,
    server: Role,
    v4: Option<Connector>,
    v6: Option<Connector>,
}

impl Dialer {
    pub(crate) fn new(address: Address, identity: Identity, server: Role) -> Self {
        Self { gateway: address.authority(), address, identity, server, v4: None, v6: None }
    }

    /// A connection to the first address of the gateway that answers.
    pub(crate) async fn connect(&mut self) -> Result<Connection, ClientError> {
        let mut failure = None;
        for peer in self.resolve().await? {
            match self.connect_to(peer).await {
                Ok(connection) => return Ok(connection),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.map_or_else(|| self.unresolved("it has no address"), ClientError::from))
    }

    /// Leaves connections that were closed a moment to tell the gateway. Waiting for the transport
    /// to be done with them would take three times its retransmission timeout, some 80 ms; a
    /// gateway that misses the word finds out by itself.
    pub(crate) async fn linger(&self) {
        let idle = async {
            for connector in [&self.v4, &self.v6].into_iter().flatten() {
                connector.wait_idle().await;
            }
        };
        // Either way there is nothing left to do.
        let _ = tokio::time::timeout(Duration::from_millis(CLOSE_MS), idle).await;
    }

    async fn connect_to(&mut self, peer: SocketAddr) -> Result<Connection, TransportError> {
        let connector = if peer.is_ipv4() { &mut self.v4 } else { &mut self.v6 };
        let connector = match connector {
            Some(connector) => connector,
            None => connector.insert(Connector::new(&self.identity, peer)?),
        };
        connector.connect(peer, self.server).await
    }

    async fn resolve(&self) -> Result<Vec<SocketAddr>, ClientError> {
        let host = (self.address.host(), self.address.port());
        let found = tokio::net::lookup_host(host)
            .await
            .map_err(|error| self.unresolved(&error.to_string()))?;
        Ok(found.take(ADDRESSES_MAX).collect())
    }

    fn unresolved(&self, reason: &str) -> ClientError {
        ClientError::Resolve { gateway: self.gateway.clone(), reason: reason.to_owned() }
    }
}
