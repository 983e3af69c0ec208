//! A member in memory: what it has on disk, what it forgets in a restart, and whom it lets wait.

use std::collections::{BTreeMap, BTreeSet};

use portcullis_core::replay::{Admission, OpId, Replays};
use portcullis_core::volume::{
    Ask, CopyAttr, DirId, Intent, KIND_MEMBER, LinkId, MemberId, MemberSet, Named, Outcomes, Owner,
    Place, Pointer, Preparation, Prepared, Record, Told, TxId, Unfinished, member_of,
};
use portcullis_core::{Attr, Entry, FileKind, Handle, Status};

use crate::plant::Plant;
use crate::tree::{Key, key};

/// A session of a gateway with a member.
pub(crate) type Session = u64;

/// What is asked of a member: of a volume, or what it does in a volume of one just so.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Ask(Ask),
    /// Makes a file.
    Create(Place),
    /// Changes the mode of a spread directory at its home.
    Setattr(DirId, u32),
}

/// What comes of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// It waits: try again when something has changed.
    Wait,
    /// The answer, and whether the operation that the request belongs to was done by it.
    Told(Told, Applied),
}

/// Whether a request was what does an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    No,
    Yes,
    /// A file was made.
    Created(Handle),
}

pub(crate) fn told(told: Told) -> Answer {
    Answer::Told(told, Applied::No)
}

pub(crate) fn refused(status: Status) -> Answer {
    told(Told::Failed(status))
}

/// Of a directory at home.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    pub(crate) parent: Option<Handle>,
    pub(crate) copies: MemberSet,
}

/// A directory as this member has it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Copy {
    pub(crate) names: BTreeMap<Vec<u8>, Record>,
    pub(crate) attr: CopyAttr,
    pub(crate) home: Option<Home>,
    /// Counts changes, in the place of the times.
    pub(crate) changes: u64,
    /// Counts its new names, in the place of the time of last status change.
    pub(crate) renames: u64,
}

/// What is held in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    Place(Place),
    Tree,
}

pub(crate) struct Member {
    pub(crate) id: MemberId,
    pub(crate) plant: Option<Plant>,
    // On disk.
    /// How many names each file has, hidden ones too.
    pub(crate) files: BTreeMap<Key, u32>,
    pub(crate) links: BTreeMap<LinkId, Handle>,
    pub(crate) copies: BTreeMap<Key, Copy>,
    pub(crate) prepared: BTreeMap<TxId, (Prepared, Session)>,
    pub(crate) intents: BTreeMap<TxId, (Intent, Session)>,
    last_file: u64,
    // In memory.
    pub(crate) is_up: bool,
    pub(crate) sessions: BTreeSet<Session>,
    pub(crate) holds: Vec<(TxId, Session, Held)>,
    pub(crate) tickets: BTreeSet<(DirId, u64)>,
    last_ticket: u64,
    /// Counts its restarts.
    pub(crate) life: u64,
    /// What was answered to what is an operation by itself.
    replays: Replays<Told, ()>,
    pub(crate) outcomes: Outcomes,
}

impl Member {
    pub(crate) fn new(id: MemberId, root: &Handle, plant: Option<Plant>) -> Self {
        let mut member = Self {
            id,
            plant,
            files: BTreeMap::new(),
            links: BTreeMap::new(),
            copies: BTreeMap::new(),
            prepared: BTreeMap::new(),
            intents: BTreeMap::new(),
            last_file: 0,
            is_up: true,
            sessions: BTreeSet::new(),
            holds: Vec::new(),
            tickets: BTreeSet::new(),
            last_ticket: 0,
            life: 1,
            replays: Replays::new(1),
            outcomes: Outcomes::new(1),
        };
        let owner = member_of(root);
        if owner.members().contains(id) {
            let copies = owner.members();
            let home = (owner.home() == id).then_some(Home { parent: None, copies });
            let attr = CopyAttr { mode: 0o755, ..CopyAttr::default() };
            member.copies.insert(key(root), Copy { attr, home, ..Copy::default() });
        }
        member
    }

    /// The brick starts again: what was in memory is gone.
    pub(crate) fn restart(&mut self) {
        self.sessions.clear();
        self.holds.clear();
        self.tickets.clear();
        self.life += 1;
        self.replays = Replays::new(self.life);
        self.outcomes = Outcomes::new(self.life);
        for (tx, (intent, _)) in &self.intents {
            intent.cause.iter().for_each(|cause| self.outcomes.commit(cause, *tx));
        }
        if self.plant == Some(Plant::PreparedInMemory) {
            self.prepared.clear();
        }
    }

