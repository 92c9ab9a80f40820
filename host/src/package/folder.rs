//! The plugins folder: what is in it now, against what is live.
//!
//! Whoever calls [`Folder::scan`] may have been woken by an event of the file system; the scan does not
//! care. It looks at the whole folder, waits for files to hold still, and compares with the live set:
//! an event that was lost, doubled or late costs nothing but time.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::task::spawn_blocking;

use super::listing::{self, Listing, Reading, Stamp, Unread};
use super::sidecar::{SIDECAR_BYTES_MAX, Sidecar, Surroundings};
use super::{Change, Manifest, Package, Packages, package_name_fault};
use crate::ids::ArtifactDigest;
use crate::strict::size_text;
use crate::wasm::{Artifact, Limits, Refusal, Sandbox};

/// A larger file is refused without being read.
pub const FILE_BYTES_MAX: u64 = 64 << 20;

/// How far apart two equal readings of a file must be for it to count as written to its end.
const SETTLE: Duration = Duration::from_millis(200);

/// How often a scan looks whether files hold still before it leaves the restless to the next one.
const SETTLE_ROUNDS: usize = 10;

/// Makes packages out of bytes. [`Sandbox`] in the product.
pub trait Loader: Send + Sync + 'static {
    /// Compiled code.
    type Artifact: Send + Sync + 'static;

    /// Check and compile. Called off the async threads, one file at a time.
    fn load(&self, bytes: &[u8]) -> Result<Self::Artifact, Refusal>;

    /// What the package says of itself, or none when it says nothing.
    fn describe(
        &self,
        artifact: &Arc<Self::Artifact>,
    ) -> impl Future<Output = Result<Option<Value>, Refusal>> + Send;
}

impl Loader for Sandbox {
    type Artifact = Artifact;

    fn load(&self, bytes: &[u8]) -> Result<Artifact, Refusal> {
        Sandbox::load(self, bytes)
    }

    async fn describe(&self, artifact: &Arc<Artifact>) -> Result<Option<Value>, Refusal> {
        Sandbox::describe(self, artifact).await
    }
}

/// What packages are read against.
#[derive(Clone)]
pub struct Rules {
    /// The host's limits, which sidecars change.
    pub limits: Limits,
    /// The greatest memory limit a sidecar may set.
    pub memory_bytes_most: u64,
    /// The host's environment, out of which variables are granted by name.
    pub env: fn(&str) -> Option<OsString>,
}

/// Why the folder cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("the plugins folder {} does not exist: create it, or name another with --plugins", .0.display())]
    Missing(PathBuf),
    #[error("the plugins folder {} is not a directory: name another with --plugins", .0.display())]
    NotADirectory(PathBuf),
    #[error("the plugins folder {} cannot be read: {source}", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
}

/// The folder and what is remembered of it between scans.
pub struct Folder<L: Loader = Sandbox> {
    path: PathBuf,
    loader: Arc<L>,
    rules: Rules,
    settle: Duration,
    /// The readings that were found equal twice.
    settled: Listing,
    files: BTreeMap<String, Known<L::Artifact>>,
    /// Sidecars without a package that were told of.
    strays: BTreeSet<String>,
    /// Whether the last scan could not read the folder.
    unreadable: bool,
}

/// What is remembered of one file name.
struct Known<A> {
    bytes: Option<(Stamp, ArtifactDigest)>,
    /// The last attempt to compile, which is not repeated for the same digest.
    loaded: Option<(ArtifactDigest, Loaded<A>)>,
    sidecar: Option<ReadSidecar>,
    /// The last rejection, so that it is told once.
    rejected: Option<Rejection>,
}

type Loaded<A> = Result<(Arc<A>, Arc<Manifest>), String>;

struct ReadSidecar {
    stamp: Option<Stamp>,
    hash: Option<String>,
    result: Result<Arc<Sidecar>, String>,
}

#[derive(PartialEq)]
struct Rejection {
    digest: Option<ArtifactDigest>,
    sidecar_hash: Option<String>,
    error: String,
}

