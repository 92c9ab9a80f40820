//! Orders concerning schedules files.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admin::schedule_admin::ScheduleDefinition;
use crate::bounds::Text;
use crate::order::{Desk, Endpoint, Order, Scope};
use crate::orders::definition::Definition;
use crate::problem::{ErrorCode, Problem};
use crate::records::schedules_file::FileReport;
use crate::schedules::schedules_file::{apply_for, rehearse};
use campanile_model::access::Role;
use campanile_package::quota::check_group;
use campanile_store::Tx;

/// Name of a schedules file.
pub type FileName = Text<1, 1_000>;

/// The schedules of a file.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SchedulesFile {
    pub schedules: Vec<Definition>,
}

/// A schedules file to compare, or to apply.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NamedFile {
    /// The name of the file, for the record and for messages.
    pub file: FileName,
    pub schedules: Vec<Definition>,
}

impl NamedFile {
    /// Returns the file's schedules.
    fn wanted(&self, desk: &Desk<'_>) -> Result<Vec<ScheduleDefinition>, Problem> {
        let file = &self.file;
        let refused = |why: String| Problem::new(ErrorCode::InvalidArgument, why);
        let wanted = self.schedules.iter().cloned().map(ScheduleDefinition::from);
        let wanted = Vec::from_iter(wanted);
        for ScheduleDefinition { name, policies, .. } in &wanted {
            check_group(policies, &desk.settings.groups)
                .map_err(|why| refused(format!("{file}: the schedule `{name}`: {why}")))?;
        }
        Ok(wanted)
    }
}

/// Show what a schedules file would change.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct CheckFile(pub NamedFile);

impl Order for CheckFile {
    type Output = FileReport;

    const ENDPOINT: Endpoint = Endpoint::post(
        "check_schedules_file",
        "/api/v1/schedules-file/check",
        (Role::Editor, Scope::Installation),
        "Show what a schedules file would change, without changing it",
    )
    .cost(20);

    const IS_REHEARSAL: bool = true;

    async fn run(&self, _: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        let (diff, refused) = rehearse(tx, &self.0.wanted(desk)?, desk.now).await?;
        Ok(FileReport::new(diff, refused))
    }
}

/// Make the schedules of files those of this file.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct ReconcileFile(pub NamedFile);

impl Order for ReconcileFile {
    type Output = FileReport;

    const ENDPOINT: Endpoint = Endpoint::post(
        "reconcile_schedules_file",
        "/api/v1/schedules-file/reconcile",
        (Role::Editor, Scope::Installation),
        "Make the schedules of files those that a schedules file defines",
    )
    .cost(20);

    async fn run(&self, _: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        let wanted = self.0.wanted(desk)?;
        let diff = apply_for(tx, &self.0.file, &wanted, desk.by, desk.now).await?;
        Ok(FileReport::new(diff, Vec::new()))
    }
}
