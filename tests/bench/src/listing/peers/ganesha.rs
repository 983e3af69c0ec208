//! NFS-Ganesha exporting a directory on loopback, listed with nfs-ls(1) over NFS version 3.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::{in_time, missing, quietly};
use crate::listing::contest::{Contestant, Work};

const NFS_PORT: u16 = 20_490;
const MOUNT_PORT: u16 = 20_491;
/// Where its programs expect to write.
const RUN_DIR: &str = "/var/run/ganesha";

/// A running server. Chilled, it is started anew.
#[derive(Debug)]
pub struct Ganesha {
    export: PathBuf,
    state: TempDir,
    server: Option<Child>,
    /// Ours only where none was running.
    rpcbind: Option<Child>,
}

impl Ganesha {
    /// Exports `export`.
    ///
    /// # Errors
    /// Why it cannot be run here.
    pub fn start(export: &Path) -> Result<Self, String> {
        if let Some(why) = missing(&["ganesha.nfsd", "nfs-ls", "rpcbind", "rpcinfo"]) {
            return Err(why);
        }
        let state = tempfile::tempdir().map_err(|error| error.to_string())?;
        let export = export.to_owned();
        let mut peer = Self { export, state, server: None, rpcbind: None };
        peer.write_config().map_err(|error| error.to_string())?;
        if quietly(Command::new("rpcinfo").arg("127.0.0.1")).is_err() {
            let mut rpcbind = Command::new("rpcbind");
            peer.rpcbind = Some(spawn(rpcbind.arg("-f"))?);
            in_time(|| quietly(Command::new("rpcinfo").arg("127.0.0.1")))?;
        }
        peer.serve()?;
        Ok(peer)
    }

    fn write_config(&self) -> std::io::Result<()> {
        fs::create_dir_all(RUN_DIR)?;
        let export = self.export.display();
        let config = format!(
            "NFS_CORE_PARAM {{ NFS_Port = {NFS_PORT}; MNT_Port = {MOUNT_PORT}; NLM_Port = 20492; \
             Rquota_Port = 20493; Protocols = 3,4; Bind_addr = 127.0.0.1; }}\n\
             EXPORT {{ Export_Id = 1; Path = {export}; Pseudo = {export}; Access_Type = RW; \
             Squash = No_Root_Squash; SecType = sys; FSAL {{ Name = VFS; }} }}\n\
             LOG {{ Default_Log_Level = WARN; }}\n"
        );
        fs::write(self.state.path().join("conf"), config)
    }

    fn serve(&mut self) -> Result<(), String> {
        let state = |name: &str| self.state.path().join(name);
        let mut command = Command::new("ganesha.nfsd");
        command.arg("-F").arg("-f").arg(state("conf"));
        command.arg("-L").arg(state("log")).arg("-p").arg(state("pid"));
        self.server = Some(spawn(&mut command)?);
        in_time(|| {
            let reached = TcpStream::connect(("127.0.0.1", NFS_PORT));
            reached.map(drop).map_err(|error| format!("NFS-Ganesha does not listen: {error}"))?;
            quietly(&mut self.list(""))
        })
    }

    fn list(&self, dir: &str) -> Command {
        let path = self.export.join(dir);
        let url = format!(
            "nfs://127.0.0.1{}?nfsport={NFS_PORT}&mountport={MOUNT_PORT}&version=3",
            path.display().to_string().trim_end_matches('/')
        );
        let mut command = Command::new("nfs-ls");
        command.arg(url);
        command
    }
}

impl Contestant for Ganesha {
    fn name(&self) -> String {
        "NFS-Ganesha".into()
    }

    fn chill(&mut self) -> Result<(), String> {
        end(&mut self.server);
        self.serve()
    }

    fn command(&self, work: Work<'_>) -> Command {
        self.list(work.dir())
    }

    // The directory itself is not printed.
    fn lines(&self, lines: usize) -> usize {
        lines - 1
    }

    fn is_peer(&self) -> bool {
        true
    }
}

impl Drop for Ganesha {
    fn drop(&mut self) {
        end(&mut self.server);
        end(&mut self.rpcbind);
    }
}

fn spawn(command: &mut Command) -> Result<Child, String> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map_err(|error| format!("{command:?}: {error}"))
}

fn end(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        // Both fail where it has ended by itself.
        let _ = child.kill();
        let _ = child.wait();
    }
}
