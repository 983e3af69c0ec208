//! Copies of directories: made, refreshed, and their home told.

use portcullis_core::Status;
use portcullis_core::volume::{CopyAttr, DirId, Duty, MemberId, Told, TxId};

use crate::member::{Answer, Applied, Copy, Member, Session, refused, stat, told};
use crate::plant::Plant;
use crate::tree::key;

impl Member {
    fn at_home(&mut self, id: DirId) -> Option<&mut Copy> {
        self.copies.get_mut(&key(&id.handle())).filter(|copy| copy.home.is_some())
    }

    fn copy_told(&mut self, id: DirId) -> Answer {
        let own = self.id;
        let Some(copy) = self.at_home(id) else { return refused(Status::Stale) };
        let attr = copy.attr.clone();
        let copies = copy.home.as_ref().expect("at home").copies.without(own);
        told(Told::Copy { attr, stat: stat(), copies })
    }

    pub(crate) fn parent(&mut self, id: DirId) -> Answer {
        if self.is_reparented(id.handle(), None) && self.plant != Some(Plant::ParentAtOnce) {
            return Answer::Wait;
        }
        let Some(copy) = self.at_home(id) else { return refused(Status::Stale) };
        let parent = copy.home.as_ref().and_then(|home| home.parent);
        told(Told::Parent(parent.expect("not the root")))
    }

    pub(crate) fn expect_copy(&mut self, id: DirId) -> Answer {
        if self.copies.contains_key(&key(&id.handle())) {
            return told(Told::Done);
        }
        if self.is_sealed(&id.handle(), None) {
            return Answer::Wait;
        }
        let ticket = self.new_ticket();
        self.tickets.insert((id, ticket));
        told(Told::Ticket(ticket))
    }

    pub(crate) fn enlist(&mut self, id: DirId, member: MemberId) -> Answer {
        if self.is_sealed(&id.handle(), None) {
            return Answer::Wait;
        }
        let forgets = self.plant == Some(Plant::EnlistForgets);
        let Some(copy) = self.at_home(id) else { return refused(Status::Stale) };
        let home = copy.home.as_mut().expect("at home");
        if !forgets {
            home.copies = home.copies.with(member);
        }
        self.copy_told(id)
    }

    pub(crate) fn make_copy(&mut self, id: DirId, ticket: u64, attr: &CopyAttr) -> Answer {
        if self.copies.contains_key(&key(&id.handle())) {
            return told(Told::Done);
        }
        if !self.tickets.remove(&(id, ticket)) {
            return told(Told::NoTicket);
        }
        let copy = Copy { attr: attr.clone(), ..Copy::default() };
        self.copies.insert(key(&id.handle()), copy);
        told(Told::Done)
    }

    pub(crate) fn mark(&mut self, tx: TxId, id: DirId, session: Session) -> Answer {
        if self.at_home(id).is_none() {
            return refused(Status::Stale);
        }
        self.leave_intent(tx, Vec::new(), &[Duty::Refresh { id }], None, session);
        told(Told::Done)
    }

    pub(crate) fn setattr(&mut self, id: DirId, mode: u32) -> Answer {
        let refresh = Duty::Refresh { id };
        let is_marked = self.intents.values().any(|(intent, _)| intent.duties.contains(&refresh));
        let needs_mark = self.plant != Some(Plant::SetattrWithoutMark);
        let Some(copy) = self.at_home(id) else { return refused(Status::Stale) };
        if !is_marked && needs_mark {
            return refused(Status::Busy);
        }
        copy.attr.mode = mode;
        copy.attr.version += 1;
        Answer::Told(Told::Done, Applied::Yes)
    }

    pub(crate) fn read_copy(&mut self, id: DirId) -> Answer {
        self.copy_told(id)
    }

    pub(crate) fn set_copy(&mut self, id: DirId, attr: &CopyAttr) -> Answer {
        self.tickets.retain(|(other, _)| *other != id);
        let takes_any = self.plant == Some(Plant::SetCopyAnyVersion);
        if let Some(copy) = self.copies.get_mut(&key(&id.handle()))
            && (attr.version > copy.attr.version || takes_any)
        {
            copy.attr = attr.clone();
        }
        told(Told::Done)
    }

    pub(crate) fn touch(&mut self, id: DirId) -> Answer {
        if let Some(copy) = self.at_home(id) {
            copy.changes += 1;
        }
        told(Told::Done)
    }

    pub(crate) fn renamed(&mut self, id: DirId) -> Answer {
        if let Some(copy) = self.at_home(id) {
            copy.renames += 1;
        }
        told(Told::Done)
    }

    pub(crate) fn forget(&mut self, tx: TxId, version: Option<u64>) -> Answer {
        let refreshed = self.intents.get(&tx).and_then(|(intent, _)| {
            intent.duties.iter().find_map(|duty| match duty {
                Duty::Refresh { id } => Some(*id),
                _ => None,
            })
        });
        if let Some(id) = refreshed
            && self.plant != Some(Plant::ForgetAnyVersion)
            && let Some(copy) = self.at_home(id)
            && Some(copy.attr.version) != version
        {
            return told(Told::Changed);
        }
        self.intents.remove(&tx);
        told(Told::Done)
    }
}
