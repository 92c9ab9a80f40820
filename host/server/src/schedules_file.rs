//! The routes of schedules files.

use axum::http::StatusCode;

use crate::bodies;
use crate::call::{Call, Reply, Result};
use crate::change::change;
use crate::problem::ApiProblem;
use campanile_control::records::schedules_file::FileReport;
use campanile_control::schedule_admin::ScheduleDefinition;
use campanile_control::schedules_file::{apply_for, rehearse};
use campanile_package::quota::check_group;

/// The most characters of the name of a file.
const FILE_CHARS_MAX: usize = 1_000;

/// Read the definitions of a file, and its name.
fn definitions(call: &Call) -> Result<(String, Vec<ScheduleDefinition>)> {
    let bodies::NamedFile { file, schedules } = call.json()?;
    if !(1..=FILE_CHARS_MAX).contains(&file.chars().count()) {
        let message = format!("`file` must have 1 to {FILE_CHARS_MAX} characters");
        return Err(ApiProblem::invalid(message));
    }
    let wanted = schedules.into_iter().map(ScheduleDefinition::from);
    let wanted = Vec::from_iter(wanted);
    for ScheduleDefinition { name, policies, .. } in &wanted {
        check_group(policies, &call.state.app.settings.groups)
            .map_err(|why| ApiProblem::invalid(format!("{file}: the schedule `{name}`: {why}")))?;
    }
    Ok((file, wanted))
}

pub(crate) async fn check(call: Call) -> Result {
    let (_, wanted) = definitions(&call)?;
    // The transaction is not committed, so nothing changes.
    let mut tx = call.db.write().await?;
    let (diff, refused) = rehearse(&mut tx, &wanted, call.now()).await?;
    drop(tx);
    Reply::json(&FileReport::new(diff, refused))
}

pub(crate) async fn reconcile(call: Call) -> Result {
    let (file, wanted) = definitions(&call)?;
    change!(call, StatusCode::OK, |tx, now| {
        let diff = apply_for(tx, &file, &wanted, call.by(), now).await?;
        (FileReport::new(diff, Vec::new()), None)
    })
}
