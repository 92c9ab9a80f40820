//! Checks the imports and the sizes of the committed packages.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use wasmparser::{Parser, Payload};

/// The maximum size of a first-party package, in bytes.
const PACKAGE_BYTES_MAX: usize = 400 * 1024;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn bytes_of(file: &str) -> Vec<u8> {
    fs::read(repository().join(file))
        .unwrap_or_else(|error| panic!("{file}: {error}; run plugins/build"))
}

/// Return the interfaces that a component imports, or the modules that a core module imports, without versions.
fn imports(file: &str) -> BTreeSet<String> {
    let bytes = bytes_of(file);
    let mut names = BTreeSet::new();
    let mut depth = 0;
    for payload in Parser::new(0).parse_all(&bytes) {
        let mut add = |name: &str| {
            names.insert(name.split('@').next().unwrap_or(name).to_owned());
        };
        match payload.unwrap() {
            Payload::ComponentSection { .. } | Payload::ModuleSection { .. } => depth += 1,
            Payload::End(_) => depth -= 1,
            Payload::ComponentImportSection(section) if depth == 0 => {
                section
                    .into_iter()
                    .for_each(|import| add(import.unwrap().name.name));
            }
            Payload::ImportSection(section) if depth == 0 => {
                section
                    .into_imports()
                    .for_each(|import| add(import.unwrap().module));
            }
            _ => {}
        }
    }
    names
}

/// Whether the standard library of wasm32-wasip2 imports the interface in every component.
fn is_imported_by_std(name: &str) -> bool {
    name.starts_with("wasi:cli/") || name.starts_with("wasi:io/")
}

#[test]
fn a_task_that_only_logs_imports_only_logging() {
    for file in ["plugins/hello.wasm", "tests/guests/noop.wasm"] {
        let own: Vec<String> = imports(file)
            .into_iter()
            .filter(|name| !is_imported_by_std(name))
            .collect();
        // `types` has the types of `run` and no functions.
        assert_eq!(
            own,
            ["campanile:task/types", "wasi:logging/logging"],
            "{file}"
        );
    }
}

#[test]
fn a_core_module_imports_only_what_its_tasks_use() {
    let imports: Vec<String> = imports("tests/guests/core-echo.wasm").into_iter().collect();
    assert_eq!(imports, ["wasi:logging/logging"]);
}

#[test]
fn every_interface_that_a_task_uses_is_imported() {
    let imports = imports("tests/guests/guests.wasm");
    for name in [
        "campanile:task/run-info",
        "wasi:config/store",
        "wasi:keyvalue/store",
        "wasi:keyvalue/atomics",
        "wasi:keyvalue/batch",
        "wasi:logging/logging",
        "wasi:http/outgoing-handler",
        "wasi:filesystem/types",
        "wasi:sockets/tcp",
    ] {
        assert!(imports.contains(name), "{name} is not in {imports:?}");
    }
}

#[test]
fn every_first_party_package_is_small() {
    let folder = fs::read_dir(repository().join("plugins")).unwrap();
    let packages: Vec<PathBuf> = folder
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "wasm")
        })
        .collect();
    assert!(!packages.is_empty());
    for path in packages {
        let size = fs::read(&path).unwrap().len();
        assert!(
            size <= PACKAGE_BYTES_MAX,
            "{} has {size} bytes",
            path.display()
        );
    }
}
