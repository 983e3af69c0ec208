//! What others left unfinished on the bricks, and this gateway itself where a brick was away: looked for
//! every second, and brought to its end.

use std::sync::Arc;
use std::time::Duration;

use portcullis_core::Status;
use portcullis_core::volume::Unfinished;
use portcullis_core::volume::steps::Operation;
use portcullis_wire::message::Caller;
use portcullis_wire::{Reply, Request};
use tokio::time::{MissedTickBehavior, timeout};
use tracing::{debug, info};

use crate::asks::Asks;
use crate::brick_link::BrickLink;
use crate::brick_session::BrickSession;
use crate::volume::Volume;

/// How often a brick is asked. Who wants to change a name that is held waits for so long at most,
/// where all bricks are there.
const LOOK_MS: u64 = 1_000;

impl Volume {
    /// Looks for as long as the session lasts. Never returns; drop it to stop.
    pub(crate) async fn keep_finishing(
        self: Arc<Self>,
        brick: Arc<BrickLink>,
        session: Arc<BrickSession>,
    ) {
        let mut ticks = tokio::time::interval(Duration::from_millis(LOOK_MS));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let unfinished = self.unfinished(&brick, &session).await;
            if unfinished.is_empty() {
                continue;
            }
            info!(brick = %brick.address, count = unfinished.len(), "finishing what was left");
            let mut asks = Asks::new(&self, Caller::ROOT);
            let operation = Operation::Redo { member: brick.number as u8, unfinished };
            let ended = asks.run(operation, None).await;
            asks.tell_all().await;
            if let Err(status) = ended.result {
                // It goes on when the bricks that are needed are back.
                debug!(brick = %brick.address, %status, "not all was finished");
            }
        }
    }

    /// What nobody leads any more. It is not counted as a request: there is one each second, whatever
    /// clients do.
    async fn unfinished(&self, brick: &BrickLink, session: &BrickSession) -> Vec<Unfinished> {
        let asked = timeout(brick.timeout, session.connection.call(&Request::Unfinished)).await;
        match asked {
            Ok(Ok(Reply::Unfinished { orphans, led })) => {
                let mine = self.own_ops.client();
                let left = led.into_iter().filter(|unfinished| {
                    unfinished.tx().gateway == mine && !self.leads(unfinished.tx())
                });
                let left: Vec<_> = left.collect();
                orphans.into_iter().chain(left).collect()
            }
            Ok(Ok(_)) => {
                debug!(failure = %Status::BadFrame, "not an answer");
                Vec::new()
            }
            Ok(Err(_)) | Err(_) => Vec::new(),
        }
    }
}
