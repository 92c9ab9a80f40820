//! The files of a project: those of the examples, word for word but for the name and what leads out of the folder.

/// One file of a project.
pub(super) struct File {
    /// Below the project's folder, with `/`.
    pub path: String,
    pub text: String,
}

impl File {
    /// Whether it is there to be run.
    pub fn is_script(&self) -> bool {
        self.text.starts_with("#!")
    }
}

/// Files of one folder, each with its text.
type Files = &'static [(&'static str, &'static str)];

/// An example, as it is in this repository.
pub(super) struct Example {
    /// The folder's name, which stands in the files where a project has its own.
    name: &'static str,
    files: Files,
    /// What the folder has as links, by the names they have there.
    linked: &'static [(&'static str, Files)],
}

macro_rules! files {
    ($folder:literal: $($path:literal)*) => {
        &[$(($path, include_str!(concat!("../../../../../", $folder, "/", $path)))),*]
    };
}

const CAMPANILE: Files =
    files!("wit": "describe.wit" "run-info.wit" "task.wit" "types.wit" "world.wit");
const CONFIG: Files = files!("wit/deps/config": "store.wit" "world.wit");
const KEYVALUE: Files =
    files!("wit/deps/keyvalue": "atomics.wit" "batch.wit" "store.wit" "world.wit");
const LOGGING: Files = files!("wit/deps/logging": "logging.wit");
const CLOCKS: Files = files!("examples/wasi/clocks": "clocks.wit");
const FILESYSTEM: Files = files!("examples/wasi/filesystem": "filesystem.wit");
const HTTP: Files = files!("examples/wasi/http": "http.wit");
const IO: Files = files!("examples/wasi/io": "io.wit");

/// What a world of its own with files imports.
const WITH_FILES: &[(&str, Files)] = &[
    ("wit/deps/campanile-task", CAMPANILE),
    ("wit/deps/clocks", CLOCKS),
    ("wit/deps/config", CONFIG),
    ("wit/deps/filesystem", FILESYSTEM),
    ("wit/deps/io", IO),
    ("wit/deps/keyvalue", KEYVALUE),
    ("wit/deps/logging", LOGGING),
];

/// What a world of its own with requests imports.
const WITH_HTTP: &[(&str, Files)] = &[
    ("wit/deps/campanile-task", CAMPANILE),
    ("wit/deps/clocks", CLOCKS),
    ("wit/deps/config", CONFIG),
    ("wit/deps/http", HTTP),
    ("wit/deps/io", IO),
    ("wit/deps/keyvalue", KEYVALUE),
    ("wit/deps/logging", LOGGING),
];

/// Campanile's own world.
const WORLD: &[(&str, Files)] = &[
    ("wit", CAMPANILE),
    ("wit/deps/config", CONFIG),
    ("wit/deps/keyvalue", KEYVALUE),
    ("wit/deps/logging", LOGGING),
];

pub(super) const RUST: Example = Example {
    name: "rust-task",
    files: files!("examples/rust-task": "Cargo.lock" "Cargo.toml" "README.md" "src/lib.rs"),
    linked: &[],
};

pub(super) const RUST_MAIN: Example = Example {
    name: "rust-main-task",
    files: files!("examples/rust-main-task":
        "Cargo.lock" "Cargo.toml" "README.md" "build" "src/main.rs" "src/primes.rs"),
    linked: &[],
};

pub(super) const RUST_WIT: Example = Example {
    name: "rust-wit-task",
    files: files!("examples/rust-wit-task":
        "Cargo.lock" "Cargo.toml" "README.md" "build" "src/lib.rs" "src/primes.rs" "src/task.rs"
        "src/webhook.rs"),
    linked: WORLD,
};

pub(super) const PYTHON: Example = Example {
    name: "python-task",
    files: files!("examples/python-task":
        "README.md" "app.py" "build" "primes.py" "requirements.txt" "test_primes.py" "webhook.py"
        "wit/world.wit"),
    linked: WITH_HTTP,
};

