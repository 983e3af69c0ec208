//! A policy put through a drill: the same seeded events natively, in a test of its author, and as the
//! component, by `portcullis policy test`.
//!
//! A [`Subject`] is a policy that takes words, natively ([`words`](crate::words)) or as a component. The
//! drill of each kind ([`evict`], [`walk`], [`count`]) is a small host that plays events made of a seed,
//! holds the answers against the rules of the interface (`wit/README.md`) and writes them down: the
//! [`Transcript`]. Two transcripts of one seed are equal, or the policy does not do the same for the same
//! events. What must hold: a drill depends on its seed and on the answers, and on nothing else.
//!
//! An author's tests call [`eviction`], [`prefetch`] or [`inlining`], which do all that can be done
//! without the component. Where the environment variable [`TRANSCRIPTS`] names a file, as it does when
//! `portcullis policy test DIR` runs the tests of a project, they also compare with what the component
//! answered.

mod chance;
mod count;
mod evict;
mod walk;

use std::convert::Infallible;
use std::fmt::{self, Display, Write};

use portcullis_core::eviction::{EvictionPolicy, PolicyLimits};
use portcullis_core::inlining::InliningPolicy;
use portcullis_core::limits::{POLICY_PREFETCH_ANSWERS_MAX, POLICY_RULES_MAX, POLICY_VICTIMS_MAX};
use portcullis_core::prefetch::PrefetchPolicy;

use crate::Policy;
use crate::words::{EvictionWords, InliningWords, PrefetchWords};

/// Names a file with the transcripts of the component.
pub const TRANSCRIPTS: &str = "PORTCULLIS_TRANSCRIPTS";
/// The seeds of a test.
pub const SEEDS: [u64; 3] = [1, 2, 3];
/// The limits in a drill.
pub const LIMITS: PolicyLimits = PolicyLimits { capacity_bytes: 1 << 20, seed: 1 };

/// What a policy decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What leaves.
    Eviction,
    /// What is listed ahead.
    Prefetch,
    /// What travels along.
    Inlining,
}

/// A call into a policy, in words.
#[derive(Clone, Copy, Debug)]
pub enum Call<'a> {
    /// Events of an eviction or a prefetch policy.
    OnEvents {
        /// Packed.
        words: &'a [u64],
    },
    /// Victims, or what is wanted for a client.
    Propose {
        /// The client of a prefetch policy.
        client: u32,
        /// At most so many.
        want: u32,
    },
    /// Rules of an inlining policy.
    Rules {
        /// Packed statistics.
        words: &'a [u64],
    },
}

/// A policy that takes words: natively, or as a component.
pub trait Subject {
    /// How it fails.
    type Error: Display;

    /// Enters it. A call without an answer answers nothing, as does one of another kind.
    ///
    /// # Errors
    /// What it did wrong; it is not called again.
    fn call(&mut self, now_ms: u64, call: Call<'_>) -> Result<Vec<u64>, Self::Error>;
}

/// What a policy answered, a line a call.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Transcript(String);

/// A drill that a policy did not pass.
#[derive(Debug, PartialEq, Eq)]
pub struct Failed(pub String);

/// How hard a drill is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Events {
    /// As a host tells them.
    Proper,
    /// With kinds, ids and numbers among them that no host of this version tells.
    Odd,
}

impl Kind {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Eviction => "eviction",
            Kind::Prefetch => "prefetch",
            Kind::Inlining => "inlining",
        }
    }

    /// Answers that a policy of this kind may give in one call.
    pub const fn answers_max(self) -> usize {
        match self {
            Kind::Eviction => POLICY_VICTIMS_MAX,
            Kind::Prefetch => POLICY_PREFETCH_ANSWERS_MAX,
            Kind::Inlining => POLICY_RULES_MAX,
        }
    }

    /// Puts a policy through the drill of this kind.
    ///
    /// # Errors
    /// Where it broke a rule, and which.
    pub fn drill<S: Subject>(
        self,
        seed: u64,
        events: Events,
        subject: &mut S,
    ) -> Result<Transcript, Failed> {
        match self {
            Kind::Eviction => evict::drill(seed, events, subject),
            Kind::Prefetch => walk::drill(seed, events, subject),
            Kind::Inlining => count::drill(seed, events, subject),
        }
    }
}

impl Transcript {
    /// Its lines.
    pub fn text(&self) -> &str {
        &self.0
    }

    fn write(&mut self, what: fmt::Arguments<'_>, answer: &[u64]) {
        // Writing to a string does not fail.
        let _ = write!(self.0, "{what}:");
        for word in answer {
            let _ = write!(self.0, " {word:x}");
        }
        self.0.push('\n');
    }

