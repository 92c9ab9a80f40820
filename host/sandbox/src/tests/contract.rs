//! The released versions of the contract with tasks, in `tests/contract/`, compared with the current one: packages that
//! were built with a release must run with the current contract.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use wit_component::semver_check;
use wit_parser::{PackageId, Resolve, WorldId, WorldItem};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns all releases of the contract: 0.1.0, and each later one that adds imports.
fn releases() -> Vec<PathBuf> {
    let entries = fs::read_dir(repository().join("tests/contract")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Returns an error unless packages built with `released` run with `present`. Both are folders of WIT.
fn check_compatible(released: &Path, present: &Path) -> anyhow::Result<()> {
    let mut both = Resolve::default();
    let (present, _) = both.push_dir(present)?;
    let (old, released) = without_versions(released)?;
    let moved = both.merge(old)?;
    let released = moved.packages[released.index()];
    for (name, old) in both.packages[released].worlds.clone() {
        let new = both.packages[present].worlds.get(&name);
        let new = *new.with_context(|| format!("the world {name} is gone"))?;
        // A world may gain imports and lose exports by the rules of WIT. Here only more imports are compatible.
        semver_check(both.clone(), old, new).with_context(|| format!("the world {name}"))?;
        let exports = (exports(&both, old), exports(&both, new));
        ensure!(exports.0 == exports.1, "the exports of {name}: {exports:?}");
    }
    Ok(())
}

/// Returns the package in `folder` and its dependencies without versions. With versions they would be merged with
/// packages of the same version.
fn without_versions(folder: &Path) -> anyhow::Result<(Resolve, PackageId)> {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(folder)?;
    for (_, package) in resolve.packages.iter_mut() {
        package.name.version = None;
    }
    let names = resolve.packages.iter();
    resolve.package_names = names
        .map(|(id, package)| (package.name.clone(), id))
        .collect();
    Ok((resolve, package))
}

/// Returns the exported interfaces of a world and their functions.
fn exports(resolve: &Resolve, world: WorldId) -> Vec<(String, Vec<String>)> {
    let exports = resolve.worlds[world].exports.values();
    let interfaces = exports.filter_map(|item| match item {
        WorldItem::Interface { id, .. } => Some(&resolve.interfaces[*id]),
        _ => None,
    });
    interfaces
        .map(|interface| {
            let name = interface.name.clone().unwrap_or_default();
            (name, interface.functions.keys().cloned().collect())
        })
        .collect()
}

#[test]
fn packages_of_every_release_run_with_the_current_contract() {
    let releases = releases();
    assert!(!releases.is_empty());
    for released in releases {
        if let Err(error) = check_compatible(&released, &repository().join("wit")) {
            panic!("packages built with {released:?} would break: {error:?}");
        }
    }
}

/// Returns a copy of the current contract with `from` in one of its files changed to `to`.
fn changed(file: &str, from: &str, to: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    copy(&repository().join("wit"), folder.path());
    let file = folder.path().join(file);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains(from), "{from:?} is not in {file:?}");
    fs::write(&file, text.replacen(from, to, 1)).unwrap();
    folder
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let from = entry.unwrap().path();
        let to = to.join(from.file_name().unwrap());
        if from.is_dir() {
            fs::create_dir(&to).unwrap();
            copy(&from, &to);
        } else {
            fs::copy(&from, &to).unwrap();
        }
    }
}

#[test]
fn a_breaking_change_of_the_contract_is_found() {
    for (file, from, to) in [
        ("task.wit", "context: json)", "context: json, again: bool)"),
        (
            "task.wit",
            "run: func",
            "stop: func();\n@since(version = 0.1.0)\nrun: func",
        ),
        (
            "describe.wit",
            "describe: func",
            "forget: func();\n@since(version = 0.1.0)\ndescribe: func",
        ),
        ("types.wit", "retryable: bool,", ""),
        (
            "types.wit",
            "retryable: bool,",
            "retryable: bool, permanent: bool,",
        ),
        ("types.wit", "type json = string", "type json = list<u8>"),
        (
            "run-info.wit",
            "attempt: func() -> u32",
            "attempt: func() -> u64",
        ),
        (
            "run-info.wit",
            "cancel-requested: func() -> bool;",
            "stop-requested: func() -> bool;",
        ),
        (
            "world.wit",
            "@since(version = 0.1.0)\n    export describe;",
            "",
        ),
        (
            "world.wit",
            "@since(version = 0.1.0)\n    import wasi:keyvalue/batch@0.2.0-draft;",
            "",
        ),
        (
            "world.wit",
            "world minimal-package",
            "world smallest-package",
        ),
        ("deps/config/store.wit", "get: func(", "look: func("),
    ] {
        let folder = changed(file, from, to);
        for released in releases() {
            let found = check_compatible(&released, folder.path());
            assert!(found.is_err(), "{file}: {from:?} became {to:?}");
        }
    }
}

#[test]
fn a_compatible_addition_to_the_contract_is_accepted() {
    for (file, from, to) in [
        (
            "run-info.wit",
            "run-id: func",
            "host-name: func() -> string;\n@since(version = 0.1.0)\nrun-id: func",
        ),
        (
            "world.wit",
            "import run-info;",
            "import run-info;\nimport extra;",
        ),
        (
            "types.wit",
            "package campanile:task@0.1.0",
            "package campanile:task@0.1.1",
        ),
    ] {
        let folder = changed(file, from, to);
        let extra = "interface extra { call: func(); }";
        fs::write(folder.path().join("extra.wit"), extra).unwrap();
        for released in releases() {
            let found = check_compatible(&released, folder.path());
            assert!(found.is_ok(), "{file}: {from:?} became {to:?}: {found:?}");
        }
    }
}
