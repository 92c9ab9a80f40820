//! Why a decision about versions of a package is refused.

use super::approve_command;
use campanile_model::ids::ArtifactDigest;
use campanile_store::DbError;

/// Why a decision about versions is refused.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    #[error("there is no package named `{name}`{}", .nearest.as_ref().map_or_else(String::new, |name| format!("; did you mean `{name}`?")))]
    Unknown {
        name: String,
        nearest: Option<String>,
    },
    #[error("no version of `{name}` was ever active{}", .why.as_ref().map_or_else(String::new, |why| format!(": {why}")))]
    NoActiveVersion { name: String, why: Option<String> },
    #[error("`{0}` has no pending version")]
    NothingPending(String),
    #[error("the pending version of `{name}` is {pending}, not `{wanted}`")]
    NotPending {
        name: String,
        wanted: String,
        pending: ArtifactDigest,
    },
    #[error("the pending version of `{name}` is {}; name it, or one of {}, with --digest", .pending.short(), .others.join(", "))]
    AmbiguousPending {
        name: String,
        pending: ArtifactDigest,
        others: Vec<String>,
    },
    #[error("the version {digest} of `{name}` is rejected already")]
    Rejected {
        name: String,
        digest: ArtifactDigest,
    },
    #[error(
        "`{0}` cannot be the digest of a version: write its first hexadecimal digits, at least 4"
    )]
    NotADigest(String),
    #[error("`{name}` has no version `{wanted}`; it has {}", .known.join(", "))]
    NoVersion {
        name: String,
        wanted: String,
        known: Vec<String>,
    },
    #[error("`{wanted}` is the beginning of several versions of `{name}`: {}", .several.join(", "))]
    AmbiguousDigest {
        name: String,
        wanted: String,
        several: Vec<String>,
    },
    #[error("`{0}` has no former version to go back to")]
    NoFormer(String),
    #[error("the version {digest} of `{name}` is active already")]
    AlreadyActive {
        name: String,
        digest: ArtifactDigest,
    },
    #[error("the version {digest} of `{name}` was never active")]
    NeverActive {
        name: String,
        digest: ArtifactDigest,
    },
    #[error("the host {host} accepts no version of `{name}` but {pin}: its {name}.toml says so")]
    Pinned {
        name: String,
        host: String,
        pin: String,
    },
    #[error(transparent)]
    Db(#[from] DbError),
}

impl PackageError {
    /// Return what to do; empty when the message says so already.
    pub fn hint(&self) -> String {
        match self {
            PackageError::NothingPending(name) | PackageError::NoFormer(name) => {
                format!("`campanile package show {name}` lists its versions")
            }
            PackageError::NotPending { name, .. } => format!(
                "look at it with `campanile package diff {name}`; `campanile package rollback {name} --to DIGEST` \
                 goes back to a former version"
            ),
            PackageError::AmbiguousPending { name, pending, .. } => format!(
                "look at it with `campanile package diff {name}`; `{}` activates it",
                approve_command(name, pending)
            ),
            PackageError::Rejected { name, digest } => format!(
                "`{}` activates it all the same",
                approve_command(name, digest)
            ),
            PackageError::NotADigest(_) => {
                "`campanile package show NAME` lists them; their first digits are enough".to_owned()
            }
            PackageError::AmbiguousDigest { .. } => "give more digits".to_owned(),
            PackageError::NeverActive { name, .. } => format!(
                "copy its file into the folder; if it is then pending, `campanile package approve {name}`"
            ),
            PackageError::Pinned { .. } => "change or remove its `sha256` first".to_owned(),
            _ => String::new(),
        }
    }
}
