//! Each operation of a file system, once through a mount and once on a local directory: the
//! results, the errors and what is there afterwards are the same.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use portcullis_suite::share::{Layout, Share};
use portcullis_suite::{actor::Actor, run, view};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, SeekFrom as Seek2,
    XattrFlags,
};
use rustix::io::Errno;

/// Does the same in a mount and in a local directory, and compares what was said and what is
/// there afterwards.
fn same(test: &str, act: impl Fn(&Path) -> Vec<String>) {
    let Some(share) = Share::one(test) else { return };
    let local = share.scratch("local");
    fs::create_dir(&local).expect("a directory");
    let expected = act(&local);
    let told = act(share.mount(0));
    assert!(!expected.is_empty(), "a test that asks nothing");
    for (index, (told, expected)) in told.iter().zip(&expected).enumerate() {
        assert_eq!(told, expected, "answer {index}");
    }
    assert_eq!(told.len(), expected.len());
    let local = view::tree(&local);
    view::assert_same_tree("mount and local", &view::tree(share.mount(0)), &local);
    view::assert_same_tree("export and local", &view::tree(share.export()), &local);
}

fn said<T>(result: Result<T, Errno>) -> String {
    result.map_or_else(view::errno, |_| "ok".to_owned())
}

fn told<T>(result: std::io::Result<T>) -> String {
    result.map_or_else(|why| view::error(&why), |_| "ok".to_owned())
}

#[test]
fn files_are_created_as_asked() {
    same("files_are_created_as_asked", |dir| {
        let path = dir.join("file");
        let new = || OpenOptions::new().write(true).create_new(true).mode(0o640).open(&path);
        let mut said = vec![told(new()), told(new())];
        let mut append = OpenOptions::new().append(true).open(&path).expect("it opens");
        append.write_all(b"one").expect("written");
        let mut second = OpenOptions::new().append(true).open(&path).expect("it opens");
        second.write_all(b"two").expect("written");
        append.write_all(b"three").expect("written");
        said.push(view::content(&path));
        let truncated = OpenOptions::new().write(true).create(true).truncate(true).open(&path);
        said.push(told(truncated));
        said.push(view::content(&path));
        said.push(told(File::create(dir.join("no/where"))));
        said.push(told(File::create(dir)));
        said.push(told(File::open(dir.join("nothing"))));
        said.push(told(fs::create_dir(dir.join("dir"))));
        said.push(told(fs::create_dir(dir.join("dir"))));
        said.push(told(File::create(dir.join("n".repeat(255)))));
        said.push(told(File::create(dir.join("n".repeat(256)))));
        said.push(told(fs::remove_dir(&path)));
        said.push(told(fs::remove_file(dir.join("dir"))));
        said
    });
}

