//! The drills themselves: each breach of the interface is found.

use super::*;
use crate::inlining::{ClassId, Rule};
use crate::prefetch::{Answer, Crawl, DirId};
use crate::{Event, ObjectId};

/// An eviction policy that does it right, but for one thing.
struct Queue<const WRONG: u8>(Vec<ObjectId>);

impl<const WRONG: u8> Policy for Queue<WRONG> {
    const NAME: &str = "queue";
    const VERSION: &str = "1";

    fn new(_limits: PolicyLimits, _config: &[u8]) -> Result<Self, String> {
        Ok(Self(Vec::new()))
    }
}

const RIGHT: u8 = 0;
const KEEPS_THE_REMOVED: u8 = 1;
const REPEATS: u8 = 2;
const TOO_MANY: u8 = 3;
const NONE: u8 = 4;
const COUNTS_ALL: u8 = 5;

impl<const WRONG: u8> EvictionPolicy for Queue<WRONG> {
    fn on_events(&mut self, _now_ms: u64, events: &[Event]) {
        for event in events {
            match *event {
                Event::Insert { id, .. } | Event::Spare { id } => self.0.push(id),
                Event::Remove { id, .. } if WRONG != KEEPS_THE_REMOVED => {
                    self.0.retain(|&other| other != id);
                }
                Event::Hit { count, .. } if WRONG == COUNTS_ALL => {
                    assert!(count < 1_000, "no object is hit so often");
                }
                Event::Remove { .. } | Event::Hit { .. } => {}
            }
        }
    }

    fn propose(&mut self, _now_ms: u64, want: usize) -> Vec<ObjectId> {
        let count = want.min(self.0.len());
        match WRONG {
            REPEATS => return self.0[..count].to_vec(),
            TOO_MANY => return self.0.drain(..(want + 1).min(self.0.len())).collect(),
            NONE => return Vec::new(),
            _ => {}
        }
        self.0.drain(..count).collect()
    }
}

fn drilled<const WRONG: u8>(events: Events) -> Result<Transcript, Failed> {
    let mut subject = EvictionWords::<Queue<WRONG>>::new(LIMITS, 256, b"").expect("no config");
    Kind::Eviction.drill(1, events, &mut subject)
}

#[track_caller]
fn assert_fails<T: std::fmt::Debug>(result: Result<T, Failed>, words: &str) {
    let Failed(what) = result.expect_err("it is wrong");
    assert!(what.contains(words), "{what}");
}

#[test]
fn each_breach_of_an_eviction_policy_is_found() {
    let transcript = drilled::<RIGHT>(Events::Proper).expect("it is right");
    assert!(transcript.text().lines().count() > 100, "there were proposals");
    drilled::<RIGHT>(Events::Odd).expect("it skips what it does not know");
    assert_fails(drilled::<KEEPS_THE_REMOVED>(Events::Proper), "which is not resident");
    assert_fails(drilled::<REPEATS>(Events::Proper), "was proposed twice");
    assert_fails(drilled::<TOO_MANY>(Events::Proper), "where");
    assert_fails(drilled::<NONE>(Events::Proper), "8 times in a row");
}

#[test]
#[should_panic(expected = "no object is hit so often")]
fn odd_events_reach_a_policy() {
    let _ = drilled::<COUNTS_ALL>(Events::Odd);
}

#[test]
#[should_panic(expected = "not the same twice")]
fn one_that_varies_is_found() {
    let made = std::cell::Cell::new(0_usize);
    check(Kind::Eviction, || {
        made.set(made.get() + 1);
        Ok::<_, String>(Shifted(made.get(), drilled_subject()))
    });
}

fn drilled_subject() -> EvictionWords<Queue<RIGHT>> {
    EvictionWords::new(LIMITS, 256, b"").expect("no config")
}

/// Forgets its last victims, a different number of them in each instance.
struct Shifted(usize, EvictionWords<Queue<RIGHT>>);

impl Subject for Shifted {
    type Error = Infallible;