/// Why a file gave no package in this scan.
enum Setback {
    /// It moved under our eyes; the next scan will see.
    Restless,
    /// A sentence that says why it cannot be used.
    Rejected(String),
}

impl From<Unread> for Setback {
    fn from(unread: Unread) -> Setback {
        match unread {
            Unread::Changed => Setback::Restless,
            Unread::Failed(why) => Setback::Rejected(why),
        }
    }
}

/// Compile `bytes` off the async threads and ask the package what it is; the error is one sentence.
pub async fn compile<L: Loader>(
    loader: &Arc<L>,
    name: &str,
    bytes: Vec<u8>,
) -> Result<(Arc<L::Artifact>, Arc<Manifest>), String> {
    let artifact = {
        let loader = Arc::clone(loader);
        off_thread(move || loader.load(&bytes))
            .await
            .map_err(|error| error.to_string())?
            .map_err(|refusal| refusal.to_string())?
    };
    let artifact = Arc::new(artifact);
    let description = loader.describe(&artifact).await;
    let manifest = match description.map_err(|refusal| refusal.to_string())? {
        Some(description) => {
            Manifest::from_json(name, &description).map_err(|error| error.to_string())?
        }
        None => Manifest::undescribed(name),
    };
    for warning in &manifest.warnings {
        tracing::warn!(package = name, "in the package's description: {warning}");
    }
    Ok((artifact, Arc::new(manifest)))
}

impl<L: Loader> Folder<L> {
    /// The folder at `path`, which must exist: one created here would hide a mistyped name.
    pub fn open(path: &Path, loader: Arc<L>, rules: Rules) -> Result<Folder<L>, FolderError> {
        match std::fs::metadata(path) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Err(FolderError::NotADirectory(path.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(FolderError::Missing(path.to_owned()));
            }
            Err(source) => {
                return Err(FolderError::Unreadable {
                    path: path.to_owned(),
                    source,
                });
            }
        }
        Ok(Folder {
            path: path.to_owned(),
            loader,
            rules,
            settle: SETTLE,
            settled: Listing::new(),
            files: BTreeMap::new(),
            strays: BTreeSet::new(),
            unreadable: false,
        })
    }

    /// Find what differs between the folder and `live`, in order of names.
    ///
    /// Publishes nothing. A change that is not applied is found again by the next scan, without being
    /// compiled again. A folder that cannot be read says nothing about its packages: they stay.
    pub async fn scan(&mut self, live: &Packages<L::Artifact>) -> Vec<Change<L::Artifact>> {
        let (listing, restless) = match self.settle().await {
            Ok(settled) => settled,
            Err(error) => {
                if !self.unreadable {
                    tracing::warn!(folder = %self.path.display(), %error, "the plugins folder cannot be read; its packages stay as they are");
                }
                self.unreadable = true;
                return Vec::new();
            }
        };
        if std::mem::take(&mut self.unreadable) {
            tracing::info!(folder = %self.path.display(), "the plugins folder can be read again");
        }
        let live = live.all();
        let present: BTreeSet<String> = stems(&listing, ".wasm").collect();
        let names = present.iter().chain(live.keys()).chain(self.files.keys());
        let names: BTreeSet<String> = names.cloned().collect();
        let mut changes = Vec::new();
        for name in names {
            let moving = [".wasm", ".toml"]
                .iter()
                .any(|end| restless.contains(&format!("{name}{end}")));
            if !moving {
                changes.extend(self.reconcile(&name, &listing, live.get(&name)).await);
            }
        }
        self.tell_strays(&listing, &present);
        changes
    }

