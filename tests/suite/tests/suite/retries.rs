//! A change whose answer was lost is made once: it is asked for again under the same number, and
//! nobody is told that the name exists already, or is gone.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portcullis_suite::relay::Relay;
use portcullis_suite::share::{Layout, Share, is_local};
use portcullis_suite::{view, wait};

/// A change, and how to see in the export that it was made.
type Change = (&'static str, fn(&Path) -> std::io::Result<()>, fn(&Path) -> bool);

const CHANGES: &[Change] = &[
    ("create", |dir| fs::File::create_new(dir.join("c")).map(drop), |dir| dir.join("c").exists()),
    ("mkdir", |dir| fs::create_dir(dir.join("m")), |dir| dir.join("m").exists()),
    (
        "symlink",
        |dir| std::os::unix::fs::symlink("x", dir.join("s")),
        |dir| dir.join("s").is_symlink(),
    ),
    ("link", |dir| fs::hard_link(dir.join("f"), dir.join("l")), |dir| dir.join("l").exists()),
    ("unlink", |dir| fs::remove_file(dir.join("u")), |dir| !dir.join("u").exists()),
    ("rmdir", |dir| fs::remove_dir(dir.join("d")), |dir| !dir.join("d").exists()),
    ("rename", |dir| fs::rename(dir.join("r"), dir.join("rr")), |dir| dir.join("rr").exists()),
    (
        "append",
        |dir| {
            let mut file = fs::OpenOptions::new().append(true).open(dir.join("f"))?;
            std::io::Write::write_all(&mut file, b"+")
        },
        |dir| fs::metadata(dir.join("f")).is_ok_and(|attr| attr.len() > 7),
    ),
];

fn prepare(export: &Path) {
    for name in ["f", "u", "r"] {
        fs::write(export.join(name), "content").expect("a file");
    }
    fs::create_dir(export.join("d")).expect("a directory");
}

/// Starts each change with the answers cut off, waits until it was made on the brick, lets
/// `happen` happen, mends the network, and answers what the program was told.
fn lose_answers(
    root: &Path,
    export: &Path,
    relay: &Relay,
    mut happen: impl FnMut(),
) -> Vec<(&'static str, std::io::Result<()>)> {
    prepare(export);
    let mut told = Vec::new();
    for (name, change, is_made) in CHANGES {
        // The mount has looked at all of it: the request that is lost is the change.
        let root: PathBuf = root.to_owned();
        wait::until("the mount works", || {
            (view::names(&root, "") == view::names(export, "")).then_some(())
        });
        if *name == "append" {
            // Opening is a request of its own; it must be through before the network is cut.
            fs::OpenOptions::new().append(true).open(root.join("f")).expect("it opens");
        }
        relay.cut_down(true);
        let worker = std::thread::spawn({
            let change = *change;
            move || change(&root)
        });
        // A change that needs a question first (a lookup) is stuck at that, with no answer.
        let start = std::time::Instant::now();
        while !is_made(export) && start.elapsed() < Duration::from_secs(2) {
            wait::pause(Duration::from_millis(20));
        }
        let was_made = is_made(export);
        happen();
        relay.cut_down(false);
        let result = worker.join().expect("it only makes a change");
        println!("{name}: made with its answer lost: {was_made}; told {result:?}");
        told.push((*name, result));
    }
    told
}

fn start(test: &str) -> Option<(Share, Relay, PathBuf)> {
    if is_local() {
        return None;
    }
    let mut share = Share::start(test, &Layout { mounts: &[], ..Layout::default() })?;
    let relay = Relay::start(share.site().gateway.ready());
    let address = relay.address();
    let mount = share.add_mount(&address, "timeout=120");
    let root = share.mount(mount).to_owned();
    Some((share, relay, root))
}

fn assert_once(share: &Share, root: &Path, told: &[(&str, std::io::Result<()>)]) {
    for (name, result) in told {
        assert!(result.is_ok(), "{name}: {result:?}");
    }
    assert_eq!(view::content(&share.export().join("f")), "content+", "appended once");
    wait::until("the mount works", || (view::content(&root.join("f")) == "content+").then_some(()));
    assert_eq!(view::names(root, ""), view::names(share.export(), ""));
}

/// S-ATOMIC-2.
#[test]
fn answers_that_are_lost_for_a_moment() {
    let Some((share, relay, root)) = start("answers_that_are_lost_for_a_moment") else { return };
    let pause = || wait::pause(Duration::from_secs(1));
    let told = lose_answers(&root, share.export(), &relay, pause);
    assert_once(&share, &root, &told);
}

/// The connection itself is lost: the change is asked for again over a new one, of a gateway that
/// has forgotten all about it. S-ATOMIC-2.
#[test]
fn answers_that_are_lost_with_their_gateway() {
    let Some((mut share, relay, root)) = start("answers_that_are_lost_with_their_gateway") else {
        return;
    };
    let export = share.export().to_owned();
    let told = lose_answers(&root, &export, &relay, || {
        share.site_mut().kill_gateway();
        share.site_mut().restart_gateway();
    });
    assert_once(&share, &root, &told);
}

/// The brick that made the change has died with what it knew: whether it was made is not known,
/// and that is what the program is told, never something that is wrong. S-ATOMIC-2.
#[test]
fn answers_that_are_lost_with_their_brick() {
    let Some((mut share, relay, root)) = start("answers_that_are_lost_with_their_brick") else {
        return;
    };
    let export = share.export().to_owned();
    let told = lose_answers(&root, &export, &relay, || {
        share.site_mut().kill_brick();
        share.site_mut().restart_brick();
    });
    for (name, result) in told {
        if let Err(why) = result {
            assert_eq!(why.raw_os_error(), Some(5), "{name}: {why}");
        }
    }
    let content = view::content(&share.export().join("f"));
    assert!(content == "content+" || content == "content", "appended at most once: {content}");
}

/// On several bricks most changes are made on more than one. What came of each they know, and tell the
/// gateway that comes next. Seen through another gateway. S-ATOMIC-2, S-VOLUME-6.
#[test]
fn answers_that_are_lost_with_their_gateway_of_several_bricks() {
    let test = "answers_that_are_lost_with_their_gateway_of_several_bricks";
    if is_local() {
        return;
    }
    let layout = Layout { bricks: 3, mounts: &[1], options: "timeout=120", ..Layout::default() };
    let Some(mut share) = Share::start(test, &layout) else { return };
    let relay = Relay::start(share.site().gateway.ready());
    let address = relay.address();
    let mount = share.add_mount(&address, "timeout=120");
    let (other, root) = (share.mount(0).to_owned(), share.mount(mount).to_owned());
    // Names lie elsewhere in each.
    for round in 0..3 {
        let name = format!("round-{round}");
        fs::create_dir(other.join(&name)).expect("made");
        let (seen, root) = (other.join(&name), root.join(&name));
        let told = lose_answers(&root, &seen, &relay, || {
            share.site_mut().kill_gateway();
            share.site_mut().restart_gateway();
        });
        for (name, result) in told {
            assert!(result.is_ok(), "{name}: {result:?}");
        }
        assert_eq!(view::content(&seen.join("f")), "content+", "appended once");
        let is_seen = || (view::names(&root, "") == view::names(&seen, "")).then_some(());
        wait::until("the mount works", is_seen);
    }
}