pub(super) const JAVASCRIPT: Example = Example {
    name: "javascript-task",
    files: files!("examples/javascript-task":
        "README.md" "build" "package-lock.json" "package.json" "src/files.js" "src/primes.js"
        "src/primes.test.js" "src/task.js" "wit/world.wit"),
    linked: WITH_FILES,
};

pub(super) const TYPESCRIPT: Example = Example {
    name: "typescript-task",
    files: files!("examples/typescript-task":
        "README.md" "build" "package-lock.json" "package.json" "src/files.ts" "src/primes.test.ts"
        "src/primes.ts" "src/task.ts" "tsconfig.json" "wit/world.wit"),
    linked: WITH_FILES,
};

pub(super) const C: Example = Example {
    name: "c-task",
    files: files!("examples/c-task":
        "README.md" "build" "requirements.txt" "src/json.c" "src/json.h" "src/main.c" "src/primes.c"
        "src/primes.h" "src/test.c"),
    linked: &[],
};

pub(super) const CPP: Example = Example {
    name: "cpp-task",
    files: files!("examples/cpp-task":
        "README.md" "build" "requirements.txt" "src/json.hpp" "src/main.cpp" "src/primes.cpp"
        "src/primes.hpp" "src/test.cpp"),
    linked: &[],
};

pub(super) const ZIG: Example = Example {
    name: "zig-task",
    files: files!("examples/zig-task":
        "README.md" "build" "requirements.txt" "src/main.zig" "src/primes.zig"),
    linked: &[],
};

/// The line by which the example has the SDK of this repository.
const SDK_HERE: &str = "campanile-sdk = { path = \"../../guest-sdk\" }\n";

/// The same for a project that is somewhere else.
const SDK: &str = concat!(
    "# Not on crates.io yet: give it the path of the SDK in a copy of Campanile's repository, as README.md says.\n",
    "campanile-sdk = \"",
    env!("CARGO_PKG_VERSION_MAJOR"),
    ".",
    env!("CARGO_PKG_VERSION_MINOR"),
    "\"\n"
);

/// The step that lets a project have the SDK, as long as it is not on crates.io.
pub(super) const GET_SDK: &str =
    "cargo add --path CAMPANILE_REPOSITORY/guest-sdk  # campanile-sdk is not on crates.io yet";

/// What an example's README says of the SDK.
const SDK_IN_README: &str = "The SDK is the one of this repository.\n";

/// What that of a project says.
const GET_SDK_IN_README: &str = concat!(
    "`campanile-sdk` is not on crates.io yet. Have a copy of [Campanile's repository](",
    env!("CARGO_PKG_REPOSITORY"),
    "), and say\nonce where it is, in place of `CAMPANILE_REPOSITORY`:\n\n\
     ```console\n$ cargo add --path CAMPANILE_REPOSITORY/guest-sdk\n```\n"
);

/// The step that gives what Rust has made of a library the project's own name.
pub(super) fn rename_module(name: &str) -> String {
    let module = as_identifier(name);
    format!("cp target/wasm32-wasip2/release/{module}.wasm target/{name}.wasm")
}

/// The heading in an example's README under which stands how to make a project of it.
const OWN_PROJECT: &str = "\n## A project of your own\n";

/// What the examples' builds leave, which this repository ignores for all of them.
const IGNORED: &str = "target/\n__pycache__/\n";

impl Example {
    /// The files of a project that is called `name`.
    pub fn files(&self, name: &str) -> Vec<File> {
        let own = self.files.iter().map(|&(path, text)| File {
            path: path.to_owned(),
            text: self.of_a_project(path, text, name),
        });
        let linked = self.linked.iter().flat_map(|&(folder, files)| {
            files.iter().map(move |&(path, text)| File {
                path: format!("{folder}/{path}"),
                text: text.to_owned(),
            })
        });
        let ignored = File {
            path: ".gitignore".to_owned(),
            text: IGNORED.to_owned(),
        };
        own.chain(linked).chain([ignored]).collect()
    }

