//! Where and when it was measured, and how busy the machine was.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

/// Date, processor, memory, kernel.
pub fn describe() -> Value {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = field(&cpuinfo, "model name").unwrap_or_default();
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = field(&meminfo, "MemTotal").unwrap_or_default();
    let total_kib: u64 = total.trim_end_matches(" kB").parse().unwrap_or(0);
    json!({
        "date": date(),
        "cpu": model,
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "memory_gib": (total_kib as f64 / f64::from(1 << 20)).round(),
        "kernel": first_line("/proc/sys/kernel/osrelease"),
    })
}

/// Processes that ran or waited to run, on average over 1, 5 and 15 minutes.
pub fn load() -> String {
    let text = first_line("/proc/loadavg");
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// Of this day, in UTC.
fn date() -> String {
    let output = Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]).output();
    let output = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).trim().to_owned()
}

fn first_line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim().to_owned())
}
