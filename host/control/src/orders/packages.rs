//! Orders concerning packages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admin::approval::ungranted::check_granted;
use crate::admin::approval::{self, Attribution, PackageError, VersionChange};
use crate::admin::package_removal::{self, RemovedPackage};
use crate::bounds::Note;
use crate::order::{Desk, Endpoint, Order, Scope};
use crate::problem::Problem;
use crate::records::package::DecisionReport;
use campanile_model::access::Role;
use campanile_store::Tx;

/// What the removal of a package keeps.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(skip))]
#[serde(deny_unknown_fields)]
pub struct RemovePackage {
    /// Keep its versions and the decisions about them on record, and remove only the code
    #[cfg_attr(feature = "clap", arg(long))]
    #[serde(default)]
    pub keep_history: bool,
}

impl Order for RemovePackage {
    type Output = RemovedPackage;

    const ENDPOINT: Endpoint = Endpoint::post(
        "remove_package",
        "/api/v1/packages/{name}/remove",
        (Role::Approver, Scope::Named),
        "Remove a package whose file is gone",
    );

    async fn run(&self, name: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        Ok(package_removal::remove(tx, name, self.keep_history, desk.by, desk.now).await?)
    }
}

/// A decision against a version.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(skip))]
#[serde(deny_unknown_fields)]
pub struct DecisionRequest {
    /// The first digits of the version's digest
    #[cfg_attr(feature = "clap", arg(long, value_name = "DIGEST"))]
    pub digest: Option<String>,
    /// Why, for the record
    #[cfg_attr(feature = "clap", arg(long, value_name = "TEXT"))]
    pub note: Option<Note>,
}

/// A decision that makes a version active.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(skip))]
#[serde(deny_unknown_fields)]
pub struct ActivationRequest {
    /// The first digits of the version's digest; needed to approve when several versions are possible
    #[cfg_attr(feature = "clap", arg(long, value_name = "DIGEST"))]
    pub digest: Option<String>,
    /// Why, for the record
    #[cfg_attr(feature = "clap", arg(long, value_name = "TEXT"))]
    pub note: Option<Note>,
    /// Activate it although it asks for what its sidecar does not grant: calls that need it are denied
    #[cfg_attr(feature = "clap", arg(long))]
    #[serde(default)]
    pub anyway: bool,
}

impl ActivationRequest {
    /// Refuses a version asking for what isn't granted, unless that's meant.
    fn check(&self, package: &str, change: &VersionChange) -> Result<(), PackageError> {
        if self.anyway {
            return Ok(());
        }
        check_granted(package, change)
    }
}

/// Declares an order for each decision about a version.
macro_rules! decisions {
    ($($(#[$doc:meta])* $order:ident($request:ty): $id:literal, $path:literal, $summary:literal, $decide:path $(, $check:ident)?, $done:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        #[schemars(transparent)]
        pub struct $order(pub $request);

        impl Order for $order {
            type Output = DecisionReport;

            const ENDPOINT: Endpoint =
                Endpoint::post($id, $path, (Role::Approver, Scope::Named), $summary);

            fn seals(&self) -> bool {
                true
            }

            async fn run(&self, name: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
                let by = Attribution {
                    by: desk.by,
                    note: self.0.note.as_deref(),
                    key: desk.key()?,
                };
                let decided = $decide(tx, name, self.0.digest.as_deref(), by, desk.now).await?;
                $(self.0.$check(name, &decided)?;)?
                Ok(DecisionReport::new(name.to_owned(), $done, decided))
            }
        }
    )*};
}

decisions! {
    /// Activate the pending version, or one that was rejected.
    Approve(ActivationRequest): "approve_version", "/api/v1/packages/{name}/approve", "Activate the pending version, or one that was rejected",
        approval::approve, check, "approved";
    /// Reject the pending version.
    Reject(DecisionRequest): "reject_version", "/api/v1/packages/{name}/reject", "Reject the pending version",
        approval::reject, "rejected";
    /// Activate a former version.
    RollBack(ActivationRequest): "roll_back_package", "/api/v1/packages/{name}/rollback", "Activate a former version",
        approval::roll_back, check, "rolled_back";
}
