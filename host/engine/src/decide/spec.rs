//! The revisions of schedules, each parsed once.

use std::collections::{BTreeSet, HashMap, HashSet, hash_map};
use std::sync::{Arc, Mutex, Weak};

use crate::error::{EngineError, Result};
use crate::run::user_context::UserContext;
use crate::tell::log_spans;
use campanile_control::lock::lock;
use campanile_control::schedules::definition::{parse, policies};
use campanile_model::ids::ScheduleId;
use campanile_model::json_text::JsonObject;
use campanile_package::Package;
use campanile_schedule::policy::{Delivery, Policies};
use campanile_schedule::rule::Rule;
use campanile_store::Tx;
use campanile_store::schedules::{self, Revision};

/// A revision of a schedule with its rule, policies and context parsed.
pub struct Spec {
    pub definition: Revision,
    /// None when this version cannot read the rule or the policies, because another version stored them.
    pub rule: Option<Rule>,
    pub policies: Policies,
    /// False when this version cannot read the policies. Then no queued launch is released, and no lost run is run again.
    pub knows_policies: bool,
    pub context: JsonObject,
    /// The keys of the schedule and of the package's sidecar, merged once, and the package of that sidecar. A launch with a
    /// context of its own does not use it.
    user: Mutex<Option<(Weak<Package>, Arc<UserContext>)>>,
}

impl Spec {
    /// Returns about how many bytes of memory it takes.
    fn bytes(&self) -> usize {
        let Revision {
            policies,
            args,
            context,
            ..
        } = &self.definition;
        let args = args.as_ref().map_or(0, String::len);
        SPEC_BYTES + policies.len() + args + CONTEXT_FACTOR * context.len()
    }

    /// Returns the user's part of the context of a launch whose own context is `trigger`.
    ///
    /// The sidecar's keys are those of now; the schedule's are those of the revision that decided the launch.
    pub(crate) fn user_context(
        &self,
        package: Option<&Arc<Package>>,
        trigger: Option<&str>,
    ) -> Arc<UserContext> {
        let make = || {
            let package = package.map(|package| &**package);
            Arc::new(UserContext::of(package, &self.context, trigger))
        };
        let Some(package) = package.filter(|_| trigger.is_none()) else {
            return make();
        };
        let mut kept = lock(&self.user);
        if let Some((of, user)) = &*kept
            && std::ptr::eq(of.as_ptr(), Arc::as_ptr(package))
        {
            return Arc::clone(user);
        }
        let user = make();
        // The weak reference keeps the address from being used for another package.
        *kept = Some((Arc::downgrade(package), Arc::clone(&user)));
        user
    }
}

/// Parsed revisions. A revision does not change, unless the database loses commits: see [`Specs::forget`].
#[derive(Default)]
pub struct Specs {
    kept: Mutex<Kept>,
    /// The schedules of which one revision counts from ends.
    counting_from_ends: Mutex<HashSet<ScheduleId>>,
}

/// The bytes of the parsed revisions that are kept, at most.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// The bytes of a parsed revision besides its texts.
const SPEC_BYTES: usize = 1 << 10;
/// About how many times the bytes of its text a parsed context takes.
const CONTEXT_FACTOR: usize = 4;

/// How many of the oldest revisions are dropped when a revision is added.
const DROPPED_AT_ONCE: usize = 2;

/// The revisions that were used last, in three generations. When the youngest has a third of all bytes, it replaces the older
/// one, whose revisions are dropped a few at a time: 30,000 at once take 0.1 s, in which the transaction of a decision holds
/// the writer of SQLite. Revisions that are left at the next replacement are dropped at once: they are few, or large.
#[derive(Default)]
struct Kept {
    young: HashMap<Key, Arc<Spec>>,
    young_bytes: usize,
    old: HashMap<Key, Arc<Spec>>,
    dropped: hash_map::IntoIter<Key, Arc<Spec>>,
}

type Key = (ScheduleId, i64);

impl Kept {
    fn get(&mut self, key: &Key) -> Option<Arc<Spec>> {
        if let Some(spec) = self.young.get(key) {
            return Some(Arc::clone(spec));
        }
        let spec = self.old.remove(key)?;
        self.insert(*key, Arc::clone(&spec));
        Some(spec)
    }

    fn insert(&mut self, key: Key, spec: Arc<Spec>) {
        self.dropped.by_ref().take(DROPPED_AT_ONCE).for_each(drop);
        if self.young_bytes >= KEPT_BYTES_MAX / 3 {
            let young = std::mem::take(&mut self.young);
            self.dropped = std::mem::replace(&mut self.old, young).into_iter();
            self.young_bytes = 0;
        }
        let bytes = spec.bytes();
        if self.young.insert(key, spec).is_none() {
            self.young_bytes += bytes;
        }
    }
}

impl Specs {
    /// Removes all parsed revisions. Each is read again when it is used next.
    pub(crate) fn forget(&self) {
        *lock(&self.kept) = Kept::default();
    }

    /// Returns a revision, which `tx` reads the first time.
    pub async fn get(&self, tx: &mut Tx, id: ScheduleId, revision: i64) -> Result<Arc<Spec>> {
        let mut specs = self.get_all(tx, [(id, revision)]).await?;
        Ok(specs.swap_remove(0))
    }

    /// Returns a revision that the caller has read. It is parsed unless it is known, and it is not kept.
    pub fn of(&self, definition: Revision) -> Arc<Spec> {
        let key = (definition.schedule_id, definition.revision);
        let known = lock(&self.kept).get(&key);
        known.unwrap_or_else(|| Arc::new(self.parse(definition)))
    }

