//! The way of a miss: one request to the brick, however many wait for its answer.
//!
//! A fill runs as a task of its own, so a client that goes away takes nothing from those who wait
//! along with it. What must hold: a ticket is always given back to the cache, also where the task
//! dies; everyone who waits is told.

use std::sync::Arc;

use portcullis_core::Status;
use portcullis_core::cache::{Answer, Filled, Ticket};
use portcullis_wire::message::Failure;
use portcullis_wire::{Reply, Request};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::volume::{Volume, Waiter, subject};

/// A place among those who wait, taken only where there is something to wait for.
#[derive(Default)]
pub(crate) struct Seat(Option<oneshot::Receiver<Result<Reply, Failure>>>);

impl Seat {
    /// Takes the place; what is returned calls its holder.
    pub(crate) fn take(&mut self) -> Waiter {
        let (waiter, answer) = oneshot::channel();
        self.0 = Some(answer);
        waiter
    }

    async fn wait(self) -> Result<Reply, Failure> {
        let abandoned = || Failure::new(Status::Unavailable, "the fill was given up; ask again");
        match self.0 {
            Some(answer) => answer.await.unwrap_or_else(|_| Err(abandoned())),
            None => Err(abandoned()),
        }
    }
}

impl Volume {
    /// Answers from what the cache said, by way of a fill where it did not know.
    pub(crate) async fn settle<T>(
        self: &Arc<Self>,
        answer: Answer<T>,
        seat: Seat,
        hit: impl FnOnce(T) -> Reply,
        request: impl FnOnce() -> Request,
    ) -> Result<Reply, Failure> {
        match answer {
            Answer::Hit(known) => return Ok(hit(known)),
            Answer::Negative => return Err(Status::NotFound.into()),
            Answer::Busy => {
                let detail = "too many requests wait for the brick; try again later";
                return Err(Failure::new(Status::Busy, detail));
            }
            Answer::Joined => {}
            Answer::Lead(ticket) => {
                let fill = Fill { volume: self.clone(), ticket: Some(ticket) };
                tokio::spawn(fill.run(request()));
            }
        }
        seat.wait().await
    }
}

/// A fill under way.
struct Fill {
    volume: Arc<Volume>,
    ticket: Option<Ticket>,
}

impl Fill {
    async fn run(mut self, request: Request) {
        let began = Instant::now();
        let result = self.volume.ask(&request).await;
        let filled = match (&request, &result) {
            (Request::Lookup { .. }, Ok(Reply::Entry(entry))) => Filled::Entry(entry.clone()),
            (Request::Getattr { .. }, Ok(Reply::Attr(attr))) => Filled::Attr(*attr),
            (Request::Readlink { .. }, Ok(Reply::Target(target))) => Filled::Target(target.clone()),
            (Request::Lookup { .. }, Err(failure)) if failure.status == Status::NotFound => {
                Filled::Absent
            }
            _ => Filled::Failed,
        };
        let shard = subject(&request).map(|handle| self.volume.cache.shard_of(handle));
        let waiters = self.finish(&filled);
        if let Some(shard) = shard {
            self.volume.waits.note(shard, began.elapsed(), waiters.len());
        }
        for waiter in waiters {
            // Whoever went away meanwhile needs no answer.
            let _ = waiter.send(result.clone());
        }
    }

    fn finish(&mut self, filled: &Filled) -> Vec<Waiter> {
        match self.ticket.take() {
            Some(ticket) => self.volume.cache.fill(self.volume.now_ms(), ticket, filled),
            None => Vec::new(),
        }
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        // Dropping the waiters tells them that no answer comes.
        drop(self.finish(&Filled::Failed));
    }
}
