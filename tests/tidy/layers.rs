//! The table of crates in ARCHITECTURE.md, compared with the dependencies of cargo.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{Source, assert_none, repository, sources};

/// Crates by name, each with the names of its dependencies in a build, without optional ones.
type Dependencies = BTreeMap<String, BTreeSet<String>>;

/// Crates that `campanile-testkit` must not depend on.
const NOT_FOR_TESTS_OF_TASKS: [&str; 3] = ["clap", "notify", "sqlx"];

/// Crates named by expanding `words!`.
const OF_WORDS: [&str; 2] = ["schemars", "serde"];

/// Return the members of the workspace.
fn members() -> Vec<Value> {
    packages(&repository())
}

/// Return the packages of the workspace in `folder`, as `cargo metadata` describes them.
fn packages(folder: &Path) -> Vec<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(folder)
        .output()
        .expect("cargo");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata");
    list(&metadata["packages"])
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

/// Return the crates of the workspace without the tests.
fn dependencies() -> Dependencies {
    members()
        .iter()
        .filter(|package| package["name"] != "campanile-tests")
        .map(|package| {
            let built = list(&package["dependencies"])
                .into_iter()
                .filter(|item| item["kind"].is_null() && item["optional"] == false)
                .map(|item| text(&item["name"]))
                .collect();
            (text(&package["name"]), built)
        })
        .collect()
}

/// Return the names between backquotes.
fn quoted(text: &str) -> Vec<String> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// Return the rows of the table: a crate, its folder, the crates that it may depend on, and the dependencies that no
/// other crate has.
fn layers() -> Vec<(String, String, BTreeSet<String>, Vec<String>)> {
    let text =
        std::fs::read_to_string(repository().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let mut above = BTreeSet::new();
    let mut rows = Vec::new();
    for line in text.lines().filter(|line| line.starts_with("| `campanile")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, name, folder, may_name, alone, _] = cells.as_slice() else {
            panic!("a row of four cells: {line}");
        };
        let [name, folder] = [quoted(name).remove(0), quoted(folder).remove(0)];
        let may_name = match *may_name {
            "all of the above" => above.clone(),
            some => quoted(some)
                .iter()
                .map(|name| format!("campanile-{name}"))
                .collect(),
        };
        above.insert(name.clone());
        rows.push((name, folder, may_name, quoted(alone)));
    }
    rows
}

#[test]
fn the_table_of_crates_matches_the_dependencies() {
    let dependencies = dependencies();
    let layers = layers();
    let listed: BTreeSet<&String> = layers.iter().map(|row| &row.0).collect();
    assert_eq!(listed, dependencies.keys().collect());
    let mut lower = BTreeSet::new();
    for (name, folder, may_name, alone) in &layers {
        let manifest = repository().join(folder).join("Cargo.toml");
        let manifest = std::fs::read_to_string(manifest).expect(folder);
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{folder}");
        let named: BTreeSet<String> = dependencies[name]
            .iter()
            .filter(|other| listed.contains(other))
            .cloned()
            .collect();
        assert!(named.is_subset(may_name), "{name} depends on {named:?}");
        let unused: Vec<&String> = may_name.difference(&named).collect();
        assert!(
            unused.is_empty() || may_name.len() == lower.len(),
            "{name} does not depend on {unused:?}"
        );
        assert!(
            named.is_subset(&lower),
            "{name} is listed before a crate that it depends on"
        );
        lower.insert(name.clone());
        for outside in alone {
            let by: Vec<&String> = dependencies
                .iter()
                .filter(|(_, built)| built.contains(outside))
                .map(|(by, _)| by)
                .collect();
            assert_eq!(by, [name], "crates that depend on {outside}");
        }
    }
}

#[test]
fn the_testkit_builds_no_database_and_no_command_line() {
    let dependencies = dependencies();
    let mut reached = BTreeSet::new();
    let mut next = vec!["campanile-testkit".to_owned()];
    while let Some(name) = next.pop() {
        if reached.insert(name.clone()) {
            next.extend(dependencies.get(&name).into_iter().flatten().cloned());
        }
    }
    assert!(reached.contains("campanile-sandbox"), "{reached:?}");
    for never in NOT_FOR_TESTS_OF_TASKS {
        assert!(!reached.contains(never), "campanile-testkit builds {never}");
    }
}

