//! Bricks that are members of a volume, asked as a gateway asks them.

use std::path::PathBuf;

use portcullis_brick::HandleChoice;
use portcullis_core::replay::OpId;
use portcullis_core::volume::{
    Ask, Change, DirId, MemberId, MemberSet, Place, Pointer, Preparation, Purpose, Record, Told,
    TxId, arbiter,
};
use portcullis_core::{Entry, Handle, Status};
use portcullis_transport::{Connection, Role};
use portcullis_wire::message::{Caller, Membership, Mutated, Mutation};
use portcullis_wire::{Reply, Request};

use crate::support::{TestBrick, attach, connect, status_of};

pub(crate) const VOLUME: u128 = 0xfeed;

/// Runs a test of bricks within a runtime.
pub(crate) fn run(test: impl Future<Output = ()>) {
    crate::support::runtime().block_on(test);
}

/// One member.
pub(crate) struct Member {
    pub(crate) brick: TestBrick,
    pub(crate) number: MemberId,
    next: u64,
    life: u64,
}

/// Members of a volume that began empty, the first `count` of it.
pub(crate) async fn members(count: u8) -> Vec<Member> {
    let mut members = Vec::new();
    for number in 0..count {
        let brick = TestBrick::start(HandleChoice::Auto).await.expect("it starts");
        let joined = MemberSet::EMPTY;
        let membership =
            Membership { volume: VOLUME, member: number, count, root_layout: count, joined };
        let joined = brick.call(Request::Join { membership: Some(membership) }).await;
        let Ok(Reply::Joined { membership: Some(told), has_files: false }) = joined else {
            panic!("{joined:?}")
        };
        assert_eq!(told, membership);
        let life = attached(&brick.connection, false).await;
        members.push(Member { brick, number, next: 1, life });
    }
    members
}

async fn attached(connection: &Connection, watch: bool) -> u64 {
    match connection.call(&attach(watch)).await {
        Ok(Reply::Attached { life, .. }) => life,
        other => panic!("{other:?}"),
    }
}

impl Member {
    /// The same after the brick was restarted. It has forgotten nothing that it must not.
    pub(crate) async fn restart(self) -> Self {
        let Self { brick, number, next, .. } = self;
        let brick = brick.restart().await;
        let joined = brick.call(Request::Join { membership: None }).await;
        let Ok(Reply::Joined { membership: Some(membership), .. }) = joined else {
            panic!("{joined:?}")
        };
        assert_eq!((membership.volume, membership.member), (VOLUME, number));
        let life = attached(&brick.connection, false).await;
        Self { brick, number, next, life }
    }

    /// A connection of somebody else, who has joined and attached, to `watch` or not.
    pub(crate) async fn connect(&self, watch: bool) -> Connection {
        let connection = connect(&self.brick.identities, Role::Gateway, self.brick.address).await;
        let join = Request::Join { membership: None };
        connection.call(&join).await.expect("joined");
        attached(&connection, watch).await;
        connection
    }

    /// The life of the brick.
    pub(crate) fn life(&self) -> u64 {
        self.life
    }

    pub(crate) fn op(&mut self) -> OpId {
        let number = self.next;
        self.next += 1;
        OpId { client: 5, number, oldest: 1, life: self.life, retry: false }
    }

    pub(crate) async fn mutate_as(
        &mut self,
        caller: Caller,
        mutation: Mutation,
    ) -> Result<Mutated, Status> {
        let op = self.op();
        let connection = self.brick.connection.clone();
        mutate_on(&connection, op, caller, mutation).await
    }

    pub(crate) async fn mutate(&mut self, mutation: Mutation) -> Result<Mutated, Status> {
        self.mutate_as(Caller::ROOT, mutation).await
    }

