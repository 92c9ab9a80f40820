//! The plugins folder: its differences from the active packages.
//!
//! A scan lists the whole folder, waits until files do not change, and compares them with the active packages. It does
//! not use the file system's events, so a lost, doubled or late event only delays a change.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::loads::{Loads, Waiting};
use self::resolve::{KnownFiles, PackageFiles, Rejection, Unresolved};
use super::assemble::usable;
use super::files::{self, Listing, PACKAGES_MAX, off_thread};
use super::host_rules::HostRules;
use super::loader::{Attempt, LoadError, Loader, PackageLoader};
use super::open_folder::OpenFolder;
use super::package::{Change, Package, Packages};
use campanile_model::text::printable_line;
use campanile_sandbox::Artifact;

mod loads;
mod resolve;

/// How long a file must stay unchanged before it is read.
pub const SETTLE: Duration = Duration::from_millis(200);

/// How long files may keep changing before they're refused until they stop.
const CHANGING_MAX: Duration = Duration::from_secs(30);

/// How often a scan waits for unstable files before it leaves them to the next scan.
const SETTLE_ROUNDS: usize = 10;

/// The plugins folder, and what is remembered of it between scans.
pub struct PluginsFolder<L: Loader = PackageLoader> {
    path: PathBuf,
    open: Arc<OpenFolder>,
    loader: Arc<L>,
    rules: HostRules,
    settle: Duration,
    changing_max: Duration,
    packages_max: usize,
    /// The name and the error of the one rejection that stands for all files beyond that number.
    beyond: Option<(String, String)>,
    /// The files that stayed unchanged.
    settled: Listing,
    files: BTreeMap<String, KnownFiles<L::Artifact>>,
    /// The loads that run now, also between scans.
    loads: Loads<L::Artifact>,
    /// The names whose files wait to be loaded.
    waiting: BTreeSet<String>,
    /// The sidecars without a package that the log has a warning of.
    orphans: BTreeSet<String>,
    /// The files that other users can write and that the log has a warning of.
    foreign: BTreeSet<String>,
    /// Why the last scan could not use the folder.
    unusable: Option<String>,
}

/// One scan of the folder: the names that are still to be compared.
pub struct Scan<A = Artifact> {
    listing: Listing,
    /// In alphabetical order.
    names: VecDeque<String>,
    /// Names of packages to load first, which may take long.
    to_load: Vec<Waiting>,
    found: VecDeque<Change<A>>,
}

impl<L: Loader> PluginsFolder<L> {
    /// Open the folder at `path`. It must exist: creating it would hide a mistyped path.
    ///
    /// # Errors
    /// A sentence that says why the folder cannot be used.
    pub fn open(path: &Path, loader: Arc<L>, rules: HostRules) -> Result<PluginsFolder<L>, String> {
        let open = OpenFolder::open(path, rules.foreign_writers);
        let open = open.map_err(|what| format!("the plugins folder {} {what}", path.display()))?;
        Ok(PluginsFolder {
            path: path.to_owned(),
            open: Arc::new(open),
            loader,
            rules,
            settle: SETTLE,
            changing_max: CHANGING_MAX,
            packages_max: PACKAGES_MAX,
            beyond: None,
            settled: Listing::new(),
            files: BTreeMap::new(),
            loads: Loads::new(),
            waiting: BTreeSet::new(),
            orphans: BTreeSet::new(),
            foreign: BTreeSet::new(),
            unusable: None,
        })
    }

