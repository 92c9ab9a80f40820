//! Compiling packages and reading their descriptions. Tests of the folder replace the compiler.

use std::sync::Arc;

use serde_json::Value;

use super::Manifest;
use super::files::off_thread;
use campanile_model::text::printable_line;
use campanile_sandbox::{Artifact, Refusal, Sandbox};

/// Compiles packages. [`Sandbox`] implements it.
pub trait Loader: Send + Sync + 'static {
    /// Compiled code.
    type Artifact: Send + Sync + 'static;

    /// Check and compile `bytes`. Called off the async threads, one file at a time.
    fn load(&self, bytes: &[u8]) -> Result<Self::Artifact, Refusal>;

    /// Return the package's description, or `None` when it has none.
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

/// Compile `bytes` off the async threads and read the package's description; the error is one sentence.
pub async fn compile<L: Loader>(
    loader: &Arc<L>,
    name: &str,
    bytes: Vec<u8>,
) -> Result<(Arc<L::Artifact>, Arc<Manifest>), String> {
    let artifact = {
        let loader = Arc::clone(loader);
        let loaded = off_thread(move || loader.load(&bytes)).await?;
        loaded.map_err(|refusal| refusal.to_string())?
    };
    let artifact = Arc::new(artifact);
    let description = loader.describe(&artifact).await;
    let manifest = match description.map_err(|refusal| refusal.to_string())? {
        Some(description) => {
            Manifest::from_json(name, &description).map_err(|error| printable_line(&error))?
        }
        None => Manifest::undescribed(name),
    };
    for warning in &manifest.warnings {
        let warning = printable_line(warning);
        tracing::warn!(package = name, "in the package's description: {warning}");
    }
    Ok((artifact, Arc::new(manifest)))
}
