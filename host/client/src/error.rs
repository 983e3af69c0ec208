//! Why a request of a client failed.

use std::sync::Arc;

use portcullis_core::Status;
use portcullis_transport::TransportError;
use portcullis_wire::message::Failure;
use thiserror::Error;

use crate::address::AddressError;

/// A request without the answer hoped for. [`ClientError::status`] is what a program acts on.
#[derive(Clone, Debug, Error)]
pub enum ClientError {
    /// The gateway, or a brick behind it, answered that the request failed.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// No answer within the deadline.
    #[error("no answer from the gateway at {gateway} in {timeout_ms} ms")]
    Timeout {
        /// The gateway.
        gateway: String,
        /// The deadline.
        timeout_ms: u64,
    },
    /// The connection was lost while the answer was awaited.
    #[error("the connection to the gateway at {gateway} was lost: {reason}")]
    Lost {
        /// The gateway.
        gateway: String,
        /// What the transport said.
        reason: String,
    },
    /// The gateway does not speak this protocol.
    #[error("the answer of the gateway at {gateway} cannot be read: {reason}")]
    Protocol {
        /// The gateway.
        gateway: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The host name has no address.
    #[error("the host of the gateway at {gateway} cannot be resolved: {reason}")]
    Resolve {
        /// The gateway.
        gateway: String,
        /// What the resolver said.
        reason: String,
    },
    /// The gateway cannot be reached, or is someone else.
    #[error(transparent)]
    Connect(Arc<TransportError>),
    /// The address makes no sense.
    #[error(transparent)]
    Address(#[from] AddressError),
}

impl ClientError {
    /// What happened, in the terms of the protocol (and so of errno).
    pub fn status(&self) -> Status {
        match self {
            ClientError::Failed(failure) => failure.status,
            ClientError::Timeout { .. }
            | ClientError::Lost { .. }
            | ClientError::Resolve { .. }
            | ClientError::Connect(_) => Status::Unavailable,
            ClientError::Protocol { .. } => Status::Io,
            ClientError::Address(_) => Status::InvalidArgument,
        }
    }
}

impl From<TransportError> for ClientError {
    fn from(error: TransportError) -> Self {
        ClientError::Connect(Arc::new(error))
    }
}
