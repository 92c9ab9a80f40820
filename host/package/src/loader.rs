//! Loading a package: checking and compiling its file, and reading its description.
//!
//! A file in the plugins folder needs no grant to do harm while being read and compiled. A host therefore loads each file in a child
//! process first (`process`), confined by the kernel (`confine`). It reads only files accepted by such a process, finding their compiled
//! code in the cache. Keeping each verdict (`verdicts`) saves starting a child process for the same file next time; its code is then loaded
//! on the first call.

use std::sync::Arc;

use serde_json::Value;

use super::files::off_thread;
use super::manifest::{Descriptions, Manifest};
use super::package::Compiled;
use campanile_model::clock::Clock;
use campanile_model::ids::ArtifactDigest;
use campanile_model::text::{cut_error, printable_line};
use campanile_sandbox::{Artifact, Form, Sandbox, SandboxSettings};

mod child;
#[cfg(target_os = "linux")]
mod confine;
mod exchange;
mod load_time;
mod process;
mod verdicts;

pub use child::load_in_this_process;
#[cfg(target_os = "linux")]
pub use confine::{Confinement, confinement};
use exchange::Accepted;
pub use exchange::LoadLimits;
pub use process::LOADS_MAX;
use process::LoadProcesses;

/// Whether a failure that is on record counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// A file whose load failed before is not loaded again.
    First,
    /// A person asked for another attempt by touching the file.
    Again,
}

/// How long a load may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// A few seconds, keeping slow files from delaying others. Most files need less.
    Quick,
    /// As long as the configuration allows. Only one such load runs at a time.
    Full,
}

/// Why a file wasn't loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// Too slow for a quick load: try again at full pace.
    Slow,
    /// One sentence.
    Refused(String),
}

impl From<String> for LoadError {
    fn from(why: String) -> LoadError {
        LoadError::Refused(why)
    }
}

/// Is called with the package and the number of bytes when a child process begins to load a file. What it returns is
/// dropped when the load has ended.
pub type LoadObserver = fn(&str, u64) -> Box<dyn Send>;

/// Compiled code, and the description that the package gives of itself, if it has one.
pub type Loaded<A> = (Arc<A>, Option<Value>);

/// Loads packages. [`PackageLoader`] implements it; tests of the folder replace it.
pub trait Loader: Send + Sync + 'static {
    /// Compiled code.
    type Artifact: Send + Sync + 'static;

    /// Returns how the code communicates with the host.
    fn form(artifact: &Self::Artifact) -> Form;

    /// Returns the descriptions of all loaded packages.
    fn descriptions(&self) -> &Descriptions;

    /// Returns the result of an earlier load of the file with this digest, or `None` if there's no record of one.
    fn recall(
        &self,
        digest: &ArtifactDigest,
    ) -> impl Future<Output = Option<Result<Loaded<Self::Artifact>, String>>> + Send;

    /// Checks and compiles `bytes`, the file of package `name`, and reads its description.
    fn load(
        &self,
        name: &str,
        bytes: Arc<Vec<u8>>,
        attempt: Attempt,
        pace: Pace,
    ) -> impl Future<Output = Result<Loaded<Self::Artifact>, LoadError>> + Send;
}

/// The loader of a host.
pub struct PackageLoader {
    sandbox: Arc<Sandbox>,
    /// `None` where the files are trusted.
    processes: Option<LoadProcesses>,
    descriptions: Descriptions,
}

impl PackageLoader {
    /// Returns a loader that loads each file in a child process before the host reads it.
    ///
    /// The child process runs this program with `args`, followed by one argument: the settings of the load. The program
    /// must pass that argument to [`load_in_this_process`]. `observer` is called for each child process.
    ///
    /// # Errors
    /// A sentence, when the sandbox cannot start or there is no folder for compiled code.
    pub fn isolated(
        settings: SandboxSettings,
        limits: LoadLimits,
        args: Vec<String>,
        clock: Clock,
        observer: LoadObserver,
    ) -> Result<PackageLoader, String> {
        // The sandbox uses another folder where other users could write the one of the settings.
        let sandbox = Sandbox::new(settings.clone(), clock).map_err(|error| error.to_string())?;
        let cache_dir = sandbox
            .cache_dir()
            .ok_or("there is no folder for compiled code")?;
        let processes = LoadProcesses::new(&settings, cache_dir.to_owned(), limits, args, observer);
        Ok(PackageLoader {
            sandbox: Arc::new(sandbox),
            processes: Some(processes),
            descriptions: Descriptions::default(),
        })
    }

    /// Returns a loader that loads files in this process: for tests, whose files are trusted.
    pub fn in_this_process(sandbox: Arc<Sandbox>) -> PackageLoader {
        PackageLoader {
            sandbox,
            processes: None,
            descriptions: Descriptions::default(),
        }
    }