    pub(crate) fn end_session(&mut self, session: Session) {
        self.sessions.remove(&session);
        self.holds.retain(|(_, holder, _)| *holder != session);
    }

    /// What is not through, and whether its session has ended.
    pub(crate) fn unfinished(&self) -> Vec<(Unfinished, bool)> {
        let prepared = self.prepared.values().map(|(prepared, session)| {
            let (tx, coordinator) = (prepared.tx, prepared.coordinator);
            (Unfinished::Prepared { tx, coordinator }, session)
        });
        let committed = self.intents.values().map(|(intent, session)| {
            let (tx, duties) = (intent.tx, intent.duties.clone());
            (Unfinished::Committed { tx, duties }, session)
        });
        let all = prepared.chain(committed);
        all.map(|(unfinished, session)| (unfinished, !self.sessions.contains(session))).collect()
    }

    /// What is to be done with an operation by itself: `None` where it is done now.
    pub(crate) fn admit(&mut self, op: &OpId) -> Option<Answer> {
        match self.replays.begin(op, false, || ()) {
            Admission::Apply => None,
            Admission::Replay(again) => Some(told(again)),
            Admission::Joined => Some(Answer::Wait),
            // Nobody knows, and who asks makes this of it.
            _ => Some(told(Told::Lost)),
        }
    }

    /// This is what came of an operation by itself.
    pub(crate) fn finish_op(&mut self, op: &OpId, told: &Told) {
        match told {
            Told::NoCopy => self.replays.abandon(op),
            _ => self.replays.finish(op, told.clone()),
        };
    }

    /// Does what is asked. `op`: of what is an operation by itself, and is admitted.
    pub(crate) fn answer(
        &mut self,
        request: &Request,
        session: Session,
        op: Option<&OpId>,
    ) -> Answer {
        let answer = self.answer_anew(request, session);
        if let (Some(op), Answer::Told(told, _)) = (op, &answer) {
            self.finish_op(op, told);
        }
        answer
    }

    fn answer_anew(&mut self, request: &Request, session: Session) -> Answer {
        match request {
            Request::Ask(ask) => self.ask(ask, session),
            Request::Create(place) => self.create(place),
            Request::Setattr(id, mode) => self.setattr(*id, *mode),
        }
    }

    fn ask(&mut self, ask: &Ask, session: Session) -> Answer {
        match ask {
            Ask::Mkdir { place, mode, id } => self.mkdir(place, *mode, *id),
            Ask::Unlink { tx, place } => self.unlink(*tx, place, session),
            Ask::Rmdir { place } => self.rmdir(place),
            Ask::Rename { tx, from, to, flags } => self.rename(*tx, from, to, *flags, session),
            Ask::Link { handle, place } => self.link(handle, place),
            Ask::Hold { tx, place, purpose } => self.hold(*tx, place, *purpose, session),
            Ask::HoldTree { tx } => self.hold_tree(*tx, session),
            Ask::Prepare { tx, coordinator, part } => {
                self.prepare(*tx, *coordinator, part, session)
            }
            Ask::Commit { tx, change, prepared, cause } => {
                self.commit(*tx, change, *prepared, cause.as_ref(), session)
            }
            Ask::TakeOver { tx, cause } => self.take_over(*tx, cause),
            Ask::Finish { tx } => self.finish(*tx),
            Ask::Abort { tx } => self.abort(*tx),
            Ask::Settle { tx } => self.settle(*tx),
            Ask::Forget { tx, version } => self.forget(*tx, *version),
            Ask::RemoveBody { link } => self.remove_body(*link),
            Ask::Parent { id } => self.parent(*id),
            Ask::ExpectCopy { id } => self.expect_copy(*id),
            Ask::Enlist { id, member } => self.enlist(*id, *member),
            Ask::MakeCopy { id, ticket, attr } => self.make_copy(*id, *ticket, attr),
            Ask::Mark { tx, id } => self.mark(*tx, *id, session),
            Ask::ReadCopy { id } => self.read_copy(*id),
            Ask::SetCopy { id, attr } => self.set_copy(*id, attr),
            Ask::Touch { id } => self.touch(*id),
            Ask::Renamed { id } => self.renamed(*id),
            // Nobody here is anybody but root.
            Ask::Own { .. } => told(Told::Done),
        }
    }