    /// The package `name` from `bytes` that were kept of it, under the sidecar of the last scan.
    ///
    /// For a start with a broken file in the folder: what ran before goes on. None when the kept
    /// version cannot be used either; the rejection of the file has said enough.
    pub async fn bring_back(
        &mut self,
        name: &str,
        bytes: &[u8],
    ) -> Option<Arc<Package<L::Artifact>>> {
        let known = self.files.get(name)?;
        let (sidecar_hash, sidecar) = match &known.sidecar {
            Some(read) => (read.hash.clone(), read.result.clone().ok()?),
            None => (None, Arc::default()),
        };
        let digest = ArtifactDigest::of(bytes);
        if sidecar.pin.as_ref().is_some_and(|pin| pin != digest.as_str()) {
            return None;
        }
        let (artifact, manifest) = compile(&self.loader, name, bytes.to_vec()).await.ok()?;
        check_tasks_of(name, &sidecar, &manifest).ok()?;
        Some(Arc::new(Package {
            name: name.to_owned(),
            digest,
            artifact,
            manifest,
            limits: sidecar.limits.over(&self.rules.limits),
            sidecar,
            sidecar_hash,
            path: self.path.join(format!("{name}.wasm")),
        }))
    }

    /// List the folder until what is new in it holds still. Also says what did not.
    async fn settle(&mut self) -> io::Result<(Listing, BTreeSet<String>)> {
        let mut listing = self.list().await?;
        let mut restless = different(&self.settled, &listing);
        for _ in 0..SETTLE_ROUNDS {
            if restless.is_empty() {
                break;
            }
            tokio::time::sleep(self.settle).await;
            let next = self.list().await?;
            restless = different(&listing, &next);
            listing = next;
        }
        self.settled = listing.clone();
        for name in &restless {
            self.settled.remove(name);
        }
        Ok((listing, restless))
    }

    async fn list(&self) -> io::Result<Listing> {
        let path = self.path.clone();
        off_thread(move || listing::list(&path)).await?
    }

    /// Compare one name with its live version.
    async fn reconcile(
        &mut self,
        name: &str,
        listing: &Listing,
        live: Option<&Arc<Package<L::Artifact>>>,
    ) -> Option<Change<L::Artifact>> {
        let Some(reading) = listing.get(&format!("{name}.wasm")) else {
            self.files.remove(name);
            return live.map(|old| Change::Removed(Arc::clone(old)));
        };
        let sidecar_name = format!("{name}.toml");
        let sidecar = listing.get(&sidecar_name);
        // Taken out for the time being: if this future is dropped, the file is simply new again.
        let mut known = self.files.remove(name).unwrap_or_default();
        let result = self.resolve(name, reading, sidecar, &mut known, live).await;
        let change = match result {
            Ok(None) => {
                known.rejected = None;
                None
            }
            Ok(Some(new)) => {
                known.rejected = None;
                let new = Arc::new(new);
                Some(match live {
                    None => Change::Added(new),
                    Some(old) => Change::Updated {
                        old: Arc::clone(old),
                        new,
                    },
                })
            }
            Err(Setback::Restless) => {
                self.settled.remove(&format!("{name}.wasm"));
                self.settled.remove(&sidecar_name);
                None
            }
            Err(Setback::Rejected(error)) => {
                let rejection = Rejection {
                    digest: known.bytes.as_ref().map(|(_, digest)| digest.clone()),
                    sidecar_hash: known.sidecar.as_ref().and_then(|read| read.hash.clone()),
                    error: error.clone(),
                };
                let news = known.rejected.as_ref() != Some(&rejection);
                known.rejected = Some(rejection);
                news.then(|| Change::Rejected {
                    name: name.to_owned(),
                    path: self.path.join(format!("{name}.wasm")),
                    error,
                    kept: live.map(|package| package.digest.clone()),
                })
            }
        };
        self.files.insert(name.to_owned(), known);
        change
    }

