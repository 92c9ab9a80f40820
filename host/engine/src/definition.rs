//! Reads a stored revision of a schedule: its rule and its policies.

use campanile_schedule::policy::Policies;
use campanile_schedule::rule::{HashKey, Rule};
use campanile_store::schedules::Revision;

/// Return the rule and the policies of a revision.
///
/// # Errors
/// When this version cannot read them, because another version stored them.
pub fn parse(revision: &Revision) -> Result<(Rule, Policies), String> {
    let rule = Rule::parse(&revision.rule, HashKey::of(revision.schedule_id));
    let rule = rule.map_err(|error| error.to_string())?;
    Ok((rule, policies(revision)?))
}

/// Return the policies alone, which can be read also where the zone of the rule is unknown.
///
/// # Errors
/// As [`parse`].
pub fn policies(revision: &Revision) -> Result<Policies, String> {
    serde_json::from_str(&revision.policies).map_err(|error| format!("its policies: {error}"))
}
