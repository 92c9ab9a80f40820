//! The verdicts about files, kept between the starts of a host.
//!
//! They lie in the folder of compiled code, one small file a package's file. A verdict counts for the program, the
//! settings and the limits that found it; another program loads the file again.

use std::fs;
use std::io;
use std::path::PathBuf;

use campanile_model::ids::{ArtifactDigest, sha256};

use super::exchange::{ChildSettings, Verdict};
use crate::files;
use crate::files::PACKAGES_MAX;

/// The most verdicts kept, enough for every file of a folder, so starting again reloads none. Beyond that, the oldest half is removed.
const VERDICTS_MAX: usize = 4 * PACKAGES_MAX;

pub(super) struct Verdicts {
    folder: PathBuf,
    /// Names the program, the settings and the limits.
    loader: String,
}

impl Verdicts {
    pub(super) fn new(settings: &ChildSettings) -> Verdicts {
        let program = std::env::current_exe().map(|path| files::inspect(&path));
        let loader = format!(
            "{} {} {program:?} {settings:?}",
            env!("CARGO_PKG_VERSION"),
            campanile_sandbox::WASMTIME_VERSION,
        );
        Verdicts {
            folder: settings.cache_dir.join("verdicts"),
            loader,
        }
    }

    /// Returns the verdict about the file with this digest. Blocks.
    pub(super) fn find(&self, digest: &ArtifactDigest) -> Option<Verdict> {
        // The file of a verdict that cannot be read is loaded again.
        serde_json::from_slice(&fs::read(self.path(digest)).ok()?).ok()
    }

    /// Keep a verdict. Blocks. Without it, the next start loads the file again.
    pub(super) fn keep(&self, digest: &ArtifactDigest, verdict: &Verdict) {
        if let Err(error) = self.write(digest, verdict) {
            tracing::warn!(folder = %self.folder.display(), %error, "the result of a load cannot be kept; the next start loads the file again");
        }
    }

    fn write(&self, digest: &ArtifactDigest, verdict: &Verdict) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        self.remove_oldest()?;
        let path = self.path(digest);
        let unfinished = path.with_extension(format!("{}.tmp", std::process::id()));
        fs::write(&unfinished, serde_json::to_vec(verdict)?)?;
        fs::rename(&unfinished, &path)
    }

    fn remove_oldest(&self) -> io::Result<()> {
        let files = fs::read_dir(&self.folder)?;
        let mut files: Vec<_> = files
            .filter_map(|file| {
                let file = file.ok()?;
                Some((file.metadata().ok()?.modified().ok()?, file.path()))
            })
            .collect();
        if files.len() >= VERDICTS_MAX {
            files.sort();
            for (_, path) in &files[..VERDICTS_MAX / 2] {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    fn path(&self, digest: &ArtifactDigest) -> PathBuf {
        let name = sha256(format!("{digest} {}", self.loader).as_bytes());
        self.folder.join(format!("{name}.json"))
    }
}
