//! Each operation, interrupted at each step: the gateway dies, a member restarts, a session ends,
//! or two of these. Then another gateway brings to an end what it finds.

use portcullis_core::volume::{DirId, MemberId, Operation, Place};
use portcullis_core::{Handle, Status};

use crate::check::violations;
use crate::mixed::{Told, finish};
use crate::run::Op;
use crate::tree::EXCHANGE;
use crate::world::World;

const MEMBERS: u8 = 3;

/// What the operation is done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thing {
    Nothing,
    /// A file where its name is.
    Body,
    /// A file that lies on this member, which need not have the name.
    File(MemberId),
    /// An empty directory that all members have copies of.
    Dir,
    /// One that only its home has.
    NewDir,
}

/// An operation, and the tree that it is done in.
#[derive(Clone, Copy, Debug)]
enum Scenario {
    Create(MemberId),
    Mkdir(MemberId),
    Unlink(MemberId, Thing),
    Rmdir(MemberId, Thing),
    Link(MemberId, Thing),
    Chmod(Thing),
    Rename { from: (MemberId, Thing), to: (MemberId, Thing), is_other_dir: bool },
    Exchange { from: (MemberId, Thing), to: (MemberId, Thing), is_other_dir: bool },
}

/// What goes wrong.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Death,
    Restart(usize),
    Session(usize),
}

fn faults() -> Vec<Vec<Fault>> {
    let members = 0..usize::from(MEMBERS);
    let mut all = vec![vec![Fault::Death]];
    all.extend(members.clone().map(|member| vec![Fault::Restart(member)]));
    all.extend(members.clone().map(|member| vec![Fault::Session(member)]));
    all.extend(members.map(|member| vec![Fault::Death, Fault::Restart(member)]));
    all
}

fn scenarios() -> Vec<Scenario> {
    let things = [Thing::Body, Thing::File(1), Thing::File(2), Thing::Dir, Thing::NewDir];
    let mut all = vec![Scenario::Chmod(Thing::Dir), Scenario::Chmod(Thing::NewDir)];
    for member in 0..2 {
        all.extend([Scenario::Create(member), Scenario::Mkdir(member)]);
        all.extend(things[..3].iter().map(|&thing| Scenario::Unlink(member, thing)));
        all.extend(things[3..].iter().map(|&thing| Scenario::Rmdir(member, thing)));
        all.extend(things[..3].iter().map(|&thing| Scenario::Link(member, thing)));
    }
    for (from, to) in [(0, 0), (0, 1), (1, 2), (2, 1)] {
        for (thing, is_other_dir) in things.into_iter().flat_map(|t| [(t, false), (t, true)]) {
            let replaced: &[Thing] = match thing {
                Thing::Dir | Thing::NewDir => &[Thing::Nothing, Thing::Dir, Thing::NewDir],
                _ => &[Thing::Nothing, Thing::Body, Thing::File(0), Thing::File(1)],
            };
            all.extend(replaced.iter().map(|&replaced| Scenario::Rename {
                from: (from, thing),
                to: (to, replaced),
                is_other_dir,
            }));
        }
    }
    let files = &things[..3];
    let exchanged = files.iter().flat_map(|&from| things.iter().map(move |&to| (from, to)));
    for (from, to) in exchanged {
        for members in [(0, 0), (0, 1), (1, 2), (2, 1)] {
            let (from, to) = ((members.0, from), (members.1, to));
            all.push(Scenario::Exchange { from, to, is_other_dir: false });
            if files.contains(&to.1) {
                all.push(Scenario::Exchange { from, to, is_other_dir: true });
            }
        }
    }
    all
}

/// Makes what an operation needs, and the operation.
struct Stage {
    world: World,
    dirs: u8,
    names: u32,
    /// The directory that names are in, without copies but at home.
    dir: Handle,
}

impl Stage {
    fn new(seed: u64) -> Self {
        let root = DirId::root(MEMBERS).expect("some members").handle();
        let mut stage =
            Self { world: World::new(seed, MEMBERS, root, None), dirs: 0, names: 0, dir: root };
        stage.dir = stage.mkdir(0);
        stage
    }

    fn run(&mut self, op: Op) {
        let id = self.world.begin(0, op);
        while self.world.deliver() {}
        assert_eq!(self.world.outcomes[id].result, Some(Ok(())), "{:?}", self.world.outcomes[id]);
    }

    /// A new name of a directory that this member arbitrates.
    fn name_at(&mut self, dir: &Handle, member: MemberId) -> Place {
        loop {
            self.names += 1;
            let place = self.world.place(dir, &format!("{}", self.names));
            if place.arbiter() == member {
                return place;
            }
        }
    }

