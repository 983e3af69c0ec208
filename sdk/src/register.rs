//! From a type to a component.

/// Makes an eviction policy of a type that implements [`Policy`](crate::Policy) and
/// [`EvictionPolicy`](crate::EvictionPolicy): the exports of the component. Once in a crate. Outside of
/// a component it only checks the type.
#[macro_export]
macro_rules! register_eviction {
    ($policy:ty) => {
        const _: () = {
            const fn is_policy<P: $crate::Policy + $crate::EvictionPolicy>() {}
            is_policy::<$policy>();
        };
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use $crate::component::eviction as component;

            type Words = $crate::words::EvictionWords<$policy>;

            static SLOT: $crate::component::Slot<Words> = $crate::component::Slot::new();

            struct Component;

            $crate::register_control!($policy, Words);

            impl component::eviction::Guest for Component {
                fn on_events(now_ms: u64, events: Vec<u64>) {
                    SLOT.enter(|words| words.on_events(now_ms, &events));
                }

                fn propose(now_ms: u64, want: u32) -> Vec<u64> {
                    SLOT.enter(|words| words.propose(now_ms, want))
                }
            }

    component::export_policy!(Component with_types_in component::bindings);
        };
    };
}

/// Makes a prefetch policy of a type that implements [`Policy`](crate::Policy) and
/// [`PrefetchPolicy`](crate::prefetch::PrefetchPolicy), of which the component makes one for each
/// client. Once in a crate. Outside of a component it only checks the type.
#[macro_export]
macro_rules! register_prefetch {
    ($policy:ty) => {
        const _: () = {
            const fn is_policy<P: $crate::Policy + $crate::prefetch::PrefetchPolicy>() {}
            is_policy::<$policy>();
        };
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use $crate::component::prefetch as component;

            type Words = $crate::words::PrefetchWords<$policy>;

            static SLOT: $crate::component::Slot<Words> = $crate::component::Slot::new();

            struct Component;

            $crate::register_control!($policy, Words);

            impl component::prefetch::Guest for Component {
                fn on_events(now_ms: u64, events: Vec<u64>) {
                    SLOT.enter(|words| words.on_events(now_ms, &events));
                }

                fn propose(now_ms: u64, client: u32, want: u32) -> Vec<u64> {
                    SLOT.enter(|words| words.propose(now_ms, client, want))
                }
            }

    component::export_policy!(Component with_types_in component::bindings);
        };
    };
}

/// Makes an inlining policy of a type that implements [`Policy`](crate::Policy) and
/// [`InliningPolicy`](crate::inlining::InliningPolicy). Once in a crate. Outside of a component it
/// only checks the type.
#[macro_export]
macro_rules! register_inlining {
    ($policy:ty) => {
        const _: () = {
            const fn is_policy<P: $crate::Policy + $crate::inlining::InliningPolicy>() {}
            is_policy::<$policy>();
        };
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use $crate::component::inlining as component;

            type Words = $crate::words::InliningWords<$policy>;

            static SLOT: $crate::component::Slot<Words> = $crate::component::Slot::new();

            struct Component;

            $crate::register_control!($policy, Words);

            impl component::inlining::Guest for Component {
                fn rules(now_ms: u64, stats: Vec<u64>) -> Vec<u64> {
                    SLOT.enter(|words| words.rules(now_ms, &stats))
                }
            }

    component::export_policy!(Component with_types_in component::bindings);
        };
    };
}

/// What all kinds have: `describe` and `init`, for a `SLOT` of `$words` and a module `component`.
#[doc(hidden)]
#[macro_export]
macro_rules! register_control {
    ($policy:ty, $words:ty) => {
        impl component::control::Guest for Component {
            fn describe() -> component::control::Info {
                component::control::Info {
                    name: <$policy as $crate::Policy>::NAME.to_owned(),
                    version: <$policy as $crate::Policy>::VERSION.to_owned(),
                }
            }

            fn init(limits: component::control::Limits, config: Vec<u8>) -> Result<(), String> {
                let component::control::Limits { capacity_bytes, seed, max_answers, .. } = limits;
                let limits = $crate::PolicyLimits { capacity_bytes, seed };
                SLOT.init(|| <$words>::new(limits, max_answers as usize, &config))
            }
        }
    };
}
