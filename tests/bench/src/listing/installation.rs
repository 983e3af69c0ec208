//! Bricks, a gateway and, where it is wanted, a mount: all started afresh from one identity.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use portcullis_client::{Address, Client, ClientOptions};
use portcullis_relay::{Conditions, Relay};
use portcullis_suite::process::Server;
use portcullis_suite::{binary, mounted, site};
use portcullis_transport::{Identity, Role};
use portcullis_wire::stats::{BrickStats, GatewayStats};
use tempfile::TempDir;

/// How to start.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// What each brick exports.
    pub exports: Vec<PathBuf>,
    /// An identity that there is; `None`: a new one. What bricks of a volume keep is good only with
    /// the one that they had when they kept it.
    pub identity: Option<PathBuf>,
    /// Further arguments of the gateway.
    pub gateway_args: Vec<String>,
    /// What follows `-o` of the mount; `None`: nothing is mounted.
    pub mount: Option<String>,
    /// The delay of each datagram each way on both hops, by relays; `None`: without relays.
    pub delay_us: Option<u64>,
}

/// A running installation. Dropping it unmounts and ends all of it.
#[derive(Debug)]
pub struct Installation {
    mount: Option<Server>,
    mountpoint: PathBuf,
    address: String,
    gateway: Server,
    _relays: Vec<Relay>,
    _bricks: Vec<Server>,
    dir: TempDir,
}

impl Setup {
    /// One brick and a gateway.
    pub fn of(export: &Path, gateway_args: &[String]) -> Self {
        let gateway_args = gateway_args.to_vec();
        let (exports, identity) = (vec![export.to_owned()], None);
        Self { exports, identity, gateway_args, mount: None, delay_us: None }
    }

    /// The same, with a mount.
    pub fn mounted(self, options: &str) -> Self {
        Self { mount: Some(options.to_owned()), ..self }
    }

    /// The same, with relays on both hops that delay each datagram so much each way.
    pub fn delayed(self, delay_us: u64) -> Self {
        Self { delay_us: Some(delay_us), ..self }
    }

    /// Starts all of it.
    pub fn start(&self) -> Installation {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let id = dir.path().join("id");
        match &self.identity {
            Some(identity) => symlink(identity, id).expect("a link"),
            None => site::identity(&id),
        }
        let (mut bricks, mut relays) = (Vec::new(), Vec::new());
        let mut gateway = server(dir.path(), "gateway");
        for (number, export) in self.exports.iter().enumerate() {
            let mut brick = server(dir.path(), "brick");
            brick.arg("--export").arg(export).args(["--listen", "127.0.0.1:0"]);
            let log = dir.path().join(format!("brick-{number}.log"));
            let brick = Server::start(&mut brick, &log);
            gateway.arg("--brick").arg(self.reach(brick.ready(), &mut relays));
            bricks.push(brick);
        }
        gateway.args(["--listen", "127.0.0.1:0"]).args(&self.gateway_args);
        let gateway = Server::start(&mut gateway, &dir.path().join("gateway.log"));
        let address = self.reach(gateway.ready(), &mut relays);
        let mountpoint = dir.path().join("mnt");
        let mut installation = Installation {
            mount: None,
            mountpoint,
            address,
            gateway,
            _relays: relays,
            _bricks: bricks,
            dir,
        };
        if let Some(options) = &self.mount {
            installation.mount(options);
        }
        installation
    }

    /// The address by which `server` is reached.
    fn reach(&self, server: &str, relays: &mut Vec<Relay>) -> String {
        let Some(delay_us) = self.delay_us else { return server.to_owned() };
        let relay = Relay::start(server);
        relay.set_both(Conditions::delayed(delay_us));
        relays.push(relay);
        relays.last().expect("just pushed").address()
    }
}

impl Installation {
    fn mount(&mut self, options: &str) {
        std::fs::create_dir(&self.mountpoint).expect("a mount point");
        let mut command = self.command("mount", "/");
        command.arg(&self.mountpoint).arg("--foreground");
        if !options.is_empty() {
            command.args(["-o", options]);
        }
        self.mount = Some(Server::start(&mut command, &self.dir.path().join("mount.log")));
    }

