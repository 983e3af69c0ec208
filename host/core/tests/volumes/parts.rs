//! Holds, promises, commits, and how they end.

use portcullis_core::Status;
use portcullis_core::volume::{
    Before, Cause, Change, Duty, LinkId, MemberId, MemberSet, Named, Owner, Place, Pointer,
    Preparation, Prepared, Purpose, Record, Told, TxId, member_of,
};
use portcullis_core::{FileKind, Handle};

use crate::member::{Answer, Applied, Held, Member, Session, body, refused, told};
use crate::plant::Plant;
use crate::tree::key;

impl Member {
    pub(crate) fn hold(
        &mut self,
        tx: TxId,
        place: &Place,
        purpose: Purpose,
        session: Session,
    ) -> Answer {
        if !self.copies.contains_key(&key(&place.dir)) {
            return match purpose {
                Purpose::Take => self.no_name(&place.dir),
                Purpose::Make | Purpose::Replace => self.no_copy(&place.dir),
            };
        }
        if !self.sessions.contains(&session) {
            return refused(Status::Unavailable);
        }
        if self.is_held(place, Some(tx)) || self.is_sealed(&place.dir, Some(tx)) {
            return Answer::Wait;
        }
        let record = self.record(place);
        match (purpose, record) {
            (Purpose::Take, None) => return refused(Status::NotFound),
            (Purpose::Make, Some(_)) => return refused(Status::Exists),
            _ => {}
        }
        self.holds.push((tx, session, Held::Place(place.clone())));
        told(Told::Record(record))
    }

    pub(crate) fn hold_tree(&mut self, tx: TxId, session: Session) -> Answer {
        if !self.sessions.contains(&session) {
            return refused(Status::Unavailable);
        }
        if self.holds.iter().any(|(other, _, held)| *other != tx && *held == Held::Tree) {
            return Answer::Wait;
        }
        self.holds.push((tx, session, Held::Tree));
        told(Told::Done)
    }

    pub(crate) fn prepare(
        &mut self,
        tx: TxId,
        coordinator: MemberId,
        part: &Preparation,
        session: Session,
    ) -> Answer {
        let is_known =
            self.prepared.get(&tx).is_some_and(|(prepared, _)| prepared.parts.contains(part));
        let (record, copies) = match self.promise(tx, part, is_known) {
            Ok(promise) => promise,
            Err(answer) => return answer,
        };
        if !is_known {
            let new = Prepared { tx, coordinator, parts: Vec::new() };
            let (prepared, holder) = self.prepared.entry(tx).or_insert((new, session));
            *holder = session;
            prepared.parts.push(part.clone());
            let kept = Prepared::of_bytes(&prepared.to_bytes()).expect("as it was written");
            *prepared = kept;
        }
        told(Told::Prepared { record, copies })
    }

    /// What is told of a promise, or why it is not made.
    fn promise(
        &mut self,
        tx: TxId,
        part: &Preparation,
        is_known: bool,
    ) -> Result<(Option<Record>, MemberSet), Answer> {
        match part {
            Preparation::Leave { place, .. } | Preparation::Replace { place, .. } => {
                if !self.copies.contains_key(&key(&place.dir)) {
                    return Err(self.no_name(&place.dir));
                }
                if self.is_held(place, Some(tx)) {
                    return Err(Answer::Wait);
                }
                let record = self.record(place).ok_or_else(|| refused(Status::NotFound))?;
                Ok((Some(record), MemberSet::EMPTY))
            }
            Preparation::Link { handle, link } => {
                let Some(names) = self.files.get_mut(&key(handle)) else {
                    return Err(refused(Status::Stale));
                };
                if !is_known {
                    *names += 1;
                    self.links.insert(*link, *handle);
                }
                let what = Named::Body { handle: *handle, kind: FileKind::Regular };
                Ok((Some(Record { what, uid: 0 }), MemberSet::EMPTY))
            }
            Preparation::Seal { id } => {
                let copy = self.copies.get(&key(&id.handle()));
                if copy.is_none() && id.home() == self.id {
                    return Err(refused(Status::Stale));
                }
                if self.is_sealed(&id.handle(), Some(tx)) {
                    return Err(Answer::Wait);
                }
                let is_full = copy.is_some_and(|copy| !copy.names.is_empty());
                if is_full && self.plant != Some(Plant::SealsFull) {
                    return Err(refused(Status::NotEmpty));
                }
                let copies = copy.and_then(|copy| copy.home.as_ref()).map(|home| home.copies);
                if self.plant != Some(Plant::SealKeepsTickets) {
                    self.tickets.retain(|(other, _)| other != id);
                }
                Ok((None, copies.unwrap_or_default()))
            }
            Preparation::Reparent { id, .. } => {
                if !self.copies.contains_key(&key(&id.handle())) {
                    return Err(refused(Status::Stale));
                }
                if self.is_reparented(id.handle(), Some(tx)) {
                    return Err(Answer::Wait);
                }
                Ok((None, MemberSet::EMPTY))
            }
        }
    }

