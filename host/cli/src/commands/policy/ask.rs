//! What the commands about the policies of a running gateway share.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use portcullis_client::Address;
use portcullis_core::limits::{POLICY_COMPONENT_LEN_BYTES_MAX, POLICY_CONFIG_LEN_BYTES_MAX};
use portcullis_wire::message::policy::PolicyName;
use portcullis_wire::message::{PolicyCommand, PolicyKind, PolicySource, PolicyStatus};

use crate::error::CliError;
use crate::json::push_line;
use crate::output::Output;
use crate::session::{Connect, address_parser};

/// Bytes of a body sent at once.
const PIECE_LEN_BYTES: usize = 256 * 1024;
/// Digits of a digest that are shown to people.
const DIGEST_SHOWN: usize = 12;

/// Which gateway, and which of its policies.
#[derive(Debug, clap::Args)]
pub(super) struct Target {
    /// The gateway: pc://HOST:PORT/
    #[arg(value_parser = address_parser())]
    address: Address,
    #[command(flatten)]
    connect: Connect,
    /// What the policy decides: eviction, prefetch or inlining
    #[arg(long, value_name = "KIND", default_value = "eviction", value_parser = parse_kind)]
    kind: PolicyKind,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A policy, and the gateway that it is sent to.
#[derive(Debug, clap::Args)]
pub(crate) struct Sent {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    source: Source,
}

impl Sent {
    /// Sends it with a command, and shows what came of it.
    pub(super) async fn ask(
        &self,
        command: impl FnOnce(PolicySource, bool) -> PolicyCommand,
        say: impl FnOnce(&PolicyStatus) -> String,
    ) -> Result<(), CliError> {
        let (source, body) = self.source.read()?;
        self.target.ask(command(source, self.source.force), &body, say).await
    }
}

/// Which policy.
#[derive(Debug, clap::Args)]
struct Source {
    /// A component (FILE.wasm), `built-in`, or the name of a native policy
    #[arg(value_name = "POLICY")]
    policy: String,
    /// Configuration of the component; without it one that has the name of the active policy keeps
    /// that one's
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Also where it is quarantined
    #[arg(long)]
    force: bool,
}

impl Source {
    /// What to ask for, and what follows the request.
    fn read(&self) -> Result<(PolicySource, Vec<Bytes>), CliError> {
        let named = &self.policy;
        if !named.contains('/') && !named.ends_with(".wasm") {
            if self.config.is_some() {
                let what = format!("{named} is no component: it takes no --config");
                return Err(CliError::Said(what));
            }
            let source = match named.as_str() {
                "built-in" => PolicySource::BuiltIn,
                _ => PolicySource::Native { name: named.clone() },
            };
            return Ok((source, Vec::new()));
        }
        let mut body = read(Path::new(named), POLICY_COMPONENT_LEN_BYTES_MAX)?;
        let len_bytes = body.len() as u32;
        let mut config_len_bytes = None;
        if let Some(config) = &self.config {
            body.extend(read(config, POLICY_CONFIG_LEN_BYTES_MAX)?);
            config_len_bytes = Some(body.len() as u32 - len_bytes);
        }
        let source = PolicySource::Component { name: named.clone(), len_bytes, config_len_bytes };
        let body = Bytes::from(body);
        let pieces = (0..body.len()).step_by(PIECE_LEN_BYTES);
        let piece = |at: usize| body.slice(at..body.len().min(at + PIECE_LEN_BYTES));
        Ok((source, pieces.map(piece).collect()))
    }
}

impl Target {
    /// Asks, and shows how the policies stand then; `say` is the first line for people.
    pub(super) async fn ask(
        &self,
        command: PolicyCommand,
        body: &[Bytes],
        say: impl FnOnce(&PolicyStatus) -> String,
    ) -> Result<(), CliError> {
        let Self { address, connect, kind, json } = self;
        let status = connect.policy(address, *kind, command, body).await?;
        let mut output = Output::stdout()?;
        if *json {
            push_line(output.buffer(), &status);
        } else {
            output.write(say(&status).as_bytes())?;
            output.write(table(&status).as_bytes())?;
        }
        output.flush()
    }
}

/// A policy in a few words.
pub(super) fn named(policy: &PolicyName) -> String {
    let PolicyName { name, version, kind, digest, config_digest } = policy;
    let mut named = format!("{name} {version} ({kind}");
    for (what, digest) in [("sha256", digest), ("config", config_digest)] {
        if let Some(start) = digest.get(..DIGEST_SHOWN) {
            named += &format!(", {what} {start}");
        }
    }
    named + ")"
}

/// How the policies stand, one thing a line.
fn table(status: &PolicyStatus) -> String {
    let mut rows = vec![(
        status.kind.name(),
        format!("{}, for {} s", named(&status.active), status.active_ms / 1_000),
    )];
    if !status.fallback_reason.is_empty() {
        rows.push(("  stands in", status.fallback_reason.clone()));
    }
    if status.panic {
        rows.push(("  panic switch", "on: native policies until `policy swap`".to_owned()));
    }
    rows.push((
        "  calls",
        format!(
            "{}; {} faults, {} swaps since the gateway started",
            status.calls, status.faults, status.swaps
        ),
    ));
    if status.strikes > 0 {
        rows.push(("  strikes", format!("{} in the last minute", status.strikes)));
    }
    if let Some(previous) = &status.previous {
        let warm = match previous.warm_ms {
            0 => "it would learn what is resident anew".to_owned(),
            warm_ms => format!("kept at work for {} s", warm_ms.div_ceil(1_000)),
        };
        rows.push(("  before", format!("{}; {warm}", named(&previous.policy))));
    }
    for one in &status.quarantined {
        rows.push(("  quarantined", format!("sha256 {}: it {}", one.digest, one.reason)));
    }
    if !status.last_refusal.is_empty() {
        rows.push(("  last refusal", status.last_refusal.clone()));
    }
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    rows.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect()
}

fn parse_kind(given: &str) -> Result<PolicyKind, String> {
    let known = PolicyKind::ALL.into_iter().find(|kind| kind.name() == given);
    known.ok_or_else(|| "give eviction, prefetch or inlining".to_owned())
}

/// Reads a file of at most so many bytes.
pub(crate) fn read(path: &Path, len_bytes_max: usize) -> Result<Vec<u8>, CliError> {
    let at = |source| CliError::Local { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(at)?;
    file.take(len_bytes_max as u64 + 1).read_to_end(&mut bytes).map_err(at)?;
    if bytes.len() > len_bytes_max {
        let what = format!("{}: is larger than {len_bytes_max} bytes", path.display());
        return Err(CliError::Said(what));
    }
    Ok(bytes)
}