    /// Where it differs from another one first, `None` where it does not.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let lines = |text: &Self| text.0.lines().map(str::to_owned).collect::<Vec<_>>();
        let (ours, theirs) = (lines(self), lines(other));
        let differ = |at: &usize| ours.get(*at) != theirs.get(*at);
        let at = (0..ours.len().max(theirs.len())).find(differ)?;
        let line =
            |lines: &[String]| lines.get(at).cloned().unwrap_or_else(|| "(ended)".to_owned());
        Some(format!("answer {}: {} and {}", at + 1, line(&ours), line(&theirs)))
    }
}

impl fmt::Debug for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transcript({} answers)", self.0.lines().count())
    }
}

impl Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}

/// Words of several transcripts in one file: each begins with a line `# SEED`.
pub fn write_transcripts<'a>(
    transcripts: impl IntoIterator<Item = (u64, &'a Transcript)>,
) -> String {
    let mut text = String::new();
    for (seed, transcript) in transcripts {
        let _ = writeln!(text, "# {seed}");
        text.push_str(&transcript.0);
    }
    text
}

/// The transcript of a seed in such a file.
fn read_transcript(text: &str, seed: u64) -> Option<Transcript> {
    let title = format!("# {seed}");
    let mut lines = text.lines().skip_while(|line| *line != title);
    lines.next()?;
    let lines = lines.take_while(|line| !line.starts_with('#'));
    Some(Transcript(lines.fold(String::new(), |text, line| text + line + "\n")))
}

/// Tests an eviction policy natively: that it keeps to the interface, whatever it is told, and does the
/// same for the same events.
///
/// # Panics
/// If it does not: this is for tests.
#[track_caller]
pub fn eviction<P: Policy + EvictionPolicy>(config: &[u8]) {
    let answers_max = Kind::Eviction.answers_max();
    check(Kind::Eviction, || EvictionWords::<P>::new(LIMITS, answers_max, config));
}

/// Tests a prefetch policy natively, as [`eviction`] does.
///
/// # Panics
/// If it does not: this is for tests.
#[track_caller]
pub fn prefetch<P: Policy + PrefetchPolicy>(config: &[u8]) {
    let answers_max = Kind::Prefetch.answers_max();
    check(Kind::Prefetch, || PrefetchWords::<P>::new(LIMITS, answers_max, config));
}

/// Tests an inlining policy natively, as [`eviction`] does.
///
/// # Panics
/// If it does not: this is for tests.
#[track_caller]
pub fn inlining<P: Policy + InliningPolicy>(config: &[u8]) {
    let answers_max = Kind::Inlining.answers_max();
    check(Kind::Inlining, || InliningWords::<P>::new(LIMITS, answers_max, config));
}

#[track_caller]
#[expect(clippy::panic, reason = "this is how a test fails")]
fn check<S: Subject>(kind: Kind, make: impl Fn() -> Result<S, String>) {
    let run = |seed, events| {
        let mut subject = make().expect("the policy takes this configuration");
        let drilled = kind.drill(seed, events, &mut subject);
        drilled.unwrap_or_else(|failed| panic!("seed {seed}, {events:?} events: {failed}"))
    };
    let component = std::env::var_os(TRANSCRIPTS).map(|path| {
        let text = std::fs::read_to_string(&path);
        text.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    });
    for seed in SEEDS {
        for events in [Events::Proper, Events::Odd] {
            let (first, second) = (run(seed, events), run(seed, events));
            let difference = first.difference(&second);
            assert!(difference.is_none(), "seed {seed}: not the same twice: {difference:?}");
            if events == Events::Proper
                && let Some(text) = &component
            {
                let theirs = read_transcript(text, seed).unwrap_or_default();
                let difference = first.difference(&theirs);
                let what = "natively and as the component";
                assert!(difference.is_none(), "seed {seed}: not the same {what}: {difference:?}");
            }
        }
    }
}

impl<P: Policy + EvictionPolicy> Subject for EvictionWords<P> {
    type Error = Infallible;

    fn call(&mut self, now_ms: u64, call: Call<'_>) -> Result<Vec<u64>, Infallible> {
        Ok(match call {
            Call::OnEvents { words } => {
                self.on_events(now_ms, words);
                Vec::new()
            }
            Call::Propose { want, .. } => self.propose(now_ms, want),
            Call::Rules { .. } => Vec::new(),
        })
    }
}

impl<P: Policy + PrefetchPolicy> Subject for PrefetchWords<P> {
    type Error = Infallible;

    fn call(&mut self, now_ms: u64, call: Call<'_>) -> Result<Vec<u64>, Infallible> {
        Ok(match call {
            Call::OnEvents { words } => {
                self.on_events(now_ms, words);
                Vec::new()
            }
            Call::Propose { client, want } => self.propose(now_ms, client, want),
            Call::Rules { .. } => Vec::new(),
        })
    }
}

impl<P: Policy + InliningPolicy> Subject for InliningWords<P> {
    type Error = Infallible;

    fn call(&mut self, now_ms: u64, call: Call<'_>) -> Result<Vec<u64>, Infallible> {
        Ok(match call {
            Call::Rules { words } => self.rules(now_ms, words),
            Call::OnEvents { .. } | Call::Propose { .. } => Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests;
