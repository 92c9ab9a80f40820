//! Questions about packages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds::{Limit, limit};
use crate::order::{Desk, Endpoint, Scope};
use crate::question::{Page, Question, Read, paged, plain};
use crate::records::package::{self, PackageDetail, PackageRecord};
use crate::records::package_diff::DiffReport;
use campanile_model::namespace::Namespace;
use campanile_store::{Tx, packages};

/// Packages to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListPackages {
    /// List those after this name
    pub after: Option<String>,
    /// Maximum number of entries, 50 unless given
    pub limit: Option<Limit>,
}

impl Question for ListPackages {
    type Answer = Vec<PackageRecord>;

    const ENDPOINT: Endpoint = Endpoint::get(
        "list_packages",
        "/api/v1/packages",
        Scope::Chosen,
        "List the packages that a host has ever seen, by name",
    );

    async fn ask(&self, _: &str, desk: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        let (pattern, limit) = (desk.namespace.map(Namespace::like), limit(self.limit));
        let rows = packages::list(tx, pattern.as_deref(), self.after.as_deref(), limit).await?;
        let records = Vec::from_iter(rows.into_iter().map(PackageRecord::from));
        Ok(Page::of(records, limit, |record| record.row.name.clone()))
    }
}

plain! {
    /// Show a package.
    GetPackage;
}

impl Question for GetPackage {
    type Answer = PackageDetail;

    const ENDPOINT: Endpoint = Endpoint::get(
        "get_package",
        "/api/v1/packages/{name}",
        Scope::Named,
        "Show one package with its versions",
    );

    async fn ask(&self, name: &str, _: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        let row = package::find(tx, name).await?;
        Ok(PackageDetail::read(tx, row).await?.into())
    }
}

/// Versions to compare.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(skip))]
#[serde(deny_unknown_fields)]
pub struct DiffPackage {
    /// The first digits of a version's digest [default: the active version]
    pub from: Option<String>,
    /// The first digits of another version's digest [default: the pending version, or with FROM the active one]
    pub to: Option<String>,
}

impl Question for DiffPackage {
    type Answer = DiffReport;

    const ENDPOINT: Endpoint = Endpoint::get(
        "diff_package",
        "/api/v1/packages/{name}/diff",
        Scope::Named,
        "Show what changes from one version to another",
    )
    .cost(5);

    async fn ask(&self, name: &str, _: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        let (from, to) = (self.from.as_deref(), self.to.as_deref());
        Ok(DiffReport::read(tx, name, from, to).await?.into())
    }
}

paged!(ListPackages);
