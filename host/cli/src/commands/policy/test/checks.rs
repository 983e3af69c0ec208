//! What is judged of a component.

use portcullis_policy::CompiledWords;
use portcullis_sdk::testing::{Events, Failed, Kind, LIMITS, SEEDS, Transcript};

use super::subject::Component;
use crate::error::CliError;

/// Memory that a policy may take on in the second half of a drill, in which its host holds no more than
/// in the first: half of what it had, and a megabyte.
const MEMORY_SLACK_BYTES: usize = 1 << 20;

/// One thing that a policy must do.
pub(super) struct Check {
    pub(super) title: &'static str,
    /// Why it does not.
    pub(super) failure: Option<String>,
    /// What was seen, where it does.
    pub(super) detail: String,
}

/// What came of a component.
pub(super) struct Checked {
    pub(super) name: String,
    pub(super) checks: Vec<Check>,
    /// By seed, of those that it passed.
    pub(super) transcripts: Vec<(u64, Transcript)>,
}

/// Runs all of them. A component that does not even start is an error.
pub(super) fn run(compiled: &CompiledWords, config: &[u8]) -> Result<Checked, CliError> {
    let Some(kind) = kind(compiled.kind()) else {
        return Err(CliError::Said(format!("there is no drill for {} policies", compiled.kind())));
    };
    let start = || compiled.start(LIMITS, kind.answers_max(), config);
    let drill = |seed, events| -> Result<_, CliError> {
        let mut component = Component::new(start()?);
        let drilled = kind.drill(seed, events, &mut component);
        Ok((drilled, component.memory_bytes))
    };
    let described = start()?;
    let name = described.name().to_owned();
    let (mut proper, mut twice, mut odd, mut memory) = (None, None, None, None);
    let (mut transcripts, mut most_bytes, mut calls) = (Vec::new(), 0, 0);
    for seed in SEEDS {
        let (first, memory_bytes) = drill(seed, Events::Proper)?;
        calls += memory_bytes.len();
        most_bytes = most_bytes.max(memory_bytes.last().copied().unwrap_or_default());
        memory = memory.or_else(|| growth(&memory_bytes));
        match (first, drill(seed, Events::Proper)?.0) {
            (Ok(first), Ok(second)) => {
                twice = twice.or_else(|| first.difference(&second).map(|what| of(seed, &what)));
                transcripts.push((seed, first));
            }
            (Err(Failed(what)), _) => proper = proper.or_else(|| Some(of(seed, &what))),
            (_, Err(Failed(what))) => twice = twice.or_else(|| Some(of(seed, &what))),
        }
        let (strange, _) = drill(seed, Events::Odd)?;
        odd = odd.or_else(|| strange.err().map(|Failed(what)| of(seed, &what)));
    }
    if transcripts.is_empty() {
        // Nothing was compared.
        twice = twice.or_else(|| Some("no seed is got through with".to_owned()));
    }
    let check = |title, failure, detail| Check { title, failure, detail };
    let (kind, seeds) = (kind.name(), SEEDS.len());
    let checks = vec![
        check("it starts", None, format!("{kind} policy {name} {}", described.version())),
        check("its answers keep to the interface", proper, format!("{seeds} seeds, {calls} calls")),
        check("it does the same for the same events", twice, format!("{seeds} seeds, twice each")),
        check("it bears events that it does not know", odd, format!("{seeds} seeds")),
        check("its memory is bounded", memory, format!("{most_bytes} bytes at most")),
    ];
    Ok(Checked { name, checks, transcripts })
}

fn kind(name: &str) -> Option<Kind> {
    [Kind::Eviction, Kind::Prefetch, Kind::Inlining].into_iter().find(|kind| kind.name() == name)
}

fn of(seed: u64, what: &str) -> String {
    format!("seed {seed}: {what}")
}

/// What is wrong with how memory grew, a number for each call.
fn growth(memory_bytes: &[usize]) -> Option<String> {
    let half = *memory_bytes.get(memory_bytes.len() / 2)?;
    let end = *memory_bytes.last()?;
    // What grows evenly has doubled since. What was bounded then may still round up.
    (end > half + half / 2 + MEMORY_SLACK_BYTES).then(|| {
        format!("{half} bytes after half of the calls and {end} after all, with no more to know")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_goes_on_growing_is_found() {
        let flat = [1 << 20; 100];
        assert_eq!(growth(&flat), None);
        let leaking: Vec<usize> = (0..100).map(|call| call << 17).collect();
        assert!(growth(&leaking).is_some_and(|what| what.contains("after all")));
        assert_eq!(growth(&[]), None);
    }
}