#[test]
fn nodes_of_all_kinds_are_made() {
    same("nodes_of_all_kinds_are_made", |dir| {
        let kinds = [
            ("fifo", FileType::Fifo, 0),
            ("socket", FileType::Socket, 0),
            ("character", FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
            ("block", FileType::BlockDevice, rustix::fs::makedev(259, 65_537)),
            ("file", FileType::RegularFile, 0),
        ];
        kinds
            .iter()
            .flat_map(|(name, kind, device)| {
                let path = dir.join(name);
                let mode = Mode::from_raw_mode(0o640);
                let made = said(rustix::fs::mknodat(CWD, &path, *kind, mode, *device));
                let again = said(rustix::fs::mknodat(CWD, &path, *kind, mode, *device));
                let attr = fs::symlink_metadata(&path).expect("it was made");
                [made, again, format!("{:o} {}", attr.mode(), attr.rdev())]
            })
            .collect()
    });
}

/// A fifo joins two programs of one machine, on whatever file system its name lies.
#[test]
fn a_fifo_and_a_socket_work_on_one_machine() {
    let Some(share) = Share::one("a_fifo_and_a_socket_work_on_one_machine") else { return };
    let printed = run::sh(share.mount(0), "mkfifo f; (echo through > f) & cat f");
    assert_eq!(printed, "through\n");
    let path = share.mount(0).join("s");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("it binds");
    let mut client = std::os::unix::net::UnixStream::connect(&path).expect("it connects");
    client.write_all(b"x").expect("sent");
    let (mut served, _) = listener.accept().expect("accepted");
    let mut byte = [0];
    served.read_exact(&mut byte).expect("received");
    assert_eq!(&byte, b"x");
}

/// S-ATOMIC-1.
#[test]
fn renames_with_flags() {
    same("renames_with_flags", |dir| {
        for name in ["a", "b"] {
            fs::write(dir.join(name), name).expect("a file");
        }
        fs::create_dir(dir.join("dir")).expect("a directory");
        fs::create_dir(dir.join("full")).expect("a directory");
        fs::write(dir.join("full/x"), "x").expect("a file");
        let rename = |from: &str, to: &str, flags| {
            said(rustix::fs::renameat_with(CWD, dir.join(from), CWD, dir.join(to), flags))
        };
        let none = RenameFlags::empty();
        vec![
            rename("a", "b", RenameFlags::NOREPLACE),
            rename("a", "b", RenameFlags::EXCHANGE),
            view::content(&dir.join("a")),
            rename("a", "nothing", RenameFlags::EXCHANGE),
            rename("a", "c", RenameFlags::NOREPLACE),
            rename("c", "dir", none),
            rename("dir", "b", none),
            rename("dir", "full", none),
            rename("full", "dir", none),
            rename("dir", "dir/below", none),
            rename("dir", "b", RenameFlags::EXCHANGE),
            view::kind(&dir.join("b")),
            rename("nothing", "x", none),
        ]
    });
}

#[test]
fn an_unnamed_file_gets_a_name() {
    same("an_unnamed_file_gets_a_name", |dir| {
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        let file = match rustix::fs::open(dir, flags, Mode::from_raw_mode(0o600)) {
            Ok(file) => File::from(file),
            Err(why) => return vec![view::errno(why)],
        };
        file.write_all_at(b"unnamed", 0).expect("written");
        let links = file.metadata().expect("attributes").nlink();
        let from = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        let follow = AtFlags::SYMLINK_FOLLOW;
        let linked = said(rustix::fs::linkat(CWD, &from, CWD, dir.join("named"), follow));
        let listed = view::names(dir, "");
        let now = file.metadata().expect("attributes").nlink();
        drop(file);
        vec![format!("{links} {now}"), linked, listed, view::content(&dir.join("named"))]
    });
}

/// S-ATOMIC-3.
#[test]
fn attributes_are_set_as_asked() {
    same("attributes_are_set_as_asked", |dir| {
        let script = "
            umask 027; : > f; stat -c '%a' f
            chmod 6755 f; chown 1000:1001 f; stat -c '%a %u %g' f
            chmod 4711 f; stat -c %a f; chgrp 5 f; stat -c '%a %g' f
            truncate -s 10000000000 f; stat -c %s f; truncate -s 3 f; stat -c %s f
            touch -d '1969-12-31 23:59:58.5 UTC' f; stat -c '%.9Y %.9X' f
            touch -a -d '2100-01-01 UTC' f; stat -c '%.9Y %.9X' f
            touch -m -d '@5.000000001' f; stat -c '%.9Y %.9X' f
            ln -s nowhere l; touch -h -d @7 l; stat -c '%Y %s' l; chown -h 3:4 l; stat -c '%u %g' l
            mkdir d; stat -c %a d; chmod 2775 d; chgrp 1234 d; : > d/x; mkdir d/y
            stat -c '%a %g' d/x d/y";
        run::sh(dir, script).lines().map(str::to_owned).collect()
    });
}

/// `utimensat` with NOW sets the brick's present, with OMIT leaves a time as it was.
#[test]
fn times_are_set_now_or_left_alone() {
    let Some(share) = Share::one("times_are_set_now_or_left_alone") else { return };
    let printed = run::sh(
        share.mount(0),
        ": > f; touch -d @1000 f; touch -a f; stat -c '%Y' f
         touch -d @1000 f; touch -m f; stat -c '%X' f
         touch f; now=$(date +%s); then=$(stat -c %Y f); [ $((now - then)) -lt 600 ] && echo near",
    );
    assert_eq!(printed, "1000\n1000\nnear\n");
}

#[test]
fn extended_attributes_hold_any_bytes() {
    same("extended_attributes_hold_any_bytes", |dir| {
        let path = dir.join("f");
        File::create(&path).expect("a file");
        let set =
            |name: &str, value: &[u8], flags| said(rustix::fs::setxattr(&path, name, value, flags));
        let big = vec![b'x'; 2_000];
        let mut answers = vec![
            set("user.empty", b"", XattrFlags::empty()),
            set("user.zeros", b"\0a\0\0", XattrFlags::empty()),
            set("user.big", &big, XattrFlags::empty()),
            set("user.empty", b"x", XattrFlags::CREATE),
            set("user.new", b"x", XattrFlags::REPLACE),
            set("user.zeros", b"", XattrFlags::REPLACE),
            set("trusted.t", b"for root", XattrFlags::empty()),
            set("nonsense", b"x", XattrFlags::empty()),
        ];
        answers.extend(
            ["user.empty", "user.zeros", "user.big", "user.new", "trusted.t"]
                .map(|name| view::xattr(&path, name)),
        );
        let mut names = vec![0; 4096];
        let len = rustix::fs::listxattr(&path, &mut names).expect("names");
        let mut names: Vec<&[u8]> = names[..len].split(|byte| *byte == 0).collect();
        names.sort_unstable();
        answers.push(names.iter().map(|name| name.escape_ascii().to_string()).collect());
        let mut small = [0; 10];
        answers.push(said(rustix::fs::getxattr(&path, "user.big", &mut small)));
        answers.push(said(rustix::fs::removexattr(&path, "user.empty")));
        answers.push(said(rustix::fs::removexattr(&path, "user.empty")));
        answers
    });
}

/// So that `ls -l` asks once and not once a name. S-ACL-1.
#[test]
fn labels_and_acls_are_not_supported_unless_asked_for() {
    let name = "labels_and_acls_are_not_supported_unless_asked_for";
    if portcullis_suite::share::is_local() {
        return;
    }
    let Some(share) = Share::one(name) else { return };
    let path = share.mount(0).join("f");
    File::create(&path).expect("a file");
    for name in ["security.selinux", "system.posix_acl_access", "system.posix_acl_default"] {
        assert_eq!(view::xattr(&path, name), view::errno(Errno::OPNOTSUPP), "{name}");
    }
}

#[test]
fn space_is_reserved_punched_and_zeroed() {
    same("space_is_reserved_punched_and_zeroed", |dir| {
        let path = dir.join("f");
        let open = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let file = open.expect("a file");
        let content: Vec<u8> = (0..64u32 << 10).map(|n| (n % 251) as u8).collect();
        file.write_all_at(&content, 0).expect("written");
        let allocate = |flags, offset, len| {
            let result = said(rustix::fs::fallocate(&file, flags, offset, len));
            let bytes = fs::read(&path).expect("it reads");
            let sum: u64 = bytes.iter().enumerate().map(|(at, b)| at as u64 * u64::from(*b)).sum();
            format!("{result} {} {sum}", bytes.len())
        };
        let keep = FallocateFlags::KEEP_SIZE;
        let mut answers = vec![
            allocate(FallocateFlags::empty(), 0, 100_000),
            allocate(keep, 100_000, 100_000),
            allocate(FallocateFlags::PUNCH_HOLE | keep, 5_000, 20_000),
            allocate(FallocateFlags::PUNCH_HOLE, 5_000, 20_000),
            allocate(FallocateFlags::ZERO_RANGE, 30_000, 1_000),
            allocate(FallocateFlags::ZERO_RANGE | keep, 99_000, 5_000),
            allocate(FallocateFlags::PUNCH_HOLE | keep, 0, 0),
        ];
        file.set_len(1 << 20).expect("its size");
        answers.extend([0, 1 << 19, 1 << 20].map(|offset| {
            let data = rustix::fs::seek(&file, Seek2::Data(offset));
            let hole = rustix::fs::seek(&file, Seek2::Hole(offset));
            format!("{data:?} {hole:?}")
        }));
        answers
    });
}

#[test]
fn ranges_are_copied() {
    same("ranges_are_copied", |dir| {
        let content: Vec<u8> = (0..3u32 << 20).map(|n| (n % 253) as u8).collect();
        fs::write(dir.join("from"), &content).expect("a file");
        let from = File::open(dir.join("from")).expect("it opens");
        let to = File::create(dir.join("to")).expect("a file");
        let copy = |mut from_at: u64, mut to_at: u64, len: usize| {
            let mut done = 0;
            while done < len {
                let (in_at, out_at) = (Some(&mut from_at), Some(&mut to_at));
                let result = rustix::fs::copy_file_range(
                    from.as_fd(),
                    in_at,
                    to.as_fd(),
                    out_at,
                    len - done,
                );
                match result {
                    Ok(0) => break,
                    Ok(copied) => done += copied,
                    Err(why) => return view::errno(why),
                }
            }
            format!("{done}")
        };
        vec![copy(0, 0, 1 << 20), copy(100, 5, 70_000), copy(3 << 20, 0, 10), copy(0, 4 << 20, 9)]
    });
}

/// A page that is mapped shows what was written, and what is stored in it can be read. S-WRITE-5.
#[test]
fn a_mapping_and_the_file_are_one() {
    let Some(share) = Share::one("a_mapping_and_the_file_are_one") else { return };
    let path = share.mount(0).join("f");
    fs::write(&path, "0".repeat(10_000)).expect("a file");
    let mut actor = Actor::start();
    actor.ok(&format!("open f RDWR {}", path.display()));
    actor.ok("map f 10000");
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .expect("it opens")
        .write_all_at(b"written", 5_000)
        .expect("written");
    assert_eq!(actor.ask("mapread 5000 8"), "=written0");
    actor.ok("mapwrite 9000 stored");
    let mut stored = [0; 6];
    File::open(&path).expect("it opens").read_exact_at(&mut stored, 9_000).expect("read");
    assert_eq!(&stored, b"stored");
    let below = fs::read(share.export().join("f")).expect("it reads");
    assert_eq!(&below[9_000..9_006], b"stored", "after msync it is on the brick");
}

#[test]
fn statfs_and_ioctl_answer() {
    let Some(share) = Share::one("statfs_and_ioctl_answer") else { return };
    let here = rustix::fs::statvfs(share.mount(0)).expect("statvfs");
    let there = rustix::fs::statvfs(share.export()).expect("statvfs");
    assert_eq!(here.f_blocks * here.f_frsize, there.f_blocks * there.f_frsize);
    assert_eq!(here.f_namemax, there.f_namemax);
    if portcullis_suite::share::is_local() {
        return;
    }
    let path = share.mount(0).join("f");
    let file = File::create(&path).expect("a file");
    let flags = rustix::fs::ioctl_getflags(&file).expect_err("no such ioctl");
    assert_eq!(flags, Errno::NOTTY);
}

#[test]
fn the_end_of_a_file_moves_and_holes_read_as_zeros() {
    same("the_end_of_a_file_moves_and_holes_read_as_zeros", |dir| {
        let path = dir.join("f");
        let open = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let mut file = open.expect("a file");
        file.write_all_at(b"end", 300_000).expect("written");
        let mut answers = vec![format!("{:?}", file.metadata().map(|attr| attr.len()).ok())];
        file.seek(SeekFrom::Start(299_000)).expect("sought");
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).expect("read");
        answers.push(format!("{} {:?}", bytes.len(), bytes.iter().position(|byte| *byte != 0)));
        file.set_len(299_500).expect("shorter");
        file.set_len(310_000).expect("longer");
        let mut tail = vec![1; 10_500];
        file.read_exact_at(&mut tail, 299_500).expect("read");
        answers.push(format!("{:?}", tail.iter().position(|byte| *byte != 0)));
        file.sync_all().expect("synced");
        file.sync_data().expect("synced");
        File::open(dir).expect("it opens").sync_all().expect("a directory is synced too");
        answers
    });
}

