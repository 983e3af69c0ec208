//! `portcullis serve DIR`: brick and gateway in one process, for a first try.

use std::net::SocketAddr;
use std::path::PathBuf;

use portcullis_brick::{Brick, BrickConfig};
use portcullis_gateway::{Gateway, GatewayConfig};
use portcullis_transport::{IdentitySet, Role};
use tokio::sync::oneshot;

use crate::error::CliError;
use crate::server::{Stop, print_line, print_ready, resolve};
use crate::units::parse_size;

/// Serve a directory from one process, with an identity that is thrown away at the end
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The directory to serve, read-only
    dir: PathBuf,
    /// Where to listen; port 0 for any
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    listen: String,
    /// Memory for the cache [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    cache_bytes: Option<u64>,
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), CliError> {
    let identities = IdentitySet::generate()?;
    let at = |path: PathBuf| move |source| CliError::Local { path, source };
    // Removed when it is dropped, which is when this function returns.
    let identity_dir = tempfile::Builder::new()
        .prefix("portcullis-")
        .tempdir()
        .map_err(at(std::env::temp_dir()))?;
    identities.write(identity_dir.path())?;
    let stop = Stop::install()?;
    let listen = resolve(&arguments.listen).await?;
    let served = Served::start(&identities, arguments.dir, |config| {
        config.listen = listen;
        if let Some(bytes) = arguments.cache_bytes {
            config.cache_bytes = bytes;
        }
    })?;
    print_ready(served.address)?;
    let identity = identity_dir.path().display();
    print_line(&format!("identity {identity}"))?;
    print_line(&format!("try: portcullis ls pc://{}/ --identity {identity}", served.address))?;
    stop.requested().await;
    served.stop().await;
    Ok(())
}

/// A brick and a gateway in front of it, in this process, over QUIC on loopback.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    stop_gateway: oneshot::Sender<()>,
    stop_brick: oneshot::Sender<()>,
    gateway: tokio::task::JoinHandle<()>,
    brick: tokio::task::JoinHandle<()>,
}

impl Served {
    pub(crate) fn start(
        identities: &IdentitySet,
        dir: PathBuf,
        configure: impl FnOnce(&mut GatewayConfig),
    ) -> Result<Self, CliError> {
        let loopback: SocketAddr = ([127, 0, 0, 1], 0).into();
        let brick =
            Brick::bind(BrickConfig::new(dir, loopback), &identities.identity(Role::Brick)?)?;
        let mut config = GatewayConfig::new(brick.local_addr());
        configure(&mut config);
        let gateway = Gateway::bind(config, &identities.identity(Role::Gateway)?)?;
        let address = gateway.local_addr();
        let (stop_brick, stopped) = oneshot::channel::<()>();
        let brick = tokio::spawn(brick.serve(async { stopped.await.unwrap_or_default() }));
        let (stop_gateway, stopped) = oneshot::channel::<()>();
        let gateway = tokio::spawn(gateway.serve(async { stopped.await.unwrap_or_default() }));
        Ok(Self { address, stop_gateway, stop_brick, gateway, brick })
    }

    /// Finishes what is under way: the gateway first, for it needs the brick to do so.
    pub(crate) async fn stop(self) {
        for (stop, serving) in [(self.stop_gateway, self.gateway), (self.stop_brick, self.brick)] {
            // Either fails only where the server has ended by itself, which it logs.
            let _ = stop.send(());
            let _ = serving.await;
        }
    }
}
