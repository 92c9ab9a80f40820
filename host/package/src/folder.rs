//! The plugins folder: what is in it now, against what is live.
//!
//! Whoever calls [`PluginsFolder::scan`] may have been woken by an event of the file system; the scan does not
//! care. It looks at the whole folder, waits for files to hold still, and compares with the live set:
//! an event that was lost, doubled or late costs nothing but time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub(super) use self::resolve::off_thread;
use self::resolve::{KnownFiles, Rejection, Unresolved};
use super::files::{self, FileState, Listing};
use super::{Change, HostRules, Loader, Package, Packages};
use campanile_model::text::printable_line;
use campanile_sandbox::{Artifact, Sandbox};

mod resolve;

/// How far apart two equal readings of a file must be for it to count as written to its end.
pub const SETTLE: Duration = Duration::from_millis(200);

/// How often a scan looks whether files hold still before it leaves the unstable to the next one.
const SETTLE_ROUNDS: usize = 10;

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
pub struct PluginsFolder<L: Loader = Sandbox> {
    path: PathBuf,
    loader: Arc<L>,
    rules: HostRules,
    settle: Duration,
    /// The readings that were found equal twice.
    settled: Listing,
    files: BTreeMap<String, KnownFiles<L::Artifact>>,
    /// Sidecars without a package that were told of.
    strays: BTreeSet<String>,
    /// Whether the last scan could not read the folder.
    unreadable: bool,
}

/// One look through the folder: what is still to be compared.
pub struct Scan<A = Artifact> {
    listing: Listing,
    /// In order of names.
    names: VecDeque<String>,
    /// Those that must be compiled, which may take long; after all others.
    uncompiled: VecDeque<String>,
    found: VecDeque<Change<A>>,
}

/// What was seen of the two files of one name.
#[derive(Clone, Copy)]
struct Files<'l> {
    wasm: &'l FileState,
    sidecar: Option<&'l FileState>,
}

