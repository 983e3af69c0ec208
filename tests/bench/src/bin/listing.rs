//! Listings and crawls through Portcullis beside the local file system, a FUSE floor, GlusterFS,
//! NFS-Ganesha, bindfs and mergerfs: a table on standard output, and JSON. What is measured, and
//! how, is told in the module `listing` of this crate.

use clap::Parser;
use portcullis_bench::listing::options::Options;
use portcullis_bench::listing::report::Report;
use portcullis_bench::listing::{machine, rows};

fn main() {
    let options = Options::parse();
    let (is_short, json) = (options.short, options.json_path());
    let mut report = Report::default();
    // Dropped after the table is printed.
    let _trees = rows::all(options, &mut report);
    let machine = machine::describe();
    if is_short {
        println!("short: small trees and few rounds, so bars are not judged by this\n");
    }
    print!("{}", report.table(&machine));
    report.write_json(&json, &machine, is_short);
    println!("JSON: {}", json.display());
}
