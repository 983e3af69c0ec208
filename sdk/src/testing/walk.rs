//! The drill of prefetch policies: three clients that walk one tree, in depth, in breadth and at random,
//! while their host lists ahead what the policy chose.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_core::prefetch::{Answer, ClientId, DirId, Entry, Event, Loss, Told};

use super::chance::Chance;
use super::{Call, Events, Failed, Kind, Subject, Transcript};

const DIRS: usize = 400;
const STEPS: usize = 1_500;
/// Listings ahead that one client may have under way.
const UNDER_WAY_MAX: usize = 32;

/// See [`Kind::drill`].
pub(super) fn drill<S: Subject>(
    seed: u64,
    events: Events,
    subject: &mut S,
) -> Result<Transcript, Failed> {
    let mut chance = Chance::new(seed);
    let tree = tree(&mut chance);
    let orders = [in_depth(&tree), in_breadth(&tree), at_random(&mut chance)];
    let mut clients: Vec<Client<'_>> =
        (0..3).map(|number| Client::new(number, &tree, &orders[number as usize])).collect();
    let mut drill = Drill { subject, chance, events, now_ms: 0, transcript: Transcript::default() };
    let mut numbers = 3;
    for _ in 0..STEPS {
        drill.now_ms += drill.chance.below(20);
        let at = drill.chance.below(3) as usize;
        let told = clients[at].step(&mut drill.chance);
        drill.tell(clients[at].number, &told)?;
        drill.ask(&mut clients[at])?;
        if clients[at].is_over() || drill.chance.one_in(1_000) {
            // It leaves, and another one comes and walks likewise.
            drill.left(clients[at].number)?;
            clients[at] = Client::new(numbers, &tree, &orders[at]);
            numbers += 1;
        }
    }
    Ok(drill.transcript)
}

struct Drill<'a, S> {
    subject: &'a mut S,
    chance: Chance,
    events: Events,
    now_ms: u64,
    transcript: Transcript,
}

impl<S: Subject> Drill<'_, S> {
    fn tell(&mut self, client: u32, events: &[Event]) -> Result<(), Failed> {
        let mut words: Vec<u64> = Vec::new();
        for &event in events {
            if self.events == Events::Odd && self.chance.one_in(6) {
                // A kind that a later version may have.
                let kind = 5 + self.chance.below(251);
                let head = u64::from(client) << 32 | self.chance.below(1 << 24) << 8 | kind;
                words.extend([head, self.chance.word(), self.chance.word()]);
            }
            words.extend(Told::Event { client: ClientId(client), event }.pack());
        }
        if self.events == Events::Odd {
            // Half an event.
            words.push(self.chance.word());
        }
        self.on_events(&words)
    }

    fn left(&mut self, client: u32) -> Result<(), Failed> {
        self.on_events(&Told::Left { client: ClientId(client) }.pack())
    }

    fn on_events(&mut self, words: &[u64]) -> Result<(), Failed> {
        let told = self.subject.call(self.now_ms, Call::OnEvents { words });
        told.map_err(|error| Failed(format!("on-events, with {} words: {error}", words.len())))?;
        Ok(())
    }

    /// Asks until the answer is not full.
    fn ask(&mut self, client: &mut Client<'_>) -> Result<(), Failed> {
        loop {
            let want = (UNDER_WAY_MAX - client.under_way.len()) as u32;
            let call = Call::Propose { client: client.number, want };
            let answer = self.subject.call(self.now_ms, call).map_err(|error| {
                Failed(format!("propose, for client {}: {error}", client.number))
            })?;
            let what = format_args!("propose {} {want}", client.number);
            self.transcript.write(what, &answer);
            let (answers, rest) = answer.as_chunks::<{ Answer::WORDS }>();
            let answers_max = Kind::Prefetch.answers_max();
            if !rest.is_empty() || answers.len() > answers_max {
                let words = answer.len();
                let what =
                    format!("{words} words were answered: two for each of {answers_max} at most");
                return Err(Failed(what));
            }
            let mut lists = 0;
            for &words in answers {
                let Some(answer) = Answer::unpack(words) else {
                    return Err(Failed(format!("an answer of unknown kind: {}", words[0])));
                };
                lists += u32::from(matches!(answer, Answer::List(_)));
                client.carry_out(answer, &mut self.chance)?;
            }
            if lists > want {
                return Err(Failed(format!(
                    "{lists} directories were to be listed, of {want} wanted"
                )));
            }
            if answers.len() < answers_max {
                return Ok(());
            }
        }
    }
}

/// How a directory stands for a client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Known,
    UnderWay,
    Ready,
    Entered,
}

struct Client<'a> {
    number: u32,
    tree: &'a [Vec<usize>],
    order: &'a [usize],
    /// Steps of the order that are done.
    at: usize,
    /// How long a directory still takes.
    under_way: BTreeMap<usize, u64>,
    standings: BTreeMap<usize, Standing>,
    /// Numbers that were given out and are not forgotten.
    ids: BTreeMap<usize, DirId>,
    dirs: BTreeMap<DirId, usize>,
    given: u64,
    /// Directories whose subdirectories were told.
    told: BTreeSet<usize>,
}

