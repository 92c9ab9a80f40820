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

pub(super) use self::resolve::off_thread;
use self::resolve::{Known, Rejection, Setback};
use super::listing::{self, Listing};
use super::{Change, Loader, Package, Packages};
use crate::wasm::{Limits, Sandbox};

mod resolve;

/// A larger file is refused without being read.
pub const FILE_BYTES_MAX: u64 = 64 << 20;

/// How far apart two equal readings of a file must be for it to count as written to its end.
const SETTLE: Duration = Duration::from_millis(200);

/// How often a scan looks whether files hold still before it leaves the restless to the next one.
const SETTLE_ROUNDS: usize = 10;

/// What packages are read against.
#[derive(Clone)]
pub struct Rules {
    /// The host's limits, which sidecars change.
    pub limits: Limits,
    /// The greatest memory limit a sidecar may set.
    pub memory_bytes_most: u64,
    /// The host's environment, out of which variables are granted by name.
    pub env: fn(&str) -> Option<OsString>,
    /// The host's own files and directories, which no grant may make writable.
    pub own_paths: Vec<PathBuf>,
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

    /// Tell once of each sidecar that has no package: most likely one of the two is mistyped.
    fn tell_strays(&mut self, listing: &Listing, packages: &BTreeSet<String>) {
        // The sources of packages may lie beside them: their Cargo.toml is no sidecar.
        let strays: BTreeSet<String> = stems(listing, ".toml")
            .filter(|name| name != "Cargo" && !packages.contains(name))
            .collect();
        for name in strays.difference(&self.strays) {
            tracing::warn!("{name}.toml has no package {name}.wasm beside it and is not used");
        }
        self.strays = strays;
    }
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

#[cfg(test)]
mod tests;
