//! The files of a project: copies of an example, with the project's name and without paths outside its folder.

use super::Language;

/// One file of a project: its path in the project's folder, with `/`, and its text.
pub(crate) type File = (String, String);

/// The files of one folder: path and text.
type Files = &'static [(&'static str, &'static str)];

/// An example of this repository.
struct Example {
    /// The folder's name. The project's name replaces it in the files.
    name: &'static str,
    files: Files,
    /// The folders that the example has as links.
    linked: &'static [(&'static str, Files)],
}

/// Include files of a folder of `assets`, which has links to the files of this repository.
///
/// The link to a `Cargo.toml` has another name: cargo leaves a folder with its own `Cargo.toml` out of a package.
macro_rules! files {
    (@text $folder:expr; $path:literal) => {
        include_str!(concat!("../../../assets/", $folder, "/", $path))
    };
    (@text $folder:expr; $path:literal $link:literal) => {
        files!(@text $folder; $link)
    };
    ($folder:expr; $($path:literal $(= $link:literal)?)*) => {
        &[$(($path, files!(@text $folder; $path $($link)?))),*]
    };
}

/// Include an example: its name, the folders that it has as links, and its own files.
macro_rules! example {
    ($name:literal, $linked:expr; $($file:tt)*) => {
        Example {
            name: $name,
            files: files!(concat!("examples/", $name); $($file)*),
            linked: $linked,
        }
    };
}

const CAMPANILE: Files =
    files!("wit"; "describe.wit" "run-info.wit" "task.wit" "types.wit" "world.wit");
const CONFIG: Files = files!("wit/deps/config"; "store.wit" "world.wit");
const KEYVALUE: Files =
    files!("wit/deps/keyvalue"; "atomics.wit" "batch.wit" "store.wit" "world.wit");
const LOGGING: Files = files!("wit/deps/logging"; "logging.wit");
const CLOCKS: Files = files!("wasi/clocks"; "clocks.wit");
const FILESYSTEM: Files = files!("wasi/filesystem"; "filesystem.wit");
const HTTP: Files = files!("wasi/http"; "http.wit");
const IO: Files = files!("wasi/io"; "io.wit");

/// The WIT packages of a world that imports files.
const WITH_FILES: &[(&str, Files)] = &[
    ("wit/deps/campanile-task", CAMPANILE),
    ("wit/deps/clocks", CLOCKS),
    ("wit/deps/config", CONFIG),
    ("wit/deps/filesystem", FILESYSTEM),
    ("wit/deps/io", IO),
    ("wit/deps/keyvalue", KEYVALUE),
    ("wit/deps/logging", LOGGING),
];

/// The WIT packages of a world that imports HTTP.
const WITH_HTTP: &[(&str, Files)] = &[
    ("wit/deps/campanile-task", CAMPANILE),
    ("wit/deps/clocks", CLOCKS),
    ("wit/deps/config", CONFIG),
    ("wit/deps/http", HTTP),
    ("wit/deps/io", IO),
    ("wit/deps/keyvalue", KEYVALUE),
    ("wit/deps/logging", LOGGING),
];

/// The WIT packages of Campanile's world.
const WORLD: &[(&str, Files)] = &[
    ("wit", CAMPANILE),
    ("wit/deps/config", CONFIG),
    ("wit/deps/keyvalue", KEYVALUE),
    ("wit/deps/logging", LOGGING),
];

/// Return the files of a project.
pub(crate) fn files(lang: Language, name: &str) -> Vec<File> {
    match example(lang) {
        Some(example) => example.files(name),
        // There is only a README.
        None => {
            let readme = include_str!("go.md").replace("go-task", name);
            vec![("README.md".to_owned(), readme)]
        }
    }
}