    pub(crate) fn is_reparented(&self, dir: Handle, tx: Option<TxId>) -> bool {
        let moves = |part: &Preparation| matches!(part, Preparation::Reparent { id, .. } if id.handle() == dir);
        self.prepared
            .iter()
            .any(|(other, (prepared, _))| Some(*other) != tx && prepared.parts.iter().any(moves))
    }

    pub(crate) fn commit(
        &mut self,
        tx: TxId,
        change: &Change,
        prepared: MemberSet,
        cause: Option<&Cause>,
        session: Session,
    ) -> Answer {
        if let Some((intent, _)) = self.intents.get(&tx) {
            return told(Told::Committed { duties: intent.duties.clone() });
        }
        if cause.is_some_and(|cause| self.outcomes.is_committed(cause, tx)) {
            return told(Told::Committed { duties: Vec::new() });
        }
        let may_commit = |cause: &Cause| self.outcomes.may_commit(cause, tx);
        if self.plant != Some(Plant::TakenOverCommits) && !cause.is_none_or(may_commit) {
            return told(Told::NotHeld);
        }
        let places = match change {
            Change::Place { place, .. } | Change::Swap { place, .. } | Change::Remove { place } => {
                vec![place]
            }
            Change::Move { from, to, .. } => vec![from, to],
        };
        let is_mine = |place: &&Place| {
            let held = Held::Place((*place).clone());
            self.holds.iter().any(|(holder, _, what)| *holder == tx && *what == held)
        };
        let needs_hold = self.plant != Some(Plant::CommitWithoutHold);
        if needs_hold && !places.iter().all(is_mine) {
            return told(Told::NotHeld);
        }
        if let Change::Place { place, .. } | Change::Move { to: place, .. } = change {
            if self.is_sealed(&place.dir, Some(tx)) {
                return Answer::Wait;
            }
            if !self.copies.contains_key(&key(&place.dir)) {
                return told(Told::NoCopy);
            }
        }
        let held = match change {
            Change::Place { place, .. }
            | Change::Swap { place, .. }
            | Change::Move { to: place, .. } => vec![place.clone()],
            Change::Remove { .. } => Vec::new(),
        };
        let mut duties: Vec<Duty> = prepared.iter().map(|member| Duty::Finish { member }).collect();
        duties.extend(self.change(change));
        self.leave_intent(tx, held, &duties, cause.copied(), session);
        if let Some(cause) = cause.filter(|_| self.plant != Some(Plant::OutcomeForgotten)) {
            self.outcomes.commit(cause, tx);
        }
        self.holds.retain(|(holder, _, _)| *holder != tx);
        Answer::Told(Told::Committed { duties }, Applied::Yes)
    }

    pub(crate) fn take_over(&mut self, tx: TxId, cause: &Cause) -> Answer {
        let committed = match self.outcomes.take_over(cause, tx) {
            Before::Unknown => return refused(Status::InDoubt),
            Before::TakenOver => None,
            Before::Committed(by) => {
                let intent = self.intents.get(&by);
                Some((by, intent.map(|(intent, _)| intent.duties.clone()).unwrap_or_default()))
            }
        };
        told(Told::TakenOver { committed })
    }