impl<L: Loader> PluginsFolder<L> {
    /// The folder at `path`, which must exist: one created here would hide a mistyped name.
    pub fn open(
        path: &Path,
        loader: Arc<L>,
        rules: HostRules,
    ) -> Result<PluginsFolder<L>, FolderError> {
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
        Ok(PluginsFolder {
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

    /// Look at the folder, to find with [`PluginsFolder::next_change`] what differs between it and `live`.
    ///
    /// None when the folder cannot be read: that says nothing about its packages, they stay.
    pub async fn scan(&mut self, live: &Packages<L::Artifact>) -> Option<Scan<L::Artifact>> {
        let (listing, unstable) = match self.settle().await {
            Ok(settled) => settled,
            Err(error) => {
                if !self.unreadable {
                    tracing::warn!(folder = %self.path.display(), %error, "the plugins folder cannot be read; its packages stay as they are");
                }
                self.unreadable = true;
                return None;
            }
        };
        if std::mem::take(&mut self.unreadable) {
            tracing::info!(folder = %self.path.display(), "the plugins folder can be read again");
        }
        let live = live.all();
        let present: BTreeSet<String> = stems(&listing, ".wasm").collect();
        let names = present.iter().chain(live.keys()).chain(self.files.keys());
        let names: BTreeSet<&String> = names.collect();
        let moves = |name: &str| {
            let ends = [".wasm", ".toml"];
            ends.iter()
                .any(|end| unstable.contains(&format!("{name}{end}")))
        };
        let names = names.into_iter().filter(|name| !moves(name));
        let names = names.cloned().collect();
        self.warn_about_orphan_sidecars(&listing, &present);
        Some(Scan {
            listing,
            names,
            uncompiled: VecDeque::new(),
            found: VecDeque::new(),
        })
    }

    /// The next difference between the folder and `live`; none when there are no more.
    ///
    /// What needs no compiling comes first: the settings of one package and the end of another do
    /// not wait for a third. Publishes nothing: an addition, an update and a removal that are not
    /// applied are found again by the next scan, without compiling again; a rejection is told once,
    /// unless it is given back with [`PluginsFolder::report_again`].
    pub async fn next_change(
        &mut self,
        scan: &mut Scan<L::Artifact>,
        live: &Packages<L::Artifact>,
    ) -> Option<Change<L::Artifact>> {
        loop {
            if let Some(change) = scan.found.pop_front() {
                return Some(change);
            }
            let (name, may_compile) = match scan.names.pop_front() {
                Some(name) => (name, false),
                None => (scan.uncompiled.pop_front()?, true),
            };
            self.reconcile(name, scan, live, may_compile).await;
        }
    }

    /// Tell of the rejection of `name` again: what was told could not be recorded.
    pub fn report_again(&mut self, name: &str) {
        if let Some(known) = self.files.get_mut(name) {
            known.rejected = None;
        }
    }

    /// The same of all files: what was told is not on the record any more.
    pub fn report_all_again(&mut self) {
        for known in self.files.values_mut() {
            known.rejected = None;
        }
    }

    /// Tell of `name`, of which something is on the record, when it has no file.
    pub fn expect_file(&mut self, name: String) {
        self.files.entry(name).or_default();
    }

    /// List the folder until what is new in it holds still. Also says what did not.
    async fn settle(&mut self) -> io::Result<(Listing, BTreeSet<String>)> {
        let mut listing = self.list().await?;
        let mut unstable = different(&self.settled, &listing);
        for _ in 0..SETTLE_ROUNDS {
            if unstable.is_empty() {
                break;
            }
            tokio::time::sleep(self.settle).await;
            let next = self.list().await?;
            unstable = different(&listing, &next);
            listing = next;
        }
        self.settled = listing.clone();
        for name in &unstable {
            self.settled.remove(name);
        }
        Ok((listing, unstable))
    }

    async fn list(&self) -> io::Result<Listing> {
        let path = self.path.clone();
        off_thread(move || files::list(&path)).await?
    }

    /// Compare one name with its live version.
    async fn reconcile(
        &mut self,
        name: String,
        scan: &mut Scan<L::Artifact>,
        live: &Packages<L::Artifact>,
        may_compile: bool,
    ) {
        let live = live.get(&name);
        let [wasm_name, sidecar_name] = [".wasm", ".toml"].map(|end| format!("{name}{end}"));
        let Some(wasm) = scan.listing.get(&wasm_name) else {
            let known = self.files.remove(&name);
            scan.found.extend(match live {
                Some(old) => Some(Change::Removed(old)),
                None => known.map(|_| Change::Gone(name)),
            });
            return;
        };
        let sidecar = scan.listing.get(&sidecar_name);
        let files = Files { wasm, sidecar };
        // Taken out for the time being: if this future is dropped, the file is simply new again.
        let mut known = self.files.remove(&name).unwrap_or_default();
        let resolved = self.resolve(&name, files, &mut known, live.as_ref(), may_compile);
        match resolved.await {
            Ok(Some(new)) => {
                known.rejected = None;
                known.offered = Some(new.digest.clone());
                scan.found.push_back(change_to(live, new));
            }
            Ok(None) => {
                let offered = known.offered.take();
                let other = offered.is_some_and(|digest| known.holds(&digest) == Some(false));
                if known.rejected.take().is_some() || other {
                    scan.found.extend(live.map(Change::Restored));
                }
            }
            Err(Unresolved::NotCompiled) => scan.uncompiled.push_back(name.clone()),
            Err(Unresolved::Unstable) => {
                self.settled.remove(&wasm_name);
                self.settled.remove(&sidecar_name);
            }
            Err(Unresolved::Rejected(error)) => {
                let kept = live.as_ref().map(|live| live.digest.clone());
                // Before the rejection, which is what stays on the record of the package.
                if let Some(old) = live
                    && let Some(new) = self.with_changed_sidecar(&old, &known)
                {
                    scan.found.push_back(change_to(Some(old), new));
                }
                let rejection = Rejection {
                    digest: known.bytes.as_ref().map(|(_, digest)| digest.clone()),
                    sidecar_hash: known.sidecar.as_ref().and_then(|read| read.hash.clone()),
                    error: error.clone(),
                };
                if known.rejected.as_ref() != Some(&rejection) {
                    scan.found.push_back(Change::Rejected {
                        name: name.clone(),
                        path: self.path.join(wasm_name),
                        error,
                        kept,
                    });
                }
                known.rejected = Some(rejection);
            }
        }
        self.files.insert(name, known);
    }

    /// Tell once of each sidecar that has no package: most likely one of the two is mistyped.
    fn warn_about_orphan_sidecars(&mut self, listing: &Listing, packages: &BTreeSet<String>) {
        // The sources of packages may lie beside them: their Cargo.toml is no sidecar.
        let strays: BTreeSet<String> = stems(listing, ".toml")
            .filter(|name| name != "Cargo" && !packages.contains(name))
            .collect();
        for name in strays.difference(&self.strays) {
            let name = printable_line(name);
            tracing::warn!("{name}.toml has no package {name}.wasm beside it and is not used");
        }
        self.strays = strays;
    }
}

fn change_to<A>(live: Option<Arc<Package<A>>>, new: Package<A>) -> Change<A> {
    let new = Arc::new(new);
    match live {
        None => Change::Added(new),
        Some(old) => Change::Updated { old, new },
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