/// Return the example in a language; none for Go.
fn example(lang: Language) -> Option<Example> {
    Some(match lang {
        Language::Rust => example!("rust-task", &[];
            "Cargo.lock" "Cargo.toml" = "manifest.toml" "README.md" "src/lib.rs"),
        Language::RustMain => example!("rust-main-task", &[];
            "Cargo.lock" "Cargo.toml" = "manifest.toml" "README.md" "build" "src/main.rs" "src/primes.rs"),
        Language::RustWit => example!("rust-wit-task", WORLD;
            "Cargo.lock" "Cargo.toml" = "manifest.toml" "README.md" "build" "src/lib.rs" "src/primes.rs" "src/task.rs"
            "src/webhook.rs"),
        Language::Python => example!("python-task", WITH_HTTP;
            "README.md" "app.py" "build" "primes.py" "requirements.txt" "test_primes.py" "webhook.py"
            "wit/world.wit"),
        Language::Javascript => example!("javascript-task", WITH_FILES;
            "README.md" "build" "package-lock.json" "package.json" "src/files.js" "src/primes.js"
            "src/primes.test.js" "src/task.js" "wit/world.wit"),
        Language::Typescript => example!("typescript-task", WITH_FILES;
            "README.md" "build" "package-lock.json" "package.json" "src/files.ts" "src/primes.test.ts"
            "src/primes.ts" "src/task.ts" "tsconfig.json" "wit/world.wit"),
        Language::C => example!("c-task", &[];
            "README.md" "build" "requirements.txt" "src/json.c" "src/json.h" "src/main.c" "src/primes.c"
            "src/primes.h" "src/test.c"),
        Language::Cpp => example!("cpp-task", &[];
            "README.md" "build" "requirements.txt" "src/json.hpp" "src/main.cpp" "src/primes.cpp"
            "src/primes.hpp" "src/test.cpp"),
        Language::Zig => example!("zig-task", &[];
            "README.md" "build" "requirements.txt" "src/main.zig" "src/primes.zig"),
        Language::Go => return None,
    })
}

/// The dependency of the example on the SDK of this repository.
const SDK_HERE: &str = "campanile-sdk = { path = \"../../guest-sdk\" }\n";

/// The dependency of a project on the SDK.
const SDK: &str = concat!(
    "# Not on crates.io yet: give it the path of the SDK in a copy of Campanile's repository, as README.md says.\n",
    "campanile-sdk = \"",
    env!("CARGO_PKG_VERSION_MAJOR"),
    ".",
    env!("CARGO_PKG_VERSION_MINOR"),
    "\"\n"
);

/// The command that adds the SDK, which is not on crates.io yet.
pub(crate) const GET_SDK: &str =
    "cargo add --path CAMPANILE_REPOSITORY/guest-sdk  # campanile-sdk is not on crates.io yet";

/// The text about the SDK in the example's README.
const SDK_IN_README: &str = "The SDK is the one of this repository.\n";

/// The text about the SDK in the project's README.
const GET_SDK_IN_README: &str = concat!(
    "`campanile-sdk` is not on crates.io yet. Have a copy of [Campanile's repository](",
    env!("CARGO_PKG_REPOSITORY"),
    "), and say\nonce where it is, in place of `CAMPANILE_REPOSITORY`:\n\n\
     ```console\n$ cargo add --path CAMPANILE_REPOSITORY/guest-sdk\n```\n"
);

/// Return the command that copies the built library to the package's name.
pub(crate) fn rename_module(name: &str) -> String {
    let module = as_identifier(name);
    format!("cp target/wasm32-wasip2/release/{module}.wasm target/{name}.wasm")
}

/// The heading of the README section that a project does not need.
const OWN_PROJECT: &str = "\n## A project of your own\n";

/// The `.gitignore` of a project.
const IGNORED: &str = "target/\n__pycache__/\n";

impl Example {
    /// Return the files of a project.
    pub fn files(&self, name: &str) -> Vec<File> {
        let own = self.files.iter();
        let own = own.map(|&(path, text)| (path.to_owned(), self.adapt(path, text, name)));
        let linked = self.linked.iter().flat_map(|&(folder, files)| {
            let files = files.iter();
            files.map(move |&(path, text)| (format!("{folder}/{path}"), text.to_owned()))
        });
        let ignored = (".gitignore".to_owned(), IGNORED.to_owned());
        own.chain(linked).chain([ignored]).collect()
    }

    fn adapt(&self, path: &str, text: &str, name: &str) -> String {
        let text = match path {
            "README.md" => text.split(OWN_PROJECT).next().unwrap_or(text),
            _ => text,
        };
        let text = text
            .replace(SDK_HERE, SDK)
            .replace(SDK_IN_README, GET_SDK_IN_README);
        // npm refuses capital letters.
        let name = match path {
            "package.json" | "package-lock.json" => name.to_ascii_lowercase(),
            _ => name.to_owned(),
        };
        text.replace(self.name, &name)
            .replace(&as_identifier(self.name), &as_identifier(&name))
    }
}

