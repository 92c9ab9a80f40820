//! Making a package of its two files, the `.wasm` file and the sidecar: the same for a host and for `task run`.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::{self, FileState, Stamp, off_thread};
use super::grant_record::GrantRecord;
use super::host_rules::HostRules;
use super::loader::{Attempt, Loader, load};
use super::manifest::Manifest;
use super::names::name_of;
use super::package::{Compiled, Package};
use super::program::check_form;
use super::quota::check_group;
use super::sidecar::{SIDECAR_BYTES_MAX, Sidecar};
use campanile_model::ids::{ArtifactDigest, sha256};
use campanile_model::text::{cut_error, size_rounded, size_text};

/// The largest `.wasm` file that is read.
pub const FILE_BYTES_MAX: u64 = 64 << 20;

/// A sidecar file after reading.
pub(super) struct SidecarFile {
    pub(super) stamp: Option<Stamp>,
    pub(super) hash: Option<String>,
    pub(super) result: Result<Arc<Sidecar>, String>,
}

/// Why a file is not a usable package.
#[derive(Debug)]
pub struct OpenError {
    /// The digest of the file, if it was read.
    pub digest: Option<ArtifactDigest>,
    /// One sentence.
    pub message: String,
}

/// Open the package in the file at `path` with the sidecar at another path, if one is given, as a host would.
///
/// The name is not checked: outside the plugins folder it identifies nothing. Nor is a signature: the caller chose the
/// file.
pub async fn open<L: Loader>(
    loader: &L,
    path: &Path,
    sidecar: Option<&Path>,
    rules: &HostRules,
) -> Result<Package<L::Artifact>, OpenError> {
    let mut digest_read = None;
    let opened: Result<_, String> = async {
        let read = {
            let (path, rules) = (path.to_owned(), rules.clone());
            let sidecar = sidecar.map(Path::to_owned);
            off_thread(move || read_both(&path, sidecar.as_deref(), &rules)).await?
        };
        let (bytes, sidecar) = read.map_err(|why| format!("{}: {why}", path.display()))?;
        let digest = ArtifactDigest::of(&bytes);
        digest_read = Some(digest.clone());
        let sidecar = usable(sidecar.as_ref())?;
        let name = name_of(path);
        sidecar.check_pin(&name, &rules.policy, &digest)?;
        // A person who asks for one file wants another attempt.
        let loaded = load(loader, &name, bytes, Attempt::Again).await?;
        sidecar.check_version(&loaded.1)?;
        assemble::<L>(path.to_owned(), digest, loaded, sidecar, rules)
    }
    .await;
    opened.map_err(|message| OpenError {
        digest: digest_read,
        message: cut_error(message),
    })
}

/// Returns the bytes of the file at `path`, and the sidecar.
fn read_both(
    path: &Path,
    sidecar: Option<&Path>,
    rules: &HostRules,
) -> Result<(Vec<u8>, Option<SidecarFile>), String> {
    let changed = "it changed while it was read: try again when it is written";
    let bytes = read_package(path)?.ok_or(changed)?;
    let sidecar = sidecar.map(|path| {
        let state = files::inspect(path).unwrap_or_else(|| Err("it does not exist".to_owned()));
        SidecarFile::read(path, &state, rules).ok_or(changed)
    });
    Ok((bytes, sidecar.transpose()?))
}

/// Returns the bytes of the file at `path`; `None` when it is gone or changed while it was read.
fn read_package(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let Some(stamp) = files::inspect(path).transpose()? else {
        return Ok(None);
    };
    check_size(stamp)?;
    files::read(path, stamp)
}

impl SidecarFile {
    /// Read the sidecar at `path`, where `state` was found; `None` when it has changed since. Blocks.
    pub(super) fn read(path: &Path, state: &FileState, rules: &HostRules) -> Option<SidecarFile> {
        let about = |why: &str| cut_error(format!("{}: {why}", path.display()));
        let (stamp, bytes) = match read_sidecar(path, state).transpose()? {
            Ok(read) => read,
            // Without text to hash. The package is refused rather than run without its sidecar.
            Err(why) => {
                return Some(SidecarFile {
                    stamp: None,
                    hash: Some(format!("unread: {}", about(&why))),
                    result: Err(about(&why)),
                });
            }
        };
        let result = match std::str::from_utf8(&bytes) {
            Ok(text) => Sidecar::parse(path, text, rules)
                .map(Arc::new)
                .map_err(|error| cut_error(error.to_string())),
            Err(_) => Err(about("this is not UTF-8 text")),
        };
        Some(SidecarFile {
            stamp: Some(stamp),
            hash: Some(sha256(&bytes)),
            result,
        })
    }
}

