//! What no compiler checks about the source itself: who may name what, and what must not be there.

mod cycles;
mod documents;
mod layers;

use std::path::{Path, PathBuf};

/// Lines of one source file at most: beyond that it has two subjects.
const LINES_MAX: usize = 620;

/// What is made, not written. In a worktree `.git` is a file.
const MADE: &[&str] = &["target", ".git", "node_modules"];

/// A file that a person wrote, and its text.
struct Source {
    /// Below the repository's folder, with `/`.
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

    /// The lines with their numbers, from 1.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }

    /// The lines without what follows `//`.
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
            // What a link leads to is looked at where it is.
            if MADE.contains(&name.as_ref()) || path.is_symlink() {
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
    assert!(found.len() > 50, "the source is not where it should be");
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// Fails with all places at once.
fn none(what: &str, places: Vec<String>) {
    assert!(places.is_empty(), "{what}:\n{}", places.join("\n"));
}

/// The places where one of `words` stands in the code of the files of ours that `wanted` chooses.
///
/// Guests and examples are programs of their own, for another machine.
fn places(words: &[&str], wanted: impl Fn(&Source) -> bool) -> Vec<String> {
    let mut places = Vec::new();
    for source in sources() {
        let ours = source.is_below(&["host/", "tests/"])
            && !source.is_below(&["tests/guests/", "tests/tidy/"]);
        if !ours || !source.is("rs") || !wanted(&source) {
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

/// Fails where one of `words` stands outside `room`, a folder or a file; and when none stands inside, for
/// then the room is not where this looks.
fn only_in(room: &str, what: &str, words: &[&str]) {
    let inside = places(words, |source| source.is_below(&[room]));
    assert!(!inside.is_empty(), "{what} is not in {room} any more");
    let outside = places(words, |source| !source.is_below(&[room]));
    none(&format!("{what} outside {room}"), outside);
}

#[test]
fn only_the_clock_asks_what_time_it_is() {
    let questions = ["Utc::now", "Local::now", "SystemTime::now"];
    only_in("host/model/src/clock.rs", "the time is asked", &questions);
}

#[test]
fn the_host_and_the_sdk_reserve_the_same_keys() {
    assert_eq!(
        campanile_package::context::RESERVED,
        campanile_sdk::RESERVED_KEYS
    );
}

/// The crates whose files still import each other in cycles. None may be added.
const CRATES_WITH_CYCLES: &[&str] = &["engine"];

#[test]
fn no_files_import_each_other_in_a_cycle() {
    let sources = sources();
    let host = sources.iter().filter(|source| {
        let mut open = CRATES_WITH_CYCLES.iter();
        source.is_below(&["host/"])
            && !open.any(|name| source.path.starts_with(&format!("host/{name}/")))
    });
    let cycles = cycles::cycles(host.map(|source| (source.path.as_str(), source.text.as_str())));
    none(
        "files that import each other",
        cycles.iter().map(|files| files.join(", ")).collect(),
    );
}

#[test]
fn nothing_is_left_undone_or_skipped() {
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
    none("left undone or skipped", places);
}

#[test]
fn nothing_refers_to_the_machine_it_was_written_on() {
    let words = [["/ro", "ot/"], ["/Us", "ers/"]].map(|pieces| pieces.concat());
    let mut places = Vec::new();
    for source in sources() {
        for (number, line) in source.lines() {
            if words.iter().any(|word| line.contains(word.as_str())) {
                places.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    none("a path of somebody's machine", places);
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
    none(&format!("more than {LINES_MAX} lines"), long);
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

/// The first word of `line` when the line begins an item that needs a sentence.
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
    let mut has_sentence = false;
    let mut names_file = source.path.ends_with("types.wit");
    for (number, line) in source.lines() {
        let line = line.trim();
        if line.starts_with("///") {
            has_sentence = line.len() > 3 || has_sentence;
        } else if !line.starts_with('@') && !line.is_empty() {
            // The package is told of where it is declared first; the other files only repeat its name.
            let repeats = line.starts_with("package ") && !std::mem::take(&mut names_file);
            if documented_item(line) && !has_sentence && !repeats {
                places.push(format!("{}:{number}: {line}", source.path));
            }
            has_sentence = false;
        }
    }
    places
}

#[test]
fn every_item_of_the_contract_has_a_sentence() {
    let ours: Vec<Source> = sources()
        .into_iter()
        .filter(|source| {
            source.is("wit") && source.is_below(&["wit/"]) && !source.is_below(&["wit/deps/"])
        })
        .collect();
    assert!(ours.len() >= 5, "the contract is not where it should be");
    none(
        "without a `///` sentence",
        ours.iter().flat_map(undocumented).collect(),
    );
}

#[test]
fn an_item_without_a_sentence_is_found() {
    let source = Source {
        path: "wit/x.wit".to_owned(),
        text: "package a:b;\n/// Told.\n@since(version = 1)\ninterface i {\n  use t.{x};\n  f: func();\n  /// Told.\n  record r {\n    a: u8,\n  }\n}\n"
            .to_owned(),
    };
    let found = undocumented(&source);
    assert_eq!(found, ["wit/x.wit:6: f: func();", "wit/x.wit:9: a: u8,"]);
}
