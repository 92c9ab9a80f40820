//! From the two files of one name to a package: read what changed, compile what is new, check all of it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::task::spawn_blocking;

use super::{Files, PluginsFolder};
use crate::assemble::{
    self, Compiled, RecordedSidecar, SidecarFile, SidecarSettings, assemble, check_pin,
    sidecar_settings,
};
use crate::files::{self, FileState, ReadError, Stamp};
use crate::loader::compile;
use crate::sidecar::Sidecar;
use crate::{Loader, Package, package_name_fault};
use campanile_model::ids::ArtifactDigest;

/// What is remembered of one file name.
pub(super) struct KnownFiles<A> {
    pub(super) bytes: Option<(Stamp, ArtifactDigest)>,
    /// The last attempt to compile, which is not repeated for the same digest.
    loaded: Option<(ArtifactDigest, Result<Compiled<A>, String>)>,
    pub(super) sidecar: Option<SidecarFile>,
    /// The last rejection, so that it is told once.
    pub(super) rejected: Option<Rejection>,
    /// The version that was last found to be another than the live one.
    pub(super) offered: Option<ArtifactDigest>,
}

impl<A> KnownFiles<A> {
    /// Whether the file holds the bytes of that digest; none when they could not be read.
    pub(super) fn holds(&self, digest: &ArtifactDigest) -> Option<bool> {
        self.bytes.as_ref().map(|(_, held)| held == digest)
    }
}

#[derive(PartialEq)]
pub(super) struct Rejection {
    pub(super) digest: Option<ArtifactDigest>,
    pub(super) sidecar_hash: Option<String>,
    pub(super) error: String,
}

/// Why a file gave no package in this look at it.
pub(super) enum Unresolved {
    /// It moved under our eyes; the next scan will see.
    Unstable,
    /// It must be compiled first, and was not to be.
    NotCompiled,
    /// A sentence that says why it cannot be used.
    Rejected(String),
}

impl From<ReadError> for Unresolved {
    fn from(unread: ReadError) -> Unresolved {
        match unread {
            ReadError::Changed => Unresolved::Unstable,
            ReadError::Failed(why) => Unresolved::Rejected(why),
        }
    }
}

impl From<String> for Unresolved {
    fn from(error: String) -> Unresolved {
        Unresolved::Rejected(error)
    }
}

impl<L: Loader> PluginsFolder<L> {
    /// The package that the files of `name` make now; none when that is the live one.
    pub(super) async fn resolve(
        &self,
        name: &str,
        files: Files<'_>,
        known: &mut KnownFiles<L::Artifact>,
        live: Option<&Arc<Package<L::Artifact>>>,
        may_compile: bool,
    ) -> Result<Option<Package<L::Artifact>>, Unresolved> {
        if let Some(fault) = package_name_fault(name) {
            return Err(Unresolved::Rejected(fault));
        }
        // First, so that it is known also when the bytes cannot be used: it may take something back.
        self.read_sidecar(name, files.sidecar, known).await?;
        let path = self.path.join(format!("{name}.wasm"));
        let (stamp, digest) = self.look_at_bytes(&path, files.wasm, known).await?;
        let sidecar_hash = known.sidecar.as_ref().and_then(|read| read.hash.as_ref());
        if live
            .is_some_and(|live| live.digest == digest && live.sidecar_hash.as_ref() == sidecar_hash)
        {
            return Ok(None);
        }
        let settings = sidecar_settings(known.sidecar.as_ref())?;
        check_pin(name, &settings.0, &digest)?;

        let loaded = match (live, &known.loaded) {
            (Some(live), _) if live.digest == digest => live.loaded(),
            (_, Some((of, loaded))) if *of == digest => loaded.clone()?,
            _ if !may_compile => return Err(Unresolved::NotCompiled),
            _ => {
                let (bytes, now) = self.read(&path, stamp).await?;
                if now != digest {
                    return Err(Unresolved::Unstable);
                }
                let loaded = compile(&self.loader, name, bytes).await;
                known.loaded = Some((digest.clone(), loaded.clone()));
                loaded?
            }
        };
        Ok(Some(assemble(path, digest, loaded, settings, &self.rules)?))
    }

    /// The live version under a sidecar that changed while the bytes in the folder cannot be used.
    ///
    /// A grant that was taken back must not outlast that because of a broken build beside it.
    pub(super) fn with_changed_sidecar(
        &self,
        live: &Package<L::Artifact>,
        known: &KnownFiles<L::Artifact>,
    ) -> Option<Package<L::Artifact>> {
        let settings = sidecar_settings(known.sidecar.as_ref()).ok()?;
        if settings.1 == live.sidecar_hash {
            return None;
        }
        let settings = match check_pin(&live.name, &settings.0, &live.digest) {
            Ok(()) => settings,
            // It is not for these bytes: they get nothing of it, and keep nothing that it does not grant.
            Err(_) => {
                let grants = live.sidecar.grants.shared_with(&settings.0.grants);
                if grants == *live.sidecar.grants {
                    return None;
                }
                let sidecar = Sidecar {
                    grants: Arc::new(grants),
                    ..Sidecar::clone(&live.sidecar)
                };
                (Arc::new(sidecar), live.sidecar_hash.clone())
            }
        };
        let (path, digest) = (live.path.clone(), live.digest.clone());
        assemble(path, digest, live.loaded(), settings, &self.rules).ok()
    }

