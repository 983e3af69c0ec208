//! What went wrong in other file systems of this kind, each as a test: its name says what is
//! right, its first sentence what was seen instead, and in which project.
//!
//! [`stale`]: answers that were true once, and "no such name" where there is one. [`renames`]:
//! names that move, and links. [`attributes`]: sizes, times and modes. [`names`]: what a name may
//! be. [`open_files`]: files that lose their names or their content while they are open. [`listings`]:
//! directories that change while they are listed.

mod attributes;
mod listings;
mod names;
mod open_files;
mod renames;
mod stale;

use std::sync::atomic::{AtomicBool, Ordering};

/// Does `background` over and over on a thread of its own while `foreground` runs; a failure of
/// either is one of the test.
fn meanwhile<T>(background: impl Fn(usize) + Send + Sync, foreground: impl FnOnce() -> T) -> T {
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (background, is_over) = (&background, &is_over);
        scope.spawn(move || {
            let _end = End(is_over);
            for round in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                background(round);
            }
        });
        let _end = End(is_over);
        foreground()
    })
}
