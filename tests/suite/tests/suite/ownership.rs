//! Who owns what is made, and who may do what: a mount made by root is for all users, and each is
//! treated as on a local file system.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use portcullis_suite::share::{Share, is_local};
use portcullis_suite::{run, view};

/// Two users and some groups; nobody needs to have heard of them.
const ALICE: u32 = 12_001;
const BOB: u32 = 12_002;
const TEAM: u32 = 12_100;
const OTHER: u32 = 12_200;

/// A step of a scene: who (0 is root), with which supplementary groups, and what.
type Act = (u32, &'static [u32], &'static str);

/// Plays a scene in a mount and in a local directory and compares all that was printed, and the
/// files.
fn same_scene(test: &str, acts: &[Act]) {
    let Some(share) = Share::two(test) else { return };
    let local = share.scratch("local");
    fs::create_dir(&local).expect("a directory");
    fs::create_dir(share.mount(0).join("scene")).expect("a directory");
    let everyone = fs::Permissions::from_mode(0o777);
    let (one, other) = (share.mount(0).join("scene"), share.mount(1).join("scene"));
    for dir in [&local, &one] {
        fs::set_permissions(dir, everyone.clone()).expect("its mode");
    }
    for (number, (uid, groups, script)) in acts.iter().enumerate() {
        // Every other act through the other mount.
        let mounted = if number % 2 == 0 { &one } else { &other };
        let act = |dir: &Path| run::sh_as(dir, *uid, *uid, groups, &format!("{HELPERS}{script}"));
        let expected = act(&local);
        assert!(!expected.is_empty(), "act {number} tells nothing");
        assert_eq!(act(mounted), expected, "act {number} by {uid} {groups:?}: {script}");
    }
    let local = view::tree(&local);
    view::assert_same_tree("mount and local", &view::tree(&one), &local);
    view::assert_same_tree("export and local", &view::tree(&share.export().join("scene")), &local);
}

