//! From the two files of one name to a package: read the changed files, compile new code, check both.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::PluginsFolder;
use crate::assemble::{self, SidecarFile, assemble, usable};
use crate::files::{self, FileState, Stamp, off_thread};
use crate::loader::{Attempt, Loader, Pace, describe, load, load_at};
use crate::names::{name_of, package_name_fault};
use crate::own_record::OwnRecord;
use crate::package::{Change, Compiled, Package};
use crate::sidecar::{Sidecar, Vouched};
use crate::signature;
use campanile_model::ids::ArtifactDigest;
use campanile_model::text::cut_error;

/// The hash in place of the sidecar's while a version is restricted by a sidecar for other bytes. It equals the hash of
/// no file, so that a scan applies the former sidecar again when that is back.
const RESTRICTED: &str = "restricted";

/// The files of one name in a listing.
pub(super) struct PackageFiles<'l> {
    pub(super) wasm: &'l FileState,
    pub(super) sidecar: Option<&'l FileState>,
    pub(super) signature: Option<&'l FileState>,
}

/// What is remembered of the files of one name.
pub(super) struct KnownFiles<A> {
    /// The digest of the `.wasm` file; `None` when it could not be read.
    pub(super) bytes: Option<(Stamp, ArtifactDigest)>,
    /// The last load, which is not repeated for the same digest.
    pub(super) loaded: Option<(ArtifactDigest, Result<Compiled<A>, String>)>,
    /// The file that proved too slow for a quick load.
    pub(super) slow: Option<ArtifactDigest>,
    /// Another one if the file was touched after a load had failed.
    pub(super) attempt: Attempt,
    pub(super) sidecar: Option<SidecarFile>,
    signature: Option<CheckedSignature>,
    /// Since when scans have been finding the file changing.
    pub(super) changing_since: Option<Instant>,
    /// The last rejection, which is reported once.
    pub(super) rejected: Option<Rejection>,
    /// The version that the last scan found to differ from the active version.
    pub(super) offered: Option<ArtifactDigest>,
}

/// The last check of a signature, which is not repeated for the same files.
struct CheckedSignature {
    state: Option<FileState>,
    digest: ArtifactDigest,
    result: Result<Option<String>, String>,
}

#[derive(PartialEq)]
pub(super) struct Rejection {
    pub(super) digest: Option<ArtifactDigest>,
    pub(super) sidecar_hash: Option<String>,
    pub(super) error: String,
}

/// Why a scan made no package of the files of a name.
pub(super) enum Unresolved {
    /// A file changed meanwhile; the next scan reads it.
    Unstable,
    /// The file must be loaded, and the caller did not allow it.
    NotLoaded { size_bytes: u64, pace: Pace },
    /// The file is being loaded.
    Loading,
    /// A sentence that says why the files cannot be used.
    Rejected(String),
}

impl From<String> for Unresolved {
    fn from(error: String) -> Unresolved {
        Unresolved::Rejected(cut_error(error))
    }
}