    /// Returns the sandbox that calls the loaded packages.
    pub fn sandbox(&self) -> &Arc<Sandbox> {
        &self.sandbox
    }

    /// Loads `bytes` within this process.
    async fn load_here(&self, bytes: Arc<Vec<u8>>) -> Result<Loaded<Artifact>, String> {
        let (sandbox, shared) = (Arc::clone(&self.sandbox), Arc::clone(&bytes));
        let loaded = off_thread(move || sandbox.load(&shared)).await?;
        let artifact = loaded.map_err(|refusal| refusal.to_string())?;
        let read = || async { Ok(Vec::clone(&bytes)) };
        let held = self.sandbox.hold(&artifact, read).await;
        let _held = held.map_err(|refusal| refusal.to_string())?;
        let description = self.sandbox.describe(&artifact).await;
        let description = description.map_err(|refusal| refusal.to_string())?;
        Ok((Arc::new(artifact), description))
    }

    /// Returns the package for a file already accepted by a child process.
    fn admit(
        &self,
        digest: ArtifactDigest,
        accepted: Accepted,
    ) -> Result<Loaded<Artifact>, String> {
        let (form, bytes) = (accepted.form, accepted.code_bytes);
        let artifact = self.sandbox.admit(digest, form, bytes);
        let artifact = artifact.map_err(|refusal| refusal.to_string())?;
        Ok((Arc::new(artifact), accepted.description))
    }
}

impl Loader for PackageLoader {
    type Artifact = Artifact;

    fn form(artifact: &Artifact) -> Form {
        artifact.form
    }

    fn descriptions(&self) -> &Descriptions {
        &self.descriptions
    }

    async fn recall(&self, digest: &ArtifactDigest) -> Option<Result<Loaded<Artifact>, String>> {
        let accepted = self.processes.as_ref()?.recall(digest).await?;
        Some(accepted.and_then(|accepted| self.admit(digest.clone(), accepted)))
    }

    async fn load(
        &self,
        name: &str,
        bytes: Arc<Vec<u8>>,
        attempt: Attempt,
        pace: Pace,
    ) -> Result<Loaded<Artifact>, LoadError> {
        let Some(processes) = &self.processes else {
            return Ok(self.load_here(bytes).await?);
        };
        let (digest, accepted) = processes.load(name, &bytes, attempt, pace).await?;
        let (artifact, description) = self.admit(digest, accepted)?;
        let (sandbox, of) = (Arc::clone(&self.sandbox), Arc::clone(&artifact));
        let ahead = off_thread(move || sandbox.load_ahead(&of, &bytes)).await?;
        ahead.map_err(|refusal| refusal.to_string())?;
        Ok((artifact, description))
    }
}

/// Load `bytes` and check the package's description; the error is one sentence.
pub async fn load<L: Loader>(
    loader: &L,
    name: &str,
    bytes: Vec<u8>,
    attempt: Attempt,
) -> Result<Compiled<L::Artifact>, String> {
    let bytes = Arc::new(bytes);
    let quick = load_at(loader, name, Arc::clone(&bytes), attempt, Pace::Quick).await;
    let loaded = match quick {
        Err(LoadError::Slow) => load_at(loader, name, bytes, attempt, Pace::Full).await,
        quick => quick,
    };
    loaded.map_err(|error| match error {
        LoadError::Refused(why) => why,
        LoadError::Slow => "it takes too long to load".to_owned(),
    })
}

/// Loads `bytes` at the given pace, checking the package's description.
pub(crate) async fn load_at<L: Loader>(
    loader: &L,
    name: &str,
    bytes: Arc<Vec<u8>>,
    attempt: Attempt,
    pace: Pace,
) -> Result<Compiled<L::Artifact>, LoadError> {
    let loaded = loader.load(name, bytes, attempt, pace).await?;
    Ok(describe(loader, name, loaded)?)
}

/// Checks the package's description. The error is one sentence.
pub(crate) fn describe<L: Loader>(
    loader: &L,
    name: &str,
    (artifact, description): Loaded<L::Artifact>,
) -> Result<Compiled<L::Artifact>, String> {
    let manifest = manifest_of(name, description.as_ref())?;
    let manifest = loader.descriptions().share(manifest);
    for warning in &manifest.warnings {
        let warning = printable_line(warning);
        tracing::warn!(package = name, "in the package's description: {warning}");
    }
    Ok((artifact, Arc::new(manifest)))
}

fn manifest_of(name: &str, description: Option<&Value>) -> Result<Manifest, String> {
    match description {
        Some(description) => Manifest::from_json(name, description)
            .map_err(|error| cut_error(printable_line(&error))),
        None => Ok(Manifest::undescribed(name)),
    }
}