    fn change(&mut self, change: &Change) -> Vec<Duty> {
        match change {
            Change::Place { place, pointer, replaced, .. } => {
                let old = self.record(place);
                assert_eq!(old.map(|old| old.what.handle()), *replaced, "it was held");
                let duties = old.map(|record| self.remove_record(&record)).unwrap_or_default();
                let what = self.placed(pointer);
                self.set_name(place, what);
                duties
            }
            Change::Swap { place, pointer, replaced, link, .. } => {
                let old = self.record(place);
                assert_eq!(old.map(|old| old.what.handle()), Some(*replaced), "it was held");
                self.swap(place, pointer, *link);
                Vec::new()
            }
            Change::Move { from, to, replaced } => {
                let old = self.record(to);
                assert_eq!(old.map(|old| old.what.handle()), *replaced, "it was held");
                self.move_name(from, to, old)
            }
            Change::Remove { place } => {
                let old = self.take_name(place).expect("it was held");
                assert!(old.what.spread().is_some(), "only a directory");
                Vec::new()
            }
        }
    }

    /// A name leads elsewhere, and what it stood for stays.
    fn swap(&mut self, place: &Place, pointer: &Pointer, link: LinkId) {
        if let Some(file) = self.take_name(place).as_ref().and_then(body) {
            self.links.insert(link, file);
        }
        let what = self.placed(pointer);
        self.set_name(place, what);
    }

    /// A pointer to a file of this member becomes the file.
    fn placed(&mut self, pointer: &Pointer) -> Named {
        match *pointer {
            Pointer::File { handle, kind, link }
                if member_of(&handle) == Owner::Member(self.id) =>
            {
                let there = self.links.remove(&link);
                assert_eq!(there, Some(handle), "the hidden name is there");
                Named::Body { handle, kind }
            }
            pointer => Named::Pointer(pointer),
        }
    }

    pub(crate) fn finish(&mut self, tx: TxId) -> Answer {
        self.holds.retain(|(holder, _, _)| *holder != tx);
        let parts = self.prepared.remove(&tx).map(|(prepared, _)| prepared.parts);
        for part in parts.into_iter().flatten() {
            match part {
                Preparation::Replace { place, pointer, link, .. } => {
                    self.swap(&place, &pointer, link);
                }
                Preparation::Leave { place, link } => {
                    let record = self.take_name(&place).expect("it is held");
                    if let Some(file) = body(&record) {
                        self.links.insert(link, file);
                    }
                }
                Preparation::Link { .. } => {}
                Preparation::Seal { id } => {
                    let copy = self.copies.remove(&key(&id.handle()));
                    let is_empty = copy.is_none_or(|copy| copy.names.is_empty());
                    assert!(is_empty, "what was sealed got no name");
                }
                Preparation::Reparent { id, parent } => {
                    let copy = self.copies.get_mut(&key(&id.handle())).expect("it moves");
                    copy.home.as_mut().expect("this is its home").parent = Some(parent);
                }
            }
        }
        told(Told::Done)
    }

    pub(crate) fn abort(&mut self, tx: TxId) -> Answer {
        self.holds.retain(|(holder, _, _)| *holder != tx);
        let prepared = self.prepared.remove(&tx);
        let was_there = prepared.is_some();
        for part in prepared.into_iter().flat_map(|(prepared, _)| prepared.parts) {
            if let Preparation::Link { link, .. } = part {
                self.remove_link(link);
            }
        }
        told(Told::Aborted { was_there })
    }

    pub(crate) fn settle(&mut self, tx: TxId) -> Answer {
        let is_committed = self.intents.contains_key(&tx);
        if !is_committed && self.plant != Some(Plant::SettleKeepsHold) {
            self.holds.retain(|(holder, _, _)| *holder != tx);
        }
        told(Told::Settled { is_committed })
    }

    pub(crate) fn remove_body(&mut self, link: LinkId) -> Answer {
        if self.plant != Some(Plant::BodyStays) {
            self.remove_link(link);
        }
        told(Told::Done)
    }

    fn remove_link(&mut self, link: LinkId) {
        if let Some(file) = self.links.remove(&link) {
            self.drop_name(&file);
        }
    }
}