impl<L: Loader> PluginsFolder<L> {
    /// Returns the package that the `.wasm` file and the sidecar of `name` make; `None` when it is the active version.
    pub(super) async fn resolve(
        &mut self,
        name: &str,
        files: PackageFiles<'_>,
        known: &mut KnownFiles<L::Artifact>,
        active: Option<&Arc<Package<L::Artifact>>>,
        may_load: bool,
    ) -> Result<Option<Package<L::Artifact>>, Unresolved> {
        if let Some(fault) = package_name_fault(name) {
            return Err(fault.into());
        }
        // First, so that a revoked grant is known even when the bytes cannot be used.
        self.read_sidecar(name, files.sidecar, known).await?;
        let path = self.path.join(format!("{name}.wasm"));
        let (stamp, digest) = self.digest_of(&path, files.wasm, known).await?;
        let signature = (files.signature, stamp, &digest);
        let signature = self.check_signature(&path, signature, known).await?;
        let sidecar_hash = known.sidecar.as_ref().and_then(|read| read.hash.as_ref());
        if active.is_some_and(|active| {
            active.digest == digest
                && active.sidecar_hash.as_ref() == sidecar_hash
                && active.signature == signature
        }) {
            return Ok(None);
        }
        let sidecar = usable(known.sidecar.as_ref())?;
        sidecar.check_pin(name, &self.rules.policy, &digest)?;

        let loaded = match (active, &known.loaded) {
            (Some(active), _) if active.digest == digest => active.compiled(),
            (_, Some((of, loaded))) if *of == digest => loaded.clone()?,
            _ if self.loads.is_running(name, &digest) => return Err(Unresolved::Loading),
            _ => match self.loader.recall(&digest).await {
                Some(recalled) if recalled.is_ok() || known.attempt == Attempt::First => {
                    let described =
                        recalled.and_then(|recalled| describe(&*self.loader, name, recalled));
                    known.loaded = Some((digest.clone(), described.clone()));
                    described?
                }
                _ => {
                    let is_slow = known.slow.as_ref() == Some(&digest);
                    let pace = if is_slow { Pace::Full } else { Pace::Quick };
                    if !may_load {
                        let size_bytes = stamp.size_bytes;
                        return Err(Unresolved::NotLoaded { size_bytes, pace });
                    }
                    let file = (path.as_path(), stamp, digest);
                    self.start_load(name, file, known.attempt, pace).await?;
                    return Err(Unresolved::Loading);
                }
            },
        };
        sidecar.check_version(&loaded.1)?;
        Ok(Some(Package {
            signature,
            ..assemble::<L>(path, digest, loaded, sidecar, &self.rules)?
        }))
    }

    /// Starts loading the file at a path for package `name`.
    async fn start_load(
        &mut self,
        name: &str,
        (path, stamp, digest): (&Path, Stamp, ArtifactDigest),
        attempt: Attempt,
        pace: Pace,
    ) -> Result<(), Unresolved> {
        let (bytes, now) = self.read(path, stamp).await?;
        if now != digest {
            return Err(Unresolved::Unstable);
        }
        let (loader, package) = (Arc::clone(&self.loader), name.to_owned());
        let load = async move { load_at(&*loader, &package, Arc::new(bytes), attempt, pace).await };
        self.loads.start(name, (digest, pace), load);
        Ok(())
    }

    /// Returns the active version with a sidecar that changed while the bytes in the folder cannot be used.
    ///
    /// A revoked grant must not stay because of a broken build beside it.
    pub(super) fn with_changed_sidecar(
        &self,
        active: &Package<L::Artifact>,
        known: &KnownFiles<L::Artifact>,
    ) -> Option<Package<L::Artifact>> {
        let sidecar = usable(known.sidecar.as_ref()).ok()?;
        if sidecar == active.sidecar {
            return None;
        }
        let pin = sidecar.check_pin(&active.name, &self.rules.policy, &active.digest);
        let accepts = pin.and_then(|()| sidecar.check_version(&active.manifest));
        let made = |sidecar| {
            let (path, digest) = (active.path.clone(), active.digest.clone());
            assemble::<L>(path, digest, active.compiled(), sidecar, &self.rules)
        };
        let (package, sidecar_hash) = match accepts.and_then(|()| made(Arc::clone(&sidecar))) {
            Ok(package) => {
                let hash = package.sidecar_hash.clone();
                (package, hash)
            }
            // The sidecar is for other bytes, so the active version gets no new grants and loses those it leaves out. If the sidecar says
            // so, it's also refused when about to run.
            Err(_) => {
                let restricted = active.sidecar.restricted_by(&sidecar);
                if restricted == *active.sidecar {
                    return None;
                }
                let package = made(Arc::new(restricted)).ok()?;
                (package, Some(RESTRICTED.to_owned()))
            }
        };
        Some(Package {
            signature: active.signature.clone(),
            sidecar_hash,
            ..package
        })
    }

    /// Returns the active version with the sidecar of the last scan; `None` when that cannot be used, or changes nothing.
    pub fn with_current_sidecar(
        &self,
        active: &Package<L::Artifact>,
    ) -> Option<Arc<Package<L::Artifact>>> {
        let known = self.files.get(&active.name)?;
        self.with_changed_sidecar(active, known).map(Arc::new)
    }

