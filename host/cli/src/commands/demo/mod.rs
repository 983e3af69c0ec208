//! `portcullis demo [DIR]`: brick, gateway and client in one process, over real QUIC on loopback.
//!
//! The tree is walked locally ([`local`]) and twice through Portcullis, and each pass is compared
//! with the local walk, entry by entry ([`mod@compare`]).

mod compare;
mod local;

use std::path::{Path, PathBuf};
use std::time::Instant;

use portcullis_client::{Address, Client, ClientOptions, Step, Walk, WalkLimits};
use portcullis_transport::{IdentitySet, Role};
use portcullis_wire::stats::{CacheStats, EvictionStats, GatewayStats};
use serde::Serialize;

use self::compare::compare;
use self::local::{Facts, Tree};
use crate::commands::serve::Served;
use crate::error::{CliError, complain};
use crate::json::push_line;
use crate::output::Output;
use crate::progress::Progress;
use crate::units::{parse_size, show_bytes};

/// Entries that make a tree worth showing.
const TREE_LEN_MIN: usize = 1000;
/// Hexadecimal digits of the policy's digest in the table.
const DIGEST_SHOWN: usize = 12;

/// Walk a tree of this machine twice through brick, gateway and client, and compare
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The tree; by default a source tree found on this machine
    dir: Option<PathBuf>,
    /// Memory for the cache [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    cache_bytes: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What the demo found.
#[derive(Debug, Serialize)]
struct Account {
    dir: String,
    passes: Vec<Pass>,
    policy: EvictionStats,
    equal: bool,
    differences: usize,
    /// The first of them, in words.
    shown: Vec<String>,
}

/// One walk of the tree. The first is a local one, which asks no brick.
#[derive(Debug, Serialize)]
struct Pass {
    name: &'static str,
    entries: usize,
    seconds: f64,
    entries_per_second: f64,
    brick_requests: Option<u64>,
    brick_bytes: Option<u64>,
    /// Of lookups, attributes, link targets and listings together; absent where none was asked.
    hit_ratio: Option<f64>,
}

pub(crate) async fn run(arguments: Arguments) -> Result<(), CliError> {
    let dir = match arguments.dir {
        Some(dir) => dir,
        None => a_source_tree()?,
    };
    let identities = IdentitySet::generate()?;
    let served = Served::start(&identities, dir.clone(), |config| {
        if let Some(bytes) = arguments.cache_bytes {
            config.cache_bytes = bytes;
        }
    })?;
    let account = show(&dir, &identities, &served).await?;
    served.stop().await;
    let mut output = Output::stdout()?;
    if arguments.json {
        push_line(output.buffer(), &account);
    } else {
        output.write(account.table().as_bytes())?;
    }
    output.flush()?;
    if account.equal { Ok(()) } else { Err(CliError::Told) }
}

async fn show(dir: &Path, identities: &IdentitySet, served: &Served) -> Result<Account, CliError> {
    let address = Address::root_of(served.address);
    let connect = async |role| {
        let identity = identities.identity(role)?;
        let options = ClientOptions::default();
        Client::connect(&address, identity, options).await.map_err(CliError::Connect)
    };
    let (client, admin) = (connect(Role::Client).await?, connect(Role::Admin).await?);
    let failed = || CliError::request(address.given());

    let begun = Instant::now();
    let local =
        local::walk(dir).map_err(|source| CliError::Local { path: dir.to_owned(), source })?;
    let mut passes = vec![Pass::timed("local", local.entries.len(), begun)];
    let mut account = Account {
        dir: dir.display().to_string(),
        passes: Vec::new(),
        policy: EvictionStats::default(),
        equal: true,
        differences: 0,
        shown: Vec::new(),
    };
    for (name, label) in [("first", "demo, first pass"), ("again", "demo, second pass")] {
        let before = admin.stats().await.map_err(failed())?;
        let begun = Instant::now();
        let found = walk(&client, label).await?;
        let mut pass = Pass::timed(name, found.entries.len(), begun);
        let after = admin.stats().await.map_err(failed())?;
        pass.count(&before, &after);
        passes.push(pass);
        let differences = compare(dir, name, &local, &found);
        account.differences += differences.count;
        account.shown.extend(differences.shown);
        account.policy = after.eviction;
    }
    account.passes = passes;
    account.equal = account.differences == 0;
    client.close().await;
    admin.close().await;
    Ok(account)
}

