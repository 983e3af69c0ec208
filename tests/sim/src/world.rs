//! The loop: programs ask and change, packets arrive, and things go wrong; all by one seed.

use bytes::{Bytes, BytesMut};
use fastrand::Rng;
use portcullis_wire::Request;
use portcullis_wire::frame::{self, Frame};
use portcullis_wire::message::{Mutation, SetAttr};

use crate::brick::Brick;
use crate::client::Client;
use crate::gateway::Gateway;
use crate::net::{Event, IDLE_US, Net, Node, Weather};
use crate::oracle::{Counts, Oracle, WAIT_US_MAX};
use crate::plant::Plant;
use crate::tree::{DIRS, NAMES, Place, Tree, dir_handle, file_handle, name_of};

/// Gateways.
const GATEWAYS: usize = 2;
/// Clients, half of them at each gateway.
const CLIENTS: usize = 4;
/// For how long programs ask and things go wrong.
const ACTIVE_US: u64 = 20_000_000;
/// How long after that everything must have been answered.
const CALM_US: u64 = 60_000_000;
/// How often a node looks at its clock.
pub const TICK_US: u64 = 100_000;
/// Longest time for which a node is down.
const DOWN_US_MAX: u64 = 1_500_000;
/// Longest time for which a node is frozen: longer than a lease is held.
const FROZEN_US_MAX: u64 = 5_800_000;
/// Longest cut of a connection.
const CUT_US_MAX: u64 = 10_000_000;

/// What a node has at hand while it acts.
pub struct Context<'a> {
    /// The network, the clocks and chance.
    pub net: &'a mut Net,
    /// Who sees everything.
    pub oracle: &'a mut Oracle,
    /// The node itself.
    pub me: Node,
    /// The planted fault.
    pub plant: Plant,
}

impl Context<'_> {
    /// What the node's own clock shows.
    pub fn now_ms(&mut self) -> u64 {
        self.net.now_ms(self.me)
    }
}

/// The one frame that these bytes are.
pub fn decode_frame(bytes: Bytes) -> Frame {
    frame::take(&mut BytesMut::from(bytes)).expect("a frame").expect("a whole frame")
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What was wrong, empty if nothing.
    pub violations: Vec<String>,
    /// What was judged.
    pub counts: Counts,
    /// Answers that came from a cache alone, of clients or gateways.
    pub hits: u64,
    /// Fingerprint of everything that happened: equal for equal runs.
    pub fingerprint: u64,
}

/// What may go wrong in a run, each with its weight.
#[derive(Clone, Copy, Debug)]
struct Trouble {
    pause_us_max: u64,
    lose: u32,
    cut: u32,
    freeze: u32,
    restart: u32,
}

/// One run.
pub struct World {
    random: Rng,
    net: Net,
    oracle: Oracle,
    plant: Plant,
    trouble: Trouble,
    stuck_percent: u8,
    direct_percent: u8,
    brick: Option<Brick>,
    /// The tree while the brick is down.
    tree: Option<Tree>,
    gateways: Vec<Option<Gateway>>,
    clients: Vec<Option<Client>>,
    last_id: u64,
    hits: u64,
    verbose: bool,
}

impl World {
    /// A run by `seed`, with a fault planted or not; `verbose` prints each event.
    pub fn new(seed: u64, plant: Plant, verbose: bool) -> Self {
        let mut random = Rng::with_seed(seed);
        let weather = Weather {
            delay_us_max: random.u64(50..20_000),
            loss_percent: random.u8(0..15),
            resend_us: random.u64(5_000..100_000),
            slow_percent: if random.bool() { random.u8(1..10) } else { 0 },
        };
        let mut weight = || if random.bool() { random.u32(1..10) } else { 0 };
        let trouble = Trouble {
            lose: weight(),
            cut: weight(),
            freeze: weight(),
            restart: weight(),
            pause_us_max: random.u64(500_000..6_000_000),
        };
        let mut world = Self {
            net: Net::new(random.fork(), weather),
            // With packets that take seconds, leases end that nobody wanted to end.
            oracle: Oracle::new((weather.slow_percent == 0).then_some(WAIT_US_MAX)),
            plant,
            trouble,
            stuck_percent: if random.u8(0..4) == 0 { random.u8(1..5) } else { 0 },
            direct_percent: if random.bool() { random.u8(1..10) } else { 0 },
            brick: None,
            tree: Some(Tree::default()),
            gateways: (0..GATEWAYS).map(|_| None).collect(),
            clients: (0..CLIENTS).map(|_| None).collect(),
            last_id: 0,
            hits: 0,
            random,
            verbose,
        };
        let gateways = (0..GATEWAYS).map(Node::Gateway);
        let clients = (0..CLIENTS).map(Node::Client);
        for node in [Node::Brick].into_iter().chain(gateways).chain(clients) {
            world.start(node);
        }
        world
    }