/// `try CMD` prints whether it may; `own FILE...` prints mode and owners.
const HELPERS: &str = "
try() { if \"$@\" >/dev/null 2>&1 </dev/null; then echo \"may: $*\"; else echo \"may not: $*\"; fi; }
own() { stat -c '%n %a %u %g %F' \"$@\"; }
umask 022
";

/// S-ACCESS-2.
#[test]
fn what_is_made_belongs_to_its_maker() {
    same_scene(
        "what_is_made_belongs_to_its_maker",
        &[
            (ALICE, &[TEAM], ": > f; mkdir d; ln -s f l; mkfifo p; own f d l p"),
            (BOB, &[], "own f d l p; try rm -f d/x; try touch d/x; try sh -c 'echo > f'"),
            (
                ALICE,
                &[],
                "umask 077; : > private; mkdir dp; umask 0; : > open; own private dp open",
            ),
            (BOB, &[], "try cat private; try ls dp; try cat open; try sh -c 'echo x >> open'"),
            (0, &[], ": > r; own r; try cat private"),
        ],
    );
}

/// S-ACCESS-2.
#[test]
fn supplementary_groups_count() {
    same_scene(
        "supplementary_groups_count",
        &[
            (0, &[], "mkdir shared; chgrp 12100 shared; chmod 770 shared; own shared"),
            (ALICE, &[TEAM, OTHER], ": > shared/a; mkdir shared/d; own shared/a shared/d"),
            (BOB, &[OTHER], "try ls shared; try touch shared/b"),
            (
                BOB,
                &[OTHER, TEAM],
                "try ls shared; try touch shared/b; own shared/b; try rm -f shared/a",
            ),
            (ALICE, &[TEAM], "chgrp 12100 shared/d; own shared/d; try chgrp 12200 shared/d"),
        ],
    );
}

/// S-ACCESS-2.
#[test]
fn a_setgid_directory_hands_its_group_down() {
    same_scene(
        "a_setgid_directory_hands_its_group_down",
        &[
            (0, &[], "mkdir s; chgrp 12100 s; chmod 2777 s; own s"),
            (ALICE, &[TEAM], ": > s/f; mkdir s/d; ln -s f s/l; own s/f s/d s/l"),
            (BOB, &[], ": > s/g; mkdir s/e; own s/g s/e"),
            // One who is not in the group cannot make a set-group-id program of it.
            (BOB, &[], "chmod 2755 s/g; own s/g; mkdir s/e/below; own s/e/below"),
            (ALICE, &[TEAM], "chmod 2755 s/f; own s/f"),
        ],
    );
}

/// S-ACCESS-2.
#[test]
fn in_a_sticky_directory_only_the_owner_removes() {
    same_scene(
        "in_a_sticky_directory_only_the_owner_removes",
        &[
            (0, &[], "mkdir t; chmod 1777 t; own t"),
            (ALICE, &[], ": > t/a; : > t/b; mkdir t/d; own t/a"),
            (BOB, &[], "try rm -f t/a; try mv t/a t/x; : > t/own; try mv t/own t/b; try rmdir t/d"),
            (BOB, &[], "try mv t/own t/mine; try rm -f t/mine"),
            (ALICE, &[], "try mv t/a t/x; try rm -f t/x; try rmdir t/d"),
        ],
    );
}

/// S-ACCESS-2.
#[test]
fn a_write_takes_set_id_bits_away() {
    same_scene(
        "a_write_takes_set_id_bits_away",
        &[
            (0, &[], "for f in a b c d e; do echo x > $f; chmod 6777 $f; done; own a"),
            (ALICE, &[], "echo more >> a; own a"),
            (ALICE, &[], ": > b; own b"),
            (ALICE, &[], "truncate -s 1 c; own c"),
            (0, &[], "echo more >> d; own d"),
            (0, &[], "chown 12001 e; own e; chmod 4755 e; chgrp 12100 e; own e"),
            (ALICE, &[TEAM], "cp /bin/true own; chmod 4755 own; own own; chgrp 12100 own; own own"),
        ],
    );
}

#[test]
fn only_the_owner_changes_mode_owner_and_times() {
    same_scene(
        "only_the_owner_changes_mode_owner_and_times",
        &[
            (ALICE, &[TEAM], ": > f; chmod 666 f; : > g; mkdir d; own f g d"),
            (BOB, &[], "try chmod 600 f; try chown 12002 f; try chgrp 12002 f; own f"),
            (BOB, &[], "try touch f; try touch -d @5 f; try touch g; try touch -d @5 g; own f"),
            (BOB, &[], "try setfattr -n user.a -v 1 f; try setfattr -n user.a -v 1 g; own f"),
            (BOB, &[], "try setfattr -n trusted.a -v 1 f; try rmdir d; try mv d e"),
            (ALICE, &[TEAM], "try chgrp 12100 f; try chgrp 12200 f; try chown 12002 f; own f"),
            (0, &[], "chown 12002:12200 f; own f"),
            (ALICE, &[TEAM], "try chmod 600 f; own f"),
        ],
    );
}

/// A user who may not list or enter a directory may not, whoever listed it before. S-ACCESS-1.
#[test]
fn permissions_hold_whatever_is_cached() {
    same_scene(
        "permissions_hold_whatever_is_cached",
        &[
            (ALICE, &[], "mkdir closed listed; echo x > closed/f; echo x > listed/f; own closed"),
            (ALICE, &[], "chmod 711 closed; chmod 744 listed; ls closed listed; cat closed/f"),
            (BOB, &[], "try ls closed; try cat closed/f; try ls listed; try cat listed/f"),
            (ALICE, &[], "chmod 700 closed; own closed; ls closed"),
            (BOB, &[], "try cat closed/f; try stat closed/f; try stat closed"),
            (0, &[], "try cat closed/f; chmod 755 closed; own closed"),
            (BOB, &[], "try cat closed/f; try ls closed"),
        ],
    );
}

/// Whoever can write to the volume cannot become root by it, nor reach the hardware. S-ACCESS-4.
#[test]
fn set_user_id_programs_and_devices_never_work() {
    let name = "set_user_id_programs_and_devices_never_work";
    if is_local() {
        return;
    }
    let Some(share) = Share::one(name) else { return };
    let root = share.mount(0);
    run::sh(root, "cp /usr/bin/id own-id; chown 0:0 own-id; chmod 4755 own-id; mknod null c 1 3");
    run::sh(root, "chmod 666 null");
    assert_eq!(run::sh_as(root, ALICE, ALICE, &[], "./own-id -u"), format!("{ALICE}\n"));
    let denied = fs::File::open(root.join("null")).expect_err("a device");
    assert_eq!(denied.kind(), std::io::ErrorKind::PermissionDenied);
}