    /// Where the mount is.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// The gateway.
    pub fn gateway(&self) -> &Server {
        &self.gateway
    }

    /// `portcullis VERB URL --identity ID`, to be extended; `path` begins with `/`.
    pub fn command(&self, verb: &str, path: &str) -> Command {
        let mut command = Command::new(binary());
        command.arg(verb).arg(format!("pc://{}{path}", self.address));
        command.arg("--identity").arg(self.dir.path().join("id"));
        command
    }

    /// A client in this process.
    pub async fn client(&self) -> Client {
        let identity = Identity::load(&self.dir.path().join("id"), Role::Client);
        let identity = identity.expect("an identity has a client");
        let address = self.address.parse().expect("the gateway told where it listens");
        let address = Address::root_of(address);
        let client = Client::connect(&address, identity, ClientOptions::default()).await;
        client.expect("the gateway is there")
    }

    /// What the gateway tells of itself.
    pub fn stats(&self) -> GatewayStats {
        let output = self.command("stats", "/").arg("--json").output().expect("it starts");
        serde_json::from_slice(&output.stdout).expect("stats are JSON")
    }

    /// Requests of these verbs that each brick was sent so far.
    pub fn requests_of(&self, verbs: &[&str]) -> Vec<u64> {
        let bricks = self.stats().bricks;
        let asked = |verb: &&str, requests: &BTreeMap<String, u64>| {
            requests.get(*verb).copied().unwrap_or(0)
        };
        let sum = |brick: &BrickStats| verbs.iter().map(|verb| asked(verb, &brick.requests)).sum();
        bricks.iter().map(sum).collect()
    }

    /// Requests to bricks so far, but those that keep sessions alive.
    pub fn brick_requests(&self) -> u64 {
        let kept_alive = |verb: &String| verb == "renew";
        let bricks = self.stats().bricks;
        let requests = bricks.iter().flat_map(|brick| &brick.requests);
        requests.filter(|(verb, _)| !kept_alive(verb)).map(|(_, count)| count).sum()
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        if self.mount.is_some() {
            unmount(&self.mountpoint);
        }
    }
}

/// Why a gateway of this build does not take `bricks` bricks, if so.
pub fn refuses(bricks: usize) -> Option<String> {
    if bricks == 1 {
        return None;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    site::identity(&dir.path().join("id"));
    let mut gateway = server(dir.path(), "gateway");
    gateway.args(["--listen", "127.0.0.1:0"]);
    // Nobody is there: bricks may come later, so a gateway that takes them starts all the same.
    (0..bricks).for_each(|brick| {
        gateway.args(["--brick", &format!("127.0.0.1:{}", brick + 1)]);
    });
    let log = dir.path().join("gateway.log");
    gateway.stdout(std::process::Stdio::piped());
    gateway.stderr(std::fs::File::create(&log).expect("a log"));
    let mut child = gateway.spawn().expect("it starts");
    let mut line = String::new();
    let stdout = child.stdout.take().expect("a pipe");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).expect("read");
    // Fails where it has ended.
    let _ = child.kill();
    child.wait().expect("our own child");
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    (!line.starts_with("ready ")).then(|| said.lines().last().unwrap_or("it ended").to_owned())
}

/// Unmounts what is at `mountpoint`, lazily where something holds it.
pub fn unmount(mountpoint: &Path) {
    let umount = |args: &[&str]| {
        let mut umount = Command::new("umount");
        umount.args(args).arg(mountpoint).stderr(std::process::Stdio::null()).status()
    };
    if !mounted::is_mounted(mountpoint) {
        return;
    }
    if !umount(&[]).is_ok_and(|status| status.success()) {
        // Fails where it is gone meanwhile.
        let _ = umount(&["-l"]);
    }
}

fn server(dir: &Path, verb: &str) -> Command {
    let mut command = Command::new(binary());
    command.arg(verb).arg("--identity").arg(dir.join("id"));
    command
}
