//! OPT: the object that is not needed for longest leaves. The bound for any policy that admits what
//! it fetches and whose objects all weigh the same; a replay can have it, since it knows what comes.
//!
//! After Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems
//! Journal 5(2), 1966. Weights are not looked at when a victim is chosen, so where they differ a policy
//! that does so may do better. It enters what it fetches, even where that is never used again.

use std::collections::BinaryHeap;

use crate::capacity::Capacity;
use crate::outcome::{Outcome, Tally};
use crate::trace::Trace;

/// Name by which it is known.
pub const NAME: &str = "opt";
/// Name of having no cache at all, the other bound.
pub const NONE_NAME: &str = "none";

/// Replays `trace` with the future known; `next_uses` is that of [`Trace::next_uses`].
pub fn replay(trace: &Trace, next_uses: &[u32], capacity: Capacity, intervals: usize) -> Outcome {
    let mut tally = Tally::new(trace.counted(), intervals);
    let capacity_bytes = capacity.capacity_bytes();
    let mut used_bytes = 0;
    // The next use of each resident with its weight.
    let mut residents: Vec<Option<(u32, u32)>> = vec![None; trace.distinct()];
    // With entries that are outdated among them.
    let mut farthest: BinaryHeap<(u32, u32)> = BinaryHeap::new();
    for (request, (&object, &next)) in trace.objects().iter().zip(next_uses).enumerate() {
        let size_bytes = trace.size_bytes(request);
        let resident = residents[object as usize];
        if trace.is_counted(request) {
            tally.count(size_bytes, resident.is_some());
        }
        let weight_bytes = match resident {
            Some((_, weight_bytes)) => weight_bytes,
            None => {
                let weight_bytes = capacity.weight_bytes(size_bytes);
                if u64::from(weight_bytes) > capacity_bytes {
                    tally.outcome.refused += 1;
                    continue;
                }
                while used_bytes + u64::from(weight_bytes) > capacity_bytes {
                    let Some((use_of_it, victim)) = farthest.pop() else { break };
                    if let Some((next, weight_bytes)) = residents[victim as usize]
                        && next == use_of_it
                    {
                        residents[victim as usize] = None;
                        used_bytes -= u64::from(weight_bytes);
                        tally.outcome.evicted += 1;
                    }
                }
                used_bytes += u64::from(weight_bytes);
                weight_bytes
            }
        };
        residents[object as usize] = Some((next, weight_bytes));
        farthest.push((next, object));
    }
    tally.outcome
}

/// Replays `trace` without a cache.
pub fn replay_none(trace: &Trace, intervals: usize) -> Outcome {
    let mut tally = Tally::new(trace.counted(), intervals);
    for request in (0..trace.objects().len()).filter(|&request| trace.is_counted(request)) {
        tally.count(trace.size_bytes(request), false);
    }
    tally.outcome
}
