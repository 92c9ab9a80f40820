//! What schedules say, parsed once for every revision.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};

use super::EngineError;
use crate::db::Tx;
use crate::db::schedules::{self, Revision};
use crate::ids::ScheduleId;
use crate::schedule::{HashKey, Rule};

/// A revision of a schedule with its rule and context parsed.
pub struct Spec {
    pub says: Revision,
    /// None when this version cannot read it: only a different version can have stored it.
    pub rule: Option<Rule>,
    pub context: Map<String, Value>,
}

/// Parsed revisions. A revision never changes, so nothing here is ever stale.
#[derive(Default)]
pub struct Specs(Mutex<HashMap<(ScheduleId, i64), Arc<Spec>>>);

/// Parsed revisions kept at most; past it the store starts afresh.
const SPECS_MAX: usize = 100_000;

impl Specs {
    /// The revision, read through `tx` the first time.
    pub async fn get(
        &self,
        tx: &mut Tx,
        id: ScheduleId,
        revision: i64,
    ) -> Result<Arc<Spec>, EngineError> {
        if let Some(spec) = self.lock().get(&(id, revision)) {
            return Ok(Arc::clone(spec));
        }
        let Some(says) = schedules::revision(tx, id, revision).await? else {
            return Err(EngineError::Bug(format!(
                "schedule {id} has no revision {revision}"
            )));
        };
        let rule = match Rule::parse(&says.rule_text(), HashKey::of(id)) {
            Ok(rule) => Some(rule),
            Err(error) => {
                tracing::error!(schedule = %says.name, "the schedule stands still, its rule cannot be read by this version: {error}");
                None
            }
        };
        let context = serde_json::from_str(&says.context).unwrap_or_default();
        let spec = Arc::new(Spec {
            says,
            rule,
            context,
        });
        let mut specs = self.lock();
        if specs.len() >= SPECS_MAX {
            specs.clear();
        }
        specs.insert((id, revision), Arc::clone(&spec));
        Ok(spec)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(ScheduleId, i64), Arc<Spec>>> {
        // Only inserts happen under the lock, and they leave the map whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
