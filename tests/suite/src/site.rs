//! A small installation: an identity, a brick and a gateway over one directory; or several bricks,
//! each over one of its own.
//!
//! `PORTCULLIS_SUITE_GATEWAY_ARGS` in the environment has further arguments for gateways that are started without
//! any of their own, separated by spaces: so all that is tested of gateways is tested of another kind.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use portcullis_wire::message::PolicyStatus;
use portcullis_wire::stats::{BrickStats, GatewayStats};
use tempfile::TempDir;

use crate::binary;
use crate::process::Server;

/// A running installation and its directory for identities and logs.
#[derive(Debug)]
pub struct Site {
    /// The brick; `None` while a test has it down.
    pub brick: Option<Server>,
    /// The gateway.
    pub gateway: Server,
    /// More gateways before the same bricks, by number from 1.
    pub more_gateways: Vec<Server>,
    /// The other bricks of a volume of several, by number from 1.
    pub more_bricks: Vec<Part>,
    brick_address: String,
    gateway_args: Vec<String>,
    export: PathBuf,
    dir: TempDir,
}

/// One of several bricks.
#[derive(Debug)]
pub struct Part {
    server: Option<Server>,
    address: String,
    export: PathBuf,
}

impl Part {
    fn start(dir: &Path, export: &Path) -> Self {
        let server = start_brick(dir, export, "127.0.0.1:0");
        let address = server.ready().to_owned();
        Self { server: Some(server), address, export: export.to_owned() }
    }
}

impl Site {
    /// A volume of one brick for each of `exports`.
    pub fn start_volume(exports: &[PathBuf], gateway_args: &[&str]) -> Self {
        let (first, others) = exports.split_first().expect("at least one brick");
        let dir = tempfile::tempdir().expect("a temporary directory");
        identity(&dir.path().join("id"));
        let brick = start_brick(dir.path(), first, "127.0.0.1:0");
        let more = others.iter().map(|export| Part::start(dir.path(), export)).collect();
        Self::before(brick, more, dir, first, gateway_args)
    }

    /// Exports `export` and puts a gateway with `gateway_args` before it.
    pub fn start(export: &Path, gateway_args: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        identity(&dir.path().join("id"));
        let brick = start_brick(dir.path(), export, "127.0.0.1:0");
        Self::before(brick, Vec::new(), dir, export, gateway_args)
    }

