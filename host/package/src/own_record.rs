//! What a host keeps on its own disk about its plugins folder: the files that were in it, the last good sidecars, and the
//! versions that operators decided against.
//!
//! The database is shared, and whoever writes it must gain no grant. So a host takes neither a sidecar nor trust in bytes
//! from there: it asks this record, which only the user of the process can write. One file for each package, in a folder
//! for each plugins folder:
//!
//! ```text
//! campanile.db.state/  d1f0…/  backup.json  @team+report.json
//! ```
//!
//! Hosts that share a plugins folder share the record of it. Without a private folder the record is in memory, and a host
//! that starts again knows only the files that it then finds.

mod decisions;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use self::decisions::DecidedAgainst;
pub use self::decisions::{CountedDecision, FoundDecision};
use crate::files::{PACKAGES_MAX, off_thread};
use crate::grant_record::{self, GrantRecord, RecordedGrants};
use crate::host_rules::HostRules;
use crate::sidecar::{SIDECAR_BYTES_MAX, Sidecar};
use campanile_model::approval_key::ApprovalKey;
use campanile_model::ids::{ArtifactDigest, sha256};
use campanile_sandbox::own_files::{NotPrivate, private_directory};

/// The most versions that are kept for each package. The oldest are dropped first.
const VERSIONS_MAX: usize = 256;
/// The most packages, with those whose files are gone.
const NAMES_MAX: usize = 2 * PACKAGES_MAX;
/// The prefix of a file that is being written, or that a dead host left.
const UNFINISHED: &str = ".unfinished-";
/// The largest file that is read. JSON may need six bytes for one of the sidecar's.
const FILE_BYTES_MAX: u64 = 8 * SIDECAR_BYTES_MAX;

/// A host's own record of its plugins folder.
pub struct OwnRecord {
    /// The private folder with the files; none for a record in memory.
    folder: Option<PathBuf>,
    // Held only while memory is read or changed.
    packages: Mutex<BTreeMap<String, Known>>,
    /// The key that seals decisions about versions.
    key: ApprovalKey,
    /// The approvals whose seals were verified, by package.
    approved: Mutex<BTreeMap<String, BTreeSet<ArtifactDigest>>>,
}

/// What is known of one package.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Known {
    package: String,
    /// The digests of the files that were in the folder, the newest last.
    versions: Vec<ArtifactDigest>,
    /// The last sidecar that read well; none when no version was used since the file left the folder.
    sidecar: Option<RecordedSidecar>,
    /// The versions that an operator decided against, the newest last.
    #[serde(default)]
    against: Vec<DecidedAgainst>,
}

/// The sidecar with which a package was last used, as the host's own record has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedSidecar {
    /// `None` when the package had no sidecar.
    pub text: Option<String>,
    /// The text of its grants; see [`GrantRecord::text`].
    pub grants: String,
}

impl RecordedSidecar {
    /// Read the recorded sidecar again as if it were the file at `path`. Blocks.
    ///
    /// # Errors
    /// A sentence. The sidecar must grant what it granted before: a directory may lead elsewhere by now.
    pub(super) fn read(&self, path: &Path, rules: &HostRules) -> Result<Arc<Sidecar>, String> {
        let parse = |text: &String| Sidecar::parse(path, text, rules);
        let sidecar = self.text.as_ref().map(parse).transpose();
        let sidecar = sidecar.map_err(|error| error.to_string())?;
        let sidecar = sidecar.unwrap_or_default();
        if GrantRecord::of(&sidecar.grants).text != self.grants {
            return Err("its grants would differ from those that it had".to_owned());
        }
        Ok(Arc::new(sidecar))
    }
}

/// A record in memory, with a key of its own.
impl Default for OwnRecord {
    fn default() -> OwnRecord {
        OwnRecord {
            folder: None,
            packages: Mutex::default(),
            key: ApprovalKey::generate(),
            approved: Mutex::default(),
        }
    }
}

impl OwnRecord {
    /// Open the record of the plugins folder at `plugins`, below `state`. Blocks.
    ///
    /// Where others could write `state`, or where it can't be created, the record is in memory and a warning is logged.
    pub fn open(state: &Path, plugins: &Path) -> OwnRecord {
        match OwnRecord::open_private(state, plugins) {
            Ok(record) => record,
            Err(why) => {
                tracing::warn!(
                    "{} is not used, so this host forgets at its end which files were in its plugins folder ({why}); name a folder that only this user can write as `state_dir` under `[host]`",
                    state.display()
                );
                OwnRecord::default()
            }
        }
    }