    fn id(&mut self, home: MemberId) -> DirId {
        self.dirs += 1;
        DirId::new(MEMBERS, home, [self.dirs; 14]).expect("an id")
    }

    fn mkdir(&mut self, home: MemberId) -> Handle {
        let place = self.name_at(&self.dir.clone(), home);
        self.mkdir_at(place)
    }

    fn mkdir_at(&mut self, place: Place) -> Handle {
        let id = self.id(place.arbiter());
        self.run(Op::Volume(Operation::Mkdir { place, mode: 0o755, id }));
        id.handle()
    }

    /// Makes a thing under a name that this member arbitrates.
    fn make(&mut self, dir: &Handle, member: MemberId, thing: Thing) -> Place {
        let place = self.name_at(dir, member);
        match thing {
            Thing::Nothing => {}
            Thing::Body => self.run(Op::Create(place.clone())),
            Thing::File(lies_on) => {
                let first = self.name_at(dir, lies_on);
                self.run(Op::Create(first.clone()));
                let tx = self.world.tx(0);
                let rename = Operation::Rename {
                    tx,
                    from: first,
                    to: place.clone(),
                    flags: 0,
                    link: tx.number.into(),
                };
                self.run(Op::Volume(rename));
            }
            Thing::NewDir => drop(self.mkdir_at(place.clone())),
            Thing::Dir => {
                let made = self.mkdir_at(place.clone());
                for member in 0..MEMBERS {
                    let inner = self.name_at(&made, member);
                    self.run(Op::Create(inner.clone()));
                    let tx = self.world.tx(0);
                    self.run(Op::Volume(Operation::Unlink { tx, place: inner }));
                }
            }
        }
        place
    }

    fn prepare(&mut self, scenario: Scenario) -> Op {
        let dir = self.dir;
        let tx = self.world.tx(0);
        let link = u128::from(tx.number) << 64;
        match scenario {
            Scenario::Create(member) => Op::Create(self.name_at(&dir, member)),
            Scenario::Mkdir(member) => {
                let (place, id) = (self.name_at(&dir, member), self.id(member));
                Op::Volume(Operation::Mkdir { place, mode: 0o700, id })
            }
            Scenario::Unlink(member, thing) => {
                let place = self.make(&dir, member, thing);
                Op::Volume(Operation::Unlink { tx, place })
            }
            Scenario::Rmdir(member, thing) => {
                let place = self.make(&dir, member, thing);
                Op::Volume(Operation::Rmdir { tx, place })
            }
            Scenario::Link(member, thing) => {
                let old = self.make(&dir, 0, thing);
                let handle = self.world.tree.get(&old).expect("it was made");
                let place = self.name_at(&dir, member);
                Op::Volume(Operation::Link { tx, handle, place, link })
            }
            Scenario::Chmod(thing) => {
                let place = self.make(&dir, 1, thing);
                let handle = self.world.tree.get(&place).expect("it was made");
                let id = DirId::of_handle(&handle).expect("a directory");
                Op::Chmod { tx, id, mode: 0o711 }
            }
            Scenario::Rename { from, to, is_other_dir }
            | Scenario::Exchange { from, to, is_other_dir } => {
                let from = self.make(&dir, from.0, from.1);
                let to_dir = if is_other_dir { self.mkdir(1) } else { dir };
                let to = self.make(&to_dir, to.0, to.1);
                let is_exchange = matches!(scenario, Scenario::Exchange { .. });
                let flags = if is_exchange { EXCHANGE } else { 0 };
                Op::Volume(Operation::Rename { tx, from, to, flags, link })
            }
        }
    }
}

fn fail(world: &mut World, fault: Fault) {
    match fault {
        Fault::Death => {
            world.kill_gateway(0);
            world.new_gateway();
        }
        Fault::Restart(member) => world.restart(member, true),
        Fault::Session(member) => world.lose_session(0, member),
    }
}

