//! Reading and writing 1 GiB in sequence through a mount against two chained bare quinn hops that
//! move as much, all on one machine and in turn.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

use portcullis_bench::{alternate, chain, print_policy, print_ratio};
use portcullis_suite::mounted::Mounted;
use portcullis_suite::site::Site;

const LEN_BYTES: u64 = 1024 * 1024 * 1024;
const PIECE_LEN_BYTES: usize = 1024 * 1024;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let export = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    fill(&export.path().join("read"));
    let site = Site::start(export.path(), &[]);
    let mounted = Mounted::at(&site, &site.url("/"), "mnt", &[]);
    let hops = runtime.block_on(chain::connect());
    let mut read = || {
        drop_page_cache(mounted.path());
        assert_eq!(drain(&mounted.path().join("read")), LEN_BYTES);
    };
    let mut write = || {
        let path = mounted.path().join("written");
        fill(&path);
        assert_eq!(fs::metadata(&path).expect("there").len(), LEN_BYTES);
        fs::remove_file(&path).expect("removed");
    };
    let mut down = || assert_eq!(runtime.block_on(chain::down(&hops, LEN_BYTES)), LEN_BYTES);
    let mut up = || assert_eq!(runtime.block_on(chain::up(&hops, LEN_BYTES)), LEN_BYTES);
    let least = alternate(&mut [&mut read, &mut down, &mut write, &mut up]);
    let rate = |at: usize| LEN_BYTES as f64 / least[at].as_secs_f64() / 1e6;
    println!("1 GiB: read {:.0} MB/s, two hops {:.0} MB/s", rate(0), rate(1));
    print_ratio("  read against two hops", rate(0) / rate(1), "at least 0.7");
    println!("1 GiB: write {:.0} MB/s, two hops {:.0} MB/s", rate(2), rate(3));
    print_ratio("  write against two hops", rate(2) / rate(3), "at least 0.6");
    print_policy(&site.stats());
}

fn fill(path: &Path) {
    let piece: Vec<u8> = (0..PIECE_LEN_BYTES).map(|at| (at * 7) as u8).collect();
    let mut file = File::create(path).expect("a file");
    for _ in 0..LEN_BYTES / PIECE_LEN_BYTES as u64 {
        file.write_all(&piece).expect("written");
    }
}

fn drain(path: &Path) -> u64 {
    let mut file = File::open(path).expect("a file");
    let mut piece = vec![0; PIECE_LEN_BYTES];
    let mut len_bytes = 0;
    loop {
        match file.read(&mut piece).expect("read") {
            0 => return len_bytes,
            read => len_bytes += read as u64,
        }
    }
}

/// What an earlier round left in the page cache would be read without a request.
fn drop_page_cache(mount: &Path) {
    let file = File::open(mount.join("read")).expect("a file");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("dropped");
}
