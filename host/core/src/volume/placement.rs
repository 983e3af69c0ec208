//! Which member a name of a directory lies on.
//!
//! The *arbiter* of a name is one member of the directory's layout, chosen by rendezvous hashing
//! (Thaler and Ravishankar 1998): every member has a weight for the name, the greatest wins. It has
//! the name, or there is no such name. Bricks keep what was placed so for good: the function must
//! never change.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use super::member::{MemberId, Owner, member_of};
use crate::handle::Handle;

/// The member that arbitrates `name` in the directory of this handle: of a spread directory one of
/// its layout, of any other the member that it lies on.
pub fn arbiter(dir: &Handle, name: &[u8]) -> MemberId {
    let id = match member_of(dir) {
        Owner::Member(member) => return member,
        Owner::Spread(id) => id,
    };
    // Without a secret: whoever wants all of his files on one member may have them there.
    let mut hasher = SipHasher13::new();
    hasher.write(id.as_bytes());
    hasher.write(name);
    let hash = hasher.finish();
    (0..id.layout()).max_by_key(|&member| weight(hash, member)).unwrap_or(0)
}

/// The weight of a member for the name of this hash: the finaliser of SplitMix64 over both.
fn weight(hash: u64, member: MemberId) -> u64 {
    let mut word = hash ^ (u64::from(member) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::DirId;

    fn dir(layout: u8, random: u8) -> Handle {
        DirId::new(layout, 0, [random; 14]).expect("an id").handle()
    }

    /// How far counts are from even, in the chi-squared statistic.
    fn chi_squared(counts: &[f64]) -> f64 {
        let expected = counts.iter().sum::<f64>() / counts.len() as f64;
        counts.iter().map(|count| (count - expected).powi(2) / expected).sum()
    }

    /// S-VOLUME-1.
    #[test]
    fn names_are_spread_evenly() {
        // The 99.99th percentile for 1 to 15 degrees of freedom.
        let bounds = [
            15.14, 18.42, 21.11, 23.51, 25.74, 27.86, 29.88, 31.83, 33.72, 35.56, 37.37, 39.13,
            40.87, 42.58, 44.26,
        ];
        for layout in 2..=16_u8 {
            let dirs = [dir(layout, 1), dir(layout, 200)];
            for sort in ["{}", "file-{}.c", "IMG_{}.jpg"] {
                let mut counts = vec![0.0; layout.into()];
                for number in 0..100_000 {
                    let name = sort.replace("{}", &number.to_string());
                    let dir = &dirs[number % 2];
                    counts[usize::from(arbiter(dir, name.as_bytes()))] += 1.0;
                }
                let (found, bound) = (chi_squared(&counts), bounds[usize::from(layout) - 2]);
                assert!(found < bound, "{layout} members, {sort}: {found} is not under {bound}");
            }
        }
    }

    /// A member more in a layout takes its share, and moves no name between the others.
    #[test]
    fn a_larger_layout_takes_names_to_the_new_member_only() {
        let names = 20_000;
        let mut moved = 0;
        for number in 0..names {
            let hash = weight(number, 0);
            let before = (0..4).max_by_key(|&member| weight(hash, member));
            let after = (0..5).max_by_key(|&member| weight(hash, member));
            assert!(after == before || after == Some(4));
            moved += usize::from(after != before);
        }
        assert!((3600..4400).contains(&moved), "{moved} of {names}");
    }

    /// What is on disk is found by later versions: these were taken from the first one.
    #[test]
    fn names_stay_where_they_were_placed() {
        let placed = [(2, "a"), (3, "Makefile"), (4, "b"), (16, "main.rs"), (64, "")];
        let placed = placed.map(|(layout, name)| arbiter(&dir(layout, 42), name.as_bytes()));
        assert_eq!(placed, [1, 0, 1, 6, 34]);
    }

    #[test]
    fn a_directory_that_lies_on_one_member_has_all_its_names_there() {
        let handle = Handle::new(&[crate::volume::KIND_MEMBER, 9, 1, 2]).expect("short");
        assert_eq!(arbiter(&handle, b"a"), 9);
        assert_eq!(arbiter(&Handle::new(&[1, 2]).expect("short"), b"a"), 0);
        assert_eq!(arbiter(&dir(1, 3), b"a"), 0);
    }
}