    /// Whether the last scan read a sidecar of `name` that pins another digest.
    pub fn pins_another_version(&self, name: &str, digest: &ArtifactDigest) -> bool {
        let known = self.files.get(name);
        let sidecar = usable(known.and_then(|known| known.sidecar.as_ref()));
        let policy = &self.rules.policy;
        sidecar.is_ok_and(|sidecar| sidecar.check_pin(name, policy, digest).is_err())
    }

    /// Returns the package `name` from `bytes` in the database, using the sidecar of the last scan. If that has an error or the folder
    /// couldn't be scanned, the last good sidecar applies.
    ///
    /// This keeps a version active while its file is broken, rejected, pending or unreadable. `own` is this host's record: nothing the
    /// database says about grants counts, and bytes that only the database has `vouched` for get none.
    ///
    /// # Errors
    /// Returns a sentence saying why the version can't be used.
    pub async fn restore(
        &self,
        name: &str,
        (bytes, vouched): (&[u8], Vouched),
        own: &OwnRecord,
    ) -> Result<Arc<Package<L::Artifact>>, String> {
        let Some(known) = self.files.get(name) else {
            return Err("its files were not scanned yet".to_owned());
        };
        let present = match (&self.unusable, &known.sidecar) {
            // It is unknown whether there is a sidecar.
            (Some(why), None) => Err(format!("the plugins folder {why}")),
            (_, sidecar) => usable(sidecar.as_ref()),
        };
        let digest = ArtifactDigest::of(bytes);
        if let Ok(sidecar) = &present {
            // A pin of other bytes is the operator's decision, not an error to fall back from.
            sidecar.check_pin(name, &self.rules.policy, &digest)?;
        }
        let loaded = load(&*self.loader, name, bytes.to_vec(), Attempt::First).await?;
        let path = self.path.join(format!("{name}.wasm"));
        let made = |sidecar: Arc<Sidecar>| {
            sidecar.check_version(&loaded.1)?;
            sidecar.check_vouched(name, &digest, vouched)?;
            let (path, digest, loaded) = (path.clone(), digest.clone(), loaded.clone());
            assemble::<L>(path, digest, loaded, sidecar, &self.rules).map(Arc::new)
        };
        let (why, newer) = match present {
            Ok(sidecar) => match made(Arc::clone(&sidecar)) {
                Ok(package) => return Ok(package),
                Err(why) => (why, Some(sidecar)),
            },
            Err(why) => (why, None),
        };
        let recorded = own.sidecar(name).ok_or(why)?;
        let (path, rules) = (path.with_extension("toml"), self.rules.clone());
        let recorded = off_thread(move || recorded.read(&path, &rules)).await;
        let sidecar = recorded
            .flatten()
            .map_err(|why| format!("the sidecar before it cannot be used: {why}"))?;
        sidecar.check_pin(name, &self.rules.policy, &digest)?;
        match newer {
            // It reads well, so anything it leaves out isn't granted.
            Some(newer) => {
                newer.check_version(&loaded.1)?;
                made(Arc::new(sidecar.restricted_by(&newer)))
            }
            None => made(sidecar),
        }
    }

    /// Returns the stamp and the digest of the file at `path`, which is read only when it may have changed.
    async fn digest_of(
        &self,
        path: &Path,
        state: &FileState,
        known: &mut KnownFiles<L::Artifact>,
    ) -> Result<(Stamp, ArtifactDigest), Unresolved> {
        if let Some((seen, digest)) = &known.bytes
            && state.as_ref() == Ok(seen)
        {
            return Ok((*seen, digest.clone()));
        }
        known.bytes = None;
        let stamp = state.clone()?;
        assemble::check_size(stamp)?;
        // An operator touches a file to ask for another try.
        if known
            .loaded
            .take_if(|(_, loaded)| loaded.is_err())
            .is_some()
        {
            known.attempt = Attempt::Again;
        }
        let (_, digest) = self.read(path, stamp).await?;
        known.bytes = Some((stamp, digest.clone()));
        Ok((stamp, digest))
    }

