//! From the two files of one name to a package: read what changed, compile what is new, check all of it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::task::spawn_blocking;

use super::{FILE_BYTES_MAX, Folder};
use crate::ids::ArtifactDigest;
use crate::package::listing::{self, Reading, Stamp, Unread};
use crate::package::loader::compile;
use crate::package::sidecar::{SIDECAR_BYTES_MAX, Sidecar, Surroundings};
use crate::package::{Loader, Manifest, Package, package_name_fault};
use crate::strict::size_text;

/// What is remembered of one file name.
pub(super) struct Known<A> {
    pub(super) bytes: Option<(Stamp, ArtifactDigest)>,
    /// The last attempt to compile, which is not repeated for the same digest.
    loaded: Option<(ArtifactDigest, Loaded<A>)>,
    pub(super) sidecar: Option<ReadSidecar>,
    /// The last rejection, so that it is told once.
    pub(super) rejected: Option<Rejection>,
}

type Loaded<A> = Result<(Arc<A>, Arc<Manifest>), String>;

pub(super) struct ReadSidecar {
    stamp: Option<Stamp>,
    pub(super) hash: Option<String>,
    result: Result<Arc<Sidecar>, String>,
}

#[derive(PartialEq)]
pub(super) struct Rejection {
    pub(super) digest: Option<ArtifactDigest>,
    pub(super) sidecar_hash: Option<String>,
    pub(super) error: String,
}

/// Why a file gave no package in this scan.
pub(super) enum Setback {
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

impl<L: Loader> Folder<L> {
    /// The package that the files of `name` make now; none when that is the live one.
    pub(super) async fn resolve(
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

    /// The package `name` from `bytes` that were kept of it, under the sidecar of the last scan.
    ///
    /// For a start with a broken file in the folder: what ran before goes on. None when the kept
    /// version cannot be used either; the rejection of the file has said enough.
    pub async fn bring_back(&self, name: &str, bytes: &[u8]) -> Option<Arc<Package<L::Artifact>>> {
        let known = self.files.get(name)?;
        let (sidecar_hash, sidecar) = match &known.sidecar {
            Some(read) => (read.hash.clone(), read.result.clone().ok()?),
            None => (None, Arc::default()),
        };
        let digest = ArtifactDigest::of(bytes);
        if sidecar
            .pin
            .as_ref()
            .is_some_and(|pin| pin != digest.as_str())
        {
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
            own_paths: self.rules.own_paths.clone(),
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

/// Do blocking work on a thread for it. A panic there becomes an error here.
pub(in crate::package) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    spawn_blocking(work).await.map_err(|error| {
        io::Error::other(format!(
            "the host failed while it worked on the file: {error}"
        ))
    })
}
