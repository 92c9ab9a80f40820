//! What the folder needs of the sandbox, and no more: tests of the folder compile nothing.

use std::sync::Arc;

use serde_json::Value;

use crate::wasm::{Artifact, Refusal, Sandbox};

/// Makes packages out of bytes. [`Sandbox`] in the product.
pub trait Loader: Send + Sync + 'static {
    /// Compiled code.
    type Artifact: Send + Sync + 'static;

    /// Check and compile. Called off the async threads, one file at a time.
    fn load(&self, bytes: &[u8]) -> Result<Self::Artifact, Refusal>;

    /// What the package says of itself, or none when it says nothing.
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
