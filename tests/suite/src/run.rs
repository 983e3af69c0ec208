//! Other programs, run to their end with a deadline: a program that hangs fails its test and does
//! not hold up the others.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::wait;

/// How long a program may take that a test runs on a mount, on a slow machine.
const LIMIT: Duration = Duration::from_secs(300);
/// The same where it does ten times as much, as long tests in their full form do.
const LIMIT_SOAKING: Duration = Duration::from_secs(1_800);

/// How long a program may take in this run of the tests.
pub fn limit() -> Duration {
    if crate::soaking() { LIMIT_SOAKING } else { LIMIT }
}

/// A running program, its output collected. Dropping it kills it and all that it started.
#[derive(Debug)]
pub struct Running {
    child: Child,
    shown: String,
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: Option<JoinHandle<Vec<u8>>>,
    ended: Option<ExitStatus>,
}

impl Running {
    /// Starts `command` as the leader of a process group of its own.
    pub fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let shown = format!("{command:?}");
        let mut child = command.process_group(0).spawn().unwrap_or_else(|error| {
            panic!("{shown}: {error}");
        });
        let stdout = child.stdout.take().map(|pipe| std::thread::spawn(move || drain(pipe)));
        let stderr = child.stderr.take().map(|pipe| std::thread::spawn(move || drain(pipe)));
        Self { child, shown, stdout, stderr, ended: None }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("our own child");
        }
        self.ended.is_some()
    }

    /// Sends SIGINT to it, as Ctrl-C does.
    pub fn interrupt(&mut self) {
        if !self.has_ended() {
            // Fails where it has just ended, which its status tells.
            let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
        }
    }

    /// Sends SIGKILL to it and to all that it started.
    pub fn kill(&mut self) {
        if !self.has_ended() {
            // Fails where it has just ended, which is what we want.
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        }
    }

    /// Waits for the end and answers how it went.
    ///
    /// # Panics
    /// It has not ended within `limit`; it is killed then.
    pub fn wait(mut self, limit: Duration) -> Output {
        let start = Instant::now();
        while !self.has_ended() {
            if start.elapsed() >= limit {
                self.kill();
                panic!("not ended within {limit:?}: {}", self.shown);
            }
            wait::pause(Duration::from_millis(5));
        }
        let collect = |pipe: Option<JoinHandle<Vec<u8>>>| {
            pipe.map(|thread| thread.join().expect("it only reads")).unwrap_or_default()
        };
        let stdout = collect(self.stdout.take());
        let stderr = collect(self.stderr.take());
        Output { status: self.ended.expect("it has ended"), stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.try_wait();
    }
}

fn drain(mut pipe: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = pipe.read_to_end(&mut bytes);
    bytes
}

/// Runs `command` to its end.
///
/// # Panics
/// It takes longer than [`limit`].
pub fn output(command: &mut Command) -> Output {
    Running::start(command).wait(limit())
}

/// Runs `command`, which must succeed, and answers its stdout.
///
/// # Panics
/// It fails, or takes too long; what it printed is shown.
pub fn success(command: &mut Command) -> String {
    let shown = format!("{command:?}");
    let output = output(command);
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shown}: {}\n{stdout}\n{stderr}", output.status);
    stdout
}

/// Runs a shell script in `dir`, which must succeed, and answers its stdout.
pub fn sh(dir: &Path, script: &str) -> String {
    success(Command::new("sh").args(["-euc", script]).current_dir(dir))
}

/// Runs a shell script in `dir` as a user with these groups, which must succeed.
pub fn sh_as(dir: &Path, uid: u32, gid: u32, groups: &[u32], script: &str) -> String {
    success(&mut shell_as(dir, uid, gid, groups, script))
}

/// A shell script in `dir` as a user with these groups (setpriv(1)).
pub fn shell_as(dir: &Path, uid: u32, gid: u32, groups: &[u32], script: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={uid}"), format!("--regid={gid}")]);
    if groups.is_empty() {
        command.arg("--clear-groups");
    } else {
        let groups: Vec<String> = groups.iter().map(u32::to_string).collect();
        command.arg(format!("--groups={}", groups.join(",")));
    }
    command.args(["sh", "-euc", script]).current_dir(dir);
    command
}
