//! Checks that every public item has an example. `cargo test` runs the examples.

use std::fs;
use std::path::{Path, PathBuf};

/// The beginnings of the items that need an example. Fields and variants are shown in the example of their type.
const ITEMS: [&str; 8] = [
    "pub fn ",
    "pub struct ",
    "pub enum ",
    "pub trait ",
    "pub type ",
    "pub const ",
    "pub use ",
    "macro_rules! ",
];

/// Return the number of documented items in `text`, and the places of the items without an example.
///
/// The lint `missing_docs` finds public items without documentation.
fn items_without_example(path: &str, text: &str) -> (usize, Vec<String>) {
    let (mut items, mut without) = (0, Vec::new());
    let (mut documented, mut has_example) = (false, false);
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.starts_with("///") {
            documented = true;
            has_example |= line.starts_with("/// ```");
        } else if !line.starts_with("#[") {
            if documented && ITEMS.iter().any(|item| line.starts_with(item)) {
                items += 1;
                if !has_example {
                    without.push(format!("{path}:{number}: {line}"));
                }
            }
            (documented, has_example) = (false, false);
        }
    }
    (items, without)
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else {
            found.push(path);
        }
    }
    found
}

#[test]
fn every_public_item_has_an_example() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut items, mut without) = (0, Vec::new());
    for path in sources(&folder) {
        // The WebAssembly twin of `fake/`, behind the same public items.
        if path.ends_with("src/host.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let (more, places) = items_without_example(&path.display().to_string(), &text);
        items += more;
        without.extend(places);
    }
    assert!(items > 100, "only {items} items were found");
    assert!(without.is_empty(), "no example:\n{}", without.join("\n"));
}

#[test]
fn an_item_without_an_example_is_found() {
    let text = "/// No example.\n#[must_use]\npub struct A;\n\n/// Example.\n///\n/// ```\n/// a();\n/// ```\npub fn a() {}\n\npub fn hidden() {}\n";
    let (items, without) = items_without_example("a.rs", text);
    assert_eq!(
        (items, without),
        (2, vec!["a.rs:3: pub struct A;".to_owned()])
    );
}
