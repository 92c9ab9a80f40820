//! A loader for tests, without a compiler.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;

use crate::loader::{Attempt, LoadError, Loaded, Loader, Pace};
use crate::manifest::Descriptions;
use campanile_model::ids::ArtifactDigest;
use campanile_sandbox::Form;

/// Accepts any bytes starting with `good`. A JSON object among them serves as the description.
pub(crate) struct FakeLoader {
    pub(crate) loads: AtomicUsize,
    /// Ends loads of bytes containing `slow`.
    pub(crate) slow_ends: Semaphore,
    descriptions: Descriptions,
}

impl FakeLoader {
    pub(crate) fn new() -> FakeLoader {
        FakeLoader {
            loads: AtomicUsize::new(0),
            slow_ends: Semaphore::new(0),
            descriptions: Descriptions::default(),
        }
    }
}

impl Loader for FakeLoader {
    type Artifact = Vec<u8>;

    fn form(_: &Vec<u8>) -> Form {
        Form::TypedComponent
    }

    fn descriptions(&self) -> &Descriptions {
        &self.descriptions
    }

    async fn recall(&self, digest: &ArtifactDigest) -> Option<Result<Loaded<Vec<u8>>, String>> {
        let bytes = b"good and known".to_vec();
        (*digest == ArtifactDigest::of(&bytes)).then(|| Ok((Arc::new(bytes), None)))
    }

    async fn load(
        &self,
        _: &str,
        bytes: Arc<Vec<u8>>,
        _: Attempt,
        pace: Pace,
    ) -> Result<Loaded<Vec<u8>>, LoadError> {
        if bytes.ends_with(b"slow") && pace == Pace::Quick {
            return Err(LoadError::Slow);
        }
        self.loads.fetch_add(1, Ordering::Relaxed);
        assert!(!bytes.starts_with(b"panic"), "the loader panics");
        if bytes.ends_with(b"slow") {
            self.slow_ends.acquire().await.unwrap().forget();
        }
        if !bytes.starts_with(b"good") {
            return Err(LoadError::Refused("not good".to_owned()));
        }
        let start = bytes.iter().position(|byte| *byte == b'{');
        let description = start.map(|start| serde_json::from_slice(&bytes[start..]).unwrap());
        Ok((bytes, description))
    }
}