    /// Whether somebody else holds a name.
    pub(crate) fn is_held(&self, place: &Place, tx: Option<TxId>) -> bool {
        let is_other = |other: &TxId| Some(*other) != tx;
        let in_memory = self.holds.iter().any(|(other, _, held)| {
            is_other(other) && matches!(held, Held::Place(held) if held == place)
        });
        let leaves = |part: &Preparation| match part {
            Preparation::Leave { place: held, .. } | Preparation::Replace { place: held, .. } => {
                held == place
            }
            _ => false,
        };
        let ends = self.plant == Some(Plant::LeaveEndsWithSession);
        let prepared = self.prepared.iter().any(|(other, (prepared, session))| {
            is_other(other)
                && prepared.parts.iter().any(leaves)
                && (!ends || self.sessions.contains(session))
        });
        let holds = self.plant != Some(Plant::IntentHoldsNothing);
        let intended = holds
            && self.intents.iter().any(|(other, (intent, _))| {
                is_other(other) && intent.held.iter().any(|held| held == place)
            });
        in_memory || prepared || intended
    }

    /// Whether somebody else has sealed a directory here.
    pub(crate) fn is_sealed(&self, dir: &Handle, tx: Option<TxId>) -> bool {
        let Owner::Spread(id) = member_of(dir) else { return false };
        let seals = |part: &Preparation| *part == Preparation::Seal { id };
        self.plant != Some(Plant::SealsIgnored)
            && self.prepared.iter().any(|(other, (prepared, _))| {
                Some(*other) != tx && prepared.parts.iter().any(seals)
            })
    }

    /// Why there is no copy of a directory to make a name in.
    pub(crate) fn no_copy(&self, dir: &Handle) -> Answer {
        match member_of(dir) {
            Owner::Spread(id) if id.home() != self.id => told(Told::NoCopy),
            _ => refused(Status::Stale),
        }
    }

    /// Why there is no copy of a directory to take a name from.
    pub(crate) fn no_name(&self, dir: &Handle) -> Answer {
        match member_of(dir) {
            Owner::Spread(id) if id.home() != self.id => refused(Status::NotFound),
            _ => refused(Status::Stale),
        }
    }

    pub(crate) fn record(&self, place: &Place) -> Option<Record> {
        self.copies.get(&key(&place.dir))?.names.get(&place.name).copied()
    }

    pub(crate) fn set_name(&mut self, place: &Place, what: Named) {
        if let Some(copy) = self.copies.get_mut(&key(&place.dir)) {
            copy.names.insert(place.name.clone(), Record { what, uid: 0 });
            copy.changes += 1;
        }
    }

    pub(crate) fn take_name(&mut self, place: &Place) -> Option<Record> {
        let copy = self.copies.get_mut(&key(&place.dir))?;
        copy.changes += 1;
        copy.names.remove(&place.name)
    }

    /// A file loses one of its names.
    pub(crate) fn drop_name(&mut self, file: &Handle) {
        let key = key(file);
        let names = self.files.get_mut(&key).expect("a name of a file that is there");
        *names -= 1;
        if *names == 0 {
            self.files.remove(&key);
        }
    }

    pub(crate) fn new_file(&mut self) -> Handle {
        self.last_file += 1;
        let number = [1, self.last_file as u8, (self.last_file >> 8) as u8];
        let bytes = match self.id {
            0 => number.to_vec(),
            id => [&[KIND_MEMBER, id], &number[..]].concat(),
        };
        let handle = Handle::new(&bytes).expect("short");
        self.files.insert(key(&handle), 1);
        handle
    }

    pub(crate) fn new_ticket(&mut self) -> u64 {
        self.last_ticket += 1;
        self.last_ticket
    }
}

/// The entry of a file or directory.
pub(crate) fn entry(handle: Handle, kind: FileKind) -> Entry {
    Entry { handle, attr: None, kind, target: None }
}

/// The stat of a directory, which nobody looks at.
pub(crate) fn stat() -> Attr {
    Attr::default()
}

/// The file of a record that lies under this name.
pub(crate) fn body(record: &Record) -> Option<Handle> {
    match record.what {
        Named::Body { handle, .. } => Some(handle),
        Named::Pointer(_) => None,
    }
}

/// The pointer of a record to a file elsewhere.
pub(crate) fn file_pointer(record: &Record) -> Option<(Handle, LinkId)> {
    match record.what {
        Named::Pointer(Pointer::File { handle, link, .. }) => Some((handle, link)),
        _ => None,
    }
}