    /// List the folder. [`PluginsFolder::next_change`] then returns the differences from the `active` packages.
    ///
    /// Returns `None` when the folder cannot be read, or when another one is at its path that must not be followed. Its
    /// packages then stay active.
    pub async fn scan(&mut self, active: &Packages<L::Artifact>) -> Option<Scan<L::Artifact>> {
        let (listing, unstable) = match self.settle().await {
            Ok(settled) => settled,
            Err(error) => {
                if self.unusable.as_ref() != Some(&error) {
                    tracing::warn!(
                        "the plugins folder {} {error}; its packages stay as they are",
                        self.path.display()
                    );
                }
                self.unusable = Some(error);
                return None;
            }
        };
        if self.unusable.take().is_some() {
            tracing::info!(folder = %self.path.display(), "the plugins folder can be read again");
        }
        let active = active.all();
        let present: BTreeSet<String> = stems(&listing, ".wasm").collect();
        let names = present.iter().chain(active.keys()).chain(self.files.keys());
        let names: BTreeSet<&String> = names.collect();
        let is_unstable = |name: &str| {
            let mut ends = files::ENDS.iter();
            ends.any(|end| unstable.contains(&format!("{name}{end}")))
        };
        let beyond = self.beyond(&present, &active);
        let names = names.into_iter().filter(|name| !beyond.contains(name));
        let (changing, names): (BTreeSet<String>, BTreeSet<String>) =
            names.cloned().partition(|name| is_unstable(name));
        let mut found = self.reject_beyond(&beyond);
        for name in &changing {
            let known = self.files.entry(name.clone()).or_default();
            let active = active.get(name).map(|active| &active.digest);
            found.extend(known.note_change(name, self.changing_max, active));
        }
        self.warn_about_orphan_sidecars(&listing, &present);
        Some(Scan {
            listing,
            names: names.into_iter().collect(),
            to_load: Vec::new(),
            found,
        })
    }

    /// Returns the next difference between the folder and the `active` packages, or `None` if no more are known yet.
    ///
    /// Never waits for a file to load, so a slow one delays no other, and files already loaded aren't loaded again. While
    /// [`PluginsFolder::is_loading`], more differences follow: scan again after [`PluginsFolder::load_ended`].
    ///
    /// Activates nothing. Until an addition, update or removal is applied, each scan finds it again, without reloading. Rejections are
    /// returned just once, unless [`PluginsFolder::report_again`] is called.
    pub async fn next_change(
        &mut self,
        scan: &mut Scan<L::Artifact>,
        active: &Packages<L::Artifact>,
    ) -> Option<Change<L::Artifact>> {
        loop {
            if let Some(change) = scan.found.pop_front() {
                return Some(change);
            }
            let (name, may_load) = match scan.names.pop_front() {
                Some(name) => (name, false),
                None => {
                    let next = self.loads.next_of(&scan.to_load)?;
                    (scan.to_load.remove(next).name, true)
                }
            };
            self.reconcile(name, scan, active, may_load).await;
        }
    }

    /// Whether the last scan could not use the folder.
    pub fn is_unusable(&self) -> bool {
        self.unusable.is_some()
    }

    /// Whether files are being loaded, or wait for it.
    pub fn is_loading(&self) -> bool {
        !self.loads.is_empty()
    }

    /// Wait until a load ends, if one runs; forever, if none does. Then scan again.
    ///
    /// The future may be dropped before it is ready.
    pub async fn load_ended(&mut self) {
        match self.loads.next().await {
            Some((name, digest, result)) => {
                let known = self.files.entry(name).or_default();
                let result = match result {
                    Ok(loaded) => Ok(loaded),
                    Err(LoadError::Refused(why)) => Err(why),
                    Err(LoadError::Slow) => {
                        known.slow = Some(digest);
                        return;
                    }
                };
                known.attempt = Attempt::First;
                known.loaded = Some((digest, result));
            }
            None => std::future::pending().await,
        }
    }

    /// List the packages whose files are being loaded, or wait for it.
    pub fn unloaded(&self) -> BTreeSet<String> {
        let loading = self.loads.list().map(|(name, _)| name.to_owned());
        loading.chain(self.waiting.iter().cloned()).collect()
    }

    /// List the packages whose files are being loaded, and since when.
    pub fn loading(&self) -> impl Iterator<Item = (&str, Instant)> {
        self.loads.list()
    }

