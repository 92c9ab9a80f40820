//! Loading a package: checking and compiling its file, and reading its description.
//!
//! A file in the plugins folder needs no grant to do harm while it is read and compiled. A host therefore loads each
//! file in a child process first (`process`), which the kernel confines (`confine`). The host reads only files that a
//! child process has accepted, and finds their compiled code in the cache. The host keeps each verdict (`verdicts`), so
//! that its next start needs no child process for the same file.

use std::sync::Arc;

use serde_json::Value;

use super::Manifest;
use super::files::off_thread;
use super::package::Compiled;
use campanile_model::clock::Clock;
use campanile_model::ids::ArtifactDigest;
use campanile_model::text::printable_line;
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
pub use exchange::LoadLimits;
use process::LoadProcesses;
pub use process::{KNOWN_LOADS_MAX, LOADS_MAX};

/// Whether a failure that is on record counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// A file whose load failed before is not loaded again.
    First,
    /// A person asked for another attempt by touching the file.
    Again,
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

    /// Return how the code communicates with the host.
    fn form(artifact: &Self::Artifact) -> Form;

    /// Whether the file with this digest was loaded before, so that it needs no child process.
    fn is_known(&self, digest: &ArtifactDigest) -> impl Future<Output = bool> + Send;

    /// Check and compile `bytes`, the file of the package `name`, and read its description. The error is one sentence.
    fn load(
        &self,
        name: &str,
        bytes: Vec<u8>,
        attempt: Attempt,
    ) -> impl Future<Output = Result<Loaded<Self::Artifact>, String>> + Send;
}

/// The loader of a host.
pub struct PackageLoader {
    sandbox: Arc<Sandbox>,
    /// `None` where the files are trusted.
    processes: Option<LoadProcesses>,
}

impl PackageLoader {
    /// Return a loader that loads each file in a child process before the host reads it.
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
        })
    }

    /// Return a loader that loads files in this process: for tests, whose files are trusted.
    pub fn in_this_process(sandbox: Arc<Sandbox>) -> PackageLoader {
        PackageLoader {
            sandbox,
            processes: None,
        }
    }

    /// Return the sandbox that calls the loaded packages.
    pub fn sandbox(&self) -> &Arc<Sandbox> {
        &self.sandbox
    }

    /// Load `bytes` in this process, with the compiled code of the cache if another process has loaded them.
    async fn load_here(&self, bytes: Arc<Vec<u8>>) -> Result<Arc<Artifact>, String> {
        let (sandbox, is_known) = (Arc::clone(&self.sandbox), self.processes.is_some());
        let loaded = off_thread(move || sandbox.load_unless_known(&bytes, is_known)).await?;
        loaded.map(Arc::new).map_err(|refusal| refusal.to_string())
    }
}

impl Loader for PackageLoader {
    type Artifact = Artifact;

    fn form(artifact: &Artifact) -> Form {
        artifact.form
    }

    async fn is_known(&self, digest: &ArtifactDigest) -> bool {
        match &self.processes {
            Some(processes) => processes.is_known(digest).await,
            None => false,
        }
    }

    async fn load(
        &self,
        name: &str,
        bytes: Vec<u8>,
        attempt: Attempt,
    ) -> Result<Loaded<Artifact>, String> {
        let bytes = Arc::new(bytes);
        let Some(processes) = &self.processes else {
            let artifact = self.load_here(bytes).await?;
            let description = self.sandbox.describe(&artifact).await;
            return Ok((
                artifact,
                description.map_err(|refusal| refusal.to_string())?,
            ));
        };
        let description = processes.load(name, &bytes, attempt).await?;
        Ok((self.load_here(bytes).await?, description))
    }
}

/// Load `bytes` and check the package's description; the error is one sentence.
pub async fn load<L: Loader>(
    loader: &L,
    name: &str,
    bytes: Vec<u8>,
    attempt: Attempt,
) -> Result<Compiled<L::Artifact>, String> {
    let (artifact, description) = loader.load(name, bytes, attempt).await?;
    let manifest = manifest_of(name, description.as_ref())?;
    for warning in &manifest.warnings {
        let warning = printable_line(warning);
        tracing::warn!(package = name, "in the package's description: {warning}");
    }
    Ok((artifact, Arc::new(manifest)))
}

fn manifest_of(name: &str, description: Option<&Value>) -> Result<Manifest, String> {
    match description {
        Some(description) => {
            Manifest::from_json(name, description).map_err(|error| printable_line(&error))
        }
        None => Ok(Manifest::undescribed(name)),
    }
}
