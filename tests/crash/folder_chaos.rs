//! Random changes to a plugins folder.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use campanile_model::ids::ArtifactDigest;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::Value;

use crate::site::guest;

/// The packages, each with many versions of one program. They request no grants, so no version waits for approval.
pub const NAMES: [&str; 5] = ["noop", "hello", "diamond", "command", "command-p1"];
/// A second name for the program of the first package.
const TWIN: &str = "twin";
const BROKEN_SIDECAR: &str = "[limits]\ntimeout = \"soon\"\n";

/// A generator of random changes to a plugins folder.
pub struct FolderChaos {
    pub seed: u64,
    random: StdRng,
    plugins: PathBuf,
    /// The folder of the targets of symbolic links, beside the plugins folder.
    targets: PathBuf,
    schedules_each: usize,
    /// The number of versions created.
    version_count: u32,
    /// The digests of all versions, with their programs.
    versions: BTreeMap<String, &'static str>,
}

/// The expected record of a package in the folder.
pub enum Expected {
    /// This version is active.
    Active(String),
    /// The file is rejected, and one of these versions is active, or none.
    Rejected(Vec<String>),
    /// The sidecar is rejected, and one of these versions is active, or none. The package may be missing.
    SidecarRejected(Vec<String>),
}

impl Expected {
    /// Return whether a row of `package list` is as expected.
    pub fn is_met(&self, row: &Value) -> bool {
        let digest = row["digest"].as_str();
        let is_rejected = |versions: &[String]| {
            let is_one = |digest| versions.iter().any(|version| version == digest);
            row["rejection"].is_string() && digest.is_none_or(is_one)
        };
        match self {
            Expected::Active(expected) => {
                row["state"] == "active" && digest == Some(expected) && row["rejection"].is_null()
            }
            Expected::Rejected(versions) => row["state"] == "rejected" && is_rejected(versions),
            Expected::SidecarRejected(versions) => {
                (row["state"] == "rejected" || row["state"] == "missing") && is_rejected(versions)
            }
        }
    }

    /// Return a short text for the message of a failed test.
    pub fn shown(&self) -> &str {
        match self {
            Expected::Active(digest) => digest,
            Expected::Rejected(_) => "rejected",
            Expected::SidecarRejected(_) => "rejected because of its sidecar",
        }
    }
}

impl FolderChaos {
    pub fn new(site: &Path, schedules_each: usize) -> FolderChaos {
        let seed = match std::env::var("CAMPANILE_TEST_SEED") {
            Ok(text) => text.parse().expect("CAMPANILE_TEST_SEED is a number"),
            Err(_) => rand::random::<u32>().into(),
        };
        let targets = site.join("targets");
        fs::create_dir(&targets).expect("a folder");
        FolderChaos {
            seed,
            random: StdRng::seed_from_u64(seed),
            plugins: site.join("plugins"),
            targets,
            schedules_each,
            version_count: 0,
            versions: BTreeMap::new(),
        }
    }

    /// Install a new version and a valid sidecar of every package.
    pub fn restore(&mut self) {
        for name in NAMES {
            let bytes = self.version(name);
            self.rename_over(&format!("{name}.wasm"), &bytes);
            self.sidecar(name, 60);
        }
    }

    /// Return the pause before the next change: mostly short, sometimes long enough for a scan of an unchanged folder.
    pub fn pause(&mut self) -> Duration {
        Duration::from_millis(match self.random.random_ratio(1, 15) {
            true => self.random.random_range(500..800),
            false => self.random.random_range(0..25),
        })
    }

