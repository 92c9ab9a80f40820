//! Reads stored revisions of schedules, and the policies for those that set none.

use campanile_package::ScheduleDefinition;
use campanile_schedule::policy::Policies;
use campanile_schedule::rule::{HashKey, Rule};
use campanile_store::schedules::Revision;
use campanile_store::{DbError, Tx, schedule_defaults};

/// Returns the default policies for a revision being written, ignoring any stored by another version and unreadable to this one.
pub async fn recorded_defaults(tx: &mut Tx) -> Result<Policies, DbError> {
    let stored = schedule_defaults::get(tx).await?.unwrap_or_default();
    Ok(serde_json::from_str(&stored).unwrap_or_default())
}

/// Returns the definition in a revision, with its rule as text. It is enabled: a pause belongs to the state of a schedule.
///
/// # Errors
/// When this version cannot read it, because another version stored it.
pub fn read(revision: &Revision) -> Result<ScheduleDefinition, String> {
    let context = serde_json::from_str(&revision.context);
    let args = revision.args.as_deref();
    let args = args.map(serde_json::from_str).transpose();
    Ok(ScheduleDefinition {
        name: revision.name.clone(),
        package: revision.package.clone(),
        task: revision.task.clone(),
        rule: revision.rule.clone(),
        policies: own_policies(revision)?,
        args: args.map_err(|error| format!("its arguments: {error}"))?,
        context: context.map_err(|error| format!("its context: {error}"))?,
        enabled: true,
    })
}

/// Returns the rule and the policies of a revision.
///
/// # Errors
/// As [`read`].
pub fn parse(revision: &Revision) -> Result<(Rule, Policies), String> {
    let rule = Rule::parse(&revision.rule, HashKey::of(revision.schedule_id));
    let rule = rule.map_err(|error| error.to_string())?;
    Ok((rule, policies(revision)?))
}

/// Returns the policies alone, which can be read also where the zone of the rule is unknown: those that the definition sets,
/// and those of the configuration that it does not set.
///
/// # Errors
/// As [`read`].
pub fn policies(revision: &Revision) -> Result<Policies, String> {
    Ok(own_policies(revision)?.or(&defaults(revision)?))
}

/// Returns the policies that the definition sets.
///
/// # Errors
/// As [`read`].
pub fn own_policies(revision: &Revision) -> Result<Policies, String> {
    serde_json::from_str(&revision.policies).map_err(|error| format!("its policies: {error}"))
}

/// Returns the policies that the configuration of the hosts gave to the revision.
///
/// # Errors
/// As [`read`].
pub fn defaults(revision: &Revision) -> Result<Policies, String> {
    serde_json::from_str(&revision.defaults).map_err(|error| format!("its defaults: {error}"))
}
