//! Files of packages that a client sends.

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use serde::Serialize;
use tokio::sync::SemaphorePermit;

use crate::app::{State, Uploads};
use crate::call::{Call, Result};
use crate::change::change;
use crate::problem::ApiProblem;
use campanile_control::problem::{ErrorCode, Problem};
use campanile_model::ids::ArtifactDigest;
use campanile_model::status::EventKind;
use campanile_package::{FILE_BYTES_MAX, UploadError};
use campanile_store::changes;

/// The media type of a file of a package.
pub(crate) const MEDIA_TYPE: &str = "application/wasm";
/// The most bytes of a file.
pub(crate) const BYTES_MAX: usize = FILE_BYTES_MAX as usize;

/// A file that was put into the plugins folder.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct UploadReport {
    pub package: String,
    pub digest: ArtifactDigest,
    pub size_bytes: u64,
    /// Whether the folder had a file of this name.
    pub replaced: bool,
    /// `uploaded`. The host loads it within seconds; whether it then runs, its approval decides.
    pub done: &'static str,
}

/// The package that comes with the program.
pub(crate) const HELLO: &str = "hello";

fn no_uploads() -> ApiProblem {
    let problem = Problem::new(ErrorCode::Refused, "this host takes no uploads");
    let hint = "write `upload = true` under `[server]` in its configuration, or copy the file to its plugins folder";
    problem.hint(hint).into()
}

/// Returns where the file of a request goes.
///
/// A host that takes no uploads takes the package of its own program all the same: nobody else chooses its bytes.
fn uploads_for(call: &Call) -> Result<&Uploads> {
    let is_hello = |hello: &[u8]| call.name("name") == HELLO && call.body.as_ref() == hello;
    let uploads = call.state.app.uploads.as_ref();
    let uploads = uploads.filter(|uploads| uploads.takes_all || is_hello(uploads.hello));
    uploads.ok_or_else(no_uploads)
}

/// Returns the permit for an upload without waiting, or the error that says why there is none.
pub(crate) fn turn(state: &State) -> Result<SemaphorePermit<'_>> {
    match state.takes_uploads() {
        true => hello_turn(state),
        false => Err(no_uploads()),
    }
}

/// Returns the name and the content of the file of the package `hello`.
pub(crate) fn hello(state: &State) -> Result<(String, Bytes)> {
    let uploads = state.app.uploads.as_ref().ok_or_else(no_uploads)?;
    Ok((format!("{HELLO}.wasm"), Bytes::from_static(uploads.hello)))
}

/// Returns the permit for the package `hello`, as [`turn`] does for any file.
pub(crate) fn hello_turn(state: &State) -> Result<SemaphorePermit<'_>> {
    state.upload_turn.try_acquire().map_err(|_| {
        ApiProblem::unavailable("this host takes another upload now; send the file again later")
    })
}

fn problem(error: UploadError) -> ApiProblem {
    let (code, why) = match error {
        UploadError::Invalid(why) => (ErrorCode::InvalidArgument, why),
        UploadError::Refused(why) => (ErrorCode::Refused, why),
        UploadError::Failed(why) => (ErrorCode::Unavailable, why),
    };
    Problem::new(code, why).into()
}

pub(crate) async fn upload(call: Call) -> Result {
    let kind = call.headers.get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind != MEDIA_TYPE {
        return Err(ApiProblem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            ErrorCode::InvalidArgument,
            format!(
                "the body is the file of a package: send the header `Content-Type: {MEDIA_TYPE}`"
            ),
        ));
    }
    let Uploads {
        folder, takes_all, ..
    } = uploads_for(&call)?;
    let checked = folder.check(call.name("name"), call.body.to_vec(), call.now());
    let mut checked = checked.await.map_err(problem)?;
    if checked.replaces && !takes_all {
        let message = format!("the plugins folder has a file {HELLO}.wasm already");
        let problem = Problem::new(ErrorCode::Conflict, message);
        return Err(problem
            .hint("`campanile package show hello` shows it")
            .into());
    }
    change!(call, StatusCode::CREATED, |tx, now| {
        let (name, digest) = (&checked.package, checked.digest.short());
        let detail = format!(
            "by {}: the version {digest}, {} bytes",
            call.by(),
            checked.size_bytes
        );
        changes::record(tx, now, EventKind::PackageUploaded, name, &detail).await?;
        let report = UploadReport {
            package: checked.package.clone(),
            digest: checked.digest.clone(),
            size_bytes: checked.size_bytes,
            replaced: checked.replaces,
            done: "uploaded",
        };
        // Before the commit: without the file in the folder there is no event, and the idempotency key has no answer, so that the
        // client can send the file again. If the commit fails, the file stays, and sending it again records it.
        checked.publish().await.map_err(problem)?;
        (report, None)
    })
}