impl<'a> Client<'a> {
    fn new(number: u32, tree: &'a [Vec<usize>], order: &'a [usize]) -> Self {
        Self {
            number,
            tree,
            order,
            at: 0,
            under_way: BTreeMap::new(),
            standings: BTreeMap::new(),
            ids: BTreeMap::new(),
            dirs: BTreeMap::new(),
            given: 0,
            told: BTreeSet::new(),
        }
    }

    fn is_over(&self) -> bool {
        self.at >= self.order.len()
    }

    /// Enters the next directory, and lets time go by for what is under way.
    fn step(&mut self, chance: &mut Chance) -> Vec<Event> {
        let mut events = Vec::new();
        let over: Vec<usize> = self
            .under_way
            .iter_mut()
            .filter_map(|(&dir, left)| {
                *left -= 1;
                (*left == 0).then_some(dir)
            })
            .collect();
        for dir in over {
            self.under_way.remove(&dir);
            self.end(dir, chance, &mut events);
        }
        let dir = self.order[self.at];
        self.at += 1;
        let (id, _) = self.id(dir);
        let entry = match self.standings.insert(dir, Standing::Entered) {
            Some(Standing::Ready) => Entry::Used,
            Some(Standing::UnderWay) => Entry::Late,
            _ if chance.one_in(10) => Entry::Known,
            _ => Entry::Missed,
        };
        events.push(Event::Entered { dir: id, entry });
        if entry != Entry::Late {
            self.tell(dir, id, &mut events);
        }
        events
    }

    /// A listing ahead is over.
    fn end(&mut self, dir: usize, chance: &mut Chance, events: &mut Vec<Event>) {
        // Forgotten meanwhile, or given out anew.
        let Some(&id) = self.ids.get(&dir) else { return };
        if chance.one_in(20) && self.standings.get(&dir) == Some(&Standing::UnderWay) {
            self.standings.insert(dir, Standing::Known);
            let losses = [Loss::Known, Loss::Failed, Loss::Invalidated, Loss::Dropped];
            events.push(Event::Lost { dir: id, loss: losses[chance.below(4) as usize] });
            return;
        }
        if self.standings.get(&dir) == Some(&Standing::UnderWay) {
            self.standings.insert(dir, Standing::Ready);
        }
        self.tell(dir, id, events);
    }

    fn tell(&mut self, dir: usize, id: DirId, events: &mut Vec<Event>) {
        if !self.told.insert(dir) {
            return;
        }
        for &subdir in &self.tree[dir] {
            let (subdir, is_new) = self.id(subdir);
            if is_new {
                events.push(Event::Subdir { dir: id, subdir });
            }
        }
        events.push(Event::Listed { dir: id });
    }

    /// The number of a directory, and whether it is a new one.
    fn id(&mut self, dir: usize) -> (DirId, bool) {
        if let Some(&id) = self.ids.get(&dir) {
            return (id, false);
        }
        self.given += 1;
        let id = DirId(self.given);
        self.ids.insert(dir, id);
        self.dirs.insert(id, dir);
        self.standings.insert(dir, Standing::Known);
        (id, true)
    }

    fn carry_out(&mut self, answer: Answer, chance: &mut Chance) -> Result<(), Failed> {
        let (Answer::List(id) | Answer::Cancel(id) | Answer::Forget(id)) = answer;
        if id.0 == 0 || id.0 > self.given {
            let number = self.number;
            return Err(Failed(format!("directory {} was never told to client {number}", id.0)));
        }
        let Some(&dir) = self.dirs.get(&id) else { return Ok(()) };
        let standing = self.standings.get(&dir).copied();
        match answer {
            Answer::List(_) if standing == Some(Standing::Known) => {
                self.standings.insert(dir, Standing::UnderWay);
                self.under_way.insert(dir, 1 + chance.below(4));
            }
            Answer::List(_) => {}
            Answer::Cancel(_) => {
                self.under_way.remove(&dir);
                if standing != Some(Standing::Entered) {
                    self.standings.insert(dir, Standing::Known);
                }
            }
            Answer::Forget(_) => {
                self.under_way.remove(&dir);
                self.ids.remove(&dir);
                self.dirs.remove(&id);
                self.standings.remove(&dir);
                self.told.remove(&dir);
            }
        }
        Ok(())
    }
}

/// The subdirectories of each directory; the root is 0.
fn tree(chance: &mut Chance) -> Vec<Vec<usize>> {
    let mut dirs = vec![Vec::new()];
    for dir in 1..DIRS {
        let back = 1 + chance.below(40) as usize;
        let first = dir.saturating_sub(back);
        let parent = first + chance.below((dir - first) as u64) as usize;
        dirs[parent].push(dir);
        dirs.push(Vec::new());
    }
    dirs
}

fn in_depth(tree: &[Vec<usize>]) -> Vec<usize> {
    let (mut order, mut stack) = (Vec::new(), vec![0]);
    while let Some(dir) = stack.pop() {
        order.push(dir);
        stack.extend(tree[dir].iter().rev());
    }
    order
}

fn in_breadth(tree: &[Vec<usize>]) -> Vec<usize> {
    let mut order = vec![0];
    let mut at = 0;
    while at < order.len() {
        order.extend(&tree[order[at]]);
        at += 1;
    }
    order
}

fn at_random(chance: &mut Chance) -> Vec<usize> {
    (0..DIRS).map(|_| chance.below(DIRS as u64) as usize).collect()
}
