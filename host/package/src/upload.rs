//! Files of packages that a person sends to a host, which puts them into the plugins folder.
//!
//! A file is checked as a scan would check it, before the folder has it. It is written under a hidden name, which a scan
//! ignores, and then renamed: a scan never finds half of it.

use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, mkdirat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::assemble::{FILE_BYTES_MAX, SidecarFile, assemble, usable};
use super::files::{self, PACKAGES_MAX, off_thread};
use super::host_rules::HostRules;
use super::loader::{Attempt, Loader, PackageLoader, load};
use super::names::package_name_fault;
use super::open_folder::{NamespaceFolder, OpenFolder};
use super::signature;
use campanile_model::clock::Timestamp;
use campanile_model::ids::ArtifactDigest;
use campanile_model::namespace::split;
use campanile_model::text::size_text;

/// The prefix of the hidden names.
const HIDDEN: &str = ".campanile-upload-";
/// The age after which a hidden file counts as left over by a host that ended during an upload.
const ABANDONED_AFTER: Duration = Duration::from_secs(3_600);

/// The plugins folder of a host, for files that it receives.
pub struct UploadFolder<L: Loader = PackageLoader> {
    path: PathBuf,
    open: Mutex<Arc<OpenFolder>>,
    loader: Arc<L>,
    rules: HostRules,
}

/// A file that was checked and written, and that the folder does not have yet. Dropped, it is deleted.
pub struct CheckedUpload {
    pub package: String,
    pub digest: ArtifactDigest,
    pub size_bytes: u64,
    /// Whether the folder has a file of this name, which this one replaces.
    pub replaces: bool,
    folder: Arc<OpenFolder>,
    /// The name of the file now; none once the folder has it.
    hidden: Option<String>,
}

/// Why a file was not put into the folder. Each is one sentence.
#[derive(Debug)]
pub enum UploadError {
    /// The file is no package that this host can use.
    Invalid(String),
    /// A rule of the host, or what the folder has, does not allow it.
    Refused(String),
    /// The folder cannot be read or written now.
    Failed(String),
}

impl<L: Loader> UploadFolder<L> {
    /// Open the folder at `path`.
    ///
    /// # Errors
    /// A sentence that says why the folder cannot be used.
    pub fn open(path: &Path, loader: Arc<L>, rules: HostRules) -> Result<UploadFolder<L>, String> {
        let open = OpenFolder::open(path, rules.foreign_writers);
        let open = open.map_err(|what| format!("the plugins folder {} {what}", path.display()))?;
        Ok(UploadFolder {
            path: path.to_owned(),
            open: Mutex::new(Arc::new(open)),
            loader,
            rules,
        })
    }

    /// Check the file `bytes` of the package `name` as a scan would, and write it under a hidden name.
    pub async fn check(
        &self,
        name: &str,
        bytes: Vec<u8>,
        now: Timestamp,
    ) -> Result<CheckedUpload, UploadError> {
        if let Some(fault) = package_name_fault(name) {
            return Err(UploadError::Invalid(fault));
        }
        if bytes.is_empty() || bytes.len() as u64 > FILE_BYTES_MAX {
            let most = size_text(FILE_BYTES_MAX);
            let message = format!(
                "a package has a file of 1 byte to {most}, and this one has {} bytes",
                bytes.len()
            );
            return Err(UploadError::Invalid(message));
        }
        let folder = self.follow().await?;
        let (found, of) = (Arc::clone(&folder), name.to_owned());
        let replaces = off_thread(move || check_place(&found, &of)).await;
        let replaces = replaces.map_err(UploadError::Failed)??;
        let digest = ArtifactDigest::of(&bytes);
        let bytes = Arc::new(bytes);
        self.check_package(name, &bytes, &digest).await?;
        let mut checked = CheckedUpload {
            package: name.to_owned(),
            digest,
            size_bytes: bytes.len() as u64,
            replaces,
            folder: Arc::clone(&folder),
            hidden: None,
        };
        let written = off_thread(move || write(&folder, &bytes, now)).await;
        let written = written.map_err(UploadError::Failed)?;
        let written = written.map_err(|error| self.unwritable(&error))?;
        checked.hidden = Some(written);
        Ok(checked)
    }

