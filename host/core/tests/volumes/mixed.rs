//! Operations at random: several at once, led by several gateways, with faults.

use std::panic::{AssertUnwindSafe, catch_unwind};

use portcullis_core::Handle;
use portcullis_core::volume::{DirId, Operation, Place};

use crate::check::violations;
use crate::plant::{PLANTS, Plant};
use crate::run::Op;
use crate::world::World;

/// Seeds that every run takes.
const SEEDS: u64 = 2_000;
/// Seeds of a long run, of which `PORTCULLIS_SOAK` may say another number.
const SEEDS_SOAK: u64 = 2_000_000;
/// In how many seeds a planted fault is to be found.
const SEEDS_TO_FIND: u64 = 60_000;
/// Events of one run before everything is brought to its end.
const EVENTS: usize = 400;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// How often something happens, out of a thousand events.
struct Odds {
    begin: u32,
    redo: u32,
    time_out: u32,
    lose_session: u32,
    restart: u32,
    kill: u32,
    /// A client of a gateway that died asks another one.
    again: u32,
    /// A client asks another gateway though the first one is still at it.
    desert: u32,
}

fn odds(rng: &mut fastrand::Rng) -> Odds {
    // A quarter of the runs without faults, in which only what is done at once gets in each other's
    // way.
    let faults = [0, 4, 12, 30][rng.usize(..4)];
    Odds {
        begin: 150,
        redo: if faults == 0 { 2 } else { 30 },
        time_out: faults / 2,
        lose_session: faults,
        restart: faults,
        kill: faults,
        again: faults * 4,
        desert: faults / 4,
    }
}

fn dir(world: &mut World) -> Handle {
    let mut dirs: Vec<Handle> =
        world.tree.dirs.keys().map(|dir| Handle::new(dir).expect("a handle")).collect();
    // Now and then one that is gone.
    if world.rng.u8(..8) == 0 {
        let made = world.outcomes.iter().filter_map(|outcome| match &outcome.op {
            Op::Volume(Operation::Mkdir { id, .. }) if outcome.is_applied => Some(id.handle()),
            _ => None,
        });
        dirs.extend(made);
    }
    *world.rng.choice(&dirs).expect("the root")
}

pub(crate) fn any_place(world: &mut World) -> Place {
    let dir = dir(world);
    let name = NAMES[world.rng.usize(..world.names)];
    world.place(&dir, name)
}

/// A place that is there, mostly.
fn known_place(world: &mut World) -> Place {
    for _ in 0..4 {
        let place = any_place(world);
        if world.tree.get(&place).is_some() {
            return place;
        }
    }
    any_place(world)
}

/// Which operations a run is mostly made of: some faults show in few others.
const MIXES: [[u32; 7]; 4] = [
    // create, mkdir, unlink, rmdir, link, rename, chmod
    [4, 4, 2, 2, 2, 5, 1],
    [6, 3, 2, 10, 0, 0, 0],
    [6, 1, 0, 0, 0, 0, 8],
    [0, 6, 0, 1, 0, 12, 0],
];

pub(crate) fn any_op(world: &mut World, gateway: usize) -> Op {
    let tx = world.tx(gateway);
    let link = world.rng.u128(..);
    let mix = MIXES[world.mix];
    let mut rest = world.rng.u32(..mix.iter().sum::<u32>());
    let chosen = mix.iter().position(|&odds| {
        let is_it = rest < odds;
        rest = rest.wrapping_sub(odds);
        is_it
    });
    match chosen {
        Some(1) => {
            let place = any_place(world);
            let mut random = [0; 14];
            world.rng.fill(&mut random);
            let layout = world.members.len() as u8;
            let id = DirId::new(layout, place.arbiter(), random).expect("an id");
            Op::Volume(Operation::Mkdir { place, mode: 0o755, id })
        }
        Some(2) => Op::Volume(Operation::Unlink { tx, place: known_place(world) }),
        Some(3) => Op::Volume(Operation::Rmdir { tx, place: known_place(world) }),
        Some(4) => {
            let files: Vec<Handle> =
                world.tree.files.keys().map(|file| Handle::new(file).expect("short")).collect();
            match world.rng.choice(&files).copied() {
                Some(handle) => {
                    let place = any_place(world);
                    Op::Volume(Operation::Link { tx, handle, place, link })
                }
                None => Op::Create(any_place(world)),
            }
        }
        Some(5) => {
            let flags = [0, 0, 0, 0, 1, 2][world.rng.usize(..6)];
            let (from, to) = (known_place(world), any_place(world));
            Op::Volume(Operation::Rename { tx, from, to, flags, link })
        }
        Some(6) => {
            let dir = dir(world);
            match DirId::of_handle(&dir) {
                Some(id) => Op::Chmod { tx, id, mode: world.rng.u32(..0o777) },
                None => Op::Create(any_place(world)),
            }
        }
        _ => Op::Create(any_place(world)),
    }
}

pub(crate) fn any_world(seed: u64, plant: Option<Plant>) -> World {
    let members = fastrand::Rng::with_seed(seed).u8(2..5);
    let root = if seed.is_multiple_of(5) {
        Handle::new(&[1, 99]).expect("short")
    } else {
        DirId::root(members).expect("some members").handle()
    };
    let mut world = World::new(seed, members, root, plant);
    world.mix = seed as usize % MIXES.len();
    world.names = if world.mix == 3 { 2 } else { NAMES.len() };
    world
}