    /// Parses a revision and keeps it.
    fn add(&self, definition: Revision) -> Arc<Spec> {
        let key = (definition.schedule_id, definition.revision);
        let spec = Arc::new(self.parse(definition));
        lock(&self.kept).insert(key, Arc::clone(&spec));
        spec
    }

    fn parse(&self, definition: Revision) -> Spec {
        let rule = match parse(&definition) {
            Ok((rule, _)) => Some(rule),
            Err(error) => {
                log_spans::decision(Some(&definition.name), None).in_scope(|| {
                    tracing::error!(
                        %error,
                        "this version cannot read the schedule, so it decides none of its slots"
                    );
                });
                None
            }
        };
        let policies = policies(&definition).ok();
        let counts_from_ends = |rule: &Rule| rule.delay_after_completion().is_some();
        if rule.as_ref().is_some_and(counts_from_ends) {
            lock(&self.counting_from_ends).insert(definition.schedule_id);
        }
        let context = serde_json::from_str(&definition.context).unwrap_or_default();
        Spec {
            definition,
            rule,
            knows_policies: policies.is_some(),
            policies: policies.unwrap_or_else(cautious),
            context,
            user: Mutex::default(),
        }
    }

    /// Returns revisions, in their order. One statement reads those used for the first time.
    pub async fn get_all(
        &self,
        tx: &mut Tx,
        revisions: impl IntoIterator<Item = (ScheduleId, i64)>,
    ) -> Result<Vec<Arc<Spec>>> {
        let revisions: Vec<(ScheduleId, i64)> = revisions.into_iter().collect();
        let mut specs: HashMap<Key, Arc<Spec>> = {
            let mut kept = lock(&self.kept);
            let known = revisions.iter().map(|key| (*key, kept.get(key)));
            known.filter_map(|(key, spec)| Some((key, spec?))).collect()
        };
        let unknown = revisions.iter().filter(|key| !specs.contains_key(key));
        let unknown: BTreeSet<(ScheduleId, i64)> = unknown.copied().collect();
        let unknown: Vec<(ScheduleId, i64)> = unknown.into_iter().collect();
        for definition in schedules::revisions(tx, &unknown).await? {
            let key = (definition.schedule_id, definition.revision);
            specs.insert(key, self.add(definition));
        }
        let found = revisions.into_iter().map(|(id, revision)| {
            let bug = || EngineError::Bug(format!("schedule {id} has no revision {revision}"));
            specs.get(&(id, revision)).cloned().ok_or_else(bug)
        });
        found.collect()
    }

    /// Notes schedules whose rule counts from the end of the last launch.
    pub fn note_counting_from_ends(&self, schedules: Vec<ScheduleId>) {
        lock(&self.counting_from_ends).extend(schedules);
    }

    /// Returns those of `schedules` of which a known revision counts from the end of the last launch.
    pub fn counting_from_ends(
        &self,
        schedules: impl IntoIterator<Item = ScheduleId>,
    ) -> BTreeSet<ScheduleId> {
        let counting = lock(&self.counting_from_ends);
        let schedules = schedules.into_iter();
        schedules.filter(|id| counting.contains(id)).collect()
    }
}

/// Returns the policies for a revision whose policies this version cannot read.
fn cautious() -> Policies {
    Policies {
        delivery: Some(Delivery::AtMostOnce),
        ..Policies::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use campanile_model::clock::Timestamp;
    use campanile_schedule::rule::{RuleKind, RuleText};

    fn revision(context: &str) -> Revision {
        Revision {
            schedule_id: ScheduleId::random(),
            revision: 1,
            name: "hourly".to_owned(),
            package: "hello".to_owned(),
            task: None,
            rule: RuleText::new(RuleKind::Cron, "@hourly", "UTC"),
            policies: "{}".to_owned(),
            defaults: "{}".to_owned(),
            args: None,
            context: context.to_owned(),
            since: Timestamp::EPOCH,
        }
    }

    #[test]
    fn revisions_are_kept_up_to_a_number_of_bytes_and_the_used_ones_longest() {
        let context = format!(r#"{{"text": "{}"}}"#, "a".repeat(1 << 20));
        let specs = Specs::default();
        let used = specs.add(revision(&context));
        let key = (used.definition.schedule_id, used.definition.revision);
        for _ in 0..100 {
            specs.add(revision(&context));
            assert!(lock(&specs.kept).get(&key).is_some());
        }
        let kept = lock(&specs.kept);
        let bytes = kept.young.values().chain(kept.old.values());
        let bytes: usize = bytes.map(|spec| spec.bytes()).sum();
        let bytes = bytes + kept.dropped.len() * used.bytes();
        assert!(bytes <= KEPT_BYTES_MAX + 2 * used.bytes(), "{bytes}");
        assert!(bytes >= KEPT_BYTES_MAX / 4, "{bytes}");
    }

    #[test]
    fn revisions_are_dropped_a_few_at_a_time() {
        let context = format!(r#"{{"text": "{}"}}"#, "a".repeat(64 << 10));
        let specs = Specs::default();
        let (mut before, mut most) = (0, 0);
        for _ in 0..1_000 {
            specs.add(revision(&context));
            let kept = lock(&specs.kept);
            let now = kept.young.len() + kept.old.len() + kept.dropped.len();
            assert!(now + DROPPED_AT_ONCE > before, "{now} after {before}");
            (before, most) = (now, now.max(most));
        }
        assert!(most < 1_000, "none were dropped");
    }
}