    /// Runs to the end: every request must have its answer.
    pub fn run(mut self) -> Outcome {
        let (mut ask_at_us, mut trouble_at_us) = (0, 0);
        while self.net.now_us < ACTIVE_US + CALM_US {
            let at_us = self.net.next_at_us().unwrap_or(u64::MAX);
            let act_at_us = ask_at_us.min(trouble_at_us);
            if act_at_us < ACTIVE_US && act_at_us <= at_us {
                self.net.now_us = act_at_us;
                if ask_at_us <= trouble_at_us {
                    ask_at_us += self.random.u64(0..20_000);
                    self.act();
                } else {
                    trouble_at_us += self.random.u64(0..self.trouble.pause_us_max);
                    self.disturb();
                }
                continue;
            }
            if self.net.now_us > ACTIVE_US && self.oracle.waiting() == 0 {
                break;
            }
            let Some((node, event)) = self.net.next_event() else { break };
            self.happen(node, event);
        }
        self.oracle.end();
        if self.verbose {
            self.oracle.violations.iter().for_each(|violation| println!("VIOLATION: {violation}"));
        }
        self.count_hits();
        Outcome {
            violations: self.oracle.violations,
            counts: self.oracle.counts,
            hits: self.hits,
            fingerprint: self.net.fingerprint,
        }
    }

    /// A program asks or changes something, or somebody changes something on the brick.
    fn act(&mut self) {
        let place = (self.random.usize(0..DIRS), self.random.usize(0..NAMES));
        if self.random.u8(0..100) < self.direct_percent {
            let mutation = self.mutation(place);
            if let (Some(brick), mut cx) =
                (&mut self.brick, context(&mut self.net, &mut self.oracle, self.plant, Node::Brick))
            {
                brick.change(&mut cx, &mutation);
            }
            return;
        }
        let client = self.random.usize(0..CLIENTS);
        if self.net.is_frozen(Node::Client(client)) {
            return;
        }
        let (dir, name) = (dir_handle(place.0), name_of(place.1));
        let request = match self.random.u8(0..10) {
            0..3 => None,
            3 => Some(Request::List { dir, after: Vec::new(), acl: false, contents: None }),
            4 | 5 => Some(Request::Getattr { handle: self.handle(place) }),
            _ => Some(Request::Lookup { dir, name }),
        };
        let mutation = self.mutation(place);
        self.last_id += 1;
        let (id, now_us) = (self.last_id, self.net.now_us);
        let mut cx = context(&mut self.net, &mut self.oracle, self.plant, Node::Client(client));
        let Some(client_side) = &mut self.clients[client] else { return };
        cx.oracle.ask(now_us, id, client, request.clone());
        if self.verbose {
            println!("{now_us:>9} us  client {client} asks {id}: {request:?} or {mutation:?}");
        }
        match request {
            Some(request) => client_side.ask(&mut cx, id, request),
            None => client_side.mutate(&mut cx, id, mutation),
        }
    }

    /// A handle that a program may know of this place.
    fn handle(&mut self, place: Place) -> portcullis_core::Handle {
        let state = self.tree().and_then(|tree| tree.state(place));
        file_handle(place, state.map_or(0, |found| found.file))
    }

    /// A change at this place that may well succeed.
    fn mutation(&mut self, place: Place) -> Mutation {
        let (dir, name) = (dir_handle(place.0), name_of(place.1));
        self.last_id += 1;
        let version = self.last_id;
        let is_there = self.tree().is_some_and(|tree| tree.state(place).is_some());
        match (is_there, self.random.u8(0..8)) {
            (true, 0..3) | (false, 0) => Mutation::Unlink { dir, name },
            (true, 3..7) => {
                let set = SetAttr { size_bytes: Some(version), ..SetAttr::default() };
                Mutation::Setattr { handle: self.handle(place), file: 0, set }
            }
            _ => Mutation::Mknod { dir, name, mode: 0o100_644, rdev: version },
        }
    }

    fn tree(&mut self) -> Option<&mut Tree> {
        match &mut self.brick {
            Some(brick) => Some(brick.tree()),
            None => self.tree.as_mut(),
        }
    }

