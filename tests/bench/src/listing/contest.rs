//! Who does the work, alternating rounds and their minimum, and counting requests.
//!
//! Each round chills everyone in turn and has them do the work twice: cold and again. Requests are
//! counted in one more round that is not timed, as counting costs something; the same round
//! counts the lines that everyone prints.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use portcullis_wire::stats::EvictionStats;

use super::fuse_requests::FuseRequests;
use super::report::Report;
use super::row::shown;

/// Who has taken so long for a row is not asked again; how often it was is in the table.
const LIMIT: Duration = Duration::from_secs(120);
/// The same for peers.
const PEER_LIMIT: Duration = Duration::from_secs(40);

/// What is done.
#[derive(Clone, Copy, Debug)]
pub enum Work<'a> {
    /// Everything in one directory with its attributes: `ls -lU`.
    List {
        /// Its path from the root.
        dir: &'a str,
    },
    /// A whole tree with the sizes of its files: `find -printf %s`.
    Crawl {
        /// Its path from the root; may be empty.
        dir: &'a str,
    },
}

impl Work<'_> {
    /// The command that does it below `root`.
    pub fn command(self, root: &Path) -> Command {
        match self {
            Work::List { dir } => {
                let mut command = Command::new("ls");
                command.arg("-lU").arg(root.join(dir));
                command
            }
            Work::Crawl { dir } => {
                let mut command = Command::new("find");
                command.arg(root.join(dir)).args(["-printf", "%s\\n"]);
                command
            }
        }
    }

    /// Its path from the root.
    pub fn dir(&self) -> &str {
        match self {
            Work::List { dir } | Work::Crawl { dir } => dir,
        }
    }
}

/// One that does the work.
pub trait Contestant {
    /// As the table calls it.
    fn name(&self) -> String;

    /// Forgets everything that can be forgotten: a fresh mount, an empty cache.
    ///
    /// # Errors
    /// Why a peer could not be started again.
    fn chill(&mut self) -> Result<(), String>;

    /// The command that does `work`.
    fn command(&self, work: Work<'_>) -> Command;

    /// Where its FUSE mount is, if it has one.
    fn mountpoint(&self) -> Option<&Path> {
        None
    }

    /// Requests that its bricks were sent so far, if it can tell.
    fn brick_requests(&self) -> Option<u64> {
        None
    }

    /// The eviction policy of its gateway, if it has one.
    fn policy(&self) -> Option<EvictionStats> {
        None
    }

    /// How many lines it prints where a find(1) of the same prints `lines`.
    fn lines(&self, lines: usize) -> usize {
        lines
    }

    /// Whether this is another system, which may be given up for taking too long.
    fn is_peer(&self) -> bool {
        false
    }

    /// How long its rounds may take together before it is asked no more.
    fn limit(&self) -> Duration {
        if self.is_peer() { PEER_LIMIT } else { LIMIT }
    }
}

/// The least times of one contestant, and requests.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// As the table calls it.
    pub name: String,
    /// Right after it was chilled.
    pub cold: Duration,
    /// Once more.
    pub again: Duration,
    /// How often it was measured.
    pub rounds: usize,
    /// FUSE requests cold and again, where they can be counted.
    pub fuse: Option<[u64; 2]>,
    /// Requests to bricks cold and again, where they can be told.
    pub bricks: Option<[u64; 2]>,
    /// Lines that it printed.
    pub lines: usize,
    /// Why it is out, if it is.
    failure: Option<String>,
}

