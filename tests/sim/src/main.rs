//! Runs seeds: `cargo run -p portcullis-sim -- [--seed N] [--seeds COUNT] [--plant]`.
//!
//! One seed prints every message of its run; several print what each violates.

use portcullis_sim::{Plant, World};

fn main() -> std::process::ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |flag: &str| {
        let at = words.iter().position(|word| word == flag)?;
        words.get(at + 1)?.parse::<u64>().ok()
    };
    let plant =
        if words.iter().any(|word| word == "--plant") { Plant::LateFill } else { Plant::Nothing };
    if let Some(seed) = number("--seed") {
        let outcome = World::new(seed, plant, true).run();
        println!("seed {seed}: {outcome:?}");
        return u8::from(!outcome.violations.is_empty()).into();
    }
    let mut failed = 0;
    let seeds = number("--seeds").unwrap_or(1_000);
    for seed in 0..seeds {
        let outcome = World::new(seed, plant, false).run();
        if let Some(violation) = outcome.violations.first() {
            failed += 1;
            println!("seed {seed}: {violation}");
        }
    }
    println!("{seeds} seeds, {failed} with a violation");
    u8::from(failed > 0).into()
}
