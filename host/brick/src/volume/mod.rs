//! The brick as a member of a volume of several.
//!
//! - `member`: what it keeps; `stored`: which member of which volume; `copies`, `cards`, `tickets`:
//!   its copies of spread directories, and `refreshing` them; `records`: names, and pointers among them; `shelves`: where
//!   files lie whose names are elsewhere.
//! - `transactions`, `noted`: changes on several members that are not through; `holds`: what others
//!   wait for meanwhile.
//! - `joining`: how a brick becomes a member; `entering`: waiting for one's turn; `asks`: everything
//!   that [`portcullis_core::volume::Ask`] asks, as it says there.
//!
//! What must hold: nothing of all this shows where the brick is no member; what the brick keeps is
//! never reached by a name, and no client makes a pointer; whatever is answered as done is done, or
//! put right at the next start, before anybody is answered.

pub(crate) mod asks;
mod cards;
mod copies;
pub(crate) mod entering;
mod holds;
pub(crate) mod joining;
mod member;
mod noted;
mod records;
mod refreshing;
mod shelves;
mod stored;
mod tickets;
mod transactions;

pub(crate) use cards::is_own as is_own_xattr;
pub(crate) use copies::{ACL_ACCESS, ACL_DEFAULT};
pub(crate) use member::{Member, VOLUME_DIR};
