//! What happens to a plugins folder that nobody takes care of.

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

use crate::tower::guest;

/// The packages, each of one program in many versions. They ask for nothing, so no version waits for a person.
pub const NAMES: [&str; 5] = ["noop", "hello", "diamond", "command", "command-p1"];
/// Another name for the bytes of the first.
const TWIN: &str = "twin";
const BROKEN_SIDECAR: &str = "[limits]\ntimeout = \"soon\"\n";

pub struct Weather {
    pub seed: u64,
    random: StdRng,
    plugins: PathBuf,
    /// Where links point to, beside the plugins folder.
    store: PathBuf,
    schedules_each: usize,
    /// The versions made so far.
    made: u32,
    /// The digests of all of them, and whose they are.
    versions: BTreeMap<String, &'static str>,
}

/// What the record should say of a name in the folder.
pub enum Expected {
    /// This digest is in force.
    InForce(String),
    /// The file is refused, and one of these versions is in force, or none.
    Refused(Vec<String>),
    /// The sidecar is refused: the same, but a package that was gone does not come back without its settings.
    Unsettled(Vec<String>),
}

impl Expected {
    /// Whether a row of `package list` says so.
    pub fn is_met(&self, row: &Value) -> bool {
        let digest = row["digest"].as_str();
        let is_refused = |versions: &[String]| {
            let is_one = |digest| versions.iter().any(|version| version == digest);
            row["rejection"].is_string() && digest.is_none_or(is_one)
        };
        match self {
            Expected::InForce(expected) => {
                row["state"] == "active" && digest == Some(expected) && row["rejection"].is_null()
            }
            Expected::Refused(versions) => row["state"] == "rejected" && is_refused(versions),
            Expected::Unsettled(versions) => {
                (row["state"] == "rejected" || row["state"] == "missing") && is_refused(versions)
            }
        }
    }

    /// In a word, for a person who reads why a test failed.
    pub fn shown(&self) -> &str {
        match self {
            Expected::InForce(digest) => digest,
            Expected::Refused(_) => "refused",
            Expected::Unsettled(_) => "refused for its sidecar",
        }
    }
}

impl Weather {
    pub fn over(tower: &Path, schedules_each: usize) -> Weather {
        let seed = match std::env::var("CAMPANILE_TEST_SEED") {
            Ok(text) => text.parse().expect("CAMPANILE_TEST_SEED is a number"),
            Err(_) => rand::random::<u32>().into(),
        };
        let store = tower.join("store");
        fs::create_dir(&store).expect("a folder");
        Weather {
            seed,
            random: StdRng::seed_from_u64(seed),
            plugins: tower.join("plugins"),
            store,
            schedules_each,
            made: 0,
            versions: BTreeMap::new(),
        }
    }

    /// Every package is there, and its sidecar is in order.
    pub fn clear_up(&mut self) {
        for name in NAMES {
            let bytes = self.version(name);
            self.rename_over(&format!("{name}.wasm"), &bytes);
            self.sidecar(name, 60);
        }
    }

    /// Until the next change: mostly nothing, sometimes enough for a scan to see the folder at rest.
    pub fn pause(&mut self) -> Duration {
        Duration::from_millis(match self.random.random_ratio(1, 25) {
            true => self.random.random_range(500..800),
            false => self.random.random_range(0..25),
        })
    }

