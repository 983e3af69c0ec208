//! POSIX access control lists, with `-o acl` and without.

use std::fs;
use std::path::Path;

use portcullis_suite::share::{Layout, Share, is_local};
use portcullis_suite::{need, run, view};

const ALICE: u32 = 12_001;
const BOB: u32 = 12_002;

fn start(test: &str, options: &str) -> Option<Share> {
    if !need::programs(test, &["setfacl", "getfacl"]) {
        return None;
    }
    Share::start(test, &Layout { mounts: &[0, 0], options, ..Layout::default() })
}

fn may(dir: &Path, uid: u32, script: &str) -> bool {
    let command = run::shell_as(dir, uid, uid, &[], script);
    run::output(&mut { command }).status.success()
}

/// S-ACL-1.
#[test]
fn lists_are_set_kept_and_heeded() {
    let name = "lists_are_set_kept_and_heeded";
    let Some(share) = start(name, "acl") else { return };
    let (one, other) = (share.mount(0), share.mount(1));
    run::sh(one, "echo x > f; chmod 600 f; mkdir d; chmod 700 d; echo y > d/g");
    assert!(!may(other, ALICE, "cat f") && !may(other, ALICE, "ls d"));
    run::sh(one, "setfacl -m u:12001:r f; setfacl -m u:12001:rx d");
    assert!(may(other, ALICE, "cat f"), "the other mount heeds the new list at once");
    assert!(may(other, ALICE, "ls d && cat d/g"));
    assert!(!may(other, ALICE, "echo z >> f") && !may(other, BOB, "cat f"));
    let shown = run::sh(other, "getfacl -n f d");
    assert_eq!(run::sh(share.export(), "getfacl -n f d"), shown, "it is the brick's own list");
    assert!(shown.contains("user:12001:r--"), "{shown}");
    run::sh(other, "chmod 600 f");
    assert!(!may(one, ALICE, "cat f"), "chmod narrows the mask");
    run::sh(other, "setfacl -b d");
    assert!(!may(one, ALICE, "ls d"));
    assert_eq!(view::attr(&one.join("d")), view::attr(&share.export().join("d")));
}

/// S-ACL-1.
#[test]
fn default_lists_are_inherited() {
    let name = "default_lists_are_inherited";
    let Some(share) = start(name, "acl") else { return };
    let local = share.scratch("local");
    fs::create_dir(&local).expect("a directory");
    let script = "umask 077; mkdir d; setfacl -d -m u:12001:rwx,g::rx,o::r d; : > d/f; mkdir d/e
        : > d/e/g; mknod d/p p; ln -s f d/l
        cp /bin/true d/t; getfacl -n d d/[!l] d/e/g; stat -c '%n %a' d d/* d/e/*";
    let expected = run::sh(&local, script);
    assert!(expected.contains("default:user:12001:rwx"), "{expected}");
    assert_eq!(run::sh(share.mount(0), script), expected);
    let looked = "getfacl -n d d/[!l] d/e/g; stat -c '%n %a' d d/* d/e/*";
    assert_eq!(run::sh(share.mount(1), looked), expected);
    assert_eq!(run::sh(share.export(), looked), expected);
}

/// Without the option the lists are not shown; the mode, whose group bits are the list's mask, is
/// all that the kernel checks. S-ACL-1.
#[test]
fn without_the_option_lists_are_not_shown_and_not_lost() {
    let name = "without_the_option_lists_are_not_shown_and_not_lost";
    if is_local() {
        return;
    }
    let Some(share) = start(name, "") else { return };
    run::sh(share.export(), "echo x > f; chmod 640 f; setfacl -m u:12001:rw f");
    let before = run::sh(share.export(), "getfacl -n f");
    let shown = run::sh(share.mount(0), "getfacl -n f; stat -c %a f");
    assert!(!shown.contains("12001"), "{shown}");
    assert!(shown.contains("660"), "{shown}");
    run::sh(share.mount(0), "echo y >> f; touch f");
    assert_eq!(run::sh(share.export(), "getfacl -n f"), before);
}

/// Which files have no list is told with a listing; a list that is set later is seen at once. S-ACL-1.
#[test]
fn only_files_with_lists_are_asked_for_theirs() {
    let name = "only_files_with_lists_are_asked_for_theirs";
    if is_local() || !need::programs(name, &["setfacl", "getfacl"]) {
        return;
    }
    for bricks in [1, 4] {
        let layout = Layout { mounts: &[0, 1], options: "acl", bricks, ..Layout::default() };
        let Some(share) = Share::start(name, &layout) else { return };
        let (one, other) = (share.mount(0), share.mount(1));
        run::sh(
            one,
            "mkdir d; cd d; for n in $(seq 100); do : > f$n; done; setfacl -m u:12001:r f7",
        );
        let asked = || {
            let requests = share.site().requests_by_brick();
            let counts = requests.iter().map(|brick| brick.get("getxattr").copied().unwrap_or(0));
            counts.sum::<u64>()
        };
        // Listed by a gateway that knows nothing of it yet, before anything is asked of its files.
        run::sh(one, "ls -U d");
        let before = asked();
        let shown = run::sh(one, "ls -l d");
        assert_eq!(
            shown.lines().filter(|line| line.starts_with("-rw-r--r--+")).count(),
            1,
            "{shown}"
        );
        assert!(asked() - before < 10, "{} requests for lists of 100 files", asked() - before);
        run::sh(other, "setfacl -m u:12001:rw d/f9");
        let shown = run::sh(one, "getfacl -n d/f9 d/f10");
        assert_eq!(shown.matches("user:12001:rw-").count(), 1, "{shown}");
        run::sh(other, "setfacl -b d/f7");
        assert!(!run::sh(one, "getfacl -n d/f7").contains("12001"));
    }
}
