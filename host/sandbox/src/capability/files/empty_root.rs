//! The directory that a guest sees as `/` when no root is granted: it is empty and has no name any more.
//!
//! The library of a language looks among the granted directories for the one that holds a path. Without one it asks the
//! host nothing, and the record could not say which path was missing. With this directory as `/`, every path that is
//! not granted lies in it. It holds nothing, and the guest learns that the path does not exist, as without it.

use std::fs::{self, File};
use std::sync::{Arc, OnceLock};

use wasmtime_wasi::filesystem::{Descriptor, Dir};
use wasmtime_wasi::{FsPerms, OpenMode};

/// One for the process. None when it cannot be made, which only costs a note beside a failure.
static EMPTY_ROOT: OnceLock<Option<Dir>> = OnceLock::new();

/// Return the directory. The first call makes it, which blocks for a moment.
pub(super) fn empty_root() -> Option<Dir> {
    let make = || {
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
    EMPTY_ROOT.get_or_init(make).clone()
}

/// Whether `descriptor` is that directory.
pub(super) fn is_empty_root(descriptor: &Descriptor) -> bool {
    match (descriptor, EMPTY_ROOT.get()) {
        (Descriptor::Dir(directory), Some(Some(root))) => Arc::ptr_eq(&directory.dir, &root.dir),
        _ => false,
    }
}