    /// One operation.
    pub fn change(&mut self) {
        let name = *NAMES.choose(&mut self.random).expect("a name");
        let file = format!("{name}.wasm");
        let path = self.plugins.join(&file);
        match self.random.random_range(0..19) {
            0..3 => {
                let bytes = self.version(name);
                self.make_way(&path);
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
            15 => self.no_file(&path),
            16 => {
                self.make_way(&path);
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

    /// What the record should say of each name, read from the folder as a host may read it.
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
        let is_file = fs::metadata(path).is_ok_and(|found| found.is_file());
        let bytes = fs::read(path).ok().filter(|_| is_file);
        let digest = bytes.map(|bytes| ArtifactDigest::of(&bytes).as_str().to_owned());
        let whose = |digest: &String| self.versions.get(digest).copied();
        let known = digest.filter(|digest| whose(digest).is_some());
        let may_be_named_so = name == TWIN || NAMES.contains(&name);
        let program = if name == TWIN { NAMES[0] } else { name };
        let of_it = |(_, whose): &(&String, &&str)| **whose == program;
        let versions = self.versions.iter().filter(of_it);
        let versions = versions.map(|(digest, _)| digest.clone()).collect();
        match known {
            _ if sidecar == BROKEN_SIDECAR => Expected::Unsettled(versions),
            Some(digest) if may_be_named_so => Expected::InForce(digest),
            _ => Expected::Refused(versions),
        }
    }

    /// The bytes of a program as they never were before: a custom section changes the file and not the code.
    fn version(&mut self, name: &'static str) -> Vec<u8> {
        let package = match name {
            "hello" => Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugins/hello.wasm"),
            guests => guest(guests),
        };
        let mut bytes = fs::read(package).expect("a package");
        self.made += 1;
        bytes.extend_from_slice(&[0, 9, 4]);
        bytes.extend_from_slice(b"made");
        bytes.extend_from_slice(&self.made.to_le_bytes());
        let digest = ArtifactDigest::of(&bytes);
        self.versions.insert(digest.as_str().to_owned(), name);
        bytes
    }

    fn rename_over(&self, file: &str, bytes: &[u8]) {
        let beside = self.plugins.join(format!(".{file}.tmp"));
        write(&beside, bytes);
        self.put(&beside, file);
    }

    /// Give what is at `beside` its name, whatever has it now.
    fn put(&self, beside: &Path, file: &str) {
        let path = self.plugins.join(file);
        if path.is_dir() {
            remove(&path);
        }
        fs::rename(beside, &path).expect("a rename");
    }

    /// Take away what cannot be written to: a pipe would wait for its reader.
    fn make_way(&self, path: &Path) {
        match fs::metadata(path) {
            Ok(found) if found.is_file() => allow(path, 0o644),
            _ => remove(path),
        }
    }

    fn truncate(&mut self, path: &Path) {
        self.make_way(path);
        if let Ok(file) = File::options().write(true).open(path) {
            let size = file.metadata().expect("a file").len();
            let rest = self.random.random_range(0..size.max(1));
            file.set_len(rest).expect("a shorter file");
        }
    }

    fn write_in_pieces(&mut self, name: &'static str, path: &Path) {
        let bytes = self.version(name);
        self.make_way(path);
        let mut file = File::create(path).expect("a file");
        for piece in bytes.chunks(bytes.len() / 3 + 1) {
            file.write_all(piece).expect("a piece");
            let pause = self.random.random_range(10..100);
            std::thread::sleep(Duration::from_millis(pause));
        }
    }

    /// A link takes the file's place: to a version, to nothing, or to itself.
    fn link(&mut self, name: &'static str, file: &str) {
        let target = match self.random.random_range(0..6) {
            0 => self.store.join("nothing"),
            1 => PathBuf::from(file),
            _ => {
                let bytes = self.version(name);
                let target = self.store.join(format!("{}.wasm", self.made));
                write(&target, &bytes);
                target
            }
        };
        let beside = self.plugins.join(format!(".{file}.link"));
        symlink(target, &beside).expect("a link");
        self.put(&beside, file);
    }

    /// Copies under names that are no package's, one that is, and one that another package has in other letters.
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

    /// Nobody may read it; root may, to whom it is only a file that was touched. A link to itself, which
    /// [`Weather::link`] makes, cannot be read by root either.
    fn forbid(&mut self, path: &Path) {
        if fs::metadata(path).is_ok_and(|found| found.is_file()) {
            let mode = if self.random.random_bool(0.7) {
                0
            } else {
                0o644
            };
            allow(path, mode);
        }
    }

    /// A pipe or a directory takes the file's place.
    fn no_file(&mut self, path: &Path) {
        remove(path);
        if self.random.random_bool(0.5) {
            fs::create_dir(path).expect("a directory");
            write(&path.join("a.wasm"), b"not looked at");
            return;
        }
        let made = std::process::Command::new("mkfifo").arg(path).status();
        assert!(made.expect("mkfifo").success());
    }

    /// The same schedules under another limit. Renamed over: half of a sidecar may be one that ends its schedules.
    fn sidecar(&self, name: &str, timeout_seconds: u32) {
        let mut text = format!("[limits]\ntimeout = \"{timeout_seconds}s\"\n");
        for n in 0..self.schedules_each {
            text += &format!(
                "[[schedules]]\nname = \"{name}-{n}\"\nevery = \"1s\"\noverlap = \"allow\"\n"
            );
        }
        self.rename_over(&format!("{name}.toml"), text.as_bytes());
    }
}

fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn allow(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("other permissions");
}

fn remove(path: &Path) {
    let gone = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => return,
    };
    gone.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
