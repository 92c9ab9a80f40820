//! Why a decision about versions of a package is refused.

use campanile_model::ids::ArtifactDigest;
use campanile_store::DbError;

/// Why a decision about versions is refused.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
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
    #[error("`{0}` has no former version to go back to")]
    NoFormer(String),
    /// Any other reason. `hint` says what to do; it is empty when the message says so already.
    #[error("{message}")]
    Refused { message: String, hint: String },
    #[error(transparent)]
    Db(#[from] DbError),
}

impl PackageError {
    pub(super) fn refused(message: String, hint: impl Into<String>) -> PackageError {
        let hint = hint.into();
        PackageError::Refused { message, hint }
    }

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
            PackageError::Refused { hint, .. } => hint.clone(),
            _ => String::new(),
        }
    }
}
