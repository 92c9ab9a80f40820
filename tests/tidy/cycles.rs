//! Import cycles between the files of a crate.
//!
//! A file imports another when a path in its code names an item there; a re-export counts as the file that defines the
//! name. A module and its direct child may import each other. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};

/// Return the groups of files that import each other, of all crates; `sources` are the paths and texts of files.
pub fn cycles<'s>(sources: impl IntoIterator<Item = (&'s str, &'s str)>) -> Vec<Vec<String>> {
    let mut files = BTreeMap::new();
    for (path, text) in sources {
        let Some((root, file)) = path.split_once("/src/") else {
            continue;
        };
        let name = file.trim_end_matches(".rs").trim_end_matches("/mod");
        let is_test = name.split('/').any(|part| part.starts_with("tests"));
        if file.ends_with(".rs") && !is_test {
            let module = match name {
                "lib" | "main" => root.to_owned(),
                name => format!("{root}/{name}"),
            };
            files.insert(module, paths(text));
        }
    }
    let imports: BTreeMap<&str, BTreeSet<&str>> = files
        .iter()
        .map(|(module, paths)| {
            let targets = paths
                .iter()
                .filter_map(|(_, path)| target(&files, module, path));
            let is_child =
                |a: &str, b: &str| a.rsplit_once('/').map(|(parent, _)| parent) == Some(b);
            let targets = targets.filter(|other| {
                *other != module && !is_child(other, module) && !is_child(module, other)
            });
            (module.as_str(), targets.collect())
        })
        .collect();
    let reachable = |from: &str| {
        let mut seen = BTreeSet::new();
        let mut open: Vec<&str> = imports[from].iter().copied().collect();
        while let Some(file) = open.pop() {
            if seen.insert(file) {
                open.extend(&imports[file]);
            }
        }
        seen
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> = imports
        .keys()
        .map(|file| (*file, reachable(file)))
        .collect();
    let mut groups = BTreeSet::new();
    for (file, others) in reached
        .iter()
        .filter(|(file, others)| others.contains(*file))
    {
        let group = others.iter().filter(|other| reached[*other].contains(file));
        groups.insert(group.map(|file| (*file).to_owned()).collect::<Vec<_>>());
    }
    groups.into_iter().collect()
}

type Files = BTreeMap<String, Vec<(bool, Vec<String>)>>;

/// Return the file to which `path` leads from the file of `module`, if it is in the same crate.
fn target<'f>(files: &'f Files, module: &str, path: &[String]) -> Option<&'f str> {
    let mut place = match path.first()?.as_str() {
        "crate" => {
            let mut roots = files.keys().filter(|root| {
                let rest = module.strip_prefix(root.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            });
            roots.next()?.clone()
        }
        "super" => module.rsplit_once('/')?.0.to_owned(),
        "self" => module.to_owned(),
        child => {
            let child = format!("{module}/{child}");
            files.contains_key(&child).then_some(child)?
        }
    };
    for (at, name) in path.iter().enumerate().skip(1) {
        if name == "super" {
            place = place.rsplit_once('/')?.0.to_owned();
            continue;
        }
        let child = format!("{place}/{name}");
        if files.contains_key(&child) {
            place = child;
            continue;
        }
        let (known, paths) = files.get_key_value(&place)?;
        // A re-export: the name is defined elsewhere.
        let exported = paths.iter().find(|(is_public, to)| {
            *is_public && at + 1 == path.len() && to.len() > 1 && to.last() == Some(name)
        });
        return match exported {
            Some((_, to)) if to != path => target(files, known, to).or(Some(known)),
            _ => Some(known),
        };
    }
    files.get_key_value(&place).map(|(known, _)| known.as_str())
}

/// Return the paths in the code of a file, and whether each is re-exported.
fn paths(text: &str) -> Vec<(bool, Vec<String>)> {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let code: String = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default().to_owned() + "\n")
        // Where something may be used is no import.
        .map(|line| line.replace("pub(in super::super) ", "pub(super) "))
        .collect();
    let mut found = Vec::new();
    for statement in code.split_inclusive([';', '{']) {
        let words = statement.trim_start();
        let is_public = words.starts_with("pub");
        if let Some(start) = code_of_use(words) {
            // The whole statement, with its braces.
            let from = start.as_ptr() as usize - code.as_ptr() as usize;
            let rest = &code[from..];
            let whole = &rest[..rest.find(';').unwrap_or(rest.len())];
            expand("", whole, &mut |path| {
                let path = path.split("::").map(str::to_owned).collect();
                found.push((is_public, path));
            });
        }
    }
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let end = code[at..].find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
            let path = code[at..].split_at(end.unwrap_or(code.len() - at)).0;
            let path = path.trim_end_matches(':');
            found.push((false, path.split("::").map(str::to_owned).collect()));
        }
    }
    found
}

fn code_of_use(statement: &str) -> Option<&str> {
    let visible = ["pub(crate) use ", "pub(super) use ", "pub use ", "use "];
    visible.iter().find_map(|word| statement.strip_prefix(word))
}

/// Expand `a::{b, c::{d, e as f}}` to its paths.
fn expand(prefix: &str, tree: &str, found: &mut impl FnMut(&str)) {
    let tree = tree.trim();
    let Some((head, rest)) = tree.split_once('{') else {
        let name = tree.split(" as ").next().unwrap_or_default().trim();
        let path = format!("{prefix}{name}");
        return found(path.trim_end_matches("::self"));
    };
    let prefix = format!("{prefix}{}", head.trim());
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut depth, mut from) = (0, 0);
    for (at, letter) in inner.char_indices().chain([(inner.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !inner[from..at].trim().is_empty() {
                    expand(&prefix, &inner[from..at], found);
                }
                from = at + 1;
            }
            _ => {}
        }
    }
}

#[test]
fn a_cycle_is_found_also_through_a_re_export() {
    let lib = ("host/x/src/lib.rs", "pub use b::B;");
    let a = ("host/x/src/a.rs", "use crate::B;");
    let b = ("host/x/src/b.rs", "use crate::{c::{C, D}, E};");
    let c = ("host/x/src/c.rs", "fn c() { super::a::a() }");
    let own = ("host/x/src/c/own.rs", "use super::C; use std::fmt;");
    let found = cycles([lib, a, b, c, own]);
    assert_eq!(found, [["host/x/a", "host/x/b", "host/x/c"]]);
    assert_eq!(cycles([lib, a, b, own]), Vec::<Vec<String>>::new());
    let lib = ("host/x/src/lib.rs", "use c::own::Own;");
    let own = ("host/x/src/c/own.rs", "pub(in super::super) struct Own;");
    assert_eq!(cycles([lib, own]), Vec::<Vec<String>>::new());
}
