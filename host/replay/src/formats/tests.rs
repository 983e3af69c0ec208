//! Each format, whole and broken.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use portcullis_core::eviction::Class;
use portcullis_core::trace::{Header, Name, Operation, Record, What};

use super::*;

fn requests(name: &str, content: &[u8]) -> Vec<u64> {
    let trace = read(name, content).expect(name);
    trace.objects().iter().map(|&object| trace.key(object)).collect()
}

fn failure(name: &str, content: &[u8]) -> String {
    read(name, content).expect_err(name).to_string()
}

#[test]
fn packed_records_have_times_and_sizes() {
    let mut content = Vec::new();
    for (time, object, size, next) in [(100_u32, 7_u64, 512_u32, 2_i64), (101, 9, 4096, -1)] {
        content.extend(time.to_le_bytes());
        content.extend(object.to_le_bytes());
        content.extend(size.to_le_bytes());
        content.extend(next.to_le_bytes());
    }
    for name in ["a.oracleGeneral.bin", "a.oracleGeneral"] {
        assert_eq!(requests(name, &content), [7, 9]);
        let trace = read(name, &content).expect(name);
        assert_eq!((trace.size_bytes(0), trace.size_bytes(1)), (512, 4096));
        assert_eq!((trace.now_ms(0), trace.now_ms(1)), (0, 1_000));
        let cut = failure(name, &content[..47]);
        assert_eq!(cut, "record 2: it has fewer than 24 bytes");
    }
}

#[test]
fn a_line_of_the_arc_paper_asks_for_a_range() {
    assert_eq!(requests("a.lis", b"10 3 0 0\n\n11 1 0 1\r\n"), [10, 11, 12, 11]);
    assert_eq!(
        failure("a.lis", b"10 1 0 0\nten 3\n"),
        "line 2: it does not begin with two numbers"
    );
    assert_eq!(failure("a.lis", b"1 1048577"), "line 1: it asks for more than 2^20 blocks");
}

#[test]
fn marks_of_the_lirs_paper_are_no_requests() {
    assert_eq!(requests("a.trace", b"5\n*\n5\n6"), [5, 5, 6]);
    assert_eq!(failure("a.trace", b"5\n-6"), "line 2: it is not a number");
}

#[test]
fn a_touched_path_asks_for_each_of_its_components() {
    let asked = requests("a.tsv", b"# x\nT\t1\ta/z\nC\t7\nA\t3\ta/b/c\nM\t-1\ta/d\nD\t0\ta/b/c\n");
    assert_eq!(asked.len(), 3 + 2 + 3);
    assert_eq!((asked[0], asked[..3].to_vec()), (asked[3], asked[5..].to_vec()));
    assert_ne!(asked[1], asked[4]);
    assert!(failure("a.tsv", b"C\t7\nX\t1\ta").starts_with("line 2: "));
    assert!(failure("a.tsv", b"A\t7").starts_with("line 1: "));
}

/// `printf '5\n6\n' | gzip -n` and `zstd`, as bytes.
const GZIP: &[u8] =
    &[31, 139, 8, 0, 0, 0, 0, 0, 0, 3, 51, 229, 50, 227, 2, 0, 50, 42, 239, 130, 4, 0, 0, 0];
const ZSTANDARD: &[u8] = &[40, 181, 47, 253, 36, 4, 33, 0, 0, 53, 10, 54, 10, 38, 88, 106, 53];

#[test]
fn compressed_files_are_read_whole_or_not_at_all() {
    for (name, content) in [("a.trace.gz", GZIP), ("a.trace.zst", ZSTANDARD)] {
        assert_eq!(requests(name, content), [5, 6]);
        assert_eq!(requests(name, &content.repeat(2)), [5, 6, 5, 6], "one part after the other");
        for len in 1..content.len() {
            let cut = failure(name, &content[..len]);
            assert!(cut.starts_with("cannot be decompressed"), "{name} to {len}: {cut}");
        }
        let mut other = content.to_vec();
        let last = if name.ends_with("gz") { other.len() - 8 } else { other.len() - 1 };
        other[last] ^= 1;
        assert!(failure(name, &other).starts_with("cannot be decompressed"), "{name}");
    }
}

#[test]
fn the_name_tells_the_format() {
    assert!(failure("a.bin", b"").starts_with("no format is known"));
    assert!(failure("a.trace.bz2", b"").starts_with("no format is known"));
    assert_eq!(failure("a.trace", b"*\n"), "has no requests");
}

/// A recording of these, as whoever records writes it.
fn recorded(records: &[(What, Operation, Class, u64)]) -> Vec<u8> {
    let mut plain = Vec::new();
    let header = Header { capacity_bytes: 1 << 20, began_unix_ms: 1, policy: "lru".to_owned() };
    header.push(&mut plain);
    for (at, &(what, operation, class, key)) in records.iter().enumerate() {
        Record {
            what,
            operation,
            class,
            begins: matches!(what, What::Hit | What::Missed | What::Absent),
            now_ms: 10 * at as u32,
            weight_bytes: 100 + key as u32,
            key,
            dir: 1,
            name: Name::Hashed(7),
        }
        .push(&mut plain);
    }
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&plain).expect("into memory");
    gzip.finish().expect("into memory")
}

#[test]
fn a_recording_counts_what_a_policy_could_have_helped() {
    let (lookup, asked) = (Operation::Lookup, Class::Asked);
    let content = recorded(&[
        (What::Resident, lookup, asked, 1),
        (What::Hit, lookup, asked, 1),
        (What::Missed, lookup, asked, 0),
        (What::Came, lookup, asked, 2),
        (What::Came, Operation::List, Class::Prefetched, 3),
        (What::Came, Operation::Change, asked, 4),
        (What::Hit, lookup, asked, 3),
        (What::Left, Operation::Change, asked, 2),
        (What::Came, lookup, asked, 2),
        (What::Absent, lookup, asked, 0),
        (What::Lost, lookup, asked, 9),
    ]);
    let trace = read("a.pctrace", &content).expect("a recording");
    let keys: Vec<u64> = trace.objects().iter().map(|&object| trace.key(object)).collect();
    let counted: Vec<bool> = (0..keys.len()).map(|at| trace.is_counted(at)).collect();
    assert_eq!(keys[..6], [1, 1, 2, 3, 4, 3]);
    assert_eq!(counted, [false, true, true, false, false, true, true]);
    assert_ne!(keys[6], 2, "what came after it was no longer true is another object");
    assert_eq!(
        (trace.class(3), trace.size_bytes(3), trace.now_ms(3)),
        (Class::Prefetched, 103, 40)
    );
    let live = trace.live().expect("it was recorded");
    assert_eq!((live.requests, live.hits, live.lost), (4, 3, 9));
    assert_eq!((live.objects.requests, live.objects.hits, live.capacity_bytes), (4, 2, 1 << 20));
}

#[test]
fn a_recording_that_was_cut_off_is_good_up_to_there() {
    let record = (What::Hit, Operation::Lookup, Class::Asked, 1);
    let content = recorded(&[record; 1_000]);
    let trace = read("a.pctrace", &content[..content.len() - 9]).expect("all but the end");
    assert!(trace.objects().len() > 900, "{}", trace.objects().len());
    for len in 1..40 {
        let cut = failure("a.pctrace", &content[..len]);
        assert!(!cut.is_empty(), "{len}");
    }
    assert!(failure("a.pctrace", GZIP).contains("does not begin as a recorded trace"));
    let mut other = content.clone();
    let last = other.len() - 8;
    other[last] ^= 1;
    assert!(failure("a.pctrace", &other).starts_with("cannot be decompressed"));
}