    /// Change the folder by one random operation.
    pub fn change(&mut self) {
        let name = *NAMES.choose(&mut self.random).expect("a name");
        let file = format!("{name}.wasm");
        let path = self.plugins.join(&file);
        match self.random.random_range(0..19) {
            0..3 => {
                let bytes = self.version(name);
                self.make_writable(&path);
                write(&path, &bytes);
            }
            3..6 => {
                let bytes = self.version(name);
                self.rename_over(&file, &bytes);
            }
            6 => self.truncate(&path),
            7..9 => self.write_in_pieces(name, &path),
            9..11 => remove(&path),
            11..13 => self.link(name, &file),
            13 => self.duplicate(name),
            14 => self.forbid(&path),
            15 => self.replace_by_non_file(&path),
            16 => {
                self.make_writable(&path);
                write(&path, b"a broken build");
            }
            _ => {
                let seconds = self.random.random_range(30..90);
                self.sidecar(name, seconds);
                if self.random.random_ratio(1, 4) {
                    self.rename_over(&format!("{name}.toml"), BROKEN_SIDECAR.as_bytes());
                }
            }
        }
    }

    /// Return the expected record of each package, from the folder's current contents.
    pub fn expected(&self) -> BTreeMap<String, Expected> {
        let mut expected = BTreeMap::new();
        for entry in fs::read_dir(&self.plugins).expect("the folder").flatten() {
            let file = entry.file_name().to_string_lossy().into_owned();
            let Some(name) = file
                .strip_suffix(".wasm")
                .filter(|name| !name.starts_with('.'))
            else {
                continue;
            };
            expected.insert(name.to_owned(), self.expected_of(name, &entry.path()));
        }
        expected
    }

    fn expected_of(&self, name: &str, path: &Path) -> Expected {
        let sidecar = fs::read_to_string(path.with_extension("toml")).unwrap_or_default();
        // Reading a pipe would wait for a writer.
        let is_file = fs::metadata(path).is_ok_and(|found| found.is_file());
        let bytes = is_file.then(|| fs::read(path).ok()).flatten();
        let digest = bytes.map(|bytes| ArtifactDigest::of(&bytes).as_str().to_owned());
        let program_of = |digest: &String| self.versions.get(digest).copied();
        let known = digest.filter(|digest| program_of(digest).is_some());
        let is_known_name = name == TWIN || NAMES.contains(&name);
        let program = if name == TWIN { NAMES[0] } else { name };
        let is_of_program = |(_, of): &(&String, &&str)| **of == program;
        let versions = self.versions.iter().filter(is_of_program);
        let versions = versions.map(|(digest, _)| digest.clone()).collect();
        match known {
            _ if sidecar == BROKEN_SIDECAR => Expected::SidecarRejected(versions),
            Some(digest) if is_known_name => Expected::Active(digest),
            _ => Expected::Rejected(versions),
        }
    }

    /// Create a new version of a program: a custom section changes the file but not the code.
    fn version(&mut self, name: &'static str) -> Vec<u8> {
        let package = match name {
            "hello" => Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugins/hello.wasm"),
            guests => guest(guests),
        };
        let mut bytes = fs::read(package).expect("a package");
        self.version_count += 1;
        bytes.extend_from_slice(&[0, 9, 4]);
        bytes.extend_from_slice(b"made");
        bytes.extend_from_slice(&self.version_count.to_le_bytes());
        let digest = ArtifactDigest::of(&bytes);
        self.versions.insert(digest.as_str().to_owned(), name);
        bytes
    }

    fn rename_over(&self, file: &str, bytes: &[u8]) {
        let temporary = self.plugins.join(format!(".{file}.tmp"));
        write(&temporary, bytes);
        self.rename(&temporary, file);
    }

    /// Rename `temporary` to `file`, and replace what has this name.
    fn rename(&self, temporary: &Path, file: &str) {
        let path = self.plugins.join(file);
        if path.is_dir() {
            remove(&path);
        }
        fs::rename(temporary, &path).expect("a rename");
    }

    /// Make a file writable, and remove anything else. Writing to a pipe would wait for a reader.
    fn make_writable(&self, path: &Path) {
        match fs::metadata(path) {
            Ok(found) if found.is_file() => set_mode(path, 0o644),
            _ => remove(path),
        }
    }

