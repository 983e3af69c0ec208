//! Well-formed requests without the command line.

use std::net::SocketAddr;
use std::path::Path;

use portcullis_core::replay::OpId;
use portcullis_core::{Entry, Handle};
use portcullis_transport::{CallError, Connection, Connector, Identity, Role, TransportError};
use portcullis_wire::message::{Caller, Mutated, Mutation};
use portcullis_wire::{Reply, Request};

/// How a client that caches nothing begins.
pub const ATTACH: Request = Request::Attach { watch: false, client: 7, ended: 0 };

/// Connects as `role` to a server that must be a `server`.
///
/// # Errors
/// As the transport gives them: the tests look at them.
pub async fn connect(
    address: &str,
    identity: &Path,
    role: Role,
    server: Role,
) -> Result<(Connector, Connection), TransportError> {
    let address: SocketAddr = address.parse().expect("an address");
    let connector = Connector::new(&Identity::load(identity, role)?, address)?;
    let connection = connector.connect(address, server).await?;
    Ok((connector, connection))
}

/// The root of the volume.
pub async fn attach(connection: &Connection) -> Handle {
    match connection.call(&ATTACH).await {
        Ok(Reply::Attached { root, .. }) => root.handle,
        other => panic!("attach answered {other:?}"),
    }
}

/// Looks a name up.
///
/// # Errors
/// As the transport gives them.
pub async fn lookup(connection: &Connection, dir: Handle, name: &[u8]) -> Result<Entry, CallError> {
    match connection.call(&Request::Lookup { dir, name: name.to_vec() }).await? {
        Reply::Entry(entry) => Ok(entry),
        other => panic!("lookup answered {other:?}"),
    }
}

/// A request for a change, as root.
pub fn mutation(number: u64, life: u64, retry: bool, mutation: Mutation) -> Request {
    let op = OpId { client: 7, number, oldest: number, life, retry };
    Request::Mutate { op, caller: Caller::ROOT, mutation }
}

/// Changes something that needs no body. `number` has to be another one for each change.
///
/// # Errors
/// As the transport gives them.
pub async fn mutate(
    connection: &Connection,
    number: u64,
    what: Mutation,
) -> Result<Mutated, CallError> {
    match connection.call(&mutation(number, 0, false, what)).await? {
        Reply::Mutated { result, .. } => Ok(result),
        other => panic!("mutate answered {other:?}"),
    }
}
