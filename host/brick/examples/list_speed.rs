//! How long a brick takes to list a directory, with the client in the same process:
//! `cargo run --release -p portcullis-brick --example list_speed -- DIR [kernel|map|map-by-stat]`
//!
//! Prints the minimum of five listings: entries, milliseconds to the first of them and to the
//! end, and CPU time of brick and client together.

use std::error::Error;
use std::time::{Duration, Instant};

use portcullis_brick::{Brick, BrickConfig, HandleChoice};
use portcullis_transport::{Connection, Connector, IdentitySet, Role};
use portcullis_wire::{Reply, ReplyFrame, Request};
use rustix::time::{ClockId, clock_gettime};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("which directory?")?;
    let mut config = BrickConfig::new(dir, "127.0.0.1:0".parse()?);
    config.handles = match arguments.next().as_deref() {
        None => HandleChoice::Auto,
        Some("kernel") => HandleChoice::Kernel,
        Some("map") => HandleChoice::Map,
        Some("map-by-stat") => HandleChoice::MapByStat,
        Some(other) => return Err(format!("no such kind of handles: {other}").into()),
    };
    let identities = IdentitySet::generate()?;
    let brick = Brick::bind(config, &identities.identity(Role::Brick)?)?;
    let (address, choice) = (brick.local_addr(), brick.handle_choice());
    tokio::spawn(brick.serve(std::future::pending()));
    let connector = Connector::new(&identities.identity(Role::Gateway)?, address)?;
    let connection = connector.connect(address, Role::Brick).await?;
    let mut best: Option<Listing> = None;
    for _ in 0..5 {
        let listing = list(&connection).await?;
        if best.as_ref().is_none_or(|best| listing.whole < best.whole) {
            best = Some(listing);
        }
    }
    if let Some(Listing { entries, first, whole, cpu }) = best {
        println!("{choice:?}: {entries} entries, first {first:?}, whole {whole:?}, CPU {cpu:?}");
    }
    Ok(())
}

struct Listing {
    entries: usize,
    first: Duration,
    whole: Duration,
    cpu: Duration,
}

async fn list(connection: &Connection) -> Result<Listing, Box<dyn Error>> {
    let attach = Request::Attach { watch: false, client: 0, ended: 0 };
    let Reply::Attached { root, .. } = connection.call(&attach).await? else {
        return Err("not an answer to attach".into());
    };
    let (start, cpu_start) = (Instant::now(), cpu_time());
    let request = Request::List { dir: root.handle, after: vec![], acl: false, contents: None };
    let mut stream = connection.stream(&request).await?;
    let mut first = None;
    let mut entries = 0;
    loop {
        match stream.next().await? {
            ReplyFrame::Chunk(chunk) => {
                first.get_or_insert_with(|| start.elapsed());
                entries += chunk.count();
            }
            ReplyFrame::End { .. } => break,
            other => return Err(format!("not a part of a listing: {other:?}").into()),
        }
    }
    let (whole, cpu) = (start.elapsed(), cpu_time() - cpu_start);
    Ok(Listing { entries, first: first.unwrap_or(whole), whole, cpu })
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
