//! What a schedules file changes, as a record.

use serde::{Deserialize, Serialize};

use crate::admin::schedule_admin::{Diff, Difference, Refusal};

/// The changes that a schedules file makes, or would make.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub struct FileReport {
    /// Names of schedules.
    pub added: Vec<String>,
    pub changed: Vec<ChangedSchedule>,
    /// Names of schedules.
    pub removed: Vec<String>,
    pub refused: Vec<Refusal>,
}

/// A schedule whose definition changes.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub struct ChangedSchedule {
    pub schedule: String,
    pub differences: Vec<Difference>,
}

impl FileReport {
    /// Returns the report of these changes.
    pub fn new(diff: Diff, refused: Vec<Refusal>) -> FileReport {
        let changed = diff.changed.into_iter().map(|changed| ChangedSchedule {
            schedule: changed.wanted.name,
            differences: changed.differences,
        });
        let added = diff.added.into_iter().map(|wanted| wanted.name);
        let removed = diff.removed.into_iter();
        FileReport {
            added: added.collect(),
            changed: changed.collect(),
            removed: removed.map(|schedule| schedule.definition.name).collect(),
            refused,
        }
    }
}
