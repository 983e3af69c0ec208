//! Random operations through several mounts, and two oracles: a file system in memory and a local
//! directory. Every answer, every error and, from time to time, the whole tree is compared.
//!
//! [`step`] has what is done, [`reference`] the file system in memory, [`real`] what does the
//! steps to a mount or to the local directory.

mod real;
mod reference;
mod step;

use portcullis_suite::share::{Layout, Share, is_local};
use portcullis_suite::{soak_round, soaking, view};

use real::Real;
use reference::Reference;
use step::{NAMES, Random, Step};

/// After how many steps the whole trees are compared.
const TREE_EVERY: usize = 1_000;
/// Entries that the tree may have before it is cleared.
const TREE_ENTRIES_MAX: usize = 150;

#[test]
fn random_operations_through_two_mounts_do_what_the_model_does() {
    run("random_operations_through_two_mounts_do_what_the_model_does", 1, &[0, 0], 1);
}

/// S-VOLUME-2.
#[test]
fn random_operations_on_two_bricks_do_what_the_model_does() {
    run("random_operations_on_two_bricks_do_what_the_model_does", 2, &[0, 0], 2_000);
}

/// S-VOLUME-2, S-COH-1.
#[test]
fn random_operations_on_four_bricks_through_two_gateways_do_what_the_model_does() {
    let test = "random_operations_on_four_bricks_through_two_gateways_do_what_the_model_does";
    run(test, 4, &[0, 0, 1], 3_000);
}

/// S-COH-1.
#[test]
fn random_operations_through_two_gateways_do_what_the_model_does() {
    run("random_operations_through_two_gateways_do_what_the_model_does", 1, &[0, 0, 1], 1_000);
}

fn run(test: &str, bricks: usize, mounts: &[usize], first_seed: u64) {
    let steps = if soaking() { 100_000 } else { 10_000 };
    let seed = first_seed + soak_round();
    let layout = Layout { bricks, mounts, ..Layout::default() };
    let Some(share) = Share::start(test, &layout) else { return };
    println!("model: seed {seed}, {steps} steps, {} mounts, {bricks} bricks", mounts.len());
    compare(&share, bricks, seed, steps);
}

fn compare(share: &Share, bricks: usize, seed: u64, steps: usize) {
    let is_volume = bricks > 1 && !is_local();
    let local = share.scratch("local");
    std::fs::create_dir(&local).expect("a directory");
    let mut random = Random::new(seed);
    let mut reference = Reference::default();
    let mut mounts = Real::new(share.paths());
    let mut below = Real::new(vec![&local]);
    let mut trail: Vec<String> = Vec::new();
    let mut went_well = 0;
    // What is moved below three names is out of reach; now and then the tree begins anew.
    let mut clearing = Vec::new();
    for number in 0..steps {
        let mount = random.below(share.paths().len());
        let step = clearing.pop().unwrap_or_else(|| Step::random(&mut random));
        let mut told = mounts.apply(mount, &step);
        if is_volume && told == "error 22" && reference.gives_dirs_other_parents(&step) {
            // That is not done by an exchange.
            continue;
        }
        let mut expected = reference.apply(&step);
        let mut locally = below.apply(0, &step);
        if is_volume {
            [&mut told, &mut expected, &mut locally].into_iter().for_each(leave_out_links);
        }
        trail.push(format!("{number}: mount {mount}: {step:?}: {expected}"));
        let recent = || {
            let all = std::env::temp_dir().join(format!("portcullis-model-{seed}.txt"));
            let kept = std::fs::write(&all, trail.join("\n"));
            let recent = trail[trail.len().saturating_sub(25)..].join("\n");
            format!("{recent}\n(all steps: {}, {kept:?})", all.display())
        };
        assert_eq!(
            locally,
            expected,
            "seed {seed}: the model is wrong, the local file system says so\n{}",
            recent()
        );
        assert_eq!(told, expected, "seed {seed}: the mount is wrong (left)\n{}", recent());
        went_well += usize::from(!expected.starts_with("error"));
        if number % TREE_EVERY == TREE_EVERY - 1 || number + 1 == steps {
            let mut expected = reference.tree();
            if expected.len() > TREE_ENTRIES_MAX {
                clearing = NAMES.iter().map(|name| Step::Clear { name }).collect();
            }
            view::assert_same_tree("local and model", &view::tree(&local), &expected);
            if is_volume {
                expected.values_mut().for_each(leave_out_links);
            }
            for path in share.paths() {
                let what = format!("seed {seed}, after step {number}: {}", path.display());
                let mut tree = view::tree(path);
                if is_volume {
                    tree.values_mut().for_each(leave_out_links);
                }
                view::assert_same_tree(&what, &tree, &expected);
            }
            if !is_volume {
                view::assert_same_tree("export", &view::tree(share.export()), &expected);
            }
        }
    }
    assert!(went_well * 4 > steps, "only {went_well} of {steps} steps did anything");
}

/// Takes the link count out of the attributes of a directory, which in a volume of several bricks does
/// not count subdirectories. They begin with the mode in five octal digits, those of any other file
/// with six.
fn leave_out_links(attributes: &mut String) {
    let mut words = attributes.split(' ');
    let (Some(mode), Some(links)) = (words.next(), words.next()) else { return };
    if mode.len() == 5 && mode.starts_with('4') && mode.bytes().all(|digit| digit.is_ascii_digit())
    {
        let rest = &attributes[mode.len() + 1 + links.len()..];
        *attributes = format!("{mode} -{rest}");
    }
}