    pub(crate) async fn ask_as(&mut self, caller: Caller, ask: Ask) -> Result<Told, Status> {
        match self.mutate_as(caller, Mutation::Volume(ask)).await? {
            Mutated::Told(told) => Ok(told),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn ask(&mut self, ask: Ask) -> Result<Told, Status> {
        self.ask_as(Caller::ROOT, ask).await
    }

    /// Makes a directory that is at home here.
    pub(crate) async fn mkdir(&mut self, dir: Handle, name: &str, layout: u8, random: u8) -> DirId {
        let id = DirId::new(layout, self.number, [random; 14]).expect("an id");
        let place = place(dir, name);
        match self.ask(Ask::Mkdir { place, mode: 0o755, id }).await {
            Ok(Told::Made(entry)) => assert_eq!(entry.handle, id.handle()),
            other => panic!("{other:?}"),
        }
        id
    }

    /// Makes a file with this content, on the brick's own host.
    pub(crate) fn write(&self, id: &DirId, name: &str, content: &str) {
        std::fs::write(self.copy(id).join(name), content).expect("written");
    }

    /// Where the copy of a directory lies.
    pub(crate) fn copy(&self, id: &DirId) -> PathBuf {
        if id.is_root() {
            return self.brick.path("");
        }
        let part = format!("{:02x}", id.as_bytes()[2]);
        self.brick.path(".portcullis-volume/dirs").join(part).join(id.to_string())
    }

    pub(crate) async fn lookup(&self, dir: Handle, name: &str) -> Result<Entry, Status> {
        self.brick.lookup(dir, name).await
    }

    /// The names that the member tells of a directory, in order.
    pub(crate) async fn names(&self, dir: Handle) -> Vec<String> {
        let listed = self.brick.list(dir, vec![]).await.expect("listed");
        let text = |name: Vec<u8>| String::from_utf8(name).expect("ours");
        let mut names: Vec<String> = listed.into_iter().map(|(name, ..)| text(name)).collect();
        names.sort();
        names
    }

    pub(crate) async fn hold(
        &mut self,
        tx: TxId,
        place: &Place,
        purpose: Purpose,
    ) -> Option<Record> {
        match self.ask(Ask::Hold { tx, place: place.clone(), purpose }).await {
            Ok(Told::Record(record)) => record,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn prepare(
        &mut self,
        tx: TxId,
        coordinator: MemberId,
        part: Preparation,
    ) -> Option<Record> {
        match self.ask(Ask::Prepare { tx, coordinator, part }).await {
            Ok(Told::Prepared { record, .. }) => record,
            other => panic!("{other:?}"),
        }
    }

    /// How many transactions are not through.
    pub(crate) async fn unfinished(&self) -> (usize, usize) {
        match self.brick.call(Request::Unfinished).await {
            Ok(Reply::Unfinished { orphans, led }) => (orphans.len(), led.len()),
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) async fn mutate_on(
    connection: &Connection,
    op: OpId,
    caller: Caller,
    mutation: Mutation,
) -> Result<Mutated, Status> {
    let request = Request::Mutate { op, caller, mutation };
    match status_of(connection.call(&request).await)? {
        Reply::Mutated { result, .. } => Ok(result),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn root(members: &[Member]) -> DirId {
    DirId::root(members.len() as u8).expect("several")
}

pub(crate) fn place(dir: Handle, name: &str) -> Place {
    Place { dir, name: name.into() }
}

pub(crate) fn tx(number: u64) -> TxId {
    TxId { gateway: 77, number }
}

/// A name that this member arbitrates.
pub(crate) fn name_on(member: MemberId, dir: Handle, prefix: &str) -> String {
    let mut names = (0..).map(|number| format!("{prefix}{number}"));
    names.find(|name| arbiter(&dir, name.as_bytes()) == member).expect("one of them")
}

/// The commit of a rename of `what` onto a name that is not there.
pub(crate) fn placing(place: &Place, pointer: Pointer) -> Change {
    Change::Place { place: place.clone(), pointer, uid: 0, replaced: None }
}

pub(crate) fn only(member: MemberId) -> MemberSet {
    MemberSet::of(member)
}
