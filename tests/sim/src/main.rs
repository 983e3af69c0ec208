//! Runs seeds: `cargo run -p portcullis-sim -- [SEEDS] [--seed N] [--plant NAME]`.
//!
//! One seed prints every packet of its run; several print what each violates, with a planted fault
//! until the first that shows it.

use portcullis_sim::{PLANTS, Plant, World};

fn main() -> std::process::ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let value = |flag: &str| {
        let at = words.iter().position(|word| word == flag)?;
        words.get(at + 1)
    };
    let plant = match value("--plant").map(|name| (name, Plant::named(name))) {
        None => Plant::Nothing,
        Some((_, Some(plant))) => plant,
        Some((name, None)) => {
            eprintln!("no fault is called {name}; there are {PLANTS:?}");
            return 2.into();
        }
    };
    if let Some(seed) = value("--seed").and_then(|seed| seed.parse().ok()) {
        let outcome = World::new(seed, plant, true).run();
        println!("seed {seed}: {outcome:?}");
        return u8::from(!outcome.violations.is_empty()).into();
    }
    let mut failed = 0;
    let seeds = words.first().and_then(|seeds| seeds.parse().ok()).unwrap_or(1_000);
    for seed in 0..seeds {
        let outcome = World::new(seed, plant, false).run();
        if let Some(violation) = outcome.violations.first() {
            failed += 1;
            println!("seed {seed}: {violation}");
            if plant != Plant::Nothing {
                break;
            }
        }
    }
    println!("{seeds} seeds, {failed} with a violation");
    u8::from(failed > 0).into()
}