/// The tree as it is seen through the gateway.
async fn walk(client: &Client, label: &'static str) -> Result<Tree, CliError> {
    let root = client.resolve(b"").await.map_err(CliError::request(b"/"))?;
    let mut walk = Walk::new(client.clone(), root, b"", WalkLimits::default());
    let mut progress = Progress::alone(label);
    let mut tree = Tree::default();
    while let Some(step) = walk.next().await {
        match step {
            Step::Failed { path, error } => {
                let error = CliError::request(path)(error);
                if error.ends_all() {
                    return Err(error);
                }
                progress.suspend(|| complain(&error.to_string()));
                tree.unlisted.push(path.strip_prefix(b"/").unwrap_or(path).to_vec());
            }
            Step::Visit(visit) => {
                let path = visit.relative();
                let attr = match visit.entry.attr {
                    Some(attr) => attr,
                    None => {
                        let attr = client.getattr(&visit.entry.handle).await;
                        attr.map_err(CliError::request(visit.path))?
                    }
                };
                tree.entries.push((path.to_vec(), Facts::of_attr(&attr, visit.entry.target)));
                progress.entry(0);
            }
        }
    }
    Ok(tree)
}

/// A tree that most machines have, large enough to show something.
fn a_source_tree() -> Result<PathBuf, CliError> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let cargo = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| home.map(|home| home.join(".cargo")));
    let registry = cargo.map(|cargo| cargo.join("registry/src"));
    let others = ["/usr/src", "/usr/include", "/usr/share/doc", "/usr/share", "/usr/lib"];
    registry
        .into_iter()
        .chain(others.map(PathBuf::from))
        .find(|dir| is_worth_showing(dir))
        .ok_or_else(|| CliError::Said("no source tree found here: name one, demo DIR".into()))
}

fn is_worth_showing(dir: &Path) -> bool {
    let (mut ahead, mut entries) = (vec![dir.to_owned()], 0);
    while let Some(dir) = ahead.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            entries += 1;
            if entries >= TREE_LEN_MIN {
                return true;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                ahead.push(entry.path());
            }
        }
    }
    false
}

impl Pass {
    fn timed(name: &'static str, entries: usize, begun: Instant) -> Self {
        let seconds = begun.elapsed().as_secs_f64();
        Self {
            name,
            entries,
            seconds,
            entries_per_second: entries as f64 / seconds,
            brick_requests: None,
            brick_bytes: None,
            hit_ratio: None,
        }
    }

    /// What the gateway counted between two accounts of itself.
    fn count(&mut self, before: &GatewayStats, after: &GatewayStats) {
        let requests = |stats: &GatewayStats| -> u64 {
            stats.bricks.iter().flat_map(|brick| brick.requests.values()).sum()
        };
        let bytes = |stats: &GatewayStats| -> u64 {
            stats.bricks.iter().map(|brick| brick.received_bytes).sum()
        };
        self.brick_requests = Some(requests(after).saturating_sub(requests(before)));
        self.brick_bytes = Some(bytes(after).saturating_sub(bytes(before)));
        let hits = hits(&after.cache).saturating_sub(hits(&before.cache));
        let misses = misses(&after.cache).saturating_sub(misses(&before.cache));
        self.hit_ratio = (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64);
    }
}

fn hits(cache: &CacheStats) -> u64 {
    cache.lookup_hits
        + cache.negative_hits
        + cache.getattr_hits
        + cache.readlink_hits
        + cache.list_hits
}

fn misses(cache: &CacheStats) -> u64 {
    cache.lookup_misses + cache.getattr_misses + cache.readlink_misses + cache.list_misses
}

impl Account {
    fn table(&self) -> String {
        let mut table = format!("{} through brick, gateway and client, over QUIC\n\n", self.dir);
        table.push_str(
            "pass    entries   seconds   entries/s   brick requests   brick bytes   hit ratio\n",
        );
        for pass in &self.passes {
            let or_none = |value: Option<String>| value.unwrap_or_else(|| "-".into());
            table.push_str(&format!(
                "{:5}  {:8}  {:8.3}  {:10.0}  {:>15}  {:>12}  {:>10}\n",
                pass.name,
                pass.entries,
                pass.seconds,
                pass.entries_per_second,
                or_none(pass.brick_requests.map(|requests| requests.to_string())),
                or_none(pass.brick_bytes.map(show_bytes)),
                or_none(pass.hit_ratio.map(|ratio| format!("{:.1} %", 100.0 * ratio))),
            ));
        }
        table.push_str(&self.verdict());
        table
    }

    fn verdict(&self) -> String {
        let policy = &self.policy;
        let digest = match policy.digest.get(..DIGEST_SHOWN) {
            Some(start) => format!(", sha256 {start}"),
            None => String::new(),
        };
        let mut verdict = format!(
            "\npolicy  {} ({}{digest}), {} calls\n",
            policy.name, policy.kind, policy.calls
        );
        if !policy.fallback_reason.is_empty() {
            verdict.push_str(&format!("        a fallback: {}\n", policy.fallback_reason));
        }
        if self.equal {
            verdict.push_str("equal   yes: every entry of both passes is as it is on disk\n");
            return verdict;
        }
        verdict.push_str(&format!("equal   no: {} differences\n", self.differences));
        for difference in &self.shown {
            verdict.push_str(&format!("        {difference}\n"));
        }
        verdict
    }
}
