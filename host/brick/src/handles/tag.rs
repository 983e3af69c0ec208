//! The keyed tag that ends every handle.
//!
//! A handle is `body | tag`, the tag being the SipHash-2-4 of the body under a key that only this
//! export has: it is derived from the identity's `handle.key` and from what identifies the
//! export's root. So a handle that was made up, altered, or made for another export or by another
//! identity does not pass, and nothing of its body is believed before it does. 64 bits are enough
//! because a guess can only be tried against the live brick.

use std::hash::Hasher;

use portcullis_core::Handle;
use portcullis_core::limits::HANDLE_LEN_MAX;
use siphasher::sip::SipHasher24;
use siphasher::sip128::{self, Hasher128};

/// Bytes of a tag.
const TAG_LEN: usize = 8;
/// Longest body of a handle.
pub(crate) const BODY_LEN_MAX: usize = HANDLE_LEN_MAX - TAG_LEN;

/// The key of one export.
pub(crate) struct TagKey([u8; 16]);

impl TagKey {
    /// The key for the export that `export` identifies.
    pub(crate) fn derive(secret: &[u8; 32], export: &[u8]) -> Self {
        let mut first = [0; 16];
        first.copy_from_slice(&secret[..16]);
        let mut hasher = sip128::SipHasher24::new_with_key(&first);
        hasher.write(&secret[16..]);
        hasher.write(b"portcullis handle tag");
        hasher.write(export);
        Self(hasher.finish128().as_bytes())
    }

    /// The handle whose body is `parts`, one after the other; `None` where that is over
    /// [`BODY_LEN_MAX`].
    pub(crate) fn seal(&self, parts: &[&[u8]]) -> Option<Handle> {
        self.seal_after(&[], parts)
    }

    /// The same with `first` before the parts.
    pub(crate) fn seal_after(&self, first: &[u8], parts: &[&[u8]]) -> Option<Handle> {
        let mut bytes = [0; HANDLE_LEN_MAX];
        let mut len = first.len();
        bytes.get_mut(..len)?.copy_from_slice(first);
        for part in parts {
            bytes.get_mut(len..len + part.len())?.copy_from_slice(part);
            len += part.len();
        }
        let tag = self.tag(&bytes[..len]).to_le_bytes();
        bytes.get_mut(len..len + TAG_LEN)?.copy_from_slice(&tag);
        Handle::new(&bytes[..len + TAG_LEN])
    }

    /// The body of a handle, `None` where the tag is not ours.
    pub(crate) fn unseal<'a>(&self, handle: &'a Handle) -> Option<&'a [u8]> {
        let (body, tag) = handle.as_bytes().split_last_chunk::<TAG_LEN>()?;
        // One comparison of two words: its time tells nothing of how many bytes agree.
        (self.tag(body) == u64::from_le_bytes(*tag)).then_some(body)
    }

    /// A digest that stands for `parts` in a handle whose body has no room for them.
    pub(crate) fn digest(&self, parts: &[&[u8]]) -> [u8; 16] {
        let mut hasher = sip128::SipHasher24::new_with_key(&self.0);
        for part in parts {
            hasher.write_usize(part.len());
            hasher.write(part);
        }
        hasher.finish128().as_bytes()
    }

    /// The tag of any bytes.
    pub(crate) fn tag(&self, body: &[u8]) -> u64 {
        SipHasher24::new_with_key(&self.0).hash(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_secret_and_export_unseal_what_was_sealed() {
        let key = TagKey::derive(&[7; 32], b"export");
        let handle = key.seal(&[b"bo", b"dy"]).expect("it fits");
        assert_eq!(key.unseal(&handle), Some(&b"body"[..]));
        let mut secret = [7; 32];
        for byte in [0, 15, 16, 31] {
            secret[byte] ^= 1;
            assert_eq!(TagKey::derive(&secret, b"export").unseal(&handle), None, "byte {byte}");
            secret[byte] ^= 1;
        }
        assert_eq!(TagKey::derive(&[7; 32], b"exporu").unseal(&handle), None);
    }

    #[test]
    fn a_body_of_any_length_survives_or_is_refused() {
        let key = TagKey::derive(&[1; 32], b"");
        for len in 0..=HANDLE_LEN_MAX {
            let body = vec![0xa5; len];
            match key.seal(&[&body]) {
                Some(handle) => assert_eq!(key.unseal(&handle), Some(&body[..])),
                None => assert!(len > BODY_LEN_MAX, "{len}"),
            }
        }
        for len in 0..TAG_LEN {
            let short = Handle::new(&vec![0; len]).expect("short");
            assert_eq!(key.unseal(&short), None);
        }
    }

    #[test]
    fn parts_of_a_digest_do_not_run_into_each_other() {
        let key = TagKey::derive(&[1; 32], b"");
        assert_ne!(key.digest(&[b"ab", b"c"]), key.digest(&[b"a", b"bc"]));
    }
}
