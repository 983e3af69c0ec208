//! Events and answers as they cross into a component, which serves all clients of a gateway.
//!
//! A [`Told`] is an [`Event`] of a client, or its leaving; [`Answer`]s are asked for client by client.
//! `wit/README.md` has the words. What must hold: ids of directories are those of one client, so a
//! directory is known only together with its client.

use super::{Answer, DirId, Entry, Event, Loss};

/// A client of the gateway. Its number is not used again before its leaving was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(pub u32);

/// What is told to a policy that serves several clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Something that happened to a directory.
    Event {
        /// For whom.
        client: ClientId,
        /// What.
        event: Event,
    },
    /// A client is gone: its directories are known no more.
    Left {
        /// Who.
        client: ClientId,
    },
}

impl Told {
    /// Words of a packed event: `client << 32 | detail << 8 | kind`, directory, subdirectory.
    pub const WORDS: usize = 3;

    /// The packed form.
    pub fn pack(&self) -> [u64; Self::WORDS] {
        let (client, detail, kind, dir, subdir) = match *self {
            Told::Event { client, event } => match event {
                Event::Entered { dir, entry } => (client, entry as u8, 0, dir.0, 0),
                Event::Subdir { dir, subdir } => (client, 0, 1, dir.0, subdir.0),
                Event::Listed { dir } => (client, 0, 2, dir.0, 0),
                Event::Lost { dir, loss } => (client, loss as u8, 3, dir.0, 0),
            },
            Told::Left { client } => (client, 0, 4, 0, 0),
        };
        [word(client, detail, kind), dir, subdir]
    }

    /// The event of a packed form, `None` where its kind is unknown. An unknown detail of a known kind
    /// tells the least that it can: that the directory is known, or is no more.
    pub fn unpack(words: [u64; Self::WORDS]) -> Option<Self> {
        let [head, dir, subdir] = words;
        let (client, detail, kind) = parts(head);
        let dir = DirId(dir);
        let event = match kind {
            0 => {
                let entry = match detail {
                    0 => Entry::Used,
                    1 => Entry::Late,
                    3 => Entry::Missed,
                    _ => Entry::Known,
                };
                Event::Entered { dir, entry }
            }
            1 => Event::Subdir { dir, subdir: DirId(subdir) },
            2 => Event::Listed { dir },
            3 => {
                let loss = match detail {
                    0 => Loss::Known,
                    1 => Loss::Failed,
                    2 => Loss::Invalidated,
                    _ => Loss::Dropped,
                };
                Event::Lost { dir, loss }
            }
            4 => return Some(Told::Left { client }),
            _ => return None,
        };
        Some(Told::Event { client, event })
    }
}

impl Answer {
    /// Words of a packed answer: kind, directory.
    pub const WORDS: usize = 2;

    /// The packed form.
    pub fn pack(&self) -> [u64; Self::WORDS] {
        match *self {
            Answer::List(dir) => [0, dir.0],
            Answer::Cancel(dir) => [1, dir.0],
            Answer::Forget(dir) => [2, dir.0],
        }
    }

    /// The answer of a packed form, `None` where its kind is unknown.
    pub fn unpack([kind, dir]: [u64; Self::WORDS]) -> Option<Self> {
        let dir = DirId(dir);
        match kind {
            0 => Some(Answer::List(dir)),
            1 => Some(Answer::Cancel(dir)),
            2 => Some(Answer::Forget(dir)),
            _ => None,
        }
    }
}

fn word(client: ClientId, detail: u8, kind: u8) -> u64 {
    u64::from(client.0) << 32 | u64::from(detail) << 8 | u64::from(kind)
}

/// Client, detail of 24 bits, kind.
fn parts(word: u64) -> (ClientId, u32, u8) {
    (ClientId((word >> 32) as u32), (word >> 8) as u32 & 0xff_ffff, word as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: ClientId = ClientId(u32::MAX);
    const DIR: DirId = DirId(u64::MAX);

    fn every_event() -> Vec<Event> {
        let entries = [Entry::Used, Entry::Late, Entry::Known, Entry::Missed];
        let losses = [Loss::Known, Loss::Failed, Loss::Invalidated, Loss::Dropped];
        let mut events = vec![Event::Subdir { dir: DIR, subdir: DirId(7) }];
        events.push(Event::Listed { dir: DIR });
        events.extend(entries.map(|entry| Event::Entered { dir: DIR, entry }));
        events.extend(losses.map(|loss| Event::Lost { dir: DIR, loss }));
        events
    }

    #[test]
    fn what_is_packed_is_unpacked_the_same() {
        let events = every_event().into_iter().map(|event| Told::Event { client: CLIENT, event });
        for told in events.chain([Told::Left { client: CLIENT }]) {
            assert_eq!(Told::unpack(told.pack()), Some(told));
        }
        for answer in [Answer::List(DIR), Answer::Cancel(DIR), Answer::Forget(DIR)] {
            assert_eq!(Answer::unpack(answer.pack()), Some(answer));
        }
    }

    /// The words of `wit/README.md`.
    #[test]
    fn the_words_are_those_of_the_interface() {
        let client = ClientId(5);
        let event = Event::Lost { dir: DirId(9), loss: Loss::Invalidated };
        assert_eq!(Told::Event { client, event }.pack(), [5 << 32 | 2 << 8 | 3, 9, 0]);
        let event = Event::Subdir { dir: DirId(9), subdir: DirId(10) };
        assert_eq!(Told::Event { client, event }.pack(), [5 << 32 | 1, 9, 10]);
        assert_eq!(Told::Left { client }.pack(), [5 << 32 | 4, 0, 0]);
        assert_eq!(Answer::Forget(DirId(9)).pack(), [2, 9]);
    }

    #[test]
    fn an_unknown_detail_tells_the_least() {
        let client = ClientId(0);
        for detail in [4, 0xff_ffff] {
            let event = Event::Entered { dir: DirId(1), entry: Entry::Known };
            assert_eq!(Told::unpack([detail << 8, 1, 0]), Some(Told::Event { client, event }));
            let event = Event::Lost { dir: DirId(1), loss: Loss::Dropped };
            assert_eq!(Told::unpack([detail << 8 | 3, 1, 0]), Some(Told::Event { client, event }));
        }
    }

    #[test]
    fn what_is_unknown_is_nothing() {
        for head in [5, 255] {
            assert_eq!(Told::unpack([head, 1, 1]), None, "{head:#x}");
        }
        assert_eq!(Answer::unpack([3, 1]), None);
    }
}