/// `-o ro` is a mount that writes nothing. S-ACCESS-4.
#[test]
fn a_read_only_mount_refuses_to_write() {
    if portcullis_suite::share::is_local() {
        return;
    }
    let name = "a_read_only_mount_refuses_to_write";
    let layout = Layout { options: "ro", ..Layout::default() };
    let Some(share) = Share::start(name, &layout) else { return };
    fs::write(share.export().join("f"), "f").expect("a file");
    let denied = fs::write(share.mount(0).join("new"), "x").expect_err("read-only");
    assert_eq!(Errno::from_io_error(&denied), Some(Errno::ROFS));
    assert_eq!(view::content(&share.mount(0).join("f")), "f");
}

/// Access times are the brick's: a read that reaches it moves them as a local one does. S-COH-6.
#[test]
fn access_times_are_those_of_the_brick() {
    let Some(share) = Share::one("access_times_are_those_of_the_brick") else { return };
    let root = share.mount(0);
    run::sh(root, "echo content > f; touch -a -d @1000 f; touch -m -d @2000 f");
    let atime = |dir: &Path| fs::metadata(dir.join("f")).expect("attributes").atime();
    assert_eq!((atime(root), atime(share.export())), (1_000, 1_000));
    assert_eq!(view::content(&root.join("f")), "content\\n");
    // Whether the read moved it (relatime) or not (noatime, or a page that was cached), there is
    // one answer.
    portcullis_suite::wait::until("both say the same", || {
        (atime(root) == atime(share.export())).then_some(())
    });
}