    /// Something goes wrong.
    fn disturb(&mut self) {
        let Trouble { lose, cut, freeze, restart, .. } = self.trouble;
        let all = lose + cut + freeze + restart;
        if all == 0 {
            return;
        }
        let kind = self.random.u32(0..all);
        let conns = self.net.conns(None);
        let conn = self.random.choice(&conns).copied();
        if kind < lose + cut {
            let Some((conn, ends)) = conn.and_then(|conn| Some((conn, self.net.ends(conn)?)))
            else {
                return;
            };
            if kind < lose {
                let noticed_us = [0; 2].map(|_| if self.random.bool() { 10_000 } else { IDLE_US });
                self.net.lose(conn, noticed_us);
                self.note_trouble(ends.0, IDLE_US, &format!("{ends:?} lost"));
            } else {
                let us = self.random.u64(0..CUT_US_MAX);
                let directions = [[true, false], [false, true], [true; 2]];
                let directions = directions[self.random.usize(0..3)];
                self.net.cut(conn, directions, us);
                let us = us.min(2 * IDLE_US) + IDLE_US;
                self.note_trouble(ends.0, us, &format!("{ends:?} cut {directions:?} for {us}"));
            }
            return;
        }
        let node = match self.random.usize(0..8) {
            0 => Node::Brick,
            1..4 => Node::Gateway(self.random.usize(0..GATEWAYS)),
            _ => Node::Client(self.random.usize(0..CLIENTS)),
        };
        if kind < lose + cut + freeze {
            let us = self.random.u64(0..FROZEN_US_MAX);
            self.net.freeze(node, us);
            self.note_trouble(node, us + IDLE_US, &format!("{node:?} frozen for {us}"));
        } else {
            let us = self.random.u64(1..DOWN_US_MAX);
            self.note_trouble(node, us + IDLE_US, &format!("{node:?} down for {us}"));
            self.stop(node, us);
        }
    }

    /// The way of those who ask through `node` is not in order for a while.
    fn note_trouble(&mut self, node: Node, us: u64, what: &str) {
        let until_us = self.net.now_us + us;
        if self.verbose {
            println!("{:>9} us  TROUBLE: {what}", self.net.now_us);
        }
        for client in 0..CLIENTS {
            let way = [Node::Client(client), gateway_of(client), Node::Brick];
            if way.contains(&node) {
                self.oracle.disturb(client, until_us);
            }
        }
    }

    fn stop(&mut self, node: Node, down_us: u64) {
        if !self.net.is_up(node) {
            return;
        }
        self.count_hits();
        self.net.restart(node, down_us);
        match node {
            Node::Brick => {
                self.tree = self.brick.take().map(|mut brick| std::mem::take(brick.tree()));
                self.oracle.brick_life = self.net.life(node);
            }
            Node::Gateway(gateway) => self.gateways[gateway] = None,
            Node::Client(client) => {
                self.clients[client] = None;
                self.oracle.forget(client);
            }
        }
    }

    fn start(&mut self, node: Node) {
        let mut cx = context(&mut self.net, &mut self.oracle, self.plant, node);
        match node {
            Node::Brick => {
                let tree = self.tree.take().unwrap_or_default();
                cx.oracle.brick_life = cx.net.life(node);
                self.brick = Some(Brick::start(&mut cx, tree));
            }
            Node::Gateway(gateway) => self.gateways[gateway] = Some(Gateway::start(&mut cx)),
            Node::Client(client) => {
                let upper = gateway_of(client);
                self.clients[client] = Some(Client::start(&mut cx, upper, self.stuck_percent));
            }
        }
    }

    fn happen(&mut self, node: Node, event: Event) {
        if self.verbose && !matches!(event, Event::Wake { .. }) {
            println!("{:>9} us  {node:?}: {event:?}", self.net.now_us);
        }
        if matches!(event, Event::Start { .. }) {
            return self.start(node);
        }
        let mut cx = context(&mut self.net, &mut self.oracle, self.plant, node);
        match (node, event) {
            (Node::Brick, Event::Packet { conn, what, .. }) => {
                self.brick.iter_mut().for_each(|brick| brick.receive(&mut cx, conn, what.clone()));
            }
            (Node::Brick, Event::Wake { token, .. }) => {
                self.brick.iter_mut().for_each(|brick| brick.wake(&mut cx, token));
            }
            (Node::Gateway(gateway), Event::Packet { conn, to_upper, what }) => {
                if let Some(gateway) = &mut self.gateways[gateway] {
                    gateway.receive(&mut cx, conn, to_upper, what);
                }
            }
            (Node::Gateway(gateway), Event::Wake { token, .. }) => {
                if let Some(gateway) = &mut self.gateways[gateway] {
                    gateway.wake(&mut cx, token);
                }
            }
            (Node::Client(client), Event::Packet { conn, what, .. }) => {
                if let Some(client) = &mut self.clients[client] {
                    client.receive(&mut cx, conn, what);
                }
            }
            (Node::Client(client), Event::Wake { token, .. }) => {
                if let Some(client) = &mut self.clients[client] {
                    client.wake(&mut cx, token);
                }
            }
            (_, Event::Lose { .. } | Event::Start { .. }) => {}
        }
    }

    /// Hits are counted by caches, which do not outlive their nodes.
    fn count_hits(&mut self) {
        let gateways = self.gateways.iter().flatten().map(Gateway::hits);
        let clients = self.clients.iter().flatten().map(Client::hits);
        self.hits = self.hits.max(gateways.chain(clients).sum());
    }
}

fn context<'a>(net: &'a mut Net, oracle: &'a mut Oracle, plant: Plant, me: Node) -> Context<'a> {
    Context { net, oracle, me, plant }
}

/// The gateway of a client.
fn gateway_of(client: usize) -> Node {
    Node::Gateway(client % GATEWAYS)
}
