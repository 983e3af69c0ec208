//! Programs that wait: for a lock, or for a server that is gone. They can be killed, and looking
//! at the mount or unmounting it waits for nothing.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use portcullis_suite::actor::Actor;
use portcullis_suite::mounted::is_mounted;
use portcullis_suite::relay::Relay;
use portcullis_suite::run::Running;
use portcullis_suite::share::{Layout, Share, is_local};
use rustix::process::{Pid, Signal, kill_process};

/// How long a process may live on after SIGKILL: a second, and room for a busy machine.
const DEATH_LIMIT: Duration = Duration::from_secs(3);
/// How long df(1) and umount(8) may take with nobody there.
const LOOK_LIMIT: Duration = Duration::from_secs(20);
/// Long enough to be sure that a process is in the system call that it was told to make.
const MOMENT: Duration = Duration::from_millis(700);

/// S-FAIL-5, S-LOCK-1.
#[test]
fn a_process_that_waits_for_a_lock_dies_when_killed() {
    let name = "a_process_that_waits_for_a_lock_dies_when_killed";
    let Some(share) = Share::three(name) else { return };
    fs::write(share.mount(0).join("f"), "content").expect("a file");
    for (how, holding, waiting) in
        [("lock", "lock f write 0 0", "lockw f write 0 0"), ("flock", "flock f EX", "flock f EX")]
    {
        let mut holder = Actor::start();
        holder.ok(&format!("open f RDWR {}", share.mount(0).join("f").display()));
        holder.ok(holding);
        for mount in [1, 2] {
            let mut waiter = Actor::start();
            waiter.ok(&format!("open f RDWR {}", share.mount(mount).join("f").display()));
            waiter.tell(waiting);
            assert_eq!(waiter.answer_within(MOMENT), None, "{how}: the lock is held");
            assert!(waiter.dies_within(DEATH_LIMIT), "{how}: it lives on, mount {mount}");
        }
        holder.ok(if how == "lock" { "lock f un 0 0" } else { "flock f UN" });
        // What the dead asked for must not be granted to them now.
        let mut next = Actor::start();
        next.ok(&format!("open f RDWR {}", share.mount(2).join("f").display()));
        next.ok(waiting);
    }
}

/// A mount whose gateway does not answer, and what is asked of it meanwhile.
fn without_a_server(test: &str, gone: impl Fn(&Share, &Relay)) {
    if is_local() {
        return;
    }
    let Some(mut share) = Share::start(test, &Layout { mounts: &[], ..Layout::default() }) else {
        return;
    };
    let relay = Relay::start(share.site().gateway.ready());
    let address = relay.address();
    let mount = share.add_mount(&address, "timeout=600");
    let root = share.mount(mount).to_owned();
    fs::create_dir(root.join("d")).expect("a directory");
    fs::write(root.join("d/f"), "content").expect("a file");
    gone(&share, &relay);
    // Each is in another call: a lookup, a read, a change, a listing.
    let at = root.display();
    let mut blocked: Vec<(String, Running)> = [
        format!("cat {at}/d/f {at}/d/g"),
        format!("mkdir {at}/d/new"),
        format!("ls -l {at}/d"),
        format!("rm {at}/d/f"),
        format!("echo x >> {at}/d/f"),
    ]
    .into_iter()
    .map(|script| {
        let running = Running::start(Command::new("sh").args(["-c", &script]));
        (script, running)
    })
    .collect();
    portcullis_suite::wait::pause(Duration::from_secs(6));
    for (script, running) in &mut blocked {
        assert!(!running.has_ended(), "it does not wait for the server: {script}");
    }
    let start = Instant::now();
    let df = Running::start(Command::new("df").arg(&root)).wait(LOOK_LIMIT);
    println!("df took {:?}: {}", start.elapsed(), df.status);
    for (script, mut running) in blocked {
        running.kill();
        let start = Instant::now();
        while !running.has_ended() {
            assert!(start.elapsed() < DEATH_LIMIT, "it lives on: {script}");
            portcullis_suite::wait::pause(Duration::from_millis(10));
        }
    }
    let mut umount = Command::new("umount");
    let umount = Running::start(umount.arg(&root)).wait(LOOK_LIMIT);
    let stderr = String::from_utf8_lossy(&umount.stderr);
    assert!(umount.status.success(), "umount: {}: {stderr}", umount.status);
    assert!(!is_mounted(&root));
    let served = share.take_mount(mount);
    drop(served);
}

/// S-FAIL-5.
#[test]
fn a_server_that_is_cut_off_keeps_nobody_from_dying() {
    let name = "a_server_that_is_cut_off_keeps_nobody_from_dying";
    without_a_server(name, |_, relay| relay.cut(true));
}

/// S-FAIL-5.
/// S-FAIL-7.
#[test]
fn a_server_that_is_stopped_keeps_nobody_from_dying() {
    let name = "a_server_that_is_stopped_keeps_nobody_from_dying";
    // Killed at the end of the test, which ends a stopped process too.
    without_a_server(name, |share, _| {
        let id = share.site().gateway.id() as i32;
        kill_process(Pid::from_raw(id).expect("an id"), Signal::STOP).expect("it lives");
    });
}

/// `-o timeout=SECS`: then the operation fails with EIO. S-FAIL-2.
#[test]
fn an_operation_fails_once_its_time_is_over() {
    let name = "an_operation_fails_once_its_time_is_over";
    if is_local() {
        return;
    }
    let Some(mut share) = Share::start(name, &Layout { mounts: &[], ..Layout::default() }) else {
        return;
    };
    let relay = Relay::start(share.site().gateway.ready());
    let address = relay.address();
    let mount = share.add_mount(&address, "timeout=3");
    let root = share.mount(mount).to_owned();
    fs::write(root.join("f"), "content").expect("a file");
    relay.cut(true);
    let start = Instant::now();
    let failed = fs::create_dir(root.join("d")).expect_err("nobody is there");
    let took = start.elapsed();
    assert_eq!(failed.raw_os_error(), Some(5), "{failed}");
    assert!(took >= Duration::from_secs(1), "it did not wait: {took:?}");
    assert!(took < Duration::from_secs(60), "it waited {took:?}");
    relay.cut(false);
    portcullis_suite::wait::until("the mount works again", || {
        (portcullis_suite::view::content(&root.join("f")) == "content").then_some(())
    });
}
