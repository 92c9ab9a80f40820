//! `campanile package`: what the hosts have in their folders.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Value, json};

use super::Common;
use super::output::{self, Failure, cell};
use crate::db::packages::{self, PackageRow};
use crate::db::schedules;
use crate::engine::schedules as orders;
use crate::telemetry::printable;

#[derive(Subcommand)]
pub(super) enum Package {
    /// All packages that were ever seen
    List,
    /// One package: what it says of itself, and its schedules
    Show {
        /// The package's name: that of its file without .wasm
        name: String,
    },
}

impl Package {
    pub async fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        let db = common.open().await?;
        let mut tx = db.read().await?;
        match self {
            Package::List => {
                let rows = packages::list(&mut tx, None).await?;
                list(common, rows)?;
            }
            Package::Show { name } => {
                let row = match packages::find(&mut tx, &name).await? {
                    Some(row) => row,
                    // Names the nearest one.
                    None => orders::known_package(&mut tx, &name).await?,
                };
                let own = schedules::list(&mut tx, None, Some(&row.name)).await?;
                let own: Vec<String> = own.into_iter().map(|schedule| schedule.says.name).collect();
                show(common, &row, &own)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn state(row: &PackageRow) -> &'static str {
    match (&row.digest, row.missing_since, &row.rejection) {
        (None, _, _) => "rejected",
        (Some(_), Some(_), _) => "missing",
        (Some(_), None, Some(_)) => "active, newest file rejected",
        (Some(_), None, None) => "active",
    }
}

fn value(row: &PackageRow) -> Value {
    json!({
        "name": row.name,
        "state": state(row),
        "digest": row.digest,
        "form": row.form,
        "size_bytes": row.size_bytes,
        "loaded_at": row.loaded_at,
        "missing_since": row.missing_since,
        "rejection": row.rejection,
        "rejected_at": row.rejected_at,
    })
}

fn list(common: &Common, rows: Vec<PackageRow>) -> Result<(), Failure> {
    if common.json {
        return output::json_out(&rows.iter().map(value).collect::<Vec<_>>());
    }
    output::table(
        [
            "PACKAGE",
            "STATE",
            "DIGEST",
            "FORM",
            "SIZE",
            "LOADED",
            "REJECTION",
        ],
        rows.into_iter().map(|row| {
            [
                row.name.clone(),
                state(&row).to_owned(),
                cell(&row.digest.as_ref().map(|digest| digest.short().to_owned())),
                cell(&row.form),
                cell(
                    &row.size_bytes
                        .map(|size| bytesize::ByteSize::b(size.unsigned_abs())),
                ),
                row.loaded_at.to_string(),
                row.rejection.unwrap_or_default(),
            ]
        }),
    )
}

fn show(common: &Common, row: &PackageRow, schedules: &[String]) -> Result<(), Failure> {
    let manifest: Value = serde_json::from_str(&row.manifest).unwrap_or_default();
    if common.json {
        let mut value = value(row);
        value["manifest"] = manifest;
        value["schedules"] = json!(schedules);
        return output::json_out(&value);
    }
    for (key, value) in [
        ("package", row.name.clone()),
        ("state", state(row).to_owned()),
        ("digest", cell(&row.digest)),
        ("form", cell(&row.form)),
        ("loaded", row.loaded_at.to_string()),
        ("missing", cell(&row.missing_since)),
        ("rejection", cell(&row.rejection)),
        ("schedules", schedules.join(", ")),
    ] {
        output::line(&format!("{key:9} {}", printable(&value)))?;
    }
    output::line("manifest")?;
    output::line(&printable(&format!("{manifest:#}")))
}
