//! What one member does alone with the names that it arbitrates.

use portcullis_core::volume::{
    Cause, DirId, Duty, Intent, Named, Owner, Place, Pointer, Record, Told, TxId, member_of,
};
use portcullis_core::{FileKind, Handle, Status};

use crate::member::{
    Answer, Applied, Copy, Home, Member, Session, body, entry, file_pointer, refused,
};
use crate::tree::{EXCHANGE, NOREPLACE, key};
use portcullis_core::volume::{CopyAttr, MemberSet};

fn done(told: Told) -> Answer {
    Answer::Told(told, Applied::Yes)
}

impl Member {
    /// What keeps a name from being made; `None` where it can be.
    fn not_vacant(&self, place: &Place) -> Option<Answer> {
        if !self.copies.contains_key(&key(&place.dir)) {
            return Some(self.no_copy(&place.dir));
        }
        if self.is_held(place, None) || self.is_sealed(&place.dir, None) {
            return Some(Answer::Wait);
        }
        self.record(place).map(|_| refused(Status::Exists))
    }

    pub(crate) fn create(&mut self, place: &Place) -> Answer {
        if let Some(answer) = self.not_vacant(place) {
            return answer;
        }
        let handle = self.new_file();
        self.set_name(place, Named::Body { handle, kind: FileKind::Regular });
        Answer::Told(Told::Made(entry(handle, FileKind::Regular)), Applied::Created(handle))
    }

    pub(crate) fn mkdir(&mut self, place: &Place, mode: u32, id: DirId) -> Answer {
        if let Some(answer) = self.not_vacant(place) {
            return answer;
        }
        assert_eq!(id.home(), self.id, "its home arbitrates its name");
        let home = Home { parent: Some(place.dir), copies: MemberSet::of(self.id) };
        let attr = CopyAttr { mode, ..CopyAttr::default() };
        let copy = Copy { attr, home: Some(home), ..Copy::default() };
        self.copies.insert(key(&id.handle()), copy);
        self.set_name(place, Named::Pointer(Pointer::Dir(id)));
        done(Told::Made(entry(id.handle(), FileKind::Directory)))
    }

    pub(crate) fn link(&mut self, file: &Handle, place: &Place) -> Answer {
        if let Some(answer) = self.not_vacant(place) {
            return answer;
        }
        let Some(names) = self.files.get_mut(&key(file)) else { return refused(Status::Stale) };
        *names += 1;
        self.set_name(place, Named::Body { handle: *file, kind: FileKind::Regular });
        done(Told::Made(entry(*file, FileKind::Regular)))
    }

    /// The record of a name that is to be taken, or why it cannot be.
    fn taken(&self, place: &Place) -> Result<Record, Answer> {
        if !self.copies.contains_key(&key(&place.dir)) {
            return Err(self.no_name(&place.dir));
        }
        if self.is_held(place, None) {
            return Err(Answer::Wait);
        }
        self.record(place).ok_or_else(|| refused(Status::NotFound))
    }

    pub(crate) fn unlink(&mut self, tx: TxId, place: &Place, session: Session) -> Answer {
        let record = match self.taken(place) {
            Ok(record) => record,
            Err(answer) => return answer,
        };
        if record.what.kind() == FileKind::Directory {
            return refused(Status::IsDirectory);
        }
        self.take_name(place);
        let duties = self.remove_record(&record);
        self.leave_intent(tx, Vec::new(), &duties, None, session);
        done(Told::Committed { duties })
    }

    pub(crate) fn rmdir(&mut self, place: &Place) -> Answer {
        let record = match self.taken(place) {
            Ok(record) => record,
            Err(answer) => return answer,
        };
        let Some(id) = record.what.spread() else { return refused(Status::NotDirectory) };
        let copy = self.copies.get(&key(&id.handle()));
        let Some(home) = copy.and_then(|copy| copy.home.as_ref()) else {
            return Answer::Told(Told::Elsewhere, Applied::No);
        };
        if home.copies != MemberSet::of(self.id) {
            return Answer::Told(Told::Elsewhere, Applied::No);
        }
        if self.is_sealed(&id.handle(), None) {
            return Answer::Wait;
        }
        if copy.is_some_and(|copy| !copy.names.is_empty()) {
            return refused(Status::NotEmpty);
        }
        self.copies.remove(&key(&id.handle()));
        self.take_name(place);
        done(Told::Done)
    }

