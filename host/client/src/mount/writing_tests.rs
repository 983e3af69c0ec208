//! Tests of a mount that changes things, over a real brick. They need FUSE and root.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};

use super::site::Site;
use super::tests::can_mount;

#[tokio::test(flavor = "multi_thread")]
async fn files_are_made_written_read_listed_renamed_and_removed() {
    if !can_mount("files_are_made_written_read_listed_renamed_and_removed") {
        return;
    }
    let site = Site::new().await;
    let mounted = site.mount().await;
    let export = site.export().to_owned();
    mounted
        .on(move |path| {
            let content: Vec<u8> = (0..3_000_000u32).map(|n| (n / 7) as u8).collect();
            fs::write(path.join("file"), &content).expect("it is written");
            assert!(fs::read(path.join("file")).expect("it is read") == content);
            assert!(fs::read(export.join("file")).expect("it is there") == content);
            fs::create_dir(path.join("dir")).expect("a directory");
            fs::rename(path.join("file"), path.join("dir/moved")).expect("it moves");
            let names: Vec<_> = fs::read_dir(path.join("dir"))
                .expect("a listing")
                .map(|entry| entry.expect("an entry").file_name())
                .collect();
            assert_eq!(names, ["moved"]);
            assert!(!path.join("file").exists());
            fs::hard_link(path.join("dir/moved"), path.join("other")).expect("a link");
            assert_eq!(fs::metadata(path.join("dir/moved")).expect("stat").nlink(), 2);
            symlink("dir/moved", path.join("link")).expect("a link");
            assert!(fs::read(path.join("link")).expect("it is read") == content);
            fs::set_permissions(path.join("other"), fs::Permissions::from_mode(0o4751))
                .expect("chmod");
            assert_eq!(fs::metadata(path.join("dir/moved")).expect("stat").mode(), 0o104_751);
            fs::remove_file(path.join("other")).expect("it is removed");
            assert_eq!(fs::metadata(path.join("dir/moved")).expect("stat").nlink(), 1);
            let failed = fs::remove_dir(path.join("dir")).expect_err("it is not empty");
            assert_eq!(failed.raw_os_error(), Some(39));
            fs::remove_file(path.join("dir/moved")).expect("it is removed");
            fs::remove_dir(path.join("dir")).expect("it is empty");
            fs::remove_file(path.join("link")).expect("it is removed");
            assert_eq!(fs::read_dir(&path).expect("a listing").count(), 0);
        })
        .await;
    mounted.unmount().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_file_lives_on_without_its_name() {
    if !can_mount("an_open_file_lives_on_without_its_name") {
        return;
    }
    let site = Site::new().await;
    let mounted = site.mount().await;
    mounted
        .on(|path| {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .open(path.join("file"))
                .expect("it is made");
            file.write_all(b"first").expect("it is written");
            fs::remove_file(path.join("file")).expect("it is removed");
            file.write_all(b" second").expect("it is written");
            assert_eq!(file.metadata().expect("fstat").nlink(), 0);
            file.set_len(9).expect("ftruncate");
            file.seek(SeekFrom::Start(0)).expect("lseek");
            let mut content = String::new();
            file.read_to_string(&mut content).expect("it is read");
            assert_eq!(content, "first sec");
            assert!(File::open(path.join("file")).is_err());
        })
        .await;
    mounted.unmount().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn appending_goes_to_the_end_whoever_moved_it() {
    if !can_mount("appending_goes_to_the_end_whoever_moved_it") {
        return;
    }
    let site = Site::new().await;
    let (one, two) = (site.mount().await, site.mount().await);
    let (path, other) = (one.path().join("log"), two.path().join("log"));
    one.on(move |_| {
        let append = |path| OpenOptions::new().append(true).create(true).open(path);
        let (mut first, mut second) = (append(&path).expect("open"), append(&other).expect("open"));
        let mut expected = String::new();
        for n in 0..50 {
            for file in [&mut first, &mut second] {
                let line = format!("line {n}\n");
                file.write_all(line.as_bytes()).expect("it is written");
                expected.push_str(&line);
            }
            assert_eq!(fs::read_to_string(&path).expect("it is read"), expected);
            assert_eq!(fs::read_to_string(&other).expect("it is read"), expected);
        }
    })
    .await;
    one.unmount().await;
    two.unmount().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn truncating_allocating_copying_and_seeking_work_on_open_files() {
    if !can_mount("truncating_allocating_copying_and_seeking_work_on_open_files") {
        return;
    }
    let site = Site::new().await;
    let mounted = site.mount().await;
    mounted
        .on(|path| {
            let open = |name: &str| {
                let mut options = OpenOptions::new();
                options.read(true).write(true).create(true).mode(0o600).open(path.join(name))
            };
            let file = open("file").expect("it opens");
            rustix::io::pwrite(&file, b"data", 1 << 20).expect("it is written");
            let hole = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).expect("lseek");
            assert_eq!(hole, 1 << 20);
            let copy = open("copy").expect("it opens");
            let (mut from, mut to) = (1 << 20, 3);
            let copied =
                rustix::fs::copy_file_range(&file, Some(&mut from), &copy, Some(&mut to), 4);
            assert_eq!(copied, Ok(4));
            assert_eq!(fs::read(path.join("copy")).expect("it is read"), b"\0\0\0data");
            rustix::fs::fallocate(&copy, rustix::fs::FallocateFlags::empty(), 0, 100)
                .expect("fallocate");
            assert_eq!(copy.metadata().expect("fstat").len(), 100);
            let truncated = OpenOptions::new().write(true).truncate(true).open(path.join("copy"));
            drop(truncated.expect("it opens"));
            assert_eq!(copy.metadata().expect("fstat").len(), 0);
            file.sync_all().expect("fsync");
            File::open(&path).expect("it opens").sync_all().expect("fsync of a directory");
            let made = rustix::fs::open(
                &path,
                rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR,
                rustix::fs::Mode::from_raw_mode(0o640),
            );
            let made = File::from(made.expect("O_TMPFILE"));
            assert_eq!(made.metadata().expect("fstat").nlink(), 0);
        })
        .await;
    mounted.unmount().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn xattrs_are_set_listed_and_removed_with_empty_values_and_zeros() {
    if !can_mount("xattrs_are_set_listed_and_removed_with_empty_values_and_zeros") {
        return;
    }
    let site = Site::new().await;
    let mounted = site.mount().await;
    mounted
        .on(|path| {
            let file = path.join("file");
            fs::write(&file, "x").expect("it is written");
            let set = |name: &str, value: &[u8]| {
                rustix::fs::setxattr(&file, name, value, rustix::fs::XattrFlags::empty())
            };
            let get = |name: &str| {
                let mut value = [0; 64];
                let len = rustix::fs::getxattr(&file, name, &mut value[..])?;
                Ok::<_, rustix::io::Errno>(value[..len].to_vec())
            };
            set("user.empty", b"").expect("it is set");
            set("user.zeros", b"a\0b\0").expect("it is set");
            assert_eq!(get("user.empty"), Ok(Vec::new()));
            assert_eq!(get("user.zeros"), Ok(b"a\0b\0".to_vec()));
            rustix::fs::removexattr(&file, "user.empty").expect("it is removed");
            assert_eq!(get("user.empty"), Err(rustix::io::Errno::NODATA));
            for name in ["system.posix_acl_access", "security.selinux"] {
                assert_eq!(get(name), Err(rustix::io::Errno::OPNOTSUPP), "{name}");
            }
        })
        .await;
    mounted.unmount().await;
}