    async fn read(
        &self,
        path: &Path,
        stamp: Stamp,
    ) -> Result<(Vec<u8>, ArtifactDigest), Unresolved> {
        let path = path.to_owned();
        let work = move || {
            let bytes = files::read(&path, stamp)?.ok_or(Unresolved::Unstable)?;
            let digest = ArtifactDigest::of(&bytes);
            Ok((bytes, digest))
        };
        off_thread(work).await?
    }

    /// Returns the signature of the file at `path`, with its stamp and its digest, if a trusted key made it.
    async fn check_signature(
        &self,
        path: &Path,
        (state, stamp, digest): (Option<&FileState>, Stamp, &ArtifactDigest),
        known: &mut KnownFiles<L::Artifact>,
    ) -> Result<Option<String>, Unresolved> {
        let policy = &self.rules.policy;
        if policy.trusted_keys.is_empty() && !policy.require_signature {
            return Ok(None);
        }
        if let Some(checked) = &known.signature
            && (checked.state.as_ref(), &checked.digest) == (state, digest)
        {
            return Ok(checked.result.clone()?);
        }
        let (bytes, now) = self.read(path, stamp).await?;
        if now != *digest {
            return Err(Unresolved::Unstable);
        }
        let (policy, name) = (policy.clone(), name_of(path));
        let (present, path) = (state.is_some(), signature::signature_path(path));
        let result = off_thread(move || {
            let text = present.then(|| signature::read_small(&path));
            policy.check_signature(&name, &bytes, text)
        });
        let result = result.await?;
        known.signature = Some(CheckedSignature {
            state: state.cloned(),
            digest: digest.clone(),
            result: result.clone(),
        });
        Ok(result?)
    }

    /// Read the sidecar into `known` if it changed.
    ///
    /// A refused sidecar is read at each scan: the directory that it names may exist by now.
    async fn read_sidecar(
        &self,
        name: &str,
        state: Option<&FileState>,
        known: &mut KnownFiles<L::Artifact>,
    ) -> Result<(), Unresolved> {
        let Some(state) = state else {
            known.sidecar = None;
            return Ok(());
        };
        if let Some(read) = &known.sidecar
            && read.result.is_ok()
            && state.as_ref().ok() == read.stamp.as_ref()
        {
            return Ok(());
        }
        let path = self.path.join(format!("{name}.toml"));
        let (state, rules) = (state.clone(), self.rules.clone());
        let read = off_thread(move || SidecarFile::read(&path, &state, &rules)).await?;
        known.sidecar = Some(read.ok_or(Unresolved::Unstable)?);
        Ok(())
    }
}

impl<A> Default for KnownFiles<A> {
    fn default() -> KnownFiles<A> {
        KnownFiles {
            bytes: None,
            loaded: None,
            slow: None,
            attempt: Attempt::First,
            sidecar: None,
            signature: None,
            changing_since: None,
            rejected: None,
            offered: None,
        }
    }
}

impl<A> KnownFiles<A> {
    /// Notes that a scan found a file of `name` changing. Returns a rejection once that has been going on for longer than `most`; otherwise
    /// a file changing forever would be neither used nor refused.
    pub(super) fn note_change(
        &mut self,
        name: &str,
        most: Duration,
        active: Option<&ArtifactDigest>,
    ) -> Option<Change<A>> {
        let since = *self.changing_since.get_or_insert_with(Instant::now);
        let rejection = Rejection {
            digest: None,
            sidecar_hash: None,
            error: "one of its files changes again and again, and is read when it stops; write it under another name, and rename it when it is complete".to_owned(),
        };
        if since.elapsed() < most || self.rejected.as_ref() == Some(&rejection) {
            return None;
        }
        let error = rejection.error.clone();
        self.rejected = Some(rejection);
        Some(Change::Rejected {
            name: name.to_owned(),
            digest: None,
            error,
            kept: active.cloned(),
        })
    }
}