    fn truncate(&mut self, path: &Path) {
        self.make_writable(path);
        if let Ok(file) = File::options().write(true).open(path) {
            let size = file.metadata().expect("a file").len();
            let rest = self.random.random_range(0..size.max(1));
            file.set_len(rest).expect("a shorter file");
        }
    }

    fn write_in_pieces(&mut self, name: &'static str, path: &Path) {
        let bytes = self.version(name);
        self.make_writable(path);
        let mut file = File::create(path).expect("a file");
        for piece in bytes.chunks(bytes.len() / 3 + 1) {
            file.write_all(piece).expect("a piece");
            let pause = self.random.random_range(10..100);
            std::thread::sleep(Duration::from_millis(pause));
        }
    }

    /// Replace the file by a symbolic link to a version, to a missing file, or to itself.
    fn link(&mut self, name: &'static str, file: &str) {
        let target = match self.random.random_range(0..6) {
            0 => self.targets.join("nothing"),
            1 => PathBuf::from(file),
            _ => {
                let bytes = self.version(name);
                let target = self.targets.join(format!("{}.wasm", self.version_count));
                write(&target, &bytes);
                target
            }
        };
        let temporary = self.plugins.join(format!(".{file}.link"));
        symlink(target, &temporary).expect("a link");
        self.rename(&temporary, file);
    }

    /// Add or remove a copy, mostly under a name that is not valid for a package.
    fn duplicate(&mut self, name: &'static str) {
        let copies = [
            format!("{name} copy.wasm"),
            format!("{name}.wasm.wasm"),
            format!("{name}.wasm.part"),
            format!(".{name}.wasm"),
            format!("{name}.WASM"),
            format!("{TWIN}.wasm"),
        ];
        let copy = copies.choose(&mut self.random).expect("a name");
        let path = self.plugins.join(copy);
        match path.exists() && self.random.random_bool(0.5) {
            true => remove(&path),
            false if *copy == format!("{TWIN}.wasm") => {
                let bytes = self.version(NAMES[0]);
                write(&path, &bytes);
            }
            false => {
                let bytes = self.version(name);
                write(&path, &bytes);
            }
        }
    }

    /// Make the file unreadable, or readable again. Root can read every file, but not a link to itself, which
    /// [`FolderChaos::link`] creates.
    fn forbid(&mut self, path: &Path) {
        if fs::metadata(path).is_ok_and(|found| found.is_file()) {
            let mode = if self.random.random_bool(0.7) {
                0
            } else {
                0o644
            };
            set_mode(path, mode);
        }
    }

    /// Replace the file by a pipe or a directory.
    fn replace_by_non_file(&mut self, path: &Path) {
        remove(path);
        if self.random.random_bool(0.5) {
            fs::create_dir(path).expect("a directory");
            write(&path.join("a.wasm"), b"not looked at");
            return;
        }
        let made = std::process::Command::new("mkfifo").arg(path).status();
        assert!(made.expect("mkfifo").success());
    }

    /// Write a sidecar with the same schedules and another limit.
    ///
    /// It is renamed, because a partial sidecar could remove schedules.
    fn sidecar(&self, name: &str, timeout_seconds: u32) {
        let mut text = format!("[limits]\ntimeout = \"{timeout_seconds}s\"\n");
        // Without this, the program returns its context including its last result, nesting too deep after some thirty launches.
        let context = match name.starts_with("command") {
            true => "context = { do = \"say\" }\n",
            false => "",
        };
        for n in 0..self.schedules_each {
            text += &format!(
                "[[schedules]]\nname = \"{name}-{n}\"\nevery = \"1s\"\noverlap = \"allow\"\n{context}"
            );
        }
        self.rename_over(&format!("{name}.toml"), text.as_bytes());
    }
}

fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("other permissions");
}

fn remove(path: &Path) {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => return,
    };
    removed.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
