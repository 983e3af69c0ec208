//! Files that lose their names, or get other content, while they are open.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};

use portcullis_suite::share::{Layout, Share, is_local};
use portcullis_suite::{view, wait};

use super::meanwhile;

fn open(path: &std::path::Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("it opens")
}

/// gluster#3785: the file was opened lazily, removed by another client, and fstat said ENOENT.
#[test]
fn a_file_that_was_opened_and_not_used_yet_is_open() {
    let name = "a_file_that_was_opened_and_not_used_yet_is_open";
    let Some(share) = Share::three(name) else { return };
    for remover in 0..3 {
        fs::write(share.mount(0).join("f"), "content").expect("a file");
        let (one, other) = (open(&share.mount(0).join("f")), open(&share.mount(2).join("f")));
        fs::remove_file(share.mount(remover).join("f")).expect("removed");
        for file in [one, other] {
            let attr = file.metadata().expect("fstat");
            assert_eq!((attr.len(), attr.nlink()), (7, 0), "removed by {remover}");
            let mut bytes = [0; 7];
            file.read_exact_at(&mut bytes, 0).expect("it reads");
            assert_eq!(&bytes, b"content");
        }
    }
}

/// gluster#2529: open for writing was ESTALE while the file was replaced by another client.
#[test]
fn a_file_that_is_being_replaced_can_be_opened() {
    let Some(share) = Share::three("a_file_that_is_being_replaced_can_be_opened") else { return };
    fs::write(share.mount(0).join("f"), "x").expect("a file");
    meanwhile(
        |_| {
            fs::write(share.mount(1).join("next"), "x").expect("a file");
            fs::rename(share.mount(1).join("next"), share.mount(1).join("f")).expect("renamed");
        },
        || {
            for round in 0..500_usize {
                let mount = [0, 2][round % 2];
                let file = OpenOptions::new().write(true).open(share.mount(mount).join("f"));
                let file = file.unwrap_or_else(|why| panic!("mount {mount}: {why}"));
                file.write_all_at(b"y", 0).expect("written");
                file.metadata().expect("fstat");
            }
        },
    );
}

/// mountpoint-s3#785, #782: an object was rewritten under cached attributes, and reads ended
/// short or failed.
#[test]
fn a_file_that_is_rewritten_while_open_is_read_as_it_is_now() {
    let name = "a_file_that_is_rewritten_while_open_is_read_as_it_is_now";
    let Some(share) = Share::three(name) else { return };
    fs::write(share.mount(0).join("f"), "short").expect("a file");
    let file = open(&share.mount(0).join("f"));
    for len in [10_usize, 200_000, 3, 0, 70_000] {
        assert!(file.metadata().is_ok());
        fs::write(share.mount(1 + len % 2).join("f"), vec![b'x'; len]).expect("rewritten");
        assert_eq!(file.metadata().expect("fstat").len(), len as u64);
        let mut bytes = vec![0; 300_000];
        let mut read = 0;
        loop {
            match file.read_at(&mut bytes[read..], read as u64).expect("it reads") {
                0 => break,
                more => read += more,
            }
        }
        assert_eq!(read, len);
        assert!(bytes[..read].iter().all(|byte| *byte == b'x'));
    }
}

/// hf-mount#156, #195: telling the kernel while files were open, under a lock, hung it for ever.
#[test]
fn being_told_of_changes_while_files_are_open_hangs_nobody() {
    let name = "being_told_of_changes_while_files_are_open_hangs_nobody";
    let Some(share) = Share::two(name) else { return };
    let names: Vec<String> = (0..40).map(|number| format!("f{number}")).collect();
    for name in &names {
        fs::write(share.mount(0).join(name), vec![b'0'; 20_000]).expect("a file");
    }
    let files: Vec<File> = names.iter().map(|name| open(&share.mount(0).join(name))).collect();
    meanwhile(
        |round| {
            let file = &files[round % files.len()];
            let mut bytes = vec![0; 20_000];
            let _ = file.read_at(&mut bytes, 0).expect("it reads");
            file.write_all_at(b"mine", 0).expect("written");
            let _ = view::names(share.mount(0), "");
        },
        || {
            for round in 0..400_usize {
                let name = &names[round % names.len()];
                let other = share.mount(1);
                fs::write(other.join(name), vec![b'1'; 10_000 + round]).expect("written");
                fs::rename(other.join(name), other.join("moved")).expect("renamed");
                fs::rename(other.join("moved"), other.join(name)).expect("renamed back");
            }
        },
    );
}

/// ZeroFS#167, seaweedfs#1589: after a restart of the server open files and known names were
/// ESTALE or EIO. S-FAIL-6.
#[test]
fn a_restart_is_waited_for_and_handles_stay_good() {
    let name = "a_restart_is_waited_for_and_handles_stay_good";
    if is_local() {
        return;
    }
    let layout = Layout { options: "timeout=120", ..Layout::default() };
    let Some(mut share) = Share::start(name, &layout) else { return };
    let root = share.mount(0).to_owned();
    fs::create_dir(root.join("d")).expect("a directory");
    fs::write(root.join("d/f"), "content").expect("a file");
    let file = open(&root.join("d/f"));
    for round in 0..2 {
        let site = share.site_mut();
        site.kill_brick();
        // Asked while nobody is there; answered when somebody is.
        let asked = std::thread::spawn({
            let path = root.join("d/f");
            move || view::content(&path)
        });
        wait::pause(std::time::Duration::from_millis(500));
        site.kill_gateway();
        site.restart_brick();
        site.restart_gateway();
        assert_eq!(asked.join().expect("it only reads"), "content", "round {round}");
        file.write_all_at(b"content", 0).expect("the open file is good");
        fs::write(root.join("d/g"), "new").expect("the directory is good");
        fs::remove_file(root.join("d/g")).expect("removed");
    }
}

/// gluster bz1779055, bz1431908: each write, each opened and closed directory left something
/// behind, until memory ran out.
#[test]
fn opening_and_writing_over_and_over_leaves_nothing_behind() {
    let name = "opening_and_writing_over_and_over_leaves_nothing_behind";
    if is_local() {
        return;
    }
    let Some(share) = Share::one(name) else { return };
    let root = share.mount(0);
    let descriptors = || {
        let brick = share.site().brick.as_ref().expect("the brick is up").id();
        fs::read_dir(format!("/proc/{brick}/fd")).expect("it lives").count()
    };
    fs::write(root.join("f"), "").expect("a file");
    let before = descriptors();
    for round in 0..1_500 {
        let file = open(&root.join("f"));
        file.write_all_at(b"x", round).expect("written");
        let _ = fs::read_dir(root).expect("it opens");
    }
    wait::until("the brick has closed what was closed", || {
        (descriptors() <= before + 20).then_some(())
    });
}