    fn of_a_project(&self, path: &str, text: &str, name: &str) -> String {
        let text = match path {
            "README.md" => text.split(OWN_PROJECT).next().unwrap_or(text),
            _ => text,
        };
        let text = text
            .replace(SDK_HERE, SDK)
            .replace(SDK_IN_README, GET_SDK_IN_README);
        // npm wants no capitals.
        let name = match path {
            "package.json" | "package-lock.json" => name.to_ascii_lowercase(),
            _ => name.to_owned(),
        };
        text.replace(self.name, &name)
            .replace(&as_identifier(self.name), &as_identifier(&name))
    }
}

/// The one file of a project in Go.
pub(super) fn go(name: &str) -> File {
    File {
        path: "README.md".to_owned(),
        text: include_str!("go.md").replace("go-task", name),
    }
}

/// `name` as Rust calls a crate in its code, and the file that it makes of a library.
pub(super) fn as_identifier(name: &str) -> String {
    name.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::*;

    const ALL: [Example; 9] = [
        RUST, RUST_MAIN, RUST_WIT, PYTHON, JAVASCRIPT, TYPESCRIPT, C, CPP, ZIG,
    ];

    fn examples() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
    }

    /// Whether a project has no use for it: what a build leaves, and what stands behind a link besides interfaces.
    fn is_left_out(path: &str) -> bool {
        let mut parts = path.split('/');
        let made = parts.any(|part| ["target", "__pycache__", "node_modules"].contains(&part));
        let interfaces = path.starts_with("wit/");
        made || interfaces && (!path.ends_with(".wit") || path.matches("deps/").count() > 1)
    }

    /// The files below `folder`, also those behind links.
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
        for example in ALL {
            let mut expected = walk(&examples().join(example.name));
            expected.insert(".gitignore".to_owned());
            let files = example.files("tower");
            let listed: BTreeSet<String> = files.into_iter().map(|file| file.path).collect();
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
        let mut known = ALL.map(|example| example.name);
        known.sort_unstable();
        assert_eq!(names, known);
    }

    #[test]
    fn a_project_under_its_examples_name_is_the_example() {
        for example in ALL {
            for file in example.files(example.name) {
                let changed =
                    ["README.md", "Cargo.toml", ".gitignore"].contains(&file.path.as_str());
                let path = examples().join(example.name).join(&file.path);
                if !changed {
                    let text = std::fs::read_to_string(path).unwrap();
                    assert!(file.text == text, "{}/{}", example.name, file.path);
                }
            }
        }
    }

    #[test]
    fn nothing_in_a_project_leads_out_of_it() {
        for example in ALL {
            for file in example.files("tower") {
                for outside in [
                    "../",
                    "examples/",
                    example.name,
                    &as_identifier(example.name),
                ] {
                    let found = file.text.contains(outside);
                    assert!(!found, "{}/{}: {outside}", example.name, file.path);
                }
            }
        }
    }

    #[test]
    fn a_name_is_written_as_each_file_wants_it() {
        let text = |example: Example, path: &str| {
            let files = example.files("Bell-Tower");
            files
                .into_iter()
                .find(|file| file.path == path)
                .unwrap()
                .text
        };
        assert!(text(RUST, "Cargo.toml").contains("name = \"Bell-Tower\"\n"));
        assert!(text(RUST, "Cargo.toml").contains("\ncampanile-sdk = \"0."));
        let readme = text(RUST, "README.md");
        assert!(readme.contains(&format!("$ {}\n", rename_module("Bell-Tower"))));
        assert!(readme.contains("$ cargo add --path CAMPANILE_REPOSITORY/guest-sdk\n"));
        assert!(!readme.contains(SDK_IN_README));
        assert!(
            text(RUST_WIT, "build").contains("/release/Bell_Tower.wasm\" \"$out/Bell-Tower.wasm\"")
        );
        assert!(text(PYTHON, "app.py").contains("\"name\": \"Bell-Tower\""));
        assert!(text(TYPESCRIPT, "src/task.ts").contains("name: \"Bell-Tower\""));
        assert!(text(TYPESCRIPT, "package.json").contains("\"name\": \"bell-tower\""));
        assert!(go("Bell-Tower").text.contains("Bell-Tower.wasm"));
    }
}