    fn open_private(state: &Path, plugins: &Path) -> Result<OwnRecord, NotPrivate> {
        let state = private_directory(state)?;
        let plugins = plugins.canonicalize()?;
        let folder = private_directory(&state.join(sha256(plugins.as_os_str().as_bytes())))?;
        let mut packages = BTreeMap::new();
        for entry in fs::read_dir(&folder)?.take(NAMES_MAX) {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
                continue;
            }
            let path = entry.path();
            match read(&path) {
                Ok(known) if path == file_of(&folder, &known.package) => {
                    packages.insert(known.package.clone(), known);
                }
                // Nothing is trusted because of it.
                Ok(_) => tracing::warn!(file = %path.display(), "not a file of this host's record"),
                Err(error) => tracing::warn!(file = %path.display(), %error, "cannot be read"),
            }
        }
        Ok(OwnRecord {
            folder: Some(folder),
            packages: Mutex::new(packages),
            ..OwnRecord::default()
        })
    }

    /// Whether a file with these bytes was the package `name` in the folder.
    pub fn has_seen(&self, name: &str, digest: &ArtifactDigest) -> bool {
        let known = self.lock();
        known
            .get(name)
            .is_some_and(|it| it.versions.contains(digest))
    }

    /// Returns the last sidecar of `name` that read well.
    pub fn sidecar(&self, name: &str) -> Option<RecordedSidecar> {
        self.lock().get(name)?.sidecar.clone()
    }

    /// Note that the folder has a file with these bytes as the package `name`.
    pub(crate) async fn note_file(&self, name: &str, digest: &ArtifactDigest) {
        if !self.has_seen(name, digest) {
            self.update(name, |known| known.versions.push(digest.clone()))
                .await;
        }
    }

    /// Keep a sidecar that a version is used with, in place of the one before.
    pub async fn keep_sidecar(&self, name: &str, sidecar: &Sidecar) {
        let kept = Some(RecordedSidecar {
            text: sidecar.text.clone(),
            grants: GrantRecord::of(&sidecar.grants).text,
        });
        self.update(name, |known| known.sidecar = kept).await;
    }

    /// Note that `later`, which can't be used with the file beside it, read well. A sidecar that grants more doesn't come
    /// back.
    pub(crate) async fn note_unused(&self, name: &str, later: &Sidecar) {
        let Some(kept) = self.sidecar(name) else {
            return;
        };
        let later = RecordedGrants::from(&*later.grants);
        if !grant_record::read(&kept.grants).is_within(&later) {
            self.forget_sidecar(name).await;
        }
    }

    /// Forget the sidecar of `name`, whose file is gone or pins another version.
    pub async fn forget_sidecar(&self, name: &str) {
        if self.sidecar(name).is_some() {
            self.update(name, |known| known.sidecar = None).await;
        }
    }

    async fn update(&self, name: &str, change: impl FnOnce(&mut Known)) {
        let (known, dropped) = {
            let mut packages = self.lock();
            let is_full = !packages.contains_key(name) && packages.len() >= NAMES_MAX;
            // The folder has fewer packages: one of these has no file.
            let is_gone = |known: &Known| known.sidecar.is_none() && known.against.is_empty();
            let dropped = if is_full {
                let mut gone = packages.iter().filter(|(_, known)| is_gone(known));
                gone.next().map(|(name, _)| name.clone())
            } else {
                None
            };
            if let Some(dropped) = &dropped {
                packages.remove(dropped);
            }
            let known = packages.entry(name.to_owned()).or_default();
            let before = known.clone();
            name.clone_into(&mut known.package);
            change(known);
            let beyond = known.versions.len().saturating_sub(VERSIONS_MAX);
            known.versions.drain(..beyond);
            // Versions with files seen here come last: a writer of the database can make up any number of others.
            let mut beyond = known.against.len().saturating_sub(VERSIONS_MAX);
            known.against.retain(|it| {
                let is_dropped = beyond > 0 && !known.versions.contains(&it.digest);
                beyond -= usize::from(is_dropped);
                !is_dropped
            });
            known.against.drain(..beyond);
            if *known == before {
                return;
            }
            (known.clone(), dropped)
        };
        let Some(folder) = self.folder.clone() else {
            return;
        };
        let written = off_thread(move || {
            if let Some(dropped) = dropped {
                fs::remove_file(file_of(&folder, &dropped))?;
            }
            write(&folder, &known)
        });
        let written = written
            .await
            .unwrap_or_else(|why| Err(io::Error::other(why)));
        if let Err(error) = written {
            // The memory has it. After a restart, less is trusted.
            tracing::warn!(package = name, %error, "this host's own record cannot be written");
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        // Each change is whole when a thread panics.
        self.packages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the file of a package. No name of a package has a `+`.
fn file_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{}.json", name.replace('/', "+")))
}

fn read(path: &Path) -> io::Result<Known> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

fn write(folder: &Path, known: &Known) -> io::Result<()> {
    let path = file_of(folder, &known.package);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = folder.join(format!("{UNFINISHED}{name}.{}", std::process::id()));
    // A sidecar may hold values of variables.
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&unfinished)?;
    file.write_all(&serde_json::to_vec(known)?)?;
    file.sync_all()?;
    fs::rename(&unfinished, &path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn digest(text: &str) -> ArtifactDigest {
        ArtifactDigest::of(text.as_bytes())
    }

    fn sidecar(text: &str) -> Sidecar {
        Sidecar {
            text: Some(text.to_owned()),
            ..Sidecar::default()
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[tokio::test]
    async fn a_record_is_private_and_belongs_to_one_folder() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for folder in ["plugins", "more"] {
            fs::create_dir(at(folder)).unwrap();
        }
        let open = |plugins: &str| OwnRecord::open(&at("state"), &at(plugins));
        let record = open("plugins");
        record.note_file("@team/a", &digest("1")).await;
        record.keep_sidecar("@team/a", &sidecar("[limits]")).await;
        symlink(at("plugins"), at("link")).unwrap();
        for again in ["plugins", "link"] {
            let record = open(again);
            assert!(record.has_seen("@team/a", &digest("1")));
            assert!(!record.has_seen("@team/a", &digest("2")));
            assert!(!record.has_seen("a", &digest("1")));
            let text = record.sidecar("@team/a").unwrap().text;
            assert_eq!(text.as_deref(), Some("[limits]"));
        }
        assert!(!open("more").has_seen("@team/a", &digest("1")));
        let folder = open("plugins").folder.unwrap();
        let file = file_of(&folder, "@team/a");
        assert_eq!(
            (mode(&at("state")), mode(&folder), mode(&file)),
            (0o700, 0o700, 0o600)
        );
        // A file under the name of another package, a link and a damaged file say nothing.
        fs::copy(&file, file_of(&folder, "b")).unwrap();
        symlink(&file, file_of(&folder, "c")).unwrap();
        fs::write(file_of(&folder, "d"), "{").unwrap();
        let record = open("plugins");
        assert_eq!(record.lock().len(), 1);
        record.forget_sidecar("@team/a").await;
        assert_eq!(open("plugins").sidecar("@team/a"), None);
        assert!(open("plugins").has_seen("@team/a", &digest("1")));
    }

    #[tokio::test]
    async fn a_folder_that_others_can_write_is_not_used() {
        let root = tempfile::tempdir().unwrap();
        let state = root.path().join("state");
        fs::create_dir(&state).unwrap();
        fs::set_permissions(&state, fs::Permissions::from_mode(0o777)).unwrap();
        let record = OwnRecord::open(&state, root.path());
        record.note_file("a", &digest("1")).await;
        assert!(record.has_seen("a", &digest("1")));
        assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn only_the_newest_versions_are_kept() {
        let record = OwnRecord::default();
        for number in 0..=VERSIONS_MAX {
            record.note_file("a", &digest(&number.to_string())).await;
        }
        assert!(!record.has_seen("a", &digest("0")));
        assert!(record.has_seen("a", &digest("1")));
        for number in 0..NAMES_MAX {
            record.note_file(&format!("b{number}"), &digest("1")).await;
        }
        assert_eq!(record.lock().len(), NAMES_MAX);
    }
}