/// Return whether `name` stands in `text` between characters that are not part of a name.
fn has_word(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
        !text[..at].ends_with(part_of_name) && !text[at + name.len()..].starts_with(part_of_name)
    })
}

/// Return the ends of the paths in `#[path = "../…"]` attributes.
fn modules_elsewhere(text: &str) -> Vec<&str> {
    let paths = text.split("#[path = \"../").skip(1);
    let paths = paths.filter_map(|rest| rest.split('"').next());
    paths.map(|path| path.trim_start_matches("../")).collect()
}

#[test]
fn each_crate_names_every_crate_that_it_depends_on() {
    let sources = sources();
    let root = repository().canonicalize().expect("the repository");
    let mut unused = Vec::new();
    for package in members() {
        let manifest = PathBuf::from(text(&package["manifest_path"]));
        let folder = manifest
            .parent()
            .and_then(|item| item.strip_prefix(&root).ok());
        let folder = format!("{}/", folder.expect("a member of the repository").display());
        let own = |source: &&Source| source.is("rs") && source.path.starts_with(&folder);
        let mut code: Vec<&str> = sources.iter().filter(own).map(|item| &*item.text).collect();
        assert!(!code.is_empty(), "{folder} has no source");
        let elsewhere: Vec<&str> = code
            .iter()
            .flat_map(|text| modules_elsewhere(text))
            .collect();
        let included = |source: &&Source| elsewhere.iter().any(|end| source.path.ends_with(end));
        code.extend(sources.iter().filter(included).map(|item| &*item.text));
        for dependency in list(&package["dependencies"]) {
            let name = text(&dependency["name"]).replace('-', "_");
            let is_named = |text: &&str| {
                has_word(text, &name) || (OF_WORDS.contains(&&*name) && text.contains("words! {"))
            };
            if !code.iter().any(is_named) {
                unused.push(format!("{folder}Cargo.toml: {name}"));
            }
        }
    }
    assert_none("dependencies that no source names", unused);
}

/// Tests start the program, so a fresh clone builds both. A feature that only tests turn on would have cargo compile the crate
/// with it, and all crates above, twice.
#[test]
fn tests_turn_on_no_feature_of_a_dependency() {
    let (mut built, mut tested) = (BTreeSet::new(), BTreeSet::new());
    for package in members() {
        for dependency in list(&package["dependencies"]) {
            let features = match text(&dependency["kind"]).as_str() {
                "dev" => &mut tested,
                _ => &mut built,
            };
            for feature in list(&dependency["features"]) {
                features.insert((text(&dependency["name"]), text(&feature)));
            }
        }
    }
    let only_tested = tested.difference(&built);
    let named = only_tested.map(|(name, feature)| format!("{name}: {feature}"));
    assert_none("features that only tests turn on", named.collect());
}

/// `cargo run` at the root needs one crate that names its program, because the tests have programs too.
#[test]
fn cargo_run_at_the_root_runs_campanile() {
    let members = members();
    let programs = members.iter().map(|member| &member["default_run"]);
    let named: Vec<&Value> = programs.filter(|program| !program.is_null()).collect();
    assert_eq!(named, ["campanile"]);
}

/// `campanile new` copies the SDK into a project, with a manifest that names no workspace.
#[test]
fn the_copied_sdk_is_described_like_the_sdk() {
    let folder = tempfile::tempdir().expect("a folder");
    let copied = repository().join("host/cli/assets/sdk/manifest.toml");
    std::fs::copy(copied, folder.path().join("Cargo.toml")).expect("a copy");
    std::fs::create_dir(folder.path().join("src")).expect("a folder");
    std::fs::write(folder.path().join("src/lib.rs"), "").expect("a file");
    let described = |package: &Value| {
        let built = list(&package["dependencies"])
            .into_iter()
            .filter(|item| item["kind"].is_null());
        let keys = [
            "name",
            "version",
            "edition",
            "rust_version",
            "license",
            "description",
            "features",
        ];
        let values = keys.map(|key| package[key].clone());
        (values, Vec::from_iter(built))
    };
    let members = members();
    let sdk = members
        .iter()
        .find(|package| package["name"] == "campanile-sdk");
    let copies = packages(folder.path());
    assert_eq!(described(&copies[0]), described(sdk.expect("the SDK")));
}
