//! What all client commands do alike: read the identity, connect, find the path.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::builder::{OsStringValueParser, TypedValueParser};
use portcullis_client::address::components;
use portcullis_client::recording::{Recording, compare};
use portcullis_client::{Address, Client, ClientError, ClientOptions};
use portcullis_core::Entry;
use portcullis_transport::{Identity, Role};
use portcullis_wire::message::{
    Compare, Compared, PolicyCommand, PolicyKind, PolicyStatus, TraceNames,
};
use portcullis_wire::stats::GatewayStats;

use crate::error::CliError;
use crate::units::parse_duration;

/// How to reach a gateway.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Connect {
    /// Directory that `portcullis identity init` made
    #[arg(long, value_name = "ID")]
    pub(crate) identity: PathBuf,
    /// How long a request may take
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
}

impl Connect {
    /// Connects as a client, or as the admin where that is all the identity has.
    pub(crate) async fn client(&self, address: &Address) -> Result<Client, CliError> {
        self.client_with(address, self.options()).await
    }

    /// As [`Connect::client`], with options of the caller's.
    pub(crate) async fn client_with(
        &self,
        address: &Address,
        options: ClientOptions,
    ) -> Result<Client, CliError> {
        let admin_alone = !self.has(Role::Client) && self.has(Role::Admin);
        let role = if admin_alone { Role::Admin } else { Role::Client };
        let identity = Identity::load(&self.identity, role)?;
        Client::connect(address, identity, options).await.map_err(explained(address))
    }

    /// Asks a gateway about itself, as the admin.
    pub(crate) async fn stats(&self, address: &Address) -> Result<GatewayStats, CliError> {
        let admin = self.admin()?;
        Client::stats_of(address, admin, self.options()).await.map_err(explained(address))
    }

    /// Asks something of a gateway's policies, as the admin.
    pub(crate) async fn policy(
        &self,
        address: &Address,
        kind: PolicyKind,
        command: PolicyCommand,
        body: &[Bytes],
    ) -> Result<PolicyStatus, CliError> {
        let admin = self.admin()?;
        let asked = Client::policy_of(address, admin, self.options(), (kind, command), body).await;
        asked.map_err(explained(address))
    }

    /// Begins a recording of what is asked of a gateway, as the admin.
    pub(crate) async fn recording(
        &self,
        address: &Address,
        names: TraceNames,
        duration: Duration,
    ) -> Result<Recording, CliError> {
        let admin = self.admin()?;
        Recording::start(address, admin, self.options(), names, duration)
            .await
            .map_err(explained(address))
    }

    /// Asks something of a gateway's comparisons, as the admin.
    pub(crate) async fn compare(
        &self,
        address: &Address,
        asked: Compare,
        body: Bytes,
    ) -> Result<Compared, CliError> {
        let admin = self.admin()?;
        let compared = compare(address, admin, self.options(), asked, body).await;
        compared.map_err(explained(address))
    }

    /// The identity of the admin.
    fn admin(&self) -> Result<Identity, CliError> {
        if self.identity.is_dir() && !self.has(Role::Admin) {
            let dir = self.identity.display();
            return Err(CliError::Said(format!(
                "{dir} has no admin.key: this needs the identity of the admin, not of a client"
            )));
        }
        Ok(Identity::load(&self.identity, Role::Admin)?)
    }

    fn has(&self, role: Role) -> bool {
        self.identity.join(format!("{role}.key")).exists()
    }

    pub(crate) fn options(&self) -> ClientOptions {
        let request_timeout_ms = self.timeout.as_millis() as u64;
        ClientOptions { request_timeout_ms, ..ClientOptions::default() }
    }
}

fn explained(address: &Address) -> impl FnOnce(ClientError) -> CliError {
    |error| match error {
        // Refusing is all that was answered: say who refused.
        error @ ClientError::Failed(_) => CliError::request(address.given())(error),
        error => CliError::Connect(error),
    }
}

/// Finds the entry that an address names. The root is as the gateway told it when the client connected,
/// which was after this command began: it is not asked for again.
pub(crate) async fn resolve(client: &Client, address: &Address) -> Result<Entry, CliError> {
    if components(address.path()).next().is_none() {
        return Ok(client.root().clone());
    }
    client.resolve(address.path()).await.map_err(CliError::request(address.given()))
}

/// Reads an address from the command line, whose names may be any bytes.
pub(crate) fn address_parser() -> impl TypedValueParser<Value = Address> {
    OsStringValueParser::new().try_map(|given: OsString| Address::parse(&given))
}

/// The path of an address in its volume, without what means nothing in it: `/a/b`, and nothing
/// for the root.
pub(crate) fn volume_path(address: &Address) -> Vec<u8> {
    components(address.path()).flat_map(|name| [b"/", name]).flatten().copied().collect()
}

/// The last name of an address, and `/` for the root.
pub(crate) fn last_name(address: &Address) -> &[u8] {
    components(address.path()).last().unwrap_or(b"/")
}