    /// The live version under the sidecar of the last scan; none when that is not for it, or cannot be used.
    pub fn with_current_sidecar(
        &self,
        live: &Package<L::Artifact>,
    ) -> Option<Arc<Package<L::Artifact>>> {
        let known = self.files.get(&live.name)?;
        self.with_changed_sidecar(live, known).map(Arc::new)
    }

    /// Whether the sidecar of `name` could be read at the last scan, and lets in other bytes only.
    pub fn pins_another_version(&self, name: &str, digest: &ArtifactDigest) -> bool {
        let read = self
            .files
            .get(name)
            .and_then(|known| known.sidecar.as_ref());
        sidecar_settings(read).is_ok_and(|(sidecar, _)| check_pin(name, &sidecar, digest).is_err())
    }

    /// The package `name` from `bytes` that were kept of it, under the sidecar of the last scan, or under the one that
    /// was `kept` when that has an error.
    ///
    /// For a file in the folder that is broken, or kept out: what is in force goes on. The error says why it cannot.
    pub async fn restore(
        &self,
        name: &str,
        bytes: &[u8],
        kept: Option<RecordedSidecar>,
    ) -> Result<Arc<Package<L::Artifact>>, String> {
        let Some(known) = self.files.get(name) else {
            return Err("its files were not looked at yet".to_owned());
        };
        let present = sidecar_settings(known.sidecar.as_ref());
        let digest = ArtifactDigest::of(bytes);
        if let Ok((sidecar, _)) = &present {
            // What can be read and lets in other bytes only is not an error to be passed over.
            check_pin(name, sidecar, &digest)?;
        }
        let loaded = compile(&self.loader, name, bytes.to_vec()).await?;
        let path = self.path.join(format!("{name}.wasm"));
        let made = |settings| {
            let (path, digest, loaded) = (path.clone(), digest.clone(), loaded.clone());
            assemble(path, digest, loaded, settings, &self.rules).map(Arc::new)
        };
        match (present.and_then(made), kept) {
            (Err(_), Some(kept)) => {
                let settings = self.recorded_settings(name, kept).await;
                let settings = settings
                    .map_err(|why| format!("the sidecar before it cannot be used: {why}"))?;
                check_pin(name, &settings.0, &digest)?;
                made(settings)
            }
            (made, _) => made,
        }
    }

    async fn recorded_settings(
        &self,
        name: &str,
        kept: RecordedSidecar,
    ) -> Result<SidecarSettings, String> {
        let (path, rules) = (self.path.join(format!("{name}.toml")), self.rules.clone());
        let read = off_thread(move || kept.settings(&path, &rules)).await;
        read.map_err(|error| error.to_string())?
    }

    /// The stamp and the digest of the file at `path`, read again only when it may have changed.
    async fn look_at_bytes(
        &self,
        path: &Path,
        reading: &FileState,
        known: &mut KnownFiles<L::Artifact>,
    ) -> Result<(Stamp, ArtifactDigest), Unresolved> {
        let stamp = match reading {
            FileState::File(stamp) => *stamp,
            FileState::Unusable(why) => {
                known.bytes = None;
                return Err(Unresolved::Rejected(why.clone()));
            }
        };
        if let Some((seen, digest)) = &known.bytes
            && *seen == stamp
        {
            return Ok((stamp, digest.clone()));
        }
        known.bytes = None;
        assemble::check_size(stamp)?;
        // Touching a file is how an operator asks for another try.
        known.loaded.take_if(|(_, loaded)| loaded.is_err());
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
            let bytes = files::read(&path, stamp)?;
            let digest = ArtifactDigest::of(&bytes);
            Ok::<_, ReadError>((bytes, digest))
        };
        match off_thread(work).await {
            Ok(read) => Ok(read?),
            Err(error) => Err(Unresolved::Rejected(error.to_string())),
        }
    }

    /// Bring `known.sidecar` up to date.
    ///
    /// One that was refused is read again each time: the directory it names may exist by now.
    async fn read_sidecar(
        &self,
        name: &str,
        reading: Option<&FileState>,
        known: &mut KnownFiles<L::Artifact>,
    ) -> Result<(), Unresolved> {
        let Some(reading) = reading else {
            known.sidecar = None;
            return Ok(());
        };
        let fresh = known.sidecar.as_ref().is_some_and(|read| {
            read.result.is_ok()
                && matches!(reading, FileState::File(stamp) if read.stamp == Some(*stamp))
        });
        if fresh {
            return Ok(());
        }
        let path = self.path.join(format!("{name}.toml"));
        let (reading, rules) = (reading.clone(), self.rules.clone());
        match off_thread(move || SidecarFile::read(&path, &reading, &rules)).await {
            Ok(Some(read)) => known.sidecar = Some(read),
            Ok(None) => return Err(Unresolved::Unstable),
            Err(error) => return Err(Unresolved::Rejected(error.to_string())),
        }
        Ok(())
    }
}

impl<A> Default for KnownFiles<A> {
    fn default() -> KnownFiles<A> {
        KnownFiles {
            bytes: None,
            loaded: None,
            sidecar: None,
            rejected: None,
            offered: None,
        }
    }
}

/// Do blocking work on a thread for it. A panic there becomes an error here.
pub(crate) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    spawn_blocking(work).await.map_err(|error| {
        io::Error::other(format!(
            "the host failed while it worked on the file: {error}"
        ))
    })
}