    /// The package that the files of `name` make now; none when that is the live one.
    async fn resolve(
        &self,
        name: &str,
        reading: &Reading,
        sidecar: Option<&Reading>,
        known: &mut Known<L::Artifact>,
        live: Option<&Arc<Package<L::Artifact>>>,
    ) -> Result<Option<Package<L::Artifact>>, Setback> {
        if let Some(fault) = package_name_fault(name) {
            return Err(Setback::Rejected(fault));
        }
        let path = self.path.join(format!("{name}.wasm"));
        let stamp = match reading {
            Reading::File(stamp) => *stamp,
            Reading::Unusable(why) => {
                known.bytes = None;
                return Err(Setback::Rejected(why.clone()));
            }
        };
        if stamp.size_bytes > FILE_BYTES_MAX {
            known.bytes = None;
            return Err(Setback::Rejected(format!(
                "it has {}, and a package may have {}",
                size_text(stamp.size_bytes),
                size_text(FILE_BYTES_MAX),
            )));
        }

        // The digest, read again only when the file may have changed.
        let mut bytes = None;
        let digest = match &known.bytes {
            Some((seen, digest)) if *seen == stamp => digest.clone(),
            _ => {
                // Touching a file is how an operator asks for another try.
                known.loaded.take_if(|(_, loaded)| loaded.is_err());
                known.bytes = None;
                let (read, digest) = self.read(&path, stamp).await?;
                known.bytes = Some((stamp, digest.clone()));
                bytes = Some(read);
                digest
            }
        };

        self.read_sidecar(name, sidecar, known).await?;
        let (sidecar_hash, sidecar) = match &known.sidecar {
            Some(read) => (read.hash.clone(), read.result.clone()),
            None => (None, Ok(Arc::default())),
        };
        if live.is_some_and(|live| live.digest == digest && live.sidecar_hash == sidecar_hash) {
            return Ok(None);
        }
        let sidecar = sidecar.map_err(Setback::Rejected)?;
        if let Some(pin) = sidecar.pin.as_ref().filter(|pin| *pin != digest.as_str()) {
            return Err(Setback::Rejected(format!(
                "its SHA-256 is {digest}, and {name}.toml pins {pin}: put the pinned file back, or change `sha256`"
            )));
        }

        let (artifact, manifest) = match (live, &known.loaded) {
            (Some(live), _) if live.digest == digest => {
                (Arc::clone(&live.artifact), Arc::clone(&live.manifest))
            }
            (_, Some((of, loaded))) if *of == digest => {
                loaded.clone().map_err(Setback::Rejected)?
            }
            _ => {
                let bytes = match bytes {
                    Some(bytes) => bytes,
                    None => match self.read(&path, stamp).await? {
                        (bytes, now) if now == digest => bytes,
                        _ => return Err(Setback::Restless),
                    },
                };
                let loaded = compile(&self.loader, name, bytes).await;
                known.loaded = Some((digest.clone(), loaded.clone()));
                loaded.map_err(Setback::Rejected)?
            }
        };
        check_tasks_of(name, &sidecar, &manifest).map_err(Setback::Rejected)?;
        Ok(Some(Package {
            name: name.to_owned(),
            digest,
            artifact,
            manifest,
            limits: sidecar.limits.over(&self.rules.limits),
            sidecar,
            sidecar_hash,
            path,
        }))
    }

    async fn read(&self, path: &Path, stamp: Stamp) -> Result<(Vec<u8>, ArtifactDigest), Setback> {
        let path = path.to_owned();
        let work = move || {
            let bytes = listing::read(&path, stamp)?;
            let digest = ArtifactDigest::of(&bytes);
            Ok::<_, Unread>((bytes, digest))
        };
        match off_thread(work).await {
            Ok(read) => Ok(read?),
            Err(error) => Err(Setback::Rejected(error.to_string())),
        }
    }