/// Measures everyone at `work`, which prints `lines` lines. Who prints another number of lines is
/// left out by name. The first is the one that the others are compared with; without it there is no
/// outcome.
pub fn run(
    report: &mut Report,
    contestants: &mut [Box<dyn Contestant + '_>],
    work: Work<'_>,
    lines: usize,
    rounds: usize,
) -> Vec<Outcome> {
    let mut outcomes: Vec<Outcome> =
        contestants.iter().map(|who| Outcome::named(&who.name())).collect();
    for _ in 0..rounds {
        for (who, outcome) in contestants.iter_mut().zip(&mut outcomes) {
            outcome.round(&mut **who, work);
        }
    }
    let mut kept = Vec::new();
    for (nth, (who, outcome)) in contestants.iter_mut().zip(outcomes).enumerate() {
        match outcome.counted(&mut **who, work, lines) {
            Ok(outcome) => {
                who.policy().iter().for_each(|policy| report.note_policy(policy));
                kept.push(outcome);
            }
            Err(why) => {
                report.leave_out(&format!("{} at {work:?}", who.name()), &why);
                // Without the first there is nothing to compare.
                if nth == 0 {
                    return Vec::new();
                }
            }
        }
    }
    kept
}

/// How long `command` takes, whose output goes nowhere.
///
/// # Errors
/// It fails.
pub fn time(command: &mut Command) -> Result<Duration, String> {
    let start = Instant::now();
    let status = command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null()).status();
    let took = start.elapsed();
    match status {
        Ok(status) if status.success() => Ok(took),
        Ok(status) => Err(format!("{command:?}: {status}")),
        Err(error) => Err(format!("{command:?}: {error}")),
    }
}

impl Outcome {
    /// Nothing measured yet.
    pub(super) fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            cold: Duration::MAX,
            again: Duration::MAX,
            rounds: 0,
            fuse: None,
            bricks: None,
            lines: 0,
            failure: None,
        }
    }

    /// A round, unless it failed before or has taken too long.
    fn round(&mut self, who: &mut dyn Contestant, work: Work<'_>) {
        if self.failure.is_some() || self.spent() > who.limit() {
            return;
        }
        let mut passes = || {
            who.chill()?;
            Ok((time(&mut who.command(work))?, time(&mut who.command(work))?))
        };
        match passes() {
            Ok((cold, again)) => self.add(cold, again),
            Err(why) => self.failure = Some(why),
        }
    }

    /// The outcome with requests and lines, of which there must be `lines`. Who was too slow for its
    /// rounds is not asked once more if it is a peer.
    fn counted(
        mut self,
        who: &mut dyn Contestant,
        work: Work<'_>,
        lines: usize,
    ) -> Result<Self, String> {
        if let Some(why) = self.failure {
            return Err(why);
        }
        if self.spent() <= who.limit() || !who.is_peer() {
            self.count(who, work)?;
            let expected = who.lines(lines);
            if self.lines != expected {
                return Err(format!("it printed {} lines of {expected}", self.lines));
            }
        }
        eprintln!("  {}: {}", work.dir(), self.line());
        Ok(self)
    }

    fn add(&mut self, cold: Duration, again: Duration) {
        self.cold = self.cold.min(cold);
        self.again = self.again.min(again);
        self.rounds += 1;
    }

    /// At least.
    fn spent(&self) -> Duration {
        let rounds = self.rounds as u32;
        if rounds == 0 { Duration::ZERO } else { (self.cold + self.again) * rounds }
    }

    /// One more round, for the requests and the lines.
    fn count(&mut self, who: &mut dyn Contestant, work: Work<'_>) -> Result<(), String> {
        who.chill()?;
        let mut fuse = who.mountpoint().and_then(FuseRequests::of);
        let mut pass = || {
            let before = who.brick_requests();
            if let Some(fuse) = &mut fuse {
                fuse.begin();
            }
            let output = who.command(work).env("LC_ALL", "C").output().expect("it starts");
            let sent = fuse.as_mut().map(FuseRequests::end);
            let is_listing =
                matches!(work, Work::List { .. }) && output.stdout.starts_with(b"total ");
            let lines = output.stdout.iter().filter(|&&byte| byte == b'\n').count();
            let asked = before.zip(who.brick_requests()).map(|(before, after)| after - before);
            (lines - usize::from(is_listing), sent, asked)
        };
        let (cold, again) = (pass(), pass());
        self.lines = cold.0.min(again.0);
        self.fuse = cold.1.zip(again.1).map(|(cold, again)| [cold, again]);
        self.bricks = cold.2.zip(again.2).map(|(cold, again)| [cold, again]);
        Ok(())
    }

    fn line(&self) -> String {
        format!(
            "{} {} cold, {} again ({} rounds, {} lines, FUSE {:?}, bricks {:?})",
            self.name,
            shown(self.cold),
            shown(self.again),
            self.rounds,
            self.lines,
            self.fuse,
            self.bricks
        )
    }
}
