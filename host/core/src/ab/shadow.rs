//! What a shadow has shown: two policies on caches of keys alone, beside the traffic of a sample of the
//! directories.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::estimate::Estimate;
use crate::limits::AB_SIDE_REQUESTS_MIN;

/// How far it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Progress {
    /// The caches of keys fill; nothing is counted yet.
    #[default]
    Filling,
    /// It counts.
    Counting,
    /// Its time is over.
    Over,
    /// It was stopped.
    Stopped,
    /// A policy failed: which, and how.
    Failed(String),
}

/// A policy that takes part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contender {
    /// Its name.
    pub name: String,
    /// SHA-256 of the component in hexadecimal; empty for a native policy.
    pub digest: String,
}

/// What a shadow has shown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShadowReport {
    /// How far it is.
    pub progress: Progress,
    /// The policy that is active.
    pub incumbent: Contender,
    /// The one that is tried.
    pub candidate: Contender,
    /// One directory in so many is looked at.
    pub sample: u32,
    /// Bytes that each cache of keys may hold: that part of the capacity.
    pub capacity_bytes: u64,
    /// How long it has run.
    pub elapsed_ms: u64,
    /// How long it is to run.
    pub for_ms: u64,
    /// Uses of objects that were counted.
    pub requests: u64,
    /// Of those the share, in percent, that the cache itself had.
    pub live_hit_percent: f64,
    /// Hit ratios of the two, in points (hundredths of those uses).
    pub hit_ratio: Option<Estimate>,
    /// Records that it missed, since it did not keep up.
    pub lost: u64,
    /// Objects that the incumbent's and the candidate's hold.
    pub objects: [u64; 2],
    /// Victims that had to be chosen for want of a proposal.
    pub shortfall: [u64; 2],
    /// Whether both were full, and had been filled once over, before it counted.
    pub warm: bool,
}

impl ShadowReport {
    /// In a few words.
    pub fn verdict(&self) -> String {
        match (&self.progress, &self.hit_ratio) {
            (Progress::Failed(why), _) => why.clone(),
            (Progress::Filling, _) => "filling: nothing is counted yet".to_owned(),
            (_, None) => "too little traffic to tell".to_owned(),
            (_, Some(_)) if self.requests < 2 * AB_SIDE_REQUESTS_MIN => {
                "too little traffic to tell".to_owned()
            }
            (_, Some(found)) if !found.shows_difference() => "no difference shown".to_owned(),
            (_, Some(found)) if found.difference > 0.0 => {
                format!("{} would hit more", self.candidate.name)
            }
            (_, Some(_)) => format!("{} would hit less", self.candidate.name),
        }
    }

    /// For people, a line each.
    pub fn words(&self) -> String {
        let mut text = format!("{}\n", self.verdict());
        if let Some(found) = &self.hit_ratio {
            let _ = writeln!(
                text,
                "  hit ratio, %: {} {:.2}, {} {:.2}, difference {:+.2} ± {:.2} points (live {:.2})",
                self.incumbent.name,
                found.incumbent,
                self.candidate.name,
                found.candidate,
                found.difference,
                found.interval_95,
                self.live_hit_percent,
            );
        }
        let _ = writeln!(
            text,
            "  {} uses counted, of one directory in {}, in {:.0} s of {:.0}",
            self.requests,
            self.sample,
            self.elapsed_ms as f64 / 1e3,
            self.for_ms as f64 / 1e3
        );
        if !self.warm && self.progress != Progress::Filling {
            text.push_str("  what the caches hold was hardly ever replaced: this tells little\n");
        }
        if self.lost > 0 {
            let _ = writeln!(text, "  {} records lost: take a smaller sample", self.lost);
        }
        for (contender, shortfall) in [&self.incumbent, &self.candidate].iter().zip(self.shortfall)
        {
            if shortfall > 0 {
                let name = &contender.name;
                let _ = writeln!(text, "  {name} proposed no victim {shortfall} times");
            }
        }
        text
    }
}
