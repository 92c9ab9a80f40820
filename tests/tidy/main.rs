//! Rules of the source that no compiler checks: layers, cycles, file sizes, documents and forbidden words.

mod cycles;
mod documents;
mod layers;

use std::path::{Path, PathBuf};

/// The most lines of a source file: a longer one has two subjects.
const LINES_MAX: usize = 620;

/// Files and folders that tools write. In a worktree `.git` is a file.
const GENERATED: &[&str] = &["target", ".git", "node_modules", "dist"];

/// A file that a person wrote, and its text.
struct Source {
    /// The path relative to the repository, with `/`.
    path: String,
    text: String,
}

impl Source {
    fn is(&self, extension: &str) -> bool {
        self.path.ends_with(&format!(".{extension}"))
    }

    fn is_below(&self, folders: &[&str]) -> bool {
        folders.iter().any(|folder| self.path.starts_with(folder))
    }

    /// Return the lines with their numbers, from 1.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }

    /// Return the lines with their numbers, without comments.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines()
            .map(|(number, line)| (number, line.split("//").next().unwrap_or_default()))
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    let mut folders = vec![repository()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // The target of a link is read at its own path.
            if GENERATED.contains(&name.as_ref()) || path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                let below = path.strip_prefix(repository()).unwrap();
                found.push(Source {
                    path: below.to_string_lossy().replace('\\', "/"),
                    text,
                });
            }
        }
    }
    assert!(
        found.len() > 50,
        "too few source files: is the path of the repository right?"
    );
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// Assert that there are no `places`. The failure lists all of them.
fn assert_none(what: &str, places: Vec<String>) {
    assert!(places.is_empty(), "{what}:\n{}", places.join("\n"));
}