    pub(crate) fn rename(
        &mut self,
        tx: TxId,
        from: &Place,
        to: &Place,
        flags: u32,
        session: Session,
    ) -> Answer {
        let moved = match self.taken(from) {
            Ok(record) => record,
            Err(answer) => return answer,
        };
        if !self.copies.contains_key(&key(&to.dir)) {
            return self.no_copy(&to.dir);
        }
        if self.is_held(to, None) || self.is_sealed(&to.dir, None) {
            return Answer::Wait;
        }
        let other = self.record(to);
        let nothing = || done(Told::Committed { duties: Vec::new() });
        if other.is_some() && flags == NOREPLACE {
            return refused(Status::Exists);
        }
        if other.is_some_and(|other| other.what.handle() == moved.what.handle()) {
            return nothing();
        }
        let gets_parent = |record: &Record| record.what.spread().is_some() && from.dir != to.dir;
        match other {
            None if flags == EXCHANGE => return refused(Status::NotFound),
            Some(other) if flags == EXCHANGE => {
                if gets_parent(&moved) || gets_parent(&other) {
                    return refused(Status::InvalidArgument);
                }
                self.set_name(from, other.what);
                self.set_name(to, moved.what);
                let moved = self.renamed_elsewhere(&[moved, other]);
                return done(Told::Renamed { duties: Vec::new(), moved });
            }
            _ => {}
        }
        if gets_parent(&moved) {
            return Answer::Told(Told::Elsewhere, Applied::No);
        }
        if let Some(other) = &other {
            match (moved.what.spread(), other.what.spread()) {
                (Some(_), None) => return refused(Status::NotDirectory),
                (None, Some(_)) => return refused(Status::IsDirectory),
                (Some(_), Some(_)) => return Answer::Told(Told::Elsewhere, Applied::No),
                (None, None) => {}
            }
        }
        let duties = self.move_name(from, to, other);
        self.leave_intent(tx, Vec::new(), &duties, None, session);
        let moved = self.renamed_elsewhere(&[moved]);
        done(Told::Renamed { duties, moved })
    }

    /// Directories that have another name now: what is at home here knows it.
    fn renamed_elsewhere(&mut self, records: &[Record]) -> Vec<DirId> {
        let mut elsewhere: Vec<DirId> =
            records.iter().filter_map(|record| record.what.spread()).collect();
        elsewhere.retain(|id| {
            let is_here = id.home() == self.id;
            if is_here {
                self.renamed(*id);
            }
            !is_here
        });
        elsewhere
    }

    /// Moves a record; the duties that come of what it replaces.
    pub(crate) fn move_name(
        &mut self,
        from: &Place,
        to: &Place,
        replaced: Option<Record>,
    ) -> Vec<Duty> {
        let moved = self.take_name(from).expect("it was looked up");
        self.set_name(to, moved.what);
        replaced.map(|record| self.remove_record(&record)).unwrap_or_default()
    }

    /// A record has lost its name.
    pub(crate) fn remove_record(&mut self, record: &Record) -> Vec<Duty> {
        if let Some(file) = body(record) {
            self.drop_name(&file);
        }
        let duty = file_pointer(record).map(|(handle, link)| {
            let Owner::Member(member) = member_of(&handle) else { unreachable!("a file") };
            Duty::RemoveBody { member, link }
        });
        duty.into_iter().collect()
    }

    pub(crate) fn leave_intent(
        &mut self,
        tx: TxId,
        held: Vec<Place>,
        duties: &[Duty],
        cause: Option<Cause>,
        session: Session,
    ) {
        if !duties.is_empty() {
            let intent = Intent { tx, held, duties: duties.to_vec(), cause };
            let kept = Intent::of_bytes(&intent.to_bytes()).expect("as it was written");
            self.intents.insert(tx, (kept, session));
        }
    }
}
