//! The drill of inlining policies: classes of directories that differ in how much of them is read, over
//! lines that differ, told of in some seconds and not in others.

use std::collections::BTreeSet;

use portcullis_core::inlining::{ClassId, Counts, Rule, Stat};

use super::chance::Chance;
use super::{Call, Events, Failed, Kind, Subject, Transcript};

const CLASSES: u64 = 300;
const SECONDS: u64 = 200;

/// See [`Kind::drill`].
pub(super) fn drill<S: Subject>(
    seed: u64,
    events: Events,
    subject: &mut S,
) -> Result<Transcript, Failed> {
    let mut chance = Chance::new(seed);
    let mut transcript = Transcript::default();
    let mut told = BTreeSet::from([ClassId::ANY]);
    for second in 0..SECONDS {
        let mut words: Vec<u64> = Vec::new();
        for class in 0..CLASSES {
            if chance.one_in(3) {
                let class = ClassId(class * 0x1_0001);
                told.insert(class);
                words.extend(Stat { class, counts: counts(class, events, &mut chance) }.pack());
            }
        }
        if events == Events::Odd {
            // Half a row.
            words.push(chance.word());
        }
        let answer = subject
            .call(second * 1_000, Call::Rules { words: &words })
            .map_err(|error| Failed(format!("rules, with {} words: {error}", words.len())))?;
        transcript.write(format_args!("rules {second}"), &answer);
        judge(&answer, &told)?;
    }
    Ok(transcript)
}

fn counts(class: ClassId, events: Events, chance: &mut Chance) -> Counts {
    if events == Events::Odd && chance.one_in(10) {
        let mut any = || if chance.one_in(2) { u64::MAX } else { chance.word() };
        return Counts {
            delivered: any(),
            read: any(),
            inlined: any(),
            inlined_read: any(),
            inlined_bytes: any(),
            bandwidth_bytes_per_s: any(),
            latency_us: any(),
        };
    }
    let delivered = chance.skewed(10_000);
    // Of some classes nothing is read, of others everything.
    let read = delivered * (class.0 % 5) / 4;
    let inlined = delivered / 2;
    Counts {
        delivered,
        read,
        inlined,
        inlined_read: read / 2,
        inlined_bytes: inlined * 2_000,
        bandwidth_bytes_per_s: 1_000_000 * (1 + class.0 % 3 * 100),
        latency_us: 300 + class.0 % 7 * 3_000,
    }
}

fn judge(answer: &[u64], told: &BTreeSet<ClassId>) -> Result<(), Failed> {
    let (rules, rest) = answer.as_chunks::<{ Rule::WORDS }>();
    let rules_max = Kind::Inlining.answers_max();
    if !rest.is_empty() || rules.len() > rules_max {
        let words = answer.len();
        return Err(Failed(format!(
            "{words} words were answered: two for each of {rules_max} rules at most"
        )));
    }
    let mut ruled = BTreeSet::new();
    for &words in rules {
        let class = Rule::unpack(words).class;
        if !told.contains(&class) {
            return Err(Failed(format!("a rule for class {:#x}, which was never told", class.0)));
        }
        if !ruled.insert(class) {
            return Err(Failed(format!("two rules for class {:#x} in one answer", class.0)));
        }
    }
    Ok(())
}
