//! The documents: their links have targets, and the summary of the book lists every page.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{Source, assert_none, repository, sources};

const BOOK: &str = "docs/src/";

/// The most bytes of the two introductions. Longer texts belong into the book.
const BYTES_MAX: [(&str, usize); 2] = [("README.md", 10_240), ("ARCHITECTURE.md", 12_288)];

fn pages() -> Vec<Source> {
    let pages: Vec<Source> = sources().into_iter().filter(|file| file.is("md")).collect();
    assert!(
        pages.len() > 30,
        "too few pages: is the path of the repository right?"
    );
    pages
}

/// Return the lines outside fenced blocks, with their numbers.
fn prose(page: &Source) -> Vec<(usize, &str)> {
    let mut is_inside = false;
    let is_prose = |(_, line): &(usize, &str)| {
        let is_fence = line.trim_start().starts_with("```");
        is_inside ^= is_fence;
        !is_inside && !is_fence
    };
    page.lines().filter(is_prose).collect()
}

/// Return the targets of the links in a line.
fn links(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut code = false;
    let mut rest = line;
    while let Some(at) = rest.find(['`', ']']) {
        let after = &rest[at..];
        rest = &after[1..];
        if after.starts_with('`') {
            code = !code;
        } else if let Some(target) = rest.strip_prefix('(').filter(|_| !code)
            && let Some((target, _)) = target.split_once(')')
        {
            found.push(target);
        }
    }
    found
}

/// Return the anchor that GitHub and mdBook make of a heading.
fn anchor(heading: &str) -> String {
    heading
        .trim()
        .chars()
        .filter_map(|char| match char {
            ' ' => Some('-'),
            '-' | '_' => Some(char),
            _ if char.is_alphanumeric() => Some(char.to_ascii_lowercase()),
            _ => None,
        })
        .collect()
}

fn anchors(page: &Source) -> BTreeSet<String> {
    prose(page)
        .into_iter()
        .filter(|(_, line)| line.starts_with('#'))
        .map(|(_, line)| anchor(line.trim_start_matches('#')))
        .collect()
}

/// Return `path` without `.` and `..`, or `None` when it leads out of the repository.
fn resolved(path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[test]
fn every_relative_link_has_a_target() {
    let pages = pages();
    let anchors: BTreeMap<&str, BTreeSet<String>> = pages
        .iter()
        .map(|page| (page.path.as_str(), anchors(page)))
        .collect();
    let mut dead = Vec::new();
    for page in &pages {
        let folder = Path::new(&page.path).parent().unwrap().to_string_lossy();
        for (number, line) in prose(page) {
            for link in links(line) {
                if link.contains(':') || link.starts_with("mailto:") {
                    continue;
                }
                let (file, fragment) = link.split_once('#').unwrap_or((link, ""));
                let target = match file {
                    "" => Some(page.path.clone()),
                    file => resolved(&format!("{folder}/{file}")),
                };
                let has_target = target.is_some_and(|target| {
                    let exists = repository().join(&target).exists();
                    // mdBook copies only files below its folder.
                    let is_in_book = !page.is_below(&[BOOK]) || target.starts_with(BOOK);
                    let has_anchor = fragment.is_empty()
                        || anchors
                            .get(target.as_str())
                            .is_some_and(|anchors| anchors.contains(fragment));
                    exists && is_in_book && has_anchor
                });
                if !has_target {
                    dead.push(format!("{}:{number}: {link}", page.path));
                }
            }
        }
    }
    assert_none("links without a target", dead);
}

#[test]
fn every_file_that_a_page_names_exists() {
    let folders = ["host/", "guest-sdk/", "tests/", "wit/", "docs/"];
    let mut missing = Vec::new();
    for page in pages() {
        for (number, line) in prose(&page) {
            for name in line.split('`').skip(1).step_by(2) {
                let is_path = folders.iter().any(|folder| name.starts_with(folder))
                    && (name.ends_with('/') || Path::new(name).extension().is_some())
                    && !name.contains(['*', ' ', '#'])
                    // NAME and VERSION are placeholders.
                    && !name.contains(|char: char| char.is_ascii_uppercase() && !name.ends_with(".md"));
                if is_path && !repository().join(name).exists() {
                    missing.push(format!("{}:{number}: {name}", page.path));
                }
            }
        }
    }
    assert_none("files that do not exist", missing);
}

#[test]
fn the_summary_lists_every_page_of_the_book_once() {
    let pages = pages();
    let summary = format!("{BOOK}SUMMARY.md");
    let is_summary = |page: &&Source| page.path == summary;
    let contents = pages.iter().find(is_summary).expect("docs/src/SUMMARY.md");
    let mut listed: Vec<String> = contents
        .text
        .lines()
        .flat_map(links)
        .map(|link| format!("{BOOK}{link}"))
        .collect();
    listed.sort();
    let written: Vec<String> = pages
        .iter()
        .filter(|page| page.is_below(&[BOOK]) && !is_summary(page))
        .map(|page| page.path.clone())
        .collect();
    assert_eq!(listed, written);
}

#[test]
fn the_documents_show_the_current_example() {
    let example = "examples/rust-task/src/lib.rs";
    let example = std::fs::read_to_string(repository().join(example)).expect(example);
    for path in ["README.md", "docs/src/tutorial/rust.md"] {
        let page = std::fs::read_to_string(repository().join(path)).expect(path);
        let shown: Vec<&str> = page
            .split("```rust\n")
            .skip(1)
            .filter_map(|rest| rest.split("```").next())
            .collect();
        assert_eq!(shown.len(), 1, "{path} shows one task");
        assert!(
            example.contains(shown[0]),
            "{path}: its task must be an exact part of examples/rust-task/src/lib.rs"
        );
    }
}

#[test]
fn the_guide_has_every_key_of_the_context() {
    let guide = format!("{BOOK}guides/tasks.md");
    let guide = std::fs::read_to_string(repository().join(guide)).expect("the guide");
    let keys = campanile_package::context::RESERVED;
    let missing: Vec<&str> = keys
        .into_iter()
        .filter(|key| !guide.contains(&format!("`{key}`")))
        .collect();
    assert!(missing.is_empty(), "docs/src/guides/tasks.md: {missing:?}");
}

#[test]
fn the_readme_and_the_architecture_are_short() {
    for (path, bytes_max) in BYTES_MAX {
        let bytes = std::fs::metadata(repository().join(path))
            .expect(path)
            .len();
        assert!(
            bytes <= bytes_max as u64,
            "{path} has {bytes} bytes of {bytes_max}"
        );
    }
}

#[test]
fn links_and_anchors_are_parsed() {
    assert_eq!(
        links("[a](b.md), [`c`](d#e) and `[f](g)` [h]"),
        ["b.md", "d#e"]
    );
    assert_eq!(anchor(" Is it healthy?"), "is-it-healthy");
    assert_eq!(anchor(" The `plan` of (a) run_id"), "the-plan-of-a-run_id");
    assert_eq!(resolved("docs/src/../../a/./b"), Some("a/b".to_owned()));
    assert_eq!(resolved("a/../../b"), None);
}
