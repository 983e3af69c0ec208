//! Compiled components that were loaded lately, kept in memory: to swap back and forth between a few
//! policies then costs neither reading nor mapping their code anew.
//!
//! What must hold: what is kept has passed all checks of its world, and is found by the SHA-256 of the
//! component alone; there are few of them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use portcullis_core::limits::POLICY_COMPONENTS_KEPT_MAX;

use crate::component::Compiled;

/// See the module. Clones share what is kept.
#[derive(Clone, Default)]
pub(crate) struct Kept(Arc<Mutex<VecDeque<Compiled>>>);

impl Kept {
    /// The component with this digest, which is the latest then.
    pub(crate) fn get(&self, digest: &str) -> Option<Compiled> {
        let mut kept = self.0.lock();
        let at = kept.iter().position(|compiled| compiled.digest == digest)?;
        let found = kept.remove(at)?;
        kept.push_back(found.clone());
        Some(found)
    }

    /// Keeps a component, and lets the one go that was asked for least lately.
    pub(crate) fn put(&self, compiled: Compiled) {
        let mut kept = self.0.lock();
        kept.retain(|other| other.digest != compiled.digest);
        kept.push_back(compiled);
        if kept.len() > POLICY_COMPONENTS_KEPT_MAX {
            kept.pop_front();
        }
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kept").field(&self.0.lock().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;

    fn compiled(digest: &str) -> Compiled {
        let engine = Engine::shared().expect("an engine");
        let bytes = wat::parse_str("(component)").expect("a component");
        let component = wasmtime::component::Component::from_binary(&engine.wasmtime, &bytes);
        Compiled { component: component.expect("a component"), digest: digest.to_owned() }
    }

    #[test]
    fn the_one_asked_for_least_lately_goes() {
        let kept = Kept::default();
        for number in 0..POLICY_COMPONENTS_KEPT_MAX {
            kept.put(compiled(&number.to_string()));
        }
        assert!(kept.get("0").is_some());
        kept.put(compiled("another"));
        assert!(kept.get("1").is_none(), "it was asked for least lately");
        assert_eq!(kept.get("0").expect("it is kept").digest, "0");
        assert_eq!(kept.get("another").expect("it is kept").digest, "another");
        kept.put(compiled("0"));
        assert_eq!(kept.0.lock().len(), POLICY_COMPONENTS_KEPT_MAX);
    }
}
