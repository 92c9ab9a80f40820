//! What a program finds where nothing is granted: an empty directory, which has no name any more.
//!
//! The library of a program looks by itself for the granted directory that holds a path. Where there is none, the host
//! is asked nothing, and the record could not say what was missing. So a program is given this directory as `/`, under
//! which all that is not granted lies: nothing is in it, nothing can be put into it, and whoever opens something is
//! told that it is not there, as without it.

use std::fs::{self, File};
use std::sync::{Arc, OnceLock};

use wasmtime_wasi::filesystem::{Descriptor, Dir};
use wasmtime_wasi::{FsPerms, OpenMode};

/// Of the paths that are remembered: a program may try many.
const PATHS_MAX: usize = 16;
const PATH_BYTES_MAX: usize = 1 << 10;

/// One for the whole process; none where it cannot be made, which only costs an explanation.
static NOWHERE: OnceLock<Option<Dir>> = OnceLock::new();

/// The directory. The first call makes it, which blocks for a moment.
pub(super) fn directory() -> Option<Dir> {
    let made = || {
        let place = tempfile::tempdir().ok()?;
        let directory = File::open(place.path()).ok()?;
        fs::remove_dir(place.path()).ok()?;
        Some(Dir::new(
            directory,
            FsPerms::ReadOnly,
            OpenMode::READ,
            false,
        ))
    };
    NOWHERE.get_or_init(made).clone()
}

/// Whether `descriptor` is that directory, under whatever handle.
pub(super) fn is_nowhere(descriptor: &Descriptor) -> bool {
    match (descriptor, NOWHERE.get()) {
        (Descriptor::Dir(directory), Some(Some(nowhere))) => {
            Arc::ptr_eq(&directory.dir, &nowhere.dir)
        }
        _ => false,
    }
}

/// The paths that a program wanted to open and that lie in no granted directory, the last of them.
#[derive(Default)]
pub(super) struct Missed(Vec<String>);

impl Missed {
    pub(super) fn add(&mut self, path: &str) {
        if self.0.len() == PATHS_MAX {
            self.0.remove(0);
        }
        let end = path.floor_char_boundary(PATH_BYTES_MAX);
        self.0.push(format!("/{}", &path[..end]));
    }

    /// The path for whose sake the program gave up, going by what it printed: one that it names, else the last, if it
    /// says that something is not there.
    pub(super) fn blamed(&self, stderr: &str) -> Option<&str> {
        const NOT_THERE: [&str; 6] = [
            "No such file",
            "NotFound",
            "not found",
            "not exist",
            "ENOENT",
            "os error 44",
        ];
        let paths = self.0.iter().rev();
        let mut named = paths.filter(|path| stderr.contains(path.as_str()));
        let last = || {
            let says_so = NOT_THERE.iter().any(|words| stderr.contains(words));
            self.0.last().filter(|_| says_so)
        };
        named.next().or_else(last).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_blamed_when_the_program_says_so() {
        let mut missed = Missed::default();
        assert_eq!(missed.blamed("No such file or directory"), None);
        missed.add("data/a.txt");
        missed.add("etc/b.txt");
        assert_eq!(missed.blamed("the disk is full"), None);
        assert_eq!(missed.blamed("error: FileNotFound"), Some("/etc/b.txt"));
        assert_eq!(
            missed.blamed("cannot open /data/a.txt"),
            Some("/data/a.txt")
        );
    }

    #[test]
    fn only_the_last_paths_are_remembered_and_no_more_of_one_than_is_read() {
        let mut missed = Missed::default();
        for n in 0..100 {
            missed.add(&format!("{n}"));
        }
        missed.add(&"é".repeat(PATH_BYTES_MAX));
        assert_eq!(missed.0.len(), PATHS_MAX);
        assert!(missed.0.iter().all(|path| path.len() <= PATH_BYTES_MAX + 1));
        assert_eq!(missed.0[0], "/85");
    }
}