    /// Bring `known.sidecar` up to date.
    ///
    /// One that was refused is read again each time: the directory it names may exist by now.
    async fn read_sidecar(
        &self,
        name: &str,
        reading: Option<&Reading>,
        known: &mut Known<L::Artifact>,
    ) -> Result<(), Setback> {
        let stamp = match reading {
            None => {
                known.sidecar = None;
                return Ok(());
            }
            Some(Reading::File(stamp)) => *stamp,
            Some(Reading::Unusable(why)) => {
                known.sidecar = Some(ReadSidecar::refused(format!("{name}.toml: {why}")));
                return Ok(());
            }
        };
        let fresh = known
            .sidecar
            .as_ref()
            .is_some_and(|read| read.stamp == Some(stamp) && read.result.is_ok());
        if fresh {
            return Ok(());
        }
        if stamp.size_bytes > SIDECAR_BYTES_MAX {
            let error = format!("{name}.toml has more than {}", size_text(SIDECAR_BYTES_MAX));
            known.sidecar = Some(ReadSidecar::refused(error));
            return Ok(());
        }
        let path = self.path.join(format!("{name}.toml"));
        let around = Surroundings {
            memory_bytes_most: self.rules.memory_bytes_most,
            env: self.rules.env,
        };
        let work = move || {
            let bytes = listing::read(&path, stamp)?;
            let result = match std::str::from_utf8(&bytes) {
                Ok(text) => Sidecar::parse(&path, text, around)
                    .map(Arc::new)
                    .map_err(|error| error.to_string()),
                Err(_) => Err(format!("{}: this is not UTF-8 text", path.display())),
            };
            Ok::<_, Unread>(ReadSidecar {
                stamp: Some(stamp),
                hash: Some(ArtifactDigest::of(&bytes).as_str().to_owned()),
                result,
            })
        };
        match off_thread(work).await {
            Ok(Ok(read)) => known.sidecar = Some(read),
            Ok(Err(Unread::Changed)) => return Err(Setback::Restless),
            Ok(Err(Unread::Failed(why))) => {
                known.sidecar = Some(ReadSidecar::refused(format!("{name}.toml: {why}")));
            }
            Err(error) => return Err(Setback::Rejected(error.to_string())),
        }
        Ok(())
    }

    /// Tell once of each sidecar that has no package: most likely one of the two is mistyped.
    fn tell_strays(&mut self, listing: &Listing, packages: &BTreeSet<String>) {
        let strays: BTreeSet<String> = stems(listing, ".toml")
            .filter(|name| !packages.contains(name))
            .collect();
        for name in strays.difference(&self.strays) {
            tracing::warn!("{name}.toml has no package {name}.wasm beside it and is not used");
        }
        self.strays = strays;
    }
}

impl<A> Default for Known<A> {
    fn default() -> Known<A> {
        Known {
            bytes: None,
            loaded: None,
            sidecar: None,
            rejected: None,
        }
    }
}

impl ReadSidecar {
    /// A sidecar that gave no text to hash: the package is refused rather than run without it.
    fn refused(error: String) -> ReadSidecar {
        ReadSidecar {
            stamp: None,
            hash: Some(format!("unread: {error}")),
            result: Err(error),
        }
    }
}

/// A sidecar may only name tasks that the package has.
fn check_tasks_of(name: &str, sidecar: &Sidecar, manifest: &Manifest) -> Result<(), String> {
    for spec in sidecar.schedules.iter().flatten() {
        let Some(task) = spec
            .task
            .as_deref()
            .filter(|id| manifest.task(id).is_none())
        else {
            continue;
        };
        let hint = match manifest.nearest_task(task) {
            Some(near) => format!("did you mean `{near}`?"),
            None => {
                let ids: Vec<&str> = manifest.tasks.iter().map(|task| task.id.as_str()).collect();
                format!("it has {}", ids.join(", "))
            }
        };
        return Err(format!(
            "{name}.toml: a schedule names the task `{task}`, which this package does not have: {hint}"
        ));
    }
    Ok(())
}

/// The names of files that end in `end`, without it.
fn stems<'l>(listing: &'l Listing, end: &'l str) -> impl Iterator<Item = String> + 'l {
    listing
        .keys()
        .filter_map(move |name| name.strip_suffix(end).map(str::to_owned))
}

/// The names that are in one listing only, or in both and not the same.
fn different(a: &Listing, b: &Listing) -> BTreeSet<String> {
    a.keys()
        .chain(b.keys())
        .filter(|name| a.get(*name) != b.get(*name))
        .cloned()
        .collect()
}

/// Do blocking work on a thread for it. A panic there becomes an error here.
async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    spawn_blocking(work).await.map_err(|error| {
        io::Error::other(format!(
            "the host failed while it worked on the file: {error}"
        ))
    })
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