    fn call(&mut self, now_ms: u64, call: Call<'_>) -> Result<Vec<u64>, Infallible> {
        let mut answer = self.1.call(now_ms, call)?;
        if answer.len() > 1 {
            answer.truncate(answer.len() - self.0 % 2);
        }
        Ok(answer)
    }
}

/// What a prefetch or an inlining policy answers: the same words each time.
struct Answers(Vec<u64>);

impl Subject for Answers {
    type Error = Infallible;

    fn call(&mut self, _now_ms: u64, call: Call<'_>) -> Result<Vec<u64>, Infallible> {
        Ok(if matches!(call, Call::OnEvents { .. }) { Vec::new() } else { self.0.clone() })
    }
}

#[test]
fn each_breach_of_a_prefetch_policy_is_found() {
    let drill = |words: Vec<u64>| Kind::Prefetch.drill(1, Events::Proper, &mut Answers(words));
    drill(Vec::new()).expect("nothing is fine");
    drill(Answer::Cancel(DirId(1)).pack().to_vec()).expect("as is this");
    assert_fails(drill(vec![0]), "1 words were answered");
    assert_fails(drill(vec![9, 1]), "unknown kind: 9");
    assert_fails(drill(Answer::List(DirId(1 << 40)).pack().to_vec()), "was never told");
    assert_fails(drill(Answer::List(DirId(1)).pack().repeat(40)), "40 directories");
    assert_fails(drill(Answer::Cancel(DirId(1)).pack().repeat(3_000)), "6000 words");
}

#[test]
fn each_breach_of_an_inlining_policy_is_found() {
    let drill = |words: Vec<u64>| Kind::Inlining.drill(1, Events::Proper, &mut Answers(words));
    let rule = |class| Rule { class, size_bytes_max: 1 }.pack().to_vec();
    drill(rule(ClassId::ANY)).expect("a rule for all");
    assert_fails(drill(vec![1]), "1 words were answered");
    assert_fails(drill(rule(ClassId(77))), "which was never told");
    assert_fails(drill(rule(ClassId::ANY).repeat(2)), "two rules for class");
}

struct Crawling(Crawl);

impl Policy for Crawling {
    const NAME: &str = "crawling";
    const VERSION: &str = "1";

    fn new(_limits: PolicyLimits, _config: &[u8]) -> Result<Self, String> {
        Ok(Self(Crawl::default()))
    }
}

impl PrefetchPolicy for Crawling {
    fn on_events(&mut self, now_ms: u64, events: &[crate::prefetch::Event]) {
        self.0.on_events(now_ms, events);
    }

    fn propose(&mut self, now_ms: u64, want: usize, answers: &mut Vec<Answer>) {
        self.0.propose(now_ms, want, answers);
    }
}

#[test]
fn a_walk_is_gone_ahead_of() {
    let mut subject = PrefetchWords::<Crawling>::new(LIMITS, 2_048, b"").expect("no config");
    let transcript = Kind::Prefetch.drill(1, Events::Proper, &mut subject).expect("it is right");
    let listed = transcript.text().lines().filter(|line| line.contains(": 0 ")).count();
    assert!(listed > 100, "{listed} answers begin with a directory to be listed");
}

#[test]
fn transcripts_are_read_as_they_were_written_and_told_apart() {
    let mut first = Transcript::default();
    first.write(format_args!("propose 2"), &[1, 255]);
    first.write(format_args!("propose 1"), &[]);
    let mut second = first.clone();
    second.write(format_args!("propose 3"), &[2]);
    let text = write_transcripts([(1, &first), (12, &second)]);
    assert_eq!(read_transcript(&text, 1), Some(first.clone()));
    assert_eq!(read_transcript(&text, 12), Some(second.clone()));
    assert_eq!(read_transcript(&text, 2), None);
    assert_eq!(first.difference(&first), None);
    let difference = first.difference(&second).expect("they differ");
    assert_eq!(difference, "answer 3: (ended) and propose 3: 2");
}