/// Return the places in the code of the host and its tests that contain one of `words`, in the files that `wanted`
/// selects.
///
/// Guests are left out: their code runs in the sandbox.
fn places(words: &[&str], wanted: impl Fn(&Source) -> bool) -> Vec<String> {
    let mut places = Vec::new();
    for source in sources() {
        let is_own_code = source.is_below(&["host/", "tests/"])
            && !source.is_below(&["tests/guests/", "tests/tidy/"]);
        if !is_own_code || !source.is("rs") || !wanted(&source) {
            continue;
        }
        for (number, line) in source.code() {
            if words.iter().any(|word| line.contains(word)) {
                places.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    places
}

/// Assert that `words` are in the code of `allowed`, a folder or a file, and nowhere else.
fn only_in(allowed: &str, what: &str, words: &[&str]) {
    let inside = places(words, |source| source.is_below(&[allowed]));
    assert!(!inside.is_empty(), "{what} is not in {allowed}");
    let outside = places(words, |source| !source.is_below(&[allowed]));
    assert_none(&format!("{what} outside {allowed}"), outside);
}

#[test]
fn only_the_clock_module_reads_the_system_time() {
    let calls = ["Utc::now", "Local::now", "SystemTime::now"];
    only_in(
        "host/model/src/clock.rs",
        "a call that reads the system time",
        &calls,
    );
}

#[test]
fn the_host_and_the_sdk_reserve_the_same_keys() {
    assert_eq!(
        campanile_package::context::RESERVED,
        campanile_sdk::RESERVED_KEYS
    );
}

#[test]
fn no_files_import_each_other_in_a_cycle() {
    let sources = sources();
    let host = sources.iter().filter(|source| source.is_below(&["host/"]));
    let cycles = cycles::cycles(host.map(|source| (source.path.as_str(), source.text.as_str())));
    assert_none(
        "files that import each other",
        cycles.iter().map(|files| files.join(", ")).collect(),
    );
}

#[test]
fn no_todo_marker_or_ignored_test_is_left() {
    // In two pieces, so that this file does not find itself.
    let words = [
        ["to", "do!("],
        ["unimpl", "emented!("],
        ["#[ig", "nore"],
        ["db", "g!("],
        ["FIX", "ME"],
        ["TO", "DO"],
        ["XX", "X"],
    ]
    .map(|pieces| pieces.concat());
    let kinds = [
        "rs", "toml", "sql", "wit", "sh", "yml", "yaml", "js", "html", "css", "py", "c", "go",
    ];
    let mut places = Vec::new();
    for source in sources() {
        if !kinds.iter().any(|kind| source.is(kind)) || source.is_below(&["wit/deps/"]) {
            continue;
        }
        for (number, line) in source.lines() {
            if words.iter().any(|word| line.contains(word.as_str())) {
                places.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    assert_none("markers of unfinished work or ignored tests", places);
}

#[test]
fn no_file_names_a_home_directory() {
    let words = [["/ro", "ot/"], ["/Us", "ers/"]].map(|pieces| pieces.concat());
    let mut places = Vec::new();
    for source in sources() {
        for (number, line) in source.lines() {
            if words.iter().any(|word| line.contains(word.as_str())) {
                places.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    assert_none("paths of home directories", places);
}

#[test]
fn no_source_file_is_too_long() {
    let long = sources()
        .iter()
        .filter(|source| source.is("rs"))
        .map(|source| (source.text.lines().count(), &source.path))
        .filter(|(lines, _)| *lines > LINES_MAX)
        .map(|(lines, path)| format!("{path}: {lines} lines"))
        .collect();
    assert_none(&format!("more than {LINES_MAX} lines"), long);
}

#[test]
fn both_databases_have_the_same_migrations() {
    let names = |folder: &str| -> Vec<String> {
        let folder = repository().join("migrations").join(folder);
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    };
    let sqlite = names("sqlite");
    assert_eq!(sqlite, names("postgres"));
    for (number, name) in (1..).zip(&sqlite) {
        let expected = format!("{number:04}_");
        assert!(
            name.starts_with(&expected) && name.ends_with(".sql"),
            "{name}: expected {expected}*.sql"
        );
    }
}

/// Return the statements that a comment of a migration names, each with the file of the store that has it.
fn named_statements(line: &str) -> Vec<(String, String)> {
    let is_name = |part: char| part.is_ascii_lowercase() || part == '_' || part == ':';
    let comment = line.strip_prefix("--").unwrap_or_default();
    let names = comment.split(|part: char| !is_name(part));
    let names = names.filter_map(|name| name.split_once("::"));
    names
        .map(|(module, name)| (format!("host/store/src/{module}.rs"), name.to_owned()))
        .collect()
}

#[test]
fn the_comments_of_the_indexes_name_statements() {
    let sources = sources();
    let has = |(file, name): &(String, String)| {
        let folder = file.replace(".rs", "/");
        let function = format!("fn {name}(");
        let constant = format!("const {}:", name.to_uppercase());
        sources
            .iter()
            .filter(|source| source.path == *file || source.path.starts_with(&folder))
            .any(|source| source.text.contains(&function) || source.text.contains(&constant))
    };
    let mut named = 0;
    let mut unknown = Vec::new();
    for source in sources.iter().filter(|source| source.is("sql")) {
        for (number, line) in source.lines() {
            for statement in named_statements(line) {
                named += 1;
                if !has(&statement) {
                    let (file, name) = statement;
                    unknown.push(format!("{}:{number}: {name} in {file}", source.path));
                }
            }
        }
    }
    assert!(named > 100, "{named} statements are named");
    assert_none("statements that do not exist", unknown);
}

/// Return whether `line` begins an item that needs a doc comment.
fn documented_item(line: &str) -> bool {
    let first = line
        .split([' ', ':', '(', ',', ';'])
        .next()
        .unwrap_or_default();
    match first {
        "use" | "include" | "import" | "export" | "" | "}" => false,
        "package" | "interface" | "world" | "record" | "variant" | "enum" | "flags"
        | "resource" | "type" => true,
        // A function, a field or a case.
        name => name.starts_with(|c: char| c.is_ascii_lowercase() || c == '%'),
    }
}

fn undocumented(source: &Source) -> Vec<String> {
    let mut places = Vec::new();
    let mut is_documented = false;
    let mut names_file = source.path.ends_with("types.wit");
    for (number, line) in source.lines() {
        let line = line.trim();
        if line.starts_with("///") {
            is_documented = line.len() > 3 || is_documented;
        } else if !line.starts_with('@') && !line.is_empty() {
            // Only the first declaration of the package needs a doc comment.
            let repeats = line.starts_with("package ") && !std::mem::take(&mut names_file);
            if documented_item(line) && !is_documented && !repeats {
                places.push(format!("{}:{number}: {line}", source.path));
            }
            is_documented = false;
        }
    }
    places
}

#[test]
fn every_item_of_the_contract_is_documented() {
    let contract: Vec<Source> = sources()
        .into_iter()
        .filter(|source| {
            source.is("wit") && source.is_below(&["wit/"]) && !source.is_below(&["wit/deps/"])
        })
        .collect();
    assert!(contract.len() >= 5, "too few files of the contract in wit/");
    assert_none(
        "items without a `///` comment",
        contract.iter().flat_map(undocumented).collect(),
    );
}

#[test]
fn an_undocumented_item_is_found() {
    let source = Source {
        path: "wit/x.wit".to_owned(),
        text: "package a:b;\n/// Documented.\n@since(version = 1)\ninterface i {\n  use t.{x};\n  f: func();\n  /// Documented.\n  record r {\n    a: u8,\n  }\n}\n"
            .to_owned(),
    };
    let found = undocumented(&source);
    assert_eq!(found, ["wit/x.wit:6: f: func();", "wit/x.wit:9: a: u8,"]);
}