/// One run, to its end.
pub(crate) fn run(seed: u64, plant: Option<Plant>) -> World {
    let mut world = any_world(seed, plant);
    world.new_gateway();
    let odds = odds(&mut world.rng);
    for _ in 0..EVENTS {
        event(&mut world, &odds);
    }
    finish(&mut world, odds.kill > 0);
    world
}

fn event(world: &mut World, odds: &Odds) {
    let mut rest = world.rng.u32(..1000);
    let mut is = |odds: u32| {
        let is = rest < odds;
        rest = rest.wrapping_sub(odds);
        is
    };
    let (gateway, member) = (world.rng.usize(..world.gateways.len()), world.members.len());
    let member = world.rng.usize(..member);
    if is(odds.begin) {
        if world.under_way() < 4 {
            let op = any_op(world, gateway);
            world.begin(gateway, op);
        }
    } else if is(odds.redo) {
        let is_eager = world.rng.u8(..8) == 0;
        world.redo(gateway, member, is_eager);
    } else if is(odds.time_out) {
        world.time_out();
    } else if is(odds.time_out) {
        world.expire(member);
    } else if is(odds.lose_session) {
        world.lose_session(gateway, member);
    } else if is(odds.restart) {
        let is_up = world.rng.bool();
        world.restart(member, is_up);
    } else if is(odds.kill) {
        world.kill_gateway(gateway);
        world.new_gateway();
    } else if is(odds.restart * 4) && !world.members[member].is_up {
        world.restart(member, true);
    } else if is(odds.kill * 4) {
        world.lapse();
    } else if is(odds.again) {
        ask_again(world, gateway, false);
    } else if is(odds.desert) {
        ask_again(world, gateway, true);
    } else if !world.deliver() {
        world.time_out();
    }
}

fn ask_again(world: &mut World, gateway: usize, is_any: bool) {
    let waiting = world.waiting(is_any);
    if let Some(&id) = world.rng.choice(&waiting) {
        world.begin_again(gateway, id);
    }
}

/// Everything comes to its end: nothing fails any more, and what is left is redone.
pub(crate) fn finish(world: &mut World, has_faults: bool) {
    for member in 0..world.members.len() {
        if !world.members[member].is_up {
            world.restart(member, true);
        }
    }
    drain(world);
    if has_faults {
        // What let go may have been lost: such holds end after a while.
        world.members.iter_mut().for_each(|member| member.holds.clear());
    }
    while world.gateways.len() > 1 {
        world.kill_gateway(0);
    }
    while world.lapse() {}
    drain(world);
    for _ in 0..100 {
        let mut is_any_left = false;
        for member in 0..world.members.len() {
            is_any_left |= world.redo(0, member, false);
        }
        if !is_any_left {
            break;
        }
        drain(world);
    }
}

fn drain(world: &mut World) {
    for _ in 0..100_000 {
        if world.is_idle() {
            return;
        }
        if !world.deliver() {
            world.time_out();
        }
    }
    panic!("it does not come to an end");
}

/// Says which seed it was, where a run ends in a panic.
pub(crate) struct Told(pub u64);

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    if let Some(seed) = number("PORTCULLIS_SEED") {
        return seed..seed + 1;
    }
    match std::env::var_os("PORTCULLIS_SOAK") {
        Some(_) => 0..number("PORTCULLIS_SOAK").filter(|&n| n > 1).unwrap_or(SEEDS_SOAK),
        None => 0..SEEDS,
    }
}

/// S-VOLUME-6.
#[test]
fn whatever_happens_no_change_is_lost_and_no_name_is_there_twice() {
    let is_one = std::env::var_os("PORTCULLIS_SEED").is_some();
    let (mut done, mut failed, mut lost) = (0, 0, 0);
    for seed in seeds() {
        let told = Told(seed);
        let world = run(seed, None);
        if is_one {
            world.trace.iter().for_each(|line| eprintln!("{line}"));
        }
        assert_eq!(violations(&world), [""; 0], "seed {seed}");
        drop(told);
        for outcome in &world.outcomes {
            match outcome.result {
                Some(Ok(())) => done += 1,
                Some(Err(_)) => failed += 1,
                None => lost += 1,
            }
        }
    }
    eprintln!("seeds {:?}: {done} done, {failed} failed, {lost} of gateways that died", seeds());
    assert!(is_one || (done > failed / 4 && done > lost), "most is done, or nothing is tested");
}

#[test]
fn every_planted_fault_is_found() {
    let found = |plant: Plant, seed: u64| {
        let run = AssertUnwindSafe(|| violations(&run(seed, Some(plant))).is_empty());
        !catch_unwind(run).unwrap_or(false)
    };
    for &(plant, first) in PLANTS {
        let seed = (first..first + SEEDS_TO_FIND).find(|&seed| found(plant, seed));
        eprintln!("{plant:?}: seed {seed:?}");
        assert!(seed.is_some(), "{plant:?} is not found in {SEEDS_TO_FIND} seeds");
    }
}
