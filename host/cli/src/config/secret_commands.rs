//! Finding the files executed or read by a secret's command, as far as its words and scripts name them.
//!
//! There's no knowing what a program opens by itself, such as its configuration, its libraries or paths computed by a script.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::environment;

/// How far to follow interpreters and scripts naming one another.
const DEPTH_MAX: usize = 4;
/// How much of a script to read, in bytes.
const SCRIPT_BYTES_MAX: u64 = 64 << 10;

/// Returns the paths determining a command's output: where the system looks for its program, any files named in its arguments or in a
/// shell's text, interpreters of scripts, and files named by scripts.
///
/// A program put earlier on the search path by a task would be run instead, so paths needn't exist. Blocks.
pub(super) fn files_of(words: &[String]) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let Some((program, arguments)) = words.split_first() else {
        return found;
    };
    add_program(program, &mut found, DEPTH_MAX);
    for argument in arguments {
        add_named(argument, &mut found, DEPTH_MAX);
    }
    found
}

/// Adds everywhere the system looks for a program, existing or not, and whatever its script names.
fn add_program(program: &str, found: &mut BTreeSet<PathBuf>, depth: usize) {
    let places = places_of_program(program);
    let last = places.last().filter(|last| !found.contains(*last)).cloned();
    found.extend(places);
    if let Some(last) = last {
        add_script(&last, found, depth);
    }
}

/// Adds what a text names: an argument, a shell's text, or a script. A word that's no path counts as a program if the system would find one
/// of that name.
fn add_named(text: &str, found: &mut BTreeSet<PathBuf>, depth: usize) {
    // A path may contain any of the separators below.
    let whole = [text, text.split_once('=').map_or("", |(_, value)| value)];
    let words =
        text.split(|letter: char| letter.is_whitespace() || "\"'`;|&<>(){}[]$=,:".contains(letter));
    for word in whole
        .into_iter()
        .chain(words)
        .filter(|word| !word.is_empty())
    {
        let path = Path::new(word);
        if word.contains('\0') || found.contains(path) {
            continue;
        }
        let is_file = path.is_file();
        if path.is_absolute() && whole.contains(&word) || is_file {
            found.insert(path.to_owned());
            if is_file {
                add_script(path, found, depth);
            }
        } else if !word.contains('/') && is_found(&places_of_program(word)) {
            add_program(word, found, depth.saturating_sub(1));
        }
    }
}

/// Adds a script's interpreter and whatever the script names.
fn add_script(path: &Path, found: &mut BTreeSet<PathBuf>, depth: usize) {
    if depth == 0 {
        return;
    }
    let Some(text) = script(path) else {
        return;
    };
    found.insert(path.to_owned());
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let mut words = first.trim_start_matches("#!").split_whitespace();
    if let Some(interpreter) = words.next() {
        add_program(interpreter, found, depth - 1);
    }
    for word in words {
        add_named(word, found, depth - 1);
    }
    let lines = rest
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    for line in lines {
        add_named(line, found, depth - 1);
    }
}

/// Returns a script's text, or none if the file doesn't start with `#!`.
fn script(path: &Path) -> Option<String> {
    if !path.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    let mut file = file.take(SCRIPT_BYTES_MAX);
    file.by_ref().take(2).read_to_end(&mut bytes).ok()?;
    if bytes != b"#!" {
        return None;
    }
    file.read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn is_found(places: &[PathBuf]) -> bool {
    places.last().is_some_and(|place| place.is_file())
}

/// Returns where the operating system looks for a program, up to the one it would run.
fn places_of_program(program: &str) -> Vec<PathBuf> {
    if program.contains('/') {
        return vec![program.into()];
    }
    let mut places = Vec::new();
    let folders = std::env::var_os(environment::PATH).unwrap_or_default();
    for folder in std::env::split_paths(&folders) {
        let place = folder.join(program);
        let is_found = place.is_file();
        places.push(place);
        if is_found {
            break;
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn files(words: &[&str]) -> BTreeSet<PathBuf> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        files_of(&words)
    }

    #[test]
    fn the_program_and_its_places_are_found() {
        let found = files(&["sh", "-e"]);
        assert!(
            found
                .iter()
                .any(|path| path.ends_with("sh") && path.is_file()),
            "{found:?}"
        );
        assert_eq!(files(&["./print"]), BTreeSet::from(["./print".into()]));
        assert!(files(&["/no/such/program", "/no/such/file"]).contains(Path::new("/no/such/file")));
    }

    #[test]
    fn what_a_shell_and_scripts_name_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let shown = |name: &str| at(name).display().to_string();
        fs::write(at("inner"), "exit 0").unwrap();
        fs::write(at("with space"), "x").unwrap();
        let script = format!(
            "#!/usr/bin/env -S awk\n# {}\n. \"{}\"\n",
            shown("note"),
            shown("inner")
        );
        fs::write(at("script"), script).unwrap();
        fs::write(at("note"), "").unwrap();
        let line = format!(
            "cd /; X=1 '{}'>/dev/null && cat </etc/passwd|sed s/a/b/",
            shown("script")
        );
        for words in [
            vec!["sh", "-c", &line],
            vec!["env", "-i", "nice", "sh", "-c", &line],
        ] {
            let found = files(&words);
            for path in [
                at("script"),
                at("inner"),
                "/etc/passwd".into(),
                "/usr/bin/env".into(),
            ] {
                assert!(found.contains(&path), "{path:?} {found:?}");
            }
            for program in ["awk", "cat", "sed"] {
                assert!(
                    found.iter().any(|path| path.ends_with(program)),
                    "{program} {found:?}"
                );
            }
            assert!(!found.contains(&at("note")), "a comment");
        }
        let option = format!("--file={}", shown("with space"));
        assert!(files(&["cat", &option]).contains(&at("with space")));
        assert!(files(&["cat", &shown("with space")]).contains(&at("with space")));
        // A script naming itself doesn't loop.
        fs::write(
            at("loop"),
            format!("#!{}\n{}\n", shown("loop"), shown("loop")),
        )
        .unwrap();
        assert!(files(&[&shown("loop")]).contains(&at("loop")));
    }
}
