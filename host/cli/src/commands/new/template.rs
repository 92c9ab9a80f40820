//! The files of a project: copies of an example, with the project's name and without paths outside its folder.

use super::Language;

/// One file of a project: its path in the project's folder, with `/`, and its text.
type File = (String, String);

/// The files of one folder: path and text.
type Files = &'static [(&'static str, &'static str)];

/// An example of this repository.
pub(super) struct Example {
    /// The folder's name. The project's name replaces it in the files.
    name: &'static str,
    files: Files,
    /// The folders that the example has as links.
    linked: &'static [&'static [(&'static str, Files)]],
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

const CAMPANILE: Files = files!("wit"; "describe.wit" "outbox.wit" "run-info.wit" "session.wit" "task.wit" "types.wit" "world.wit");
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

/// The SDK in Python, and the WIT packages of a world that imports HTTP.
const PYTHON: &[(&str, Files)] = &[
    ("campanile", PYTHON_SDK),
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

/// Returns the example in a language.
pub(super) fn example(lang: Language) -> Example {
    match lang {
        Language::Rust => {
            example!("rust-task", &[&[("sdk", SDK), ("sdk/wit", CAMPANILE), ("sdk/wit/deps/config", CONFIG),
            ("sdk/wit/deps/keyvalue", KEYVALUE), ("sdk/wit/deps/logging", LOGGING)]];
            "Cargo.lock" "Cargo.toml" = "manifest.toml" "README.md" "build" "src/lib.rs")
        }
        Language::RustMain => example!("rust-main-task", &[];
            "Cargo.lock" "Cargo.toml" = "manifest.toml" "README.md" "build" "src/main.rs" "src/primes.rs"),
        Language::RustWit => example!("rust-wit-task", &[WORLD];
            "Cargo.lock" "Cargo.toml" = "manifest.toml" "README.md" "build" "src/lib.rs" "src/primes.rs" "src/task.rs"
            "src/webhook.rs"),
        Language::Python => example!("python-task", &[PYTHON];
            "README.md" "app.py" "build" "primes.py" "requirements.txt" "test_primes.py" "wit/world.wit"),
        Language::Javascript => example!("javascript-task", &[WITH_FILES];
            "README.md" "build" "package-lock.json" "package.json" "src/files.js" "src/primes.js"
            "src/primes.test.js" "src/task.js" "wit/world.wit"),
        Language::Typescript => {
            example!("typescript-task", &[&[("campanile", TYPESCRIPT_SDK)], WITH_FILES];
            "README.md" "build" "package-lock.json" "package.json" "src/app.ts" "src/primes.test.ts" "src/primes.ts"
            "tsconfig.json" "wit/world.wit")
        }
        Language::C => example!("c-task", &[];
            "README.md" "build" "requirements.txt" "src/json.c" "src/json.h" "src/main.c" "src/primes.c"
            "src/primes.h" "src/test.c"),
        Language::Cpp => example!("cpp-task", &[];
            "README.md" "build" "requirements.txt" "src/json.hpp" "src/main.cpp" "src/primes.cpp"
            "src/primes.hpp" "src/test.cpp"),
        Language::Zig => example!("zig-task", &[];
            "README.md" "build" "requirements.txt" "src/main.zig" "src/primes.zig"),
        Language::Go => example!("go-task", &[];
            "README.md" "build" "go.mod" "main.go" "primes.go" "primes_test.go" "requirements.txt"),
    }
}

/// The SDK in Rust, which is not on crates.io yet: a project has a copy of it.
const SDK: Files = files!("sdk";
    "Cargo.toml" = "manifest.toml" "LICENSE" "README.md" "src/bucket.rs" "src/error.rs" "src/fake/bucket.rs"
    "src/fake/build.rs" "src/fake/mod.rs" "src/host.rs" "src/lib.rs" "src/manifest.rs" "src/no_schema.rs"
    "src/outbox.rs" "src/package.rs" "src/request.rs" "src/run.rs" "src/schedule.rs" "src/schema.rs" "src/time.rs");

/// The SDK in Python, which is not on PyPI yet.
const PYTHON_SDK: Files = files!("python";
    "__init__.py" "bucket.py" "context.py" "failures.py" "host.py" "http.py" "logs.py" "package.py" "py.typed" "run.py"
    "testing.py" "values.py" "wasi.py");

/// The SDK in TypeScript, which is not on npm yet.
const TYPESCRIPT_SDK: Files = files!("typescript";
    "README.md" "package.json" "src/bucket.ts" "src/context.ts" "src/failures.ts" "src/files.ts" "src/host.ts" "src/http.ts"
    "src/index.ts" "src/interfaces.d.ts" "src/json.ts" "src/logs.ts" "src/manifest.ts" "src/no-wasi.ts" "src/outbox.ts" "src/package.ts"
    "src/reason.ts" "src/run.ts" "src/testing.ts" "src/wasi.ts" "tsconfig.json");

/// What differs between an example and a project with a copy of the SDK: a text of the example, and its replacement.
const OWN_SDK: [(&str, &str); 3] = [
    ("path = \"../../guest-sdk\"", "path = \"sdk\""),
    // As a member, the SDK would need its optional dependencies in the lock file.
    ("\n[workspace]\n", "\n[workspace]\nexclude = [\"sdk\"]\n"),
    (
        "The SDK is the one of this repository.\n",
        "`campanile-sdk` is not on crates.io yet: `sdk/` has a copy of it.\n",
    ),
];

/// The heading of the README section that a project does not need.
const OWN_PROJECT: &str = "\n## A project of your own\n";

/// The `.gitignore` of a project.
const IGNORED: &str = "target/\n__pycache__/\nplugins/\ncampanile.db*\n";

impl Example {
    /// Returns the files of a project.
    pub fn files(&self, name: &str) -> Vec<File> {
        let own = self.files.iter();
        let own = own.map(|&(path, text)| (path.to_owned(), self.adapt(path, text, name)));
        let linked = self.linked_folders().flat_map(|&(folder, files)| {
            let files = files.iter();
            files.map(move |&(path, text)| (format!("{folder}/{path}"), text.to_owned()))
        });
        let ignored = (".gitignore".to_owned(), IGNORED.to_owned());
        own.chain(linked).chain([ignored]).collect()
    }

    /// Returns the linked folders, each with its files.
    fn linked_folders(&self) -> impl Iterator<Item = &'static (&'static str, Files)> {
        self.linked.iter().copied().flatten()
    }

    fn adapt(&self, path: &str, text: &str, name: &str) -> String {
        let text = match path {
            "README.md" => text.split(OWN_PROJECT).next().unwrap_or(text),
            _ => text,
        };
        let mut text = text.to_owned();
        if self.linked_folders().any(|(folder, _)| *folder == "sdk") {
            for (here, there) in OWN_SDK {
                text = text.replace(here, there);
            }
        }
        // npm refuses capital letters.
        let name = match path {
            "package.json" | "package-lock.json" => name.to_ascii_lowercase(),
            _ => name.to_owned(),
        };
        text.replace(self.name, &name)
            .replace(&as_identifier(self.name), &as_identifier(&name))
    }
}

/// Returns `name` as a Rust identifier, which also names the built library.
fn as_identifier(name: &str) -> String {
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
        languages.map(|&language| example(language))
    }

    fn examples() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
    }

    /// Returns whether a project does not need the file: build output, the SDK's own tests, or a linked file that is not
    /// WIT.
    fn is_left_out(path: &str) -> bool {
        let mut parts = path.split('/');
        let made = ["target", "__pycache__", "node_modules", "dist"];
        let made = parts.any(|part| made.contains(&part));
        let of_the_sdk = ["campanile/tests/", "campanile/package-lock.json"];
        let of_the_sdk = of_the_sdk.iter().any(|start| path.starts_with(start));
        let interfaces = path.starts_with("wit/");
        let linked = !path.ends_with(".wit") || path.matches("deps/").count() > 1;
        made || of_the_sdk || interfaces && linked
    }

    /// Returns the files below `folder`, following links.
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
            let files = example.files("other").into_iter().map(|(path, _)| path);
            let listed: BTreeSet<String> = files.filter(|path| !path.starts_with("sdk/")).collect();
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
    fn a_project_in_rust_has_the_sdk_with_its_dependencies() {
        let files = example(Language::Rust).files("other");
        let text = |path: &str| {
            let mut files = files.iter();
            &files.find(|(found, _)| found == path).expect(path).1
        };
        for (path, [here, there]) in [
            (
                "Cargo.toml",
                [OWN_SDK[0], OWN_SDK[1]].map(|(_, there)| there),
            ),
            ("README.md", [OWN_SDK[2].1, "`sdk/`"]),
        ] {
            assert!(
                text(path).contains(here) && text(path).contains(there),
                "{path}"
            );
        }
        let sdk = examples().join("../guest-sdk");
        let listed: BTreeSet<String> = SDK.iter().map(|(path, _)| (*path).to_owned()).collect();
        for source in walk(&sdk.join("src")) {
            assert!(listed.contains(&format!("src/{source}")), "{source}");
        }

        let read = |path: &Path| -> toml::Table {
            std::fs::read_to_string(path).unwrap().parse().unwrap()
        };
        let workspace = read(&sdk.join("../Cargo.toml"));
        let ours = read(&sdk.join("Cargo.toml"));
        let copy: toml::Table = text("sdk/Cargo.toml").parse().unwrap();
        assert_eq!(
            copy["package"]["version"],
            workspace["workspace"]["package"]["version"]
        );
        assert_eq!(copy["features"], ours["features"]);
        let wasm = r#"cfg(target_family = "wasm")"#;
        for (copy, ours) in [
            (&copy["dependencies"], &ours["dependencies"]),
            (
                &copy["target"][wasm]["dependencies"],
                &ours["target"][wasm]["dependencies"],
            ),
        ] {
            let mut expected = ours.as_table().unwrap().clone();
            for (name, dependency) in &mut expected {
                let inherits = dependency
                    .as_table()
                    .is_some_and(|table| table.contains_key("workspace"));
                if inherits {
                    let optional = dependency.get("optional").cloned();
                    *dependency = workspace["workspace"]["dependencies"][name].clone();
                    if let (Some(optional), Some(table)) = (optional, dependency.as_table_mut()) {
                        table.insert("optional".to_owned(), optional);
                    }
                }
            }
            assert_eq!(copy.as_table().unwrap(), &expected);
        }
    }

    #[test]
    fn a_project_under_its_examples_name_is_the_example() {
        for example in all() {
            let files = example.files(example.name).into_iter();
            for (path, text) in files.filter(|(path, _)| !path.starts_with("sdk/")) {
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
            let files = example.files("other").into_iter();
            // The SDK's own documents name the repository.
            for (path, text) in files.filter(|(path, _)| !path.starts_with("sdk/")) {
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
            let mut files = example(language).files("My-Task").into_iter();
            files.find(|(found, _)| found == path).unwrap().1
        };
        assert!(text(Language::Rust, "Cargo.toml").contains("name = \"My-Task\"\n"));
        assert!(text(Language::Rust, "README.md").contains("`target/My-Task.wasm`"));
        assert!(
            text(Language::RustWit, "build")
                .contains("/release/My_Task.wasm\" \"$out/My-Task.wasm\"")
        );
        assert!(text(Language::Python, "app.py").contains("    \"My-Task\",\n"));
        assert!(text(Language::Typescript, "src/app.ts").contains("new Package(\"My-Task\","));
        assert!(text(Language::Typescript, "package.json").contains("\"name\": \"my-task\""));
        assert!(text(Language::Go, "build").contains("\"$out/My-Task.wasm\""));
    }
}