    /// Like [`Site::start`], with a brick that runs as the user `uid`. Needs root.
    pub fn start_brick_as(export: &Path, uid: u32) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        identity(&dir.path().join("id"));
        // The brick reads its identity as that user, and the export lies in a private directory.
        for path in [dir.path(), export] {
            let mode = Permissions::from_mode(0o755);
            std::fs::set_permissions(path, mode).expect("it is ours");
        }
        let id = dir.path().join("id");
        chown(&id, Some(uid), None).expect("we are root");
        for file in std::fs::read_dir(&id).expect("it was made") {
            chown(file.expect("an entry").path(), Some(uid), None).expect("we are root");
        }
        let mut command = server(dir.path(), "brick");
        command.arg("--export").arg(export).args(["--listen", "127.0.0.1:0"]).uid(uid).gid(uid);
        let brick = Server::start(&mut command, &dir.path().join("brick.log"));
        Self::before(brick, Vec::new(), dir, export, &[])
    }

    /// Like [`Site::start`], with a brick whose process may have `files` open files.
    pub fn start_brick_with_files(export: &Path, files: u64) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        identity(&dir.path().join("id"));
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\"")]).arg(binary());
        command.args(["brick", "--listen", "127.0.0.1:0", "--export"]).arg(export);
        command.arg("--identity").arg(dir.path().join("id"));
        let brick = Server::start(&mut command, &dir.path().join("brick.log"));
        Self::before(brick, Vec::new(), dir, export, &[])
    }

    fn before(
        brick: Server,
        more_bricks: Vec<Part>,
        dir: TempDir,
        export: &Path,
        gateway_args: &[&str],
    ) -> Self {
        let mut command = server(dir.path(), "gateway");
        let others = more_bricks.iter().map(|part| &part.address[..]);
        for address in std::iter::once(brick.ready()).chain(others) {
            command.args(["--brick", address]);
        }
        command.args(["--listen", "127.0.0.1:0"]).args(gateway_args).args(further(gateway_args));
        let gateway = Server::start(&mut command, &dir.path().join("gateway.log"));
        let brick_address = brick.ready().to_owned();
        Self {
            brick: Some(brick),
            gateway,
            more_gateways: Vec::new(),
            more_bricks,
            brick_address,
            gateway_args: gateway_args.iter().map(|&arg| arg.to_owned()).collect(),
            export: export.to_owned(),
            dir,
        }
    }

    /// Adds a brick to the volume. Gateways that are started from now on have it.
    pub fn add_brick(&mut self, export: &Path) {
        self.more_bricks.push(Part::start(self.dir.path(), export));
    }

    /// The addresses of all bricks, in the order of the volume.
    fn bricks(&self) -> Vec<String> {
        let others = self.more_bricks.iter().map(|part| part.address.clone());
        std::iter::once(self.brick_address.clone()).chain(others).collect()
    }

    /// Puts one more gateway before the brick and answers its number, from 1.
    pub fn add_gateway(&mut self, gateway_args: &[&str]) -> usize {
        self.add_gateway_of(&self.bricks(), gateway_args)
    }

    /// Like [`Site::add_gateway`], with a gateway that reaches the brick at `brick`.
    pub fn add_gateway_before(&mut self, brick: &str, gateway_args: &[&str]) -> usize {
        self.add_gateway_of(&[brick.to_owned()], gateway_args)
    }

    fn add_gateway_of(&mut self, bricks: &[String], gateway_args: &[&str]) -> usize {
        let number = self.more_gateways.len() + 1;
        let mut command = server(self.dir.path(), "gateway");
        for brick in bricks {
            command.args(["--brick", brick]);
        }
        command.args(["--listen", "127.0.0.1:0"]).args(gateway_args).args(further(gateway_args));
        let log = self.dir.path().join(format!("gateway-{number}.log"));
        self.more_gateways.push(Server::start(&mut command, &log));
        number
    }

    /// A gateway: 0 is [`Site::gateway`], the others are [`Site::more_gateways`].
    pub fn gateway_number(&self, number: usize) -> &Server {
        match number.checked_sub(1) {
            None => &self.gateway,
            Some(index) => &self.more_gateways[index],
        }
    }

    /// Kills the first gateway as a crash would.
    pub fn kill_gateway(&mut self) {
        self.gateway.end();
    }

    /// Starts the first gateway again, at its old address and with its old arguments.
    pub fn restart_gateway(&mut self) {
        self.gateway.end();
        let address = self.gateway.ready().to_owned();
        let mut command = server(self.dir.path(), "gateway");
        for brick in self.bricks() {
            command.args(["--brick", &brick]);
        }
        let args: Vec<&str> = self.gateway_args.iter().map(String::as_str).collect();
        command.args(["--listen", &address]).args(&args).args(further(&args));
        self.gateway = Server::start(&mut command, &self.dir.path().join("gateway.log"));
    }

    /// The address of the brick.
    pub fn brick_address(&self) -> &str {
        &self.brick_address
    }

    /// The directory of identities.
    pub fn identity(&self) -> PathBuf {
        self.dir.path().join("id")
    }

    /// A path for a file of the test's own, outside the export.
    pub fn scratch(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The exported directory.
    pub fn export(&self) -> &Path {
        &self.export
    }

    /// The URL of `path` in the volume, which begins with `/`.
    pub fn url(&self, path: &str) -> String {
        format!("pc://{}{path}", self.gateway.ready())
    }

    /// `portcullis VERB URL --identity ID`, to be extended.
    pub fn command(&self, verb: &str, path: &str) -> Command {
        let mut command = Command::new(binary());
        command.arg(verb).arg(self.url(path)).arg("--identity").arg(self.identity());
        command.stdin(Stdio::null());
        command
    }

    /// Runs `portcullis VERB URL ARGS`.
    pub fn run(&self, verb: &str, path: &str, args: &[&str]) -> Output {
        self.command(verb, path).args(args).output().expect("the command runs")
    }

    /// Runs `portcullis VERB URL ARGS` and answers its stdout.
    ///
    /// # Panics
    /// It fails.
    pub fn stdout(&self, verb: &str, path: &str, args: &[&str]) -> Vec<u8> {
        let output = self.run(verb, path, args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{verb} {path}: {}: {stderr}", output.status);
        output.stdout
    }

    /// What the gateway tells of itself.
    pub fn stats(&self) -> GatewayStats {
        let json = self.stdout("stats", "/", &["--json"]);
        serde_json::from_slice(&json).expect("stats are JSON")
    }

    /// Runs `portcullis policy VERB` against the gateway and answers how its policies stand then.
    ///
    /// # Errors
    /// What the command said where it failed.
    pub fn policy(&self, verb: &str, args: &[&str]) -> Result<PolicyStatus, String> {
        let mut command = Command::new(binary());
        command.args(["policy", verb]).arg(self.url("/")).arg("--identity").arg(self.identity());
        let output = command.arg("--json").args(args).stdin(Stdio::null()).output();
        let output = output.expect("the command runs");
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        Ok(serde_json::from_slice(&output.stdout).expect("a status is JSON"))
    }

    /// What the gateway tells of its first brick.
    pub fn brick_stats(&self) -> BrickStats {
        self.stats().bricks.swap_remove(0)
    }

    /// Requests that the gateway sent to the brick so far, but those that keep its session alive.
    pub fn brick_requests(&self) -> u64 {
        let mut requests = self.brick_stats().requests;
        requests.remove("renew");
        requests.values().sum()
    }

    /// Kills the brick as a crash would.
    pub fn kill_brick(&mut self) {
        self.brick.take().expect("the brick is up").kill();
    }

    /// Kills a brick by its number in the volume.
    pub fn kill_brick_number(&mut self, number: usize) {
        match number.checked_sub(1) {
            None => self.kill_brick(),
            Some(index) => self.more_bricks[index].server.take().expect("it is up").kill(),
        }
    }

    /// Starts a brick again by its number in the volume, at its old address.
    pub fn restart_brick_number(&mut self, number: usize) {
        let Some(index) = number.checked_sub(1) else { return self.restart_brick() };
        let part = &mut self.more_bricks[index];
        assert!(part.server.is_none(), "the brick is up");
        part.server = Some(start_brick(self.dir.path(), &part.export, &part.address));
    }

    /// Requests that the gateway sent to each brick so far, by verb, but those that keep its sessions.
    pub fn requests_by_brick(&self) -> Vec<BTreeMap<String, u64>> {
        let bricks = self.stats().bricks.into_iter();
        let requests = bricks.map(|brick| {
            let mut requests = brick.requests;
            requests.retain(|verb, _| !["attach", "renew"].contains(&&verb[..]));
            requests
        });
        requests.collect()
    }

    /// Starts the brick again, at its old address.
    pub fn restart_brick(&mut self) {
        assert!(self.brick.is_none(), "the brick is up");
        self.brick = Some(start_brick(self.dir.path(), &self.export, &self.brick_address));
    }
}

/// What the environment has gateways started with.
fn further(args: &[&str]) -> Vec<String> {
    let given = std::env::var("PORTCULLIS_SUITE_GATEWAY_ARGS").unwrap_or_default();
    if !args.is_empty() {
        return Vec::new();
    }
    given.split_whitespace().map(str::to_owned).collect()
}

/// Makes an identity directory with the command meant for it.
pub fn identity(dir: &Path) {
    let init = Command::new(binary()).args(["identity", "init", "--dir"]).arg(dir).output();
    let init = init.expect("the command runs");
    assert!(init.status.success(), "{}", String::from_utf8_lossy(&init.stderr));
}

fn start_brick(dir: &Path, export: &Path, listen: &str) -> Server {
    let mut command = server(dir, "brick");
    command.arg("--export").arg(export).args(["--listen", listen]);
    Server::start(&mut command, &dir.join("brick.log"))
}

fn server(dir: &Path, verb: &str) -> Command {
    let mut command = Command::new(binary());
    command.arg(verb).arg("--identity").arg(dir.join("id"));
    command
}
