//! flock and POSIX locks: two kinds that do not see each other, held between mounts and gateways,
//! and visible to programs on the brick's host.

use std::fs;
use std::time::Duration;

use portcullis_suite::actor::Actor;
use portcullis_suite::share::{Layout, Share, is_local};
use portcullis_suite::wait;

/// EAGAIN: another one holds it.
const HELD: &str = "error 11";
/// Long enough to see that somebody waits.
const MOMENT: Duration = Duration::from_millis(500);

/// Actors with the same file open, one for each mount.
fn actors(share: &Share) -> Vec<Actor> {
    fs::write(share.mount(0).join("f"), "0123456789").expect("a file");
    let open = |path: &&std::path::Path| {
        let mut actor = Actor::start();
        actor.ok(&format!("open f RDWR {}", path.join("f").display()));
        actor
    };
    share.paths().iter().map(open).collect()
}

/// S-LOCK-1.
#[test]
fn ranges_are_locked_between_mounts_and_gateways() {
    let Some(share) = Share::three("ranges_are_locked_between_mounts_and_gateways") else { return };
    let mut actors = actors(&share);
    let [one, two, three] = actors.as_mut_slice() else { panic!("three mounts") };
    one.ok("lock f write 0 10");
    assert_eq!(two.ask("lock f write 5 10"), HELD);
    assert_eq!(three.ask("lock f read 9 1"), HELD);
    two.ok("lock f write 10 10");
    three.ok("lock f write 20 0");
    assert_eq!(one.ask("lock f read 1000000 1"), HELD, "to the end, wherever that will be");
    assert_eq!(three.ask("test f write 0 5"), "write 0 10");
    assert_eq!(one.ask("test f write 10 1"), "write 10 10");
    one.ok("lock f un 4 2");
    three.ok("lock f read 4 2");
    assert_eq!(two.ask("lock f write 5 1"), HELD);
    two.ok("lock f read 5 1");
    assert_eq!(two.ask("lock f write 0 1"), HELD);
    assert_eq!(two.ask("lock f write 6 1"), HELD);
}

#[test]
fn a_lock_is_upgraded_and_split_as_by_the_kernel() {
    let Some(share) = Share::two("a_lock_is_upgraded_and_split_as_by_the_kernel") else { return };
    let mut actors = actors(&share);
    let [one, two] = actors.as_mut_slice() else { panic!("two mounts") };
    one.ok("lock f read 0 100");
    two.ok("lock f read 0 100");
    assert_eq!(one.ask("lock f write 0 100"), HELD);
    two.ok("lock f un 0 0");
    one.ok("lock f write 0 100");
    one.ok("lock f read 40 20");
    two.ok("lock f read 45 5");
    assert_eq!(two.ask("test f write 0 100"), "write 0 40");
    assert_eq!(two.ask("test f read 50 50"), "write 60 40");
}

#[test]
fn a_waiter_gets_the_lock_when_it_is_free() {
    let Some(share) = Share::three("a_waiter_gets_the_lock_when_it_is_free") else { return };
    let mut actors = actors(&share);
    for (take, give) in [("lockw f write 0 0", "lock f un 0 0"), ("flock f EX", "flock f UN")] {
        actors[0].ok(take);
        for waiter in [1, 2] {
            actors[waiter].tell(take);
            assert_eq!(actors[waiter].answer_within(MOMENT), None);
        }
        actors[0].ok(give);
        let first = wait::until("one of the waiters gets it", || {
            let moment = Duration::from_millis(50);
            [1, 2].into_iter().find(|waiter| actors[*waiter].answer_within(moment).is_some())
        });
        let last = 3 - first;
        assert_eq!(actors[last].answer_within(MOMENT), None, "only one of them");
        actors[first].ok(give);
        assert_eq!(actors[last].answer(), "ok");
        actors[last].ok(give);
    }
}

/// S-LOCK-1.
#[test]
fn the_two_kinds_do_not_see_each_other() {
    let Some(share) = Share::two("the_two_kinds_do_not_see_each_other") else { return };
    let mut actors = actors(&share);
    let [one, two] = actors.as_mut_slice() else { panic!("two mounts") };
    one.ok("flock f EX");
    two.ok("lock f write 0 0");
    assert_eq!(two.ask("flock f EX+NB"), HELD);
    assert_eq!(two.ask("flock f SH+NB"), HELD);
    assert_eq!(one.ask("lock f write 0 1"), HELD);
    one.ok("flock f SH");
    two.ok("flock f SH+NB");
    assert_eq!(one.ask("flock f EX+NB"), HELD);
    one.ok("flock f UN");
    two.ok("flock f EX+NB");
}

