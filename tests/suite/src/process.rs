//! One server process: its `ready` line, its log, its end.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};

use rustix::process::{Pid, Signal, kill_process};

use crate::wait;

/// A running server. Dropping it kills it.
#[derive(Debug)]
pub struct Server {
    child: Child,
    ready: String,
    log: PathBuf,
    /// What it prints after its `ready` line, closed at its end.
    /// (Locked only so that a server can be shared between threads.)
    lines: Mutex<Receiver<String>>,
}

impl Server {
    /// Starts `command`, its stderr going to the file `log`, and waits for its `ready` line.
    ///
    /// # Panics
    /// It ends, or says nothing for too long; its log is shown.
    pub fn start(command: &mut Command, log: &Path) -> Self {
        let file = File::options().create(true).append(true).open(log).expect("a log file");
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(file)
            .spawn()
            .expect("the server starts");
        let stdout = child.stdout.take().expect("stdout is a pipe");
        let (send, lines) = sync_channel(64);
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                let Ok(line) = line else { return };
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        let mut server =
            Self { child, ready: String::new(), log: log.to_owned(), lines: Mutex::new(lines) };
        let line = server.line().unwrap_or_else(|why| {
            panic!("{command:?}: no `ready` line: {why}\n{}", server.log());
        });
        let Some(ready) = line.strip_prefix("ready ") else {
            panic!("{command:?} printed {line:?} where `ready ADDRESS` belongs\n{}", server.log());
        };
        server.ready = ready.to_owned();
        server
    }

    /// What followed `ready` on that line: the address it listens on.
    pub fn ready(&self) -> &str {
        &self.ready
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it logged so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The most memory that was resident at once since [`Server::forget_peak`], in bytes.
    pub fn resident_peak_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()));
        let status = status.expect("the server lives");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        kib.and_then(|kib| kib.trim().parse::<u64>().ok()).expect("a number of kB") * 1024
    }

    /// Begins the peak of resident memory anew (proc(5), `clear_refs`).
    pub fn forget_peak(&self) {
        let path = format!("/proc/{}/clear_refs", self.id());
        std::fs::write(path, "5").expect("our own child's peak can be reset");
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        kill_process(self.pid(), Signal::TERM).expect("the server lives");
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// It does not end in time; its log is shown.
    pub fn wait(mut self) -> ExitStatus {
        let log = self.log.clone();
        let child = &mut self.child;
        wait::until(&format!("the end of a server, logging to {}", log.display()), || {
            child.try_wait().expect("our own child")
        })
    }

    /// Kills it as a crash would, and waits until it is gone.
    pub fn kill(mut self) {
        self.end();
    }

    /// Kills it, if it lives still, and waits until it is gone.
    pub(crate) fn end(&mut self) {
        // Fails where it has ended, which is what we want.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn line(&mut self) -> Result<String, String> {
        let lines = self.lines.get_mut().expect("nobody panics with it");
        match lines.recv_timeout(wait::LIMIT) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => Err("too long without one".to_owned()),
            Err(RecvTimeoutError::Disconnected) => match self.child.wait() {
                Ok(status) => Err(format!("it ended: {status}")),
                Err(error) => Err(error.to_string()),
            },
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
        if std::thread::panicking() {
            eprintln!("--- {}\n{}", self.log.display(), self.log());
        }
    }
}
