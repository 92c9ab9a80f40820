//! Orders concerning packages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::order::{Desk, Method, Order, OrderRoute, Scope};
use crate::package_removal::{self, RemovedPackage};
use crate::problem::Problem;
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

    const ROUTE: OrderRoute = OrderRoute {
        id: "remove_package",
        method: Method::Post,
        path: "/api/v1/packages/{name}/remove",
        role: Role::Approver,
        scope: Scope::Named,
        cost: 5,
        summary: "Remove a package whose file is gone",
    };

    async fn run(&self, name: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        Ok(package_removal::remove(tx, name, self.keep_history, desk.by, desk.now).await?)
    }
}
