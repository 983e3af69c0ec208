//! A process that does what it is told: it opens files, locks them, keeps them. It is a Python
//! program of a page, `actor.py` beside this file, that answers each line with a line.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::wait;

/// A running actor. Dropping it kills it.
#[derive(Debug)]
pub struct Actor {
    child: Child,
    told: ChildStdin,
    answers: Receiver<String>,
}

impl Default for Actor {
    fn default() -> Self {
        Self::start()
    }
}

impl Actor {
    /// Starts one.
    pub fn start() -> Self {
        let mut child = Command::new("python3")
            .args(["-c", include_str!("actor.py")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs");
        let told = child.stdin.take().expect("stdin is a pipe");
        let stdout = child.stdout.take().expect("stdout is a pipe");
        let (send, answers) = sync_channel(16);
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, told, answers }
    }

    /// Tells it to do something, without waiting for the answer.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.told, "{line}").expect("the actor lives");
    }

    /// The next answer, if there is one within `limit`.
    pub fn answer_within(&mut self, limit: Duration) -> Option<String> {
        match self.answers.recv_timeout(limit) {
            Ok(answer) => Some(answer),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => panic!("the actor has ended"),
        }
    }

    /// The next answer.
    ///
    /// # Panics
    /// There is none in time.
    pub fn answer(&mut self) -> String {
        self.answer_within(wait::LIMIT)
            .unwrap_or_else(|| panic!("no answer within {:?}", wait::LIMIT))
    }

    /// Tells it to do something and waits for the answer.
    pub fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.answer_within(wait::LIMIT)
            .unwrap_or_else(|| panic!("no answer to {line:?} within {:?}", wait::LIMIT))
    }

    /// Tells it to do something that must go well.
    ///
    /// # Panics
    /// It answers anything but `ok`.
    pub fn ok(&mut self, line: &str) {
        let answer = self.ask(line);
        assert_eq!(answer, "ok", "{line}");
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it SIGKILL and answers whether it was gone within `limit`.
    pub fn dies_within(&mut self, limit: Duration) -> bool {
        kill_process(Pid::from_child(&self.child), Signal::KILL).expect("our own child");
        let start = std::time::Instant::now();
        while start.elapsed() < limit {
            if self.child.try_wait().expect("our own child").is_some() {
                return true;
            }
            wait::pause(Duration::from_millis(10));
        }
        false
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        // Only a moment: a process that hangs in a system call must not hang the test as well.
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_secs(5) {
            if self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return;
            }
            wait::pause(Duration::from_millis(5));
        }
    }
}
