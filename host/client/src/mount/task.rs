//! From a thread of the session to a task of the runtime.
//!
//! What can be answered without waiting is answered on the session's own thread; the rest becomes
//! a task. A task whose caller is being killed gives up with EINTR. Other signals do not disturb
//! it, as on NFS: programs that take timer signals (git, Go) do not expect stat(2) to fail for
//! them.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use portcullis_fuse::{Caller, Errno, Reply};
use tokio::runtime;
use tokio::sync::oneshot;

/// How often a caller that was interrupted is looked at.
const KILLED_POLL_MS: u64 = 100;
/// The bit of SIGKILL in the masks of `/proc/PID/status`. The kernel sets it for every deadly
/// signal that leaves no core.
const SIGKILL_BIT: u64 = 1 << 8;

/// Runs `ask`, and hands its result to `finish` together with the reply. Where the caller is killed
/// meanwhile, `ask` is dropped and the reply is EINTR.
pub(super) fn answer<A, T>(
    runtime: &runtime::Handle,
    caller: Caller,
    mut reply: Reply<A>,
    ask: impl Future<Output = Result<T, Errno>> + Send + 'static,
    finish: impl FnOnce(Reply<A>, T) + Send + 'static,
) where
    A: 'static,
    T: Send + 'static,
{
    let _entered = runtime.enter();
    let mut ask: Pin<Box<dyn Future<Output = Result<T, Errno>> + Send>> = Box::pin(ask);
    // Its waker is replaced when the task polls it again.
    match ask.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(answer)) => finish(reply, answer),
        Poll::Ready(Err(errno)) => reply.error(errno),
        Poll::Pending => {
            let (interrupt, interrupted) = oneshot::channel();
            reply.on_interrupt(move || _ = interrupt.send(()));
            runtime.spawn(async move {
                tokio::select! {
                    biased;
                    result = ask => match result {
                        Ok(answer) => finish(reply, answer),
                        Err(errno) => reply.error(errno),
                    },
                    () = killed(interrupted, caller.pid) => reply.error(Errno::INTR),
                }
            });
        }
    }
}

/// Resolves once the thread that was interrupted is dying.
async fn killed(interrupted: oneshot::Receiver<()>, thread: u32) {
    if interrupted.await.is_err() {
        return std::future::pending().await;
    }
    while !is_dying(thread) {
        tokio::time::sleep(Duration::from_millis(KILLED_POLL_MS)).await;
    }
}

/// Whether a deadly signal waits for a thread. One that cannot be seen (it is gone, or in another
/// pid namespace) counts as dying: better an EINTR than a process that cannot be killed.
fn is_dying(thread: u32) -> bool {
    match std::fs::read(format!("/proc/{thread}/status")) {
        Ok(status) => has_deadly_signal(&status),
        Err(_) => true,
    }
}

fn has_deadly_signal(status: &[u8]) -> bool {
    status.split(|&byte| byte == b'\n').any(|line| {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { return false };
        let (name, mask) = line.split_at(colon);
        let mask = std::str::from_utf8(&mask[1..]).unwrap_or_default().trim();
        matches!(name, b"SigPnd" | b"ShdPnd")
            && u64::from_str_radix(mask, 16).is_ok_and(|mask| mask & SIGKILL_BIT != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_pending_kill_is_deadly() {
        let status = |thread: &str, process: &str| {
            format!(
                "Name:\tcat\nSigPnd:\t{thread}\nShdPnd:\t{process}\nSigBlk:\t0000000000000100\n"
            )
        };
        let (none, kill, alarm) = ("0000000000000000", "0000000000000100", "0000000000002000");
        assert!(!has_deadly_signal(status(none, none).as_bytes()));
        assert!(!has_deadly_signal(status(none, alarm).as_bytes()));
        assert!(has_deadly_signal(status(kill, none).as_bytes()));
        assert!(has_deadly_signal(status(none, kill).as_bytes()));
        assert!(!has_deadly_signal(b"garbage\n:\nSigPnd\n"));
    }

    #[test]
    fn a_living_thread_is_not_dying_and_one_that_is_not_there_is() {
        assert!(!is_dying(std::process::id()));
        assert!(is_dying(0));
    }
}