    fn unwritable(&self, error: &io::Error) -> UploadError {
        let path = self.path.display();
        UploadError::Failed(format!(
            "the plugins folder {path} cannot be written: {error}"
        ))
    }

    /// Returns the folder now at the path.
    async fn follow(&self) -> Result<Arc<OpenFolder>, UploadError> {
        let before = Arc::clone(&self.open.lock().unwrap_or_else(PoisonError::into_inner));
        let open = Arc::clone(&before);
        let followed = off_thread(move || open.follow()).await.flatten();
        let followed = followed.map_err(|what| {
            UploadError::Failed(format!("the plugins folder {} {what}", self.path.display()))
        })?;
        let now = followed.map_or(before, Arc::new);
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&now);
        Ok(now)
    }

    /// Load the file, and check it with its sidecar and its signature, which the folder may have.
    async fn check_package(
        &self,
        name: &str,
        bytes: &Arc<Vec<u8>>,
        digest: &ArtifactDigest,
    ) -> Result<(), UploadError> {
        let path = self.path.join(format!("{name}.wasm"));
        let (of, rules, shared) = (name.to_owned(), self.rules.clone(), Arc::clone(bytes));
        let sidecar = {
            let path = path.clone();
            off_thread(move || {
                check_signature(&path, &of, &shared, &rules).map_err(UploadError::Refused)?;
                let path = path.with_extension("toml");
                let Some(state) = files::inspect(&path) else {
                    return Ok(None);
                };
                let read = SidecarFile::read(&path, &state, &rules);
                let changed = "the sidecar changed while it was read; send the file again";
                read.ok_or(UploadError::Failed(changed.to_owned()))
                    .map(Some)
            })
        };
        let sidecar = sidecar.await.map_err(UploadError::Failed)??;
        let sidecar = usable(sidecar.as_ref()).map_err(UploadError::Refused)?;
        let pinned = sidecar.check_pin(name, &self.rules.policy, digest);
        pinned.map_err(UploadError::Refused)?;
        let loaded = load(&*self.loader, name, bytes.to_vec(), Attempt::Again).await;
        let loaded = loaded.map_err(UploadError::Invalid)?;
        let version = sidecar.check_version(&loaded.1);
        version.map_err(UploadError::Refused)?;
        let made = assemble::<L>(path, digest.clone(), loaded, sidecar, &self.rules);
        made.map(drop).map_err(UploadError::Invalid)
    }
}

impl CheckedUpload {
    /// Put the file into the folder, in place of the one that it replaces. Does nothing when the folder has it already.
    pub async fn publish(&mut self) -> Result<(), UploadError> {
        let Some(hidden) = self.hidden.clone() else {
            return Ok(());
        };
        let (folder, name) = (Arc::clone(&self.folder), format!("{}.wasm", self.package));
        let moved = off_thread(move || move_into_place(&folder, &hidden, &name));
        moved.await.map_err(UploadError::Failed)??;
        self.hidden = None;
        Ok(())
    }
}

impl Drop for CheckedUpload {
    fn drop(&mut self) {
        if let Some(hidden) = &self.hidden {
            // If that fails, a later upload deletes it.
            let _ = unlinkat(self.folder.directory(), hidden, AtFlags::empty());
        }
    }
}

impl UploadError {
    fn of_place(error: impl fmt::Display) -> UploadError {
        UploadError::Failed(format!(
            "the file cannot be put into the plugins folder: {error}"
        ))
    }
}

