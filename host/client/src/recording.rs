//! What an admin asks of a gateway's traffic: a recording of it as it comes, and comparisons of policies.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use portcullis_transport::{Identity, ReplyStream, Role};
use portcullis_wire::message::{Compare, Compared, TraceNames};
use portcullis_wire::{Reply, ReplyFrame, Request};

use crate::address::Address;
use crate::client::{ClientOptions, draw};
use crate::error::ClientError;
use crate::link::{Link, LinkOptions};

/// A recording under way: bytes of `portcullis_core::trace`. Dropping it ends it.
#[derive(Debug)]
pub struct Recording {
    link: Arc<Link>,
    stream: ReplyStream,
}

impl Recording {
    /// Begins one that lasts `for_` at most, over a connection of its own.
    ///
    /// # Errors
    /// The gateway cannot be reached; `WrongRole` for every identity but an admin's; `Busy` where too
    /// many listen already.
    pub async fn start(
        address: &Address,
        identity: Identity,
        options: ClientOptions,
        names: TraceNames,
        for_: Duration,
    ) -> Result<Self, ClientError> {
        let link = link(address, identity, options);
        let for_ms = for_.as_millis() as u64;
        let stream = link.stream(&Request::Trace { names, for_ms }).await?;
        Ok(Self { link, stream })
    }

    /// The next bytes, cut anywhere; `None` at the end.
    ///
    /// # Errors
    /// The connection is lost. What came so far is good.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        match self.link.next(&mut self.stream).await? {
            ReplyFrame::Data(data) => Ok(Some(data)),
            ReplyFrame::End { .. } => Ok(None),
            other => Err(self.link.misplaced(&other)),
        }
    }
}

/// A connection of its own, for an admin.
fn link(address: &Address, identity: Identity, options: ClientOptions) -> Arc<Link> {
    let options = LinkOptions { client: options, attach: false, server: Role::Gateway };
    Link::new(address.clone(), identity, options, draw())
}

/// Asks something of comparisons, over a connection of its own. `body` is the candidate's component and
/// its configuration, where there is one.
///
/// # Errors
/// The gateway cannot be reached; `WrongRole` for every identity but an admin's; what is wrong with what
/// was asked, or with the candidate.
pub async fn compare(
    address: &Address,
    identity: Identity,
    options: ClientOptions,
    compare: Compare,
    body: Bytes,
) -> Result<Compared, ClientError> {
    let link = link(address, identity, options);
    let reply = link.call_once(&Request::Compare(compare), &[body]).await;
    link.close().await;
    match reply? {
        Reply::Compared(compared) => Ok(*compared),
        other => Err(link.misplaced(&ReplyFrame::Reply(other))),
    }
}
