//! Why a command failed, and what it leaves to its caller.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use portcullis_brick::BrickError;
use portcullis_client::ClientError;
use portcullis_client::mount::MountError;
use portcullis_gateway::GatewayError;
use portcullis_policy::PolicyError;
use portcullis_replay::ReplayError;
use portcullis_transport::TransportError;
use thiserror::Error;

/// What a shell reports for a program that SIGPIPE ended: 128 and the signal's number.
const EXIT_PIPE: u8 = 128 + 13;

/// A command that failed.
#[derive(Debug, Error)]
pub(crate) enum CliError {
    /// A request about `subject` failed.
    #[error("{subject}: {source}")]
    Request { subject: String, source: ClientError },
    /// The gateway cannot be reached, or refuses us.
    #[error(transparent)]
    Connect(ClientError),
    /// An identity or endpoint does not work.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The brick cannot start.
    #[error(transparent)]
    Brick(#[from] BrickError),
    /// The gateway cannot start.
    #[error(transparent)]
    Gateway(#[from] GatewayError),
    /// The mount does not come about, or cannot be taken away.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// A policy cannot be used.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A trace cannot be replayed.
    #[error("{path}: {source}")]
    Replay { path: PathBuf, source: ReplayError },
    /// A file or directory of this machine.
    #[error("{path}: {source}")]
    Local { path: PathBuf, source: io::Error },
    /// The system refused something.
    #[error("{what}: {source}")]
    System { what: &'static str, source: io::Error },
    /// Standard output cannot be written to.
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
    /// Something else, said in full.
    #[error("{0}")]
    Said(String),
    /// Each failure was told when it came up.
    #[error("some of it failed")]
    Told,
}

impl CliError {
    /// A failed request about `subject`.
    pub(crate) fn request(subject: &[u8]) -> impl FnOnce(ClientError) -> Self {
        let subject = shown(subject);
        move |source| CliError::Request { subject, source }
    }

    /// Whether nothing that is left to do can succeed: nobody reads the output, or the gateway is
    /// gone. Other failures concern one file.
    pub(crate) fn ends_all(&self) -> bool {
        let gone = |error: &ClientError| {
            matches!(error, ClientError::Connect(_) | ClientError::Resolve { .. })
        };
        match self {
            CliError::Output(_) => true,
            CliError::Request { source, .. } => gone(source),
            CliError::Connect(source) => gone(source),
            _ => false,
        }
    }

    /// Tells the user in one line, and gives the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            CliError::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return ExitCode::from(EXIT_PIPE);
            }
            CliError::Told => {}
            error => complain(&error.to_string()),
        }
        ExitCode::FAILURE
    }
}

/// Writes one line to standard error, whatever `message` contains.
pub(crate) fn complain(message: &str) {
    use io::Write;
    let line: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    // Where standard error is closed there is nobody to tell.
    let _ = writeln!(io::stderr(), "portcullis: {line}");
}

/// A path for a message.
pub(crate) fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
