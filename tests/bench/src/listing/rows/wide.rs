//! Mounts and `portcullis find` over a directory of many files and one of many directories, beside
//! everyone else.

use super::Bench;
use crate::listing::contest::{self, Contestant, Outcome, Work};
use crate::listing::contestants::{FuseFloor, Local, Ours};
use crate::listing::data::{self, DIRS, FILES};
use crate::listing::fuse_requests::FuseRequests;
use crate::listing::installation::{Setup, refuses};
use crate::listing::peers::ganesha::Ganesha;
use crate::listing::peers::gluster::Gluster;
use crate::listing::peers::passthrough::Passthrough;
use crate::listing::report::Report;
use crate::listing::row::{Measure, Row};

/// FUSE requests that may reach a mount when a directory is listed again.
const FUSE_REQUESTS_MAX: f64 = 10.0;
/// From how many bricks on the bar of many directories is that of 16.
const MANY_BRICKS: usize = 16;
/// How a floor and a peer begin their names.
const FLOOR: &str = "FUSE floor";
const GLUSTER: &str = "GlusterFS";

/// All groups of this module.
pub fn measure(bench: &Bench, report: &mut Report) {
    if !FuseRequests::are_told() {
        report.leave_out("FUSE requests", "it needs root and the tracepoint fuse_request_send");
    }
    for &bricks in &bench.options.bricks {
        let bricks = usize::from(bricks);
        match refuses(bricks) {
            None => mounts(bench, report, bricks),
            Some(why) => report.leave_out(&format!("{bricks} bricks"), &why),
        }
    }
    if bench.options.wants("find") {
        find(bench, report);
    }
}

/// The rows of mounts, with so many bricks.
fn mounts(bench: &Bench, report: &mut Report, bricks: usize) {
    let wants = |name: &str| bench.options.wants(name);
    if !["files", "acl", "dirs", "crawl"].iter().any(|name| wants(name)) {
        return;
    }
    let exports = bench.wide_on(bricks);
    let setup = Setup { exports, ..bench.setup(&bench.wide()) };
    let sizes = &bench.sizes;
    let is_contest = ["files", "dirs", "crawl"].iter().any(|name| wants(name));
    let with_peers = is_contest && !bench.options.no_peers;
    let gluster = with_peers.then(|| Gluster::start(bricks, |path| data::wide(path, sizes)));
    let gluster = gluster.and_then(|started| or_leave_out(report, GLUSTER, started));
    let gluster = gluster.as_ref();
    let of = |entries: usize, what: &str| format!("{entries} {what}, {bricks} brick(s)");

    if wants("files") {
        let work = Work::List { dir: FILES };
        let outcomes = compete(bench, report, &setup, gluster, work, sizes.files);
        let title = format!("ls -lU, {}", of(sizes.files, "files"));
        report.compare(&title, &outcomes, false, bars(Some(2.0), 3.0));
        report.compare(&title, &outcomes, true, bars(Some(1.15), 3.0));
        requests_again(report, &title, &outcomes);
    }
    if wants("acl") {
        acl(bench, report, &setup, &of(sizes.files, "files"));
    }
    if wants("dirs") {
        let work = Work::List { dir: DIRS };
        let outcomes = compete(bench, report, &setup, gluster, work, sizes.dirs);
        let title = format!("ls -lU, {}", of(sizes.dirs, "directories"));
        let floor = if bricks < MANY_BRICKS { 4.0 } else { 6.0 };
        report.compare(&title, &outcomes, false, bars(Some(floor), 30.0));
        report.compare(&title, &outcomes, true, |_| None);
    }
    if wants("crawl") {
        let work = Work::Crawl { dir: "" };
        let lines = data::wide_entries(sizes);
        let outcomes = compete(bench, report, &setup, gluster, work, lines);
        let title = format!("find -printf %s, {}", of(lines, "files and directories"));
        report.compare(&title, &outcomes, false, bars(Some(3.0), 15.0));
        report.compare(&title, &outcomes, true, |_| None);
    }
}