/// Returns the content of the sidecar at `path`, where `state` was found; `None` when it has changed since.
fn read_sidecar(path: &Path, state: &FileState) -> Result<Option<(Stamp, Vec<u8>)>, String> {
    let stamp = state.clone()?.of_at_most(SIDECAR_BYTES_MAX)?;
    Ok(files::read(path, stamp)?.map(|bytes| (stamp, bytes)))
}

impl<A> Package<A> {
    /// Returns the bytes of the file, if they still are those of this package.
    pub async fn read_again(&self) -> Option<Vec<u8>> {
        let path = self.path.clone();
        let read = off_thread(move || read_package(&path)).await.ok()?;
        let bytes = read.ok()??;
        (ArtifactDigest::of(&bytes) == self.digest).then_some(bytes)
    }
}

/// Reads the sidecar, which is empty if there is no file.
pub(super) fn usable(sidecar: Option<&SidecarFile>) -> Result<Arc<Sidecar>, String> {
    sidecar.map_or_else(|| Ok(Arc::default()), |read| read.result.clone())
}

/// Refuse a file that is too large: a package is read whole.
pub(super) fn check_size(stamp: Stamp) -> Result<(), String> {
    if stamp.size_bytes <= FILE_BYTES_MAX {
        return Ok(());
    }
    Err(format!(
        "it has {} ({} bytes), and a package may have {}; build in release mode and strip it, for example with `wasm-tools strip`",
        size_rounded(stamp.size_bytes),
        stamp.size_bytes,
        size_text(FILE_BYTES_MAX),
    ))
}

/// Make a package. The schedules of its sidecar may name only tasks that it has, and only a program has `[program]`.
pub(super) fn assemble<L: Loader>(
    path: PathBuf,
    digest: ArtifactDigest,
    (artifact, manifest): Compiled<L::Artifact>,
    sidecar: Arc<Sidecar>,
    rules: &HostRules,
) -> Result<Package<L::Artifact>, String> {
    let name = name_of(&path);
    if sidecar.program.is_some() {
        check_form(L::form(&artifact)).map_err(|why| format!("{name}.toml: {why}"))?;
    }
    let mut own_schedules = sidecar.schedules.iter().flatten();
    if let Some(schedule) = own_schedules.find(|schedule| schedule.args.is_some())
        && !L::form(&artifact).is_command()
    {
        let (schedule, form) = (&schedule.name, L::form(&artifact));
        return Err(format!(
            "{name}.toml: the schedule `{schedule}` has `args`, which are for a program with a main function, and this package is a {form}: leave them out, and put values into `context`"
        ));
    }
    check_tasks(&name, &sidecar, &manifest)?;
    let own = sidecar.schedules.as_deref();
    let schedules = own.map_or_else(|| Cow::Owned(manifest.schedules()), Cow::Borrowed);
    for schedule in schedules.iter() {
        check_group(&schedule.policies, &rules.groups)
            .map_err(|why| cut_error(format!("the schedule `{}`: {why}", schedule.name)))?;
    }
    Ok(Package {
        name,
        digest,
        artifact,
        manifest,
        grant_record: GrantRecord::of(&sidecar.grants),
        sidecar_hash: sidecar.text.as_ref().map(|text| sha256(text.as_bytes())),
        sidecar,
        path,
        signature: None,
        limits: rules.limits.clone(),
    })
}

fn check_tasks(name: &str, sidecar: &Sidecar, manifest: &Manifest) -> Result<(), String> {
    let schedules = sidecar.schedules.iter().flatten();
    let mut wanted = schedules.filter_map(|spec| spec.task.as_deref());
    let Some(task) = wanted.find(|id| manifest.task(id).is_none()) else {
        return Ok(());
    };
    let hint = match manifest.nearest_task(task) {
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            let ids: Vec<&str> = manifest.tasks.iter().map(|task| task.id.as_str()).collect();
            format!("it has {}", ids.join(", "))
        }
    };
    Err(cut_error(format!(
        "{name}.toml: a schedule names the task `{task}`, which this package does not have: {hint}"
    )))
}