/// Renames `hidden` in the folder to `file`, which may start with a namespace. Blocks.
///
/// Opening the namespace's folder follows no link, and the file goes into what was opened, even if that's replaced meanwhile.
fn move_into_place(folder: &OpenFolder, hidden: &str, file: &str) -> Result<(), UploadError> {
    let directory = folder.directory();
    if let Some((namespace, own_name)) = file.split_once('/') {
        let mode = Mode::RWXU | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH;
        match mkdirat(directory, namespace, mode) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(UploadError::of_place(error)),
        }
        let opened = open_namespace(folder, namespace)?;
        let opened = opened.ok_or_else(|| UploadError::of_place(Errno::NOENT))?;
        renameat(directory, hidden, &opened, own_name).map_err(UploadError::of_place)?;
        opened.sync_all().map_err(UploadError::of_place)?;
    } else {
        renameat(directory, hidden, directory, file).map_err(UploadError::of_place)?;
    }
    directory.sync_all().map_err(UploadError::of_place)
}

/// Opens a namespace's folder, or returns none if nothing is there. Refuses a link or file in its place. Blocks.
fn open_namespace(folder: &OpenFolder, namespace: &str) -> Result<Option<File>, UploadError> {
    match folder
        .open_namespace(namespace)
        .map_err(UploadError::of_place)?
    {
        NamespaceFolder::Open(opened) => Ok(Some(opened)),
        NamespaceFolder::Missing => Ok(None),
        NamespaceFolder::Unusable(why) => Err(UploadError::Refused(why)),
    }
}

/// Returns whether the folder has a file for the package `name`. Refuse a place that cannot have one. Blocks.
fn check_place(folder: &OpenFolder, name: &str) -> Result<bool, UploadError> {
    if let (Some(namespace), _) = split(name) {
        open_namespace(folder, &format!("@{namespace}"))?;
    }
    let file = PathBuf::from(format!("{name}.wasm"));
    if files::is_link_in(folder.directory(), &file) {
        let message = format!(
            "{} in the plugins folder is a link: replace its target, or delete it",
            file.display()
        );
        return Err(UploadError::Refused(message));
    }
    match files::inspect_in(folder.directory(), &file) {
        Some(Ok(_)) => return Ok(true),
        Some(Err(why)) => {
            let message = format!(
                "{} is in the plugins folder already, and {why}",
                file.display()
            );
            return Err(UploadError::Refused(message));
        }
        None => {}
    }
    let listed = folder
        .list()
        .map_err(|error| UploadError::Failed(error.to_string()))?;
    let packages = listed.0.keys().filter(|name| name.ends_with(".wasm"));
    if packages.count() < PACKAGES_MAX {
        return Ok(false);
    }
    Err(UploadError::Refused(format!(
        "the plugins folder has {PACKAGES_MAX} packages, which is the limit: remove one"
    )))
}

fn check_signature(path: &Path, name: &str, bytes: &[u8], rules: &HostRules) -> Result<(), String> {
    let path = signature::signature_path(path);
    let text = files::inspect(&path).map(|_| signature::read_small(&path));
    rules.policy.check_signature(name, bytes, text).map(drop)
}

/// Write a file under a hidden name. Return the name. Blocks.
fn write(folder: &OpenFolder, bytes: &[u8], now: Timestamp) -> io::Result<String> {
    delete_abandoned(folder, now)?;
    let name = format!("{HIDDEN}{:016x}", rand::random::<u64>());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
    let file = openat(folder.directory(), &name, flags, mode)?;
    let mut file = File::from(file);
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    if written.is_err() {
        let _ = unlinkat(folder.directory(), &name, AtFlags::empty());
    }
    written.map(|()| name)
}

/// Delete the hidden files of hosts that ended during an upload. Blocks.
fn delete_abandoned(folder: &OpenFolder, now: Timestamp) -> io::Result<()> {
    let before = now.minus(ABANDONED_AFTER).micros() / 1_000_000;
    for entry in Dir::read_from(folder.directory())? {
        let entry = entry?;
        let name = entry.file_name();
        if !name.to_bytes().starts_with(HIDDEN.as_bytes()) {
            continue;
        }
        let found = statat(folder.directory(), name, AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(|found| i128::from(found.st_mtime) < i128::from(before)) {
            // Another host may have deleted it.
            let _ = unlinkat(folder.directory(), name, AtFlags::empty());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
