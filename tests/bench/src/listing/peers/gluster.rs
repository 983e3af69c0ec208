//! A GlusterFS volume on this machine: a management daemon and brick processes in a network
//! namespace of their own (glusterd refuses loopback addresses), their state in a temporary
//! directory. Mounts are made from volume files, one kept for each setting, so that settings
//! alternate without a change of the volume.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use portcullis_suite::mounted::is_mounted;
use tempfile::TempDir;

use super::mounted::{Mounting, PeerMount};
use super::{in_time, missing, quietly};

const VOLUME: &str = "portcullis-peer";
/// Where every glusterd listens, whatever it is told.
const SOCKET: &str = "/var/run/glusterd.socket";
/// The two ends of the pair of interfaces that joins the namespace.
const HERE: &str = "10.77.1.1/24";
const THERE: &str = "10.77.1.2";
/// Settings that listings are tried with; the best counts.
const SETTINGS: [(&str, &[&str]); 3] = [
    ("as created", &[]),
    ("readdir-ahead", &["performance.readdir-ahead", "on"]),
    (
        "parallel-readdir",
        &["performance.readdir-ahead", "on", "performance.parallel-readdir", "on"],
    ),
];

/// A started volume. Dropping it ends its processes and removes it.
#[derive(Debug)]
pub struct Gluster {
    namespace: String,
    state: TempDir,
    daemon: Option<Child>,
}

impl Gluster {
    /// A distribute volume of so many bricks; `plant` fills it, given the place where it is mounted.
    ///
    /// # Errors
    /// Why it cannot be run here.
    pub fn start(bricks: usize, plant: impl FnOnce(&Path)) -> Result<Self, String> {
        if let Some(why) = missing(&["glusterd", "gluster", "glusterfs", "ip", "umount"]) {
            return Err(why);
        }
        if UnixStream::connect(SOCKET).is_ok() {
            return Err("a glusterd runs on this machine, and there can be one only".to_owned());
        }
        let state = tempfile::tempdir().map_err(|error| error.to_string())?;
        let namespace = format!("pc-bench-{}", std::process::id());
        let mut peer = Self { namespace, state, daemon: None };
        peer.serve()?;
        peer.create(bricks)?;
        let mount = PeerMount::new(GlusterSetting::of(&peer, 0))?;
        mount.mount()?;
        plant(mount.path());
        Ok(peer)
    }

    /// A contestant for each setting.
    ///
    /// # Errors
    /// No temporary directory is to be had.
    pub fn mounts(&self) -> Result<Vec<PeerMount<GlusterSetting>>, String> {
        let settings = 0..SETTINGS.len();
        settings.map(|setting| PeerMount::new(GlusterSetting::of(self, setting))).collect()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.state.path().join(name)
    }

    /// Makes the namespace and starts glusterd in it.
    fn serve(&mut self) -> Result<(), String> {
        let ns = self.namespace.as_str();
        // Names of interfaces have 15 bytes at most.
        let (here, there) = (format!("pcb{}h", std::process::id()), "pcb-there");
        for words in [
            vec!["netns", "add", ns],
            vec!["link", "add", &here, "type", "veth", "peer", "name", there, "netns", ns],
            vec!["addr", "add", HERE, "dev", &here],
            vec!["link", "set", &here, "up"],
            vec!["-n", ns, "addr", "add", &format!("{THERE}/24"), "dev", there],
            vec!["-n", ns, "link", "set", there, "up"],
            vec!["-n", ns, "link", "set", "lo", "up"],
        ] {
            quietly(Command::new("ip").args(words))?;
        }
        for dir in ["work", "run", "log"] {
            fs::create_dir(self.path(dir)).map_err(|error| error.to_string())?;
        }
        let volfile = format!(
            "volume management\n type mgmt/glusterd\n option working-directory {}\n \
             option run-directory {}\n option transport-type socket\n \
             option transport.socket.listen-port 24007\nend-volume\n",
            self.path("work").display(),
            self.path("run").display()
        );
        fs::write(self.path("glusterd.vol"), volfile).map_err(|error| error.to_string())?;
        let mut daemon = self.inside("glusterd");
        daemon.arg("-N").arg("--volfile").arg(self.path("glusterd.vol"));
        daemon.arg("--log-file").arg(self.path("log/glusterd.log"));
        daemon.arg("--pid-file").arg(self.path("glusterd.pid"));
        daemon.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.daemon = Some(daemon.spawn().map_err(|error| error.to_string())?);
        in_time(|| self.gluster(&["pool", "list"]))
    }

    /// Creates and starts the volume, and keeps a volume file for each setting.
    fn create(&self, bricks: usize) -> Result<(), String> {
        let paths: Vec<String> = (0..bricks)
            .map(|brick| format!("{THERE}:{}", self.path(&format!("brick-{brick}")).display()))
            .collect();
        let mut words = vec!["volume", "create", VOLUME, "transport", "tcp"];
        words.extend(paths.iter().map(String::as_str));
        words.push("force");
        self.gluster(&words)?;
        self.gluster(&["volume", "start", VOLUME])?;
        for (setting, (_, options)) in SETTINGS.iter().enumerate() {
            for pair in options.chunks(2) {
                self.gluster(&["volume", "set", VOLUME, pair[0], pair[1]])?;
            }
            let made = format!("work/vols/{VOLUME}/trusted-{VOLUME}.tcp-fuse.vol");
            fs::copy(self.path(&made), self.volfile(setting)).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn volfile(&self, setting: usize) -> PathBuf {
        self.path(&format!("{setting}.vol"))
    }

    fn gluster(&self, words: &[&str]) -> Result<(), String> {
        let mut command = self.inside("gluster");
        command.arg("--mode=script");
        command.arg(format!("--log-file={}", self.path("log/cli.log").display()));
        quietly(command.args(words))
    }

    /// A program in the namespace.
    fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace, program]);
        command
    }
}

impl Drop for Gluster {
    fn drop(&mut self) {
        // Nobody else has anything in this namespace, so whatever runs there is ours.
        let listed = Command::new("ip").args(["netns", "pids", &self.namespace]).output();
        let listed = listed.map(|output| output.stdout).unwrap_or_default();
        for pid in String::from_utf8_lossy(&listed).split_whitespace() {
            let _ = Command::new("kill").args(["-KILL", pid]).status();
        }
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.wait();
        }
        // The pair of interfaces goes with it.
        let _ = Command::new("ip").args(["netns", "del", &self.namespace]).status();
    }
}

/// The volume with one setting.
#[derive(Debug)]
pub struct GlusterSetting {
    setting: &'static str,
    volfile: PathBuf,
    log: PathBuf,
}

impl GlusterSetting {
    fn of(volume: &Gluster, setting: usize) -> Self {
        Self {
            setting: SETTINGS[setting].0,
            volfile: volume.volfile(setting),
            log: volume.path("log/mount.log"),
        }
    }
}

impl Mounting for GlusterSetting {
    fn name(&self) -> String {
        format!("GlusterFS {}", self.setting)
    }

    fn mount(&self, mountpoint: &Path) -> Result<(), String> {
        let mut command = Command::new("glusterfs");
        command.arg("--volfile").arg(&self.volfile).arg("--log-file").arg(&self.log);
        quietly(command.arg(mountpoint))?;
        in_time(|| {
            let listed = fs::read_dir(mountpoint).map(drop).map_err(|error| error.to_string());
            if is_mounted(mountpoint) { listed } else { Err("GlusterFS does not mount".to_owned()) }
        })
    }
}
