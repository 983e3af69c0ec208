//! The inside of a component: what [`register_eviction!`](crate::register_eviction) expands to
//! calls this, and nothing else should.

use std::sync::{Mutex, PoisonError};

use portcullis_core::eviction::{Event, ObjectId, PolicyLimits};

use crate::{Level, Policy};

pub use bindings::export_eviction;
pub use bindings::exports::portcullis::policy::{control, eviction};

/// Generated from `wit/`.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::undocumented_unsafe_blocks,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../wit/0.1.0",
        world: "eviction-policy",
        pub_export_macro: true,
        export_macro_name: "export_eviction",
        default_bindings_module: "portcullis_sdk::component::bindings",
        runtime_path: "portcullis_sdk::component::wit_bindgen_rt",
    });
}

/// What the generated code needs at run time.
pub use wit_bindgen::rt as wit_bindgen_rt;

/// The one policy of a component, from `init` on.
pub struct Slot<P>(Mutex<Option<Running<P>>>);

struct Running<P> {
    policy: P,
    /// Kept between calls for its room.
    events: Vec<Event>,
}

impl<P: Policy> Slot<P> {
    /// A slot before `init`.
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// The policy's name and version.
    pub fn describe(&self) -> control::Info {
        control::Info { name: P::NAME.to_owned(), version: P::VERSION.to_owned() }
    }

    /// Makes the policy.
    ///
    /// # Errors
    /// What the policy finds wrong with the configuration.
    pub fn init(&self, limits: control::Limits, config: &[u8]) -> Result<(), String> {
        std::panic::set_hook(Box::new(|panic| crate::log(Level::Error, &panic.to_string())));
        let control::Limits { capacity_bytes, seed, .. } = limits;
        let policy = P::new(PolicyLimits { capacity_bytes, seed }, config)?;
        *self.lock() = Some(Running { policy, events: Vec::new() });
        Ok(())
    }

    /// Hands a batch of packed events over. Kinds this SDK does not know are skipped.
    pub fn on_events(&self, now_ms: u64, words: &[u64]) {
        let mut slot = self.lock();
        let Some(Running { policy, events }) = slot.as_mut() else { return };
        let (packed, _) = words.as_chunks::<{ Event::WORDS }>();
        events.clear();
        events.extend(packed.iter().filter_map(|&words| Event::unpack(words)));
        policy.on_events(now_ms, events);
    }

    /// Asks for victims.
    pub fn propose(&self, now_ms: u64, want: u32) -> Vec<u64> {
        let mut slot = self.lock();
        let Some(Running { policy, .. }) = slot.as_mut() else { return Vec::new() };
        policy.propose(now_ms, want as usize).into_iter().map(|ObjectId(id)| id).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Running<P>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<P: Policy> Default for Slot<P> {
    fn default() -> Self {
        Self::new()
    }
}