/// S-VOLUME-6.
#[test]
fn an_operation_interrupted_at_any_step_is_brought_to_its_end() {
    let (mut runs, mut steps_max, mut told_again, mut told_unknown) = (0, 0, 0, 0);
    for (number, scenario) in scenarios().into_iter().enumerate() {
        let _told = Told(number as u64);
        let mut stage = Stage::new(number as u64);
        let op = stage.prepare(scenario);
        let steps = count_steps(number as u64, scenario);
        steps_max = steps.max(steps_max);
        for step in 0..=steps {
            for faults in faults() {
                let mut stage = Stage::new(number as u64);
                let same = stage.prepare(scenario);
                assert_eq!(format!("{op:?}"), format!("{same:?}"), "it can be repeated");
                let mut world = stage.world;
                world.begin(0, same);
                (0..step).for_each(|_| {
                    world.deliver();
                });
                faults.iter().for_each(|&fault| fail(&mut world, fault));
                // The client of a gateway that died asks the next one.
                let again = world.waiting(false);
                again.iter().for_each(|&id| world.begin_again(0, id));
                settle(&mut world);
                finish(&mut world, true);
                let found = violations(&world);
                assert_eq!(found, [""; 0], "{scenario:?}, {faults:?} after {step} steps");
                for id in again {
                    let outcome = &world.outcomes[id];
                    let is_known = outcome.result == Some(Ok(()));
                    let may_be_unknown =
                        faults.len() > 1 && outcome.result == Some(Err(Status::InDoubt));
                    assert!(
                        is_known || may_be_unknown,
                        "{scenario:?}, {faults:?} after {step}: {outcome:?}"
                    );
                    told_again += u32::from(is_known);
                    told_unknown += u32::from(!is_known);
                }
                runs += 1;
            }
        }
    }
    eprintln!("{runs} runs of {} operations, of up to {steps_max} steps", scenarios().len());
    eprintln!("asked again: {told_again} told how it ended, {told_unknown} that nobody knows");
}

/// Everything that is under way ends before anybody has waited for too long: members notice which
/// gateways are gone, and what those left is redone.
fn settle(world: &mut World) {
    loop {
        while world.deliver() {}
        let redone =
            |world: &mut World| (0..MEMBERS.into()).any(|member| world.redo(0, member, false));
        if world.is_idle() || !(world.lapse() || redone(world)) {
            return;
        }
    }
}

/// How many requests and answers an operation takes where nothing fails, and that it is done.
fn count_steps(seed: u64, scenario: Scenario) -> usize {
    let mut stage = Stage::new(seed);
    let op = stage.prepare(scenario);
    let mut world = stage.world;
    let id = world.begin(0, op);
    let steps = std::iter::from_fn(|| world.deliver().then_some(())).count();
    assert_eq!(world.outcomes[id].result, Some(Ok(())), "{scenario:?}");
    finish(&mut world, false);
    assert_eq!(violations(&world), [""; 0], "{scenario:?}");
    steps
}

#[test]
fn how_many_round_trips_an_operation_takes() {
    let trips = |scenario| {
        let mut stage = Stage::new(7);
        let op = stage.prepare(scenario);
        let mut world = stage.world;
        world.begin(0, op);
        while world.deliver() {}
        world.batches_of_last()
    };
    let rename = |from: (MemberId, Thing), to: (MemberId, Thing)| {
        trips(Scenario::Rename { from, to, is_other_dir: false })
    };
    let (body, nothing) = (Thing::Body, Thing::Nothing);
    assert_eq!(trips(Scenario::Mkdir(0)), 1);
    assert_eq!(trips(Scenario::Unlink(0, body)), 1);
    assert_eq!(trips(Scenario::Link(0, body)), 1);
    assert_eq!(trips(Scenario::Rmdir(0, Thing::NewDir)), 1);
    assert_eq!(rename((0, body), (0, nothing)), 1, "one member");
    assert_eq!(trips(Scenario::Create(1)), 2 + COPY_TRIPS, "then the home's times");
    assert_eq!(trips(Scenario::Unlink(0, Thing::File(1))), 2, "then the hidden name");
    assert_eq!(trips(Scenario::Link(1, body)), 4 + COPY_TRIPS, "held, linked, placed, finished");
    assert_eq!(trips(Scenario::Chmod(Thing::Dir)), 5, "marked, set, read, copied, forgotten");
    assert_eq!(trips(Scenario::Rmdir(0, Thing::Dir)), 6, "asked, held, 2 seals, done, finished");
    assert_eq!(rename((2, body), (1, body)), 4, "held, leaving, placed, finished");
    assert_eq!(rename((1, body), (2, body)), 5, "held twice");
    assert_eq!(rename((2, Thing::Dir), (1, Thing::Dir)), 6, "2 seals more");
    let exchange = |from: (MemberId, Thing), to: (MemberId, Thing)| {
        trips(Scenario::Exchange { from, to, is_other_dir: false })
    };
    assert_eq!(exchange((2, body), (1, body)), 4, "held, prepared, placed, finished");
    assert_eq!(exchange((1, body), (2, Thing::Dir)), 5, "held twice");
    let from = (2, Thing::Dir);
    let is_moved = trips(Scenario::Rename { from, to: (1, nothing), is_other_dir: true });
    assert_eq!(is_moved, 4 + 2 + 2, "the tree held, prepared at home, two directories above");
}

/// What it takes to make a copy of a directory: a refusal, ticket, home, copy.
const COPY_TRIPS: usize = 4;