#[test]
fn a_close_or_a_death_gives_locks_back() {
    let Some(share) = Share::three("a_close_or_a_death_gives_locks_back") else { return };
    let mut actors = actors(&share);
    let three = actors.pop().expect("three mounts");
    let mut two = actors.pop().expect("three mounts");
    let mut one = actors.pop().expect("three mounts");
    one.ok("lock f write 0 0");
    one.ok("flock f EX");
    assert_eq!(two.ask("lock f write 0 0"), HELD);
    // POSIX: closing any descriptor of the file gives the process's range locks back.
    one.ok(&format!("open other RDONLY {}", share.mount(0).join("f").display()));
    one.ok("close other");
    eventually(&mut two, "lock f write 0 0");
    assert_eq!(two.ask("flock f EX+NB"), HELD, "a flock belongs to its own descriptor");
    one.ok("close f");
    eventually(&mut two, "flock f EX+NB");
    drop(two);
    let mut three = three;
    eventually(&mut three, "lock f write 0 0");
    eventually(&mut three, "flock f EX+NB");
}

/// Asks until it is granted: a close is told to the server, and the program that closes does not
/// always wait for it.
fn eventually(actor: &mut Actor, line: &str) {
    wait::until(line, || (actor.ask(line) == "ok").then_some(()));
}

/// The brick holds the locks on the files themselves, so its own programs respect them. S-LOCK-1.
#[test]
fn programs_on_the_brick_see_the_locks() {
    let Some(share) = Share::one("programs_on_the_brick_see_the_locks") else { return };
    let mut actors = actors(&share);
    let one = &mut actors[0];
    let mut below = Actor::start();
    below.ok(&format!("open f RDWR {}", share.export().join("f").display()));
    one.ok("lock f write 3 4");
    assert_eq!(below.ask("lock f write 0 5"), HELD);
    below.ok("lock f write 0 3");
    assert_eq!(one.ask("lock f write 2 1"), HELD);
    one.ok("flock f EX");
    assert_eq!(below.ask("flock f SH+NB"), HELD);
    one.ok("flock f UN");
    below.ok("flock f EX");
    one.tell("flock f SH");
    assert_eq!(one.answer_within(MOMENT), None);
    below.ok("flock f UN");
    assert_eq!(one.answer(), "ok", "a waiter is served when the brick's own program lets go");
}

/// Locks are held over a restart of the gateway: reclaimed, or the file is known to have lost
/// them; never is a second holder let in while the first goes on as if nothing had been. S-LOCK-2.
#[test]
fn locks_are_reclaimed_or_reported_lost_after_a_restart() {
    let name = "locks_are_reclaimed_or_reported_lost_after_a_restart";
    if is_local() {
        return;
    }
    for restart in ["gateway", "brick"] {
        let layout = Layout { mounts: &[0, 1], options: "timeout=120", ..Layout::default() };
        let Some(mut share) = Share::start(name, &layout) else { return };
        let mut actors = actors(&share);
        let [one, two] = actors.as_mut_slice() else { panic!("two mounts") };
        one.ok("lock f write 0 10");
        assert_eq!(two.ask("lock f write 0 10"), HELD);
        let site = share.site_mut();
        if restart == "gateway" {
            site.kill_gateway();
            site.restart_gateway();
        } else {
            site.kill_brick();
            site.restart_brick();
        }
        // The holder works on: what it is told is "still yours" or an error, before anybody else
        // is told "yours".
        let held = one.ask("write f 0 x");
        let other = two.ask("lock f write 0 10");
        println!("{restart}: the holder was told {held:?}, the other one {other:?}");
        if held == "ok" {
            assert_eq!(other, HELD, "{restart}: two holders");
        } else {
            assert!(held.starts_with("error"), "{held}");
        }
    }
}

/// Two that wait for each other: one of them is told EDEADLK, and the other one goes on when that
/// one lets go. S-LOCK-3.
#[test]
fn a_deadlock_between_mounts_is_told_to_one_of_them() {
    let name = "a_deadlock_between_mounts_is_told_to_one_of_them";
    if is_local() {
        return;
    }
    let Some(share) = Share::three(name) else { return };
    let mut actors = actors(&share);
    for pair in [[0, 1], [1, 2]] {
        actors[pair[0]].ok("lock f write 0 1");
        actors[pair[1]].ok("lock f write 1 1");
        actors[pair[0]].tell("lockw f write 1 1");
        actors[pair[1]].tell("lockw f write 0 1");
        let moment = Duration::from_millis(50);
        let (told, answer) = wait::until("one of them is told", || {
            pair.into_iter()
                .find_map(|actor| actors[actor].answer_within(moment).map(|answer| (actor, answer)))
        });
        assert_eq!(answer, "error 35");
        let other = pair[0] + pair[1] - told;
        assert_eq!(actors[other].answer_within(MOMENT), None, "the other one waits on");
        actors[told].ok("lock f un 0 0");
        assert_eq!(actors[other].answer(), "ok");
        actors[other].ok("lock f un 0 0");
    }
}
