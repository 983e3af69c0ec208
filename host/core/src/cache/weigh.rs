//! What contents weigh, and what is told of them as objects.
//!
//! A run of the listing of a larger directory is two objects, its names and its attributes, so that
//! the larger half can leave without the names: these answer that there is no such name, and are
//! the listing. What must hold: a weight follows from the content alone, so it need not be kept,
//! and what was charged when something came is refunded when it leaves.

use super::common::{ATTRS_WEIGHT_BYTES, Common, ENTRY_WEIGHT_BYTES, SLOT_WEIGHT_BYTES};
use super::dir::Dir;
use super::ledger::{Part, Told};
use super::slot::Content;
use crate::eviction::Class;
use crate::limits::RUN_SPLIT_ENTRIES_MIN;

/// The weights of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Weights {
    /// Of its body, in bytes.
    pub(super) body: u32,
    /// Of its attributes where they are an object of their own, in bytes.
    pub(super) attrs: Option<u32>,
}

impl Weights {
    /// What it weighs in all.
    pub(super) fn sum(self) -> u32 {
        self.body + self.attrs.unwrap_or(0)
    }
}

/// What a content weighs.
pub(super) fn weigh(content: &Content) -> Weights {
    let names = content.names();
    let whole = SLOT_WEIGHT_BYTES + content.len_bytes() as u32 + names as u32 * ENTRY_WEIGHT_BYTES;
    let Content::Run { chunk, .. } = content else { return Weights { body: whole, attrs: None } };
    if names < RUN_SPLIT_ENTRIES_MIN {
        return Weights { body: whole, attrs: None };
    }
    let space = chunk.attr_space();
    if space.count == 0 {
        return Weights { body: whole, attrs: None };
    }
    // Attributes come back one by one. Their object is told anew when it has doubled.
    let counted = space.count.next_power_of_two().min(names);
    let attrs = ATTRS_WEIGHT_BYTES + (counted * space.len_bytes.div_ceil(space.count)) as u32;
    Weights { body: whole - space.len_bytes as u32, attrs: Some(attrs) }
}

/// What is told of a part of a content of `dir`; `None` where that is no object.
pub(super) fn told(common: &Common, dir: &Dir, content: &Content, part: Part) -> Option<Told> {
    let key = |part: &[u8]| common.key(dir.handle_bytes(), part);
    let weights = common.weigh(content);
    let weight_bytes = match part {
        Part::Body => weights.body,
        Part::Attrs => weights.attrs?,
    };
    let (key, class) = match content {
        Content::Run { rank, class, .. } => {
            let rank = u64::from(*rank) | u64::from(part == Part::Attrs) << 32;
            (key(&rank.to_le_bytes()), *class)
        }
        Content::Single(chunk) => (key(chunk.name(0)), Class::Asked),
        Content::Negative(name) => (key(name), Class::Asked),
        Content::Own(_) => (key(b""), Class::Asked),
        Content::Empty => (key(b"/"), Class::Listed),
    };
    Some(Told { key, class, weight_bytes })
}
