//! What a guest finds where nothing is granted: an empty directory, which has no name any more.
//!
//! The library of a language looks by itself for the granted directory that holds a path. Where there is none, the host
//! is asked nothing, and the record could not say what was missing. So a guest is given this directory as `/`, under
//! which all that is not granted lies: nothing is in it, nothing can be put into it, and whoever opens something is
//! told that it is not there, as without it.

use std::fs::{self, File};
use std::sync::{Arc, OnceLock};

use wasmtime_wasi::filesystem::{Descriptor, Dir};
use wasmtime_wasi::{FsPerms, OpenMode};

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