    /// Let the next scan return the rejection of `name` again, because it could not be recorded.
    pub fn report_again(&mut self, name: &str) {
        self.beyond.take_if(|(first, _)| first == name);
        if let Some(known) = self.files.get_mut(name) {
            known.rejected = None;
        }
    }

    /// Let the next scan return all rejections again, because the database lost them.
    pub fn report_all_again(&mut self) {
        self.beyond = None;
        for known in self.files.values_mut() {
            known.rejected = None;
        }
    }

    /// Let the next scan report `name`, which the database knows, if it has no file.
    pub fn expect_file(&mut self, name: String) {
        self.files.entry(name).or_default();
    }

    /// List the folder until its new files do not change. Also returns the names that still change.
    async fn settle(&mut self) -> Result<(Listing, BTreeSet<String>), String> {
        self.follow().await?;
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

    /// Use the folder that replaced this one at its place, if there is one that may be used.
    async fn follow(&mut self) -> Result<(), String> {
        let open = Arc::clone(&self.open);
        let replaced = off_thread(move || open.follow()).await??;
        if let Some(replaced) = replaced {
            tracing::warn!(
                "the plugins folder {} was replaced; this host follows the new one",
                self.path.display()
            );
            self.open = Arc::new(replaced);
        }
        Ok(())
    }

    async fn list(&mut self) -> Result<Listing, String> {
        let open = Arc::clone(&self.open);
        let listed = off_thread(move || open.list()).await?;
        let (listing, foreign) = listed.map_err(|error| format!("cannot be read: {error}"))?;
        for warning in foreign.difference(&self.foreign) {
            tracing::warn!("{warning}");
        }
        self.foreign = foreign;
        Ok(listing)
    }

    /// Returns the names of files left unused because the folder has more than [`PACKAGES_MAX`] `.wasm` files.
    ///
    /// Files of active packages are used first, then files that earlier scans used, then new files in alphabetical order.
    fn beyond<'l>(
        &self,
        present: &'l BTreeSet<String>,
        active: &BTreeMap<String, Arc<Package<L::Artifact>>>,
    ) -> BTreeSet<&'l String> {
        if present.len() <= self.packages_max {
            return BTreeSet::new();
        }
        let mut names: Vec<&String> = present.iter().collect();
        names.sort_by_key(|name| (!active.contains_key(*name), !self.files.contains_key(*name)));
        names.split_off(self.packages_max).into_iter().collect()
    }

    /// Reject the unused files with one rejection, under the name of the first, when their number or that name changed.
    fn reject_beyond(&mut self, beyond: &BTreeSet<&String>) -> VecDeque<Change<L::Artifact>> {
        let rejected = beyond.first().map(|first| {
            let error = format!(
                "the folder has {} files, and a host uses {}; this is the first that is not used: remove files, or use a second host with its own folder",
                self.packages_max + beyond.len(),
                self.packages_max
            );
            ((*first).clone(), error)
        });
        if rejected == self.beyond {
            return VecDeque::new();
        }
        let before = std::mem::replace(&mut self.beyond, rejected.clone());
        let gone = before.map(|(name, _)| Change::Gone(name));
        let rejected = rejected.map(|(name, error)| Change::Rejected {
            name,
            digest: None,
            error,
            kept: None,
        });
        gone.into_iter().chain(rejected).collect()
    }

    /// Compare the files of one name with its active version.
    async fn reconcile(
        &mut self,
        name: String,
        scan: &mut Scan<L::Artifact>,
        active: &Packages<L::Artifact>,
        may_load: bool,
    ) {
        self.waiting.remove(&name);
        let own = active.own_record();
        let active = active.get(&name);
        let names = files::ENDS.map(|end| format!("{name}{end}"));
        let [wasm_name, sidecar_name, signature_name] = &names;
        let Some(wasm) = scan.listing.get(wasm_name) else {
            self.loads.forget(&name);
            let known = self.files.remove(&name);
            scan.found.extend(match active {
                Some(old) => Some(Change::Removed(old)),
                None => known.map(|_| Change::Gone(name)),
            });
            return;
        };
        let files = PackageFiles {
            wasm,
            sidecar: scan.listing.get(sidecar_name),
            signature: scan.listing.get(signature_name),
        };
        // If this future is dropped meanwhile, the file counts as new.
        let mut known = self.files.remove(&name).unwrap_or_default();
        let resolved = self.resolve(&name, files, &mut known, active.as_ref(), may_load);
        let resolved = resolved.await;
        if !matches!(resolved, Err(Unresolved::Unstable)) {
            known.changing_since = None;
        }
        if resolved.is_ok()
            && let Some((_, digest)) = &known.bytes
        {
            own.note_file(&name, digest).await;
        }
        match resolved {
            Ok(Some(new)) => {
                known.rejected = None;
                known.offered = Some(new.digest.clone());
                scan.found.push_back(change_to(active, new));
            }
            Ok(None) => {
                let offered = known.offered.take().zip(known.bytes.as_ref());
                let other = offered.is_some_and(|(offered, (_, held))| offered != *held);
                if known.rejected.take().is_some() || other {
                    scan.found.extend(active.map(Change::Restored));
                }
            }
            Err(Unresolved::NotLoaded { size_bytes, pace }) => {
                self.waiting.insert(name.clone());
                let name = name.clone();
                scan.to_load.push(Waiting {
                    name,
                    size_bytes,
                    pace,
                });
            }
            Err(Unresolved::Loading) => {}
            Err(Unresolved::Unstable) => {
                for name in &names {
                    self.settled.remove(name);
                }
                let active = active.as_ref().map(|active| &active.digest);
                scan.found
                    .extend(known.note_change(&name, self.changing_max, active));
            }
            Err(Unresolved::Rejected(error)) => {
                let kept = active.as_ref().map(|active| active.digest.clone());
                if let Ok(sidecar) = usable(known.sidecar.as_ref()) {
                    own.note_unused(&name, &sidecar).await;
                }
                // Before the rejection, so that the package is recorded as rejected.
                if let Some(old) = active
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
                        digest: rejection.digest.clone(),
                        error,
                        kept,
                    });
                }
                known.rejected = Some(rejection);
            }
        }
        self.files.insert(name, known);
    }

    /// Warn once of each sidecar without a package: most likely the name of one of the files is mistyped.
    fn warn_about_orphan_sidecars(&mut self, listing: &Listing, packages: &BTreeSet<String>) {
        // The sources of packages may lie in the folder. Their Cargo.toml is no sidecar.
        let orphans: BTreeSet<String> = stems(listing, ".toml")
            .filter(|name| name != "Cargo" && !packages.contains(name))
            .collect();
        for name in orphans.difference(&self.orphans) {
            let name = printable_line(name);
            tracing::warn!("{name}.toml has no package {name}.wasm beside it and is not used");
        }
        self.orphans = orphans;
    }
}

fn change_to<A>(active: Option<Arc<Package<A>>>, new: Package<A>) -> Change<A> {
    let new = Arc::new(new);
    match active {
        None => Change::Added(new),
        Some(old) => Change::Updated { old, new },
    }
}

/// Returns the names of files that end in `end`, without that end.
fn stems<'l>(listing: &'l Listing, end: &'l str) -> impl Iterator<Item = String> + 'l {
    listing
        .keys()
        .filter_map(move |name| name.strip_suffix(end).map(str::to_owned))
}

/// Returns the names whose files differ between two listings.
fn different(a: &Listing, b: &Listing) -> BTreeSet<String> {
    a.keys()
        .chain(b.keys())
        .filter(|name| a.get(*name) != b.get(*name))
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests;