/// Return `name` as a Rust identifier, which also names the built library.
pub(crate) fn as_identifier(name: &str) -> String {
    name.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use clap::ValueEnum as _;

    use super::*;

    fn all() -> impl Iterator<Item = Example> {
        let languages = Language::value_variants().iter();
        languages.filter_map(|&language| example(language))
    }

    fn examples() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
    }

    /// Return whether a project does not need the file: build output, or a linked file that is not WIT.
    fn is_left_out(path: &str) -> bool {
        let mut parts = path.split('/');
        let made = parts.any(|part| ["target", "__pycache__", "node_modules"].contains(&part));
        let interfaces = path.starts_with("wit/");
        made || interfaces && (!path.ends_with(".wit") || path.matches("deps/").count() > 1)
    }

    /// Return the files below `folder`, following links.
    fn walk(folder: &Path) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(next) = folders.pop() {
            for entry in std::fs::read_dir(next).unwrap() {
                let path = entry.unwrap().path();
                let below = path
                    .strip_prefix(folder)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned();
                if path.is_dir() && !is_left_out(&format!("{below}/.wit")) {
                    folders.push(path);
                } else if path.is_file() && !is_left_out(&below) {
                    found.insert(below);
                }
            }
        }
        found
    }

    #[test]
    fn a_project_has_every_file_of_its_example() {
        for example in all() {
            let mut expected = walk(&examples().join(example.name));
            expected.insert(".gitignore".to_owned());
            let files = example.files("other");
            let listed: BTreeSet<String> = files.into_iter().map(|(path, _)| path).collect();
            assert_eq!(listed, expected, "{}", example.name);
        }
    }

    #[test]
    fn every_example_has_a_project() {
        let mut names: Vec<String> = std::fs::read_dir(examples())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with("-task"))
            .collect();
        names.sort();
        let mut known: Vec<&str> = all().map(|example| example.name).collect();
        known.sort_unstable();
        assert_eq!(names, known);
    }

    #[test]
    fn a_project_under_its_examples_name_is_the_example() {
        for example in all() {
            for (path, text) in example.files(example.name) {
                let changed = ["README.md", "Cargo.toml", ".gitignore"].contains(&path.as_str());
                let original = examples().join(example.name).join(&path);
                if !changed {
                    let original = std::fs::read_to_string(original).unwrap();
                    assert!(text == original, "{}/{path}", example.name);
                }
            }
        }
    }

    #[test]
    fn a_project_has_no_path_outside_its_folder() {
        for example in all() {
            for (path, text) in example.files("other") {
                for outside in [
                    "../",
                    "examples/",
                    example.name,
                    &as_identifier(example.name),
                ] {
                    let found = text.contains(outside);
                    assert!(!found, "{}/{path}: {outside}", example.name);
                }
            }
        }
    }

    #[test]
    fn the_name_is_valid_in_each_file() {
        let text = |language: Language, path: &str| {
            let mut files = files(language, "My-Task").into_iter();
            files.find(|(found, _)| found == path).unwrap().1
        };
        assert!(text(Language::Rust, "Cargo.toml").contains("name = \"My-Task\"\n"));
        assert!(text(Language::Rust, "Cargo.toml").contains("\ncampanile-sdk = \"0."));
        let readme = text(Language::Rust, "README.md");
        assert!(readme.contains(&format!("$ {}\n", rename_module("My-Task"))));
        assert!(readme.contains("$ cargo add --path CAMPANILE_REPOSITORY/guest-sdk\n"));
        assert!(!readme.contains(SDK_IN_README));
        assert!(
            text(Language::RustWit, "build")
                .contains("/release/My_Task.wasm\" \"$out/My-Task.wasm\"")
        );
        assert!(text(Language::Python, "app.py").contains("\"name\": \"My-Task\""));
        assert!(text(Language::Typescript, "src/task.ts").contains("name: \"My-Task\""));
        assert!(text(Language::Typescript, "package.json").contains("\"name\": \"my-task\""));
        assert!(text(Language::Go, "README.md").contains("My-Task.wasm"));
    }
}