/// Everyone at `work`.
fn compete(
    bench: &Bench,
    report: &mut Report,
    setup: &Setup,
    gluster: Option<&Gluster>,
    work: Work<'_>,
    lines: usize,
) -> Vec<Outcome> {
    let wide = bench.wide();
    let mut all: Vec<Box<dyn Contestant>> = vec![
        Box::new(Ours::new(setup.clone().mounted(""))),
        Box::new(FuseFloor::new(&wide, false)),
        Box::new(Local { root: &wide }),
    ];
    if !bench.options.no_peers {
        for (name, peer) in
            [("bindfs", Passthrough::bindfs(&wide)), ("mergerfs", Passthrough::mergerfs(&wide))]
        {
            if let Some(peer) = or_leave_out(report, name, peer) {
                all.push(Box::new(peer));
            }
        }
    }
    let mounts = gluster.map(Gluster::mounts);
    if let Some(mounts) = mounts.and_then(|mounts| or_leave_out(report, GLUSTER, mounts)) {
        all.extend(mounts.into_iter().map(|mount| Box::new(mount) as Box<dyn Contestant>));
    }
    contest::run(report, &mut all, work, lines, bench.sizes.rounds)
}

/// `ls -lU` with access lists, where each name is asked for its own.
fn acl(bench: &Bench, report: &mut Report, setup: &Setup, what: &str) {
    let wide = bench.wide();
    let mut all: Vec<Box<dyn Contestant>> = vec![
        Box::new(Ours::new(setup.clone().mounted("acl"))),
        Box::new(FuseFloor::new(&wide, true)),
    ];
    let work = Work::List { dir: FILES };
    let outcomes = contest::run(report, &mut all, work, bench.sizes.files, bench.sizes.rounds);
    let title = format!("ls -lU with -o acl, {what}");
    report.compare(&title, &outcomes, false, bars(Some(1.3), 3.0));
    report.compare(&title, &outcomes, true, bars(Some(1.3), 3.0));
}

/// `portcullis find` over one directory, beside NFS-Ganesha.
fn find(bench: &Bench, report: &mut Report) {
    let wide = bench.wide();
    let work = Work::Crawl { dir: FILES };
    let files = bench.sizes.files;
    let mut all: Vec<Box<dyn Contestant + '_>> =
        vec![Box::new(Ours::new(bench.setup(&wide))), Box::new(Local { root: &wide })];
    if !bench.options.no_peers
        && let Some(ganesha) = or_leave_out(report, "NFS-Ganesha", Ganesha::start(&wide))
    {
        all.push(Box::new(ganesha));
    }
    let outcomes = contest::run(report, &mut all, work, files + 1, bench.sizes.rounds);
    let title = format!("portcullis find, {files} files");
    let bar = |bar: f64| move |who: &str| who.starts_with("NFS").then_some(bar);
    report.compare(&title, &outcomes, false, bar(0.6));
    report.compare(&title, &outcomes, true, bar(0.9));
}

/// The bars against the floor, and against GlusterFS, which we are to be so many times as fast as.
fn bars(floor: Option<f64>, faster: f64) -> impl Fn(&str) -> Option<f64> {
    move |who| match who {
        _ if who.starts_with(FLOOR) => floor,
        _ if who.starts_with(GLUSTER) => Some(1.0 / faster),
        _ => None,
    }
}

fn requests_again(report: &mut Report, title: &str, outcomes: &[Outcome]) {
    if let Some([_, again]) = outcomes.first().and_then(|ours| ours.fuse) {
        report.row(Row {
            work: format!("FUSE requests, {title}, again"),
            ours: Measure::Count(again as f64),
            against: None,
            bar: Some(FUSE_REQUESTS_MAX),
            note: String::new(),
        });
    }
}

fn or_leave_out<T>(report: &mut Report, what: &str, result: Result<T, String>) -> Option<T> {
    result.map_err(|why| report.leave_out(what, &why)).ok()
}
