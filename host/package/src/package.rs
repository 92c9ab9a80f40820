//! One version of a package, the set of active packages, and the changes that a scan of the folder finds.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use crate::context;
use crate::grant_record::GrantRecord;
use crate::manifest::{MAX_ATTEMPTS_DEFAULT, Manifest};
use crate::own_record::OwnRecord;
use crate::sidecar::Sidecar;
use crate::spec::ScheduleDefinition;
use campanile_model::ids::ArtifactDigest;
use campanile_model::text::printable_line;
use campanile_sandbox::{Artifact, Limits, Resource};

/// Compiled code with its manifest.
pub(crate) type Compiled<A> = (Arc<A>, Arc<Manifest>);

/// One version of one package, with its sidecar. `A` is the compiled code, which tests replace.
pub struct Package<A = Artifact> {
    /// The file's name without `.wasm`. It identifies the package, whatever its author calls it.
    pub name: String,
    pub digest: ArtifactDigest,
    pub artifact: Arc<A>,
    pub manifest: Arc<Manifest>,
    pub sidecar: Arc<Sidecar>,
    /// The SHA-256 of the sidecar's text; `None` when there is no sidecar.
    pub sidecar_hash: Option<String>,
    /// The grants of the sidecar, as the database stores them.
    pub grant_record: GrantRecord,
    pub path: PathBuf,
    /// The text of its signature file, if a key that the host trusts made it.
    pub signature: Option<String>,
    /// The host's limits, without the changes of the sidecar; see [`Package::limits_of`].
    pub limits: Limits,
}

impl<A> Package<A> {
    pub(crate) fn compiled(&self) -> Compiled<A> {
        (Arc::clone(&self.artifact), Arc::clone(&self.manifest))
    }

    /// Returns the limits of a call of `task`.
    ///
    /// A package may propose less time than it would get. Only the operator gives more, in the sidecar.
    pub fn limits_of(&self, task: &str) -> Limits {
        let mut limits = self.sidecar.limits.over(&self.limits);
        if self.sidecar.limits.get(Resource::Timeout).is_none()
            && let Some(proposed) = self.manifest.task(task).and_then(|task| task.timeout)
        {
            limits.timeout = limits.timeout.min(proposed);
        }
        limits
    }

    /// Returns how often `task` may be attempted in one run: as the sidecar says, else as the package proposes.
    pub fn max_attempts_of(&self, task: &str) -> u32 {
        let proposed = || self.manifest.task(task).and_then(|task| task.max_attempts);
        let attempts = self.sidecar.max_attempts.or_else(proposed);
        attempts.unwrap_or(MAX_ATTEMPTS_DEFAULT)
    }

    /// Returns the schedules with their names, each context on top of the sidecar's context.
    ///
    /// The sidecar's list, even an empty one, replaces the schedules that the package proposes, and its `max_attempts` stands
    /// above theirs.
    pub fn schedules(&self) -> Vec<ScheduleDefinition> {
        let own = self.sidecar.schedules.clone();
        let mut schedules = own.unwrap_or_else(|| self.manifest.schedules());
        let is_proposed = self.sidecar.schedules.is_none();
        for schedule in &mut schedules {
            if is_proposed && self.sidecar.max_attempts.is_some() {
                schedule.policies.max_attempts = None;
            }
            schedule.context = context::merge(&self.sidecar.context, &schedule.context);
        }
        schedules
    }
}

impl<A> fmt::Debug for Package<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.digest.short())
    }
}

/// One difference between the plugins folder and the active packages.
pub enum Change<A = Artifact> {
    /// A package that was not active.
    Added(Arc<Package<A>>),
    /// Other code, another sidecar, or both.
    Updated {
        old: Arc<Package<A>>,
        new: Arc<Package<A>>,
    },
    /// The file has the active version again, after a version that was not activated.
    Restored(Arc<Package<A>>),
    /// The file of an active package is gone.
    Removed(Arc<Package<A>>),
    /// The file of a package that was not active is gone.
    Gone(String),
    /// The file or its sidecar cannot be used. Reported once until either changes.
    Rejected {
        name: String,
        /// That of the file, if it was read.
        digest: Option<ArtifactDigest>,
        error: String,
        /// The version that stays active, if there is one.
        kept: Option<ArtifactDigest>,
    },
}

/// One line for the log. An error may quote names from the file, so all text is made printable.
impl<A> fmt::Display for Change<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Added(new) => write!(f, "added {new:?}"),
            Change::Updated { old, new } if old.digest == new.digest => {
                write!(f, "applied the new settings of {new:?}")
            }
            Change::Updated { old, new } => {
                write!(f, "updated {new:?}, was {}", old.digest.short())
            }
            Change::Restored(active) => write!(f, "restored {active:?}"),
            Change::Removed(old) => write!(f, "removed {old:?}"),
            Change::Gone(name) => write!(f, "the file of {} is gone", printable_line(name)),
            Change::Rejected {
                name, error, kept, ..
            } => {
                write!(f, "rejected {}", printable_line(name))?;
                if let Some(kept) = kept {
                    write!(f, ", keeping {}", kept.short())?;
                }
                write!(f, ": {}", printable_line(error))
            }
        }
    }
}

/// The active packages by name, along with this host's record of its folder. Readers never wait for a scan.
pub struct Packages<A = Artifact> {
    own_record: OwnRecord,
    // Held only while an `Arc` is cloned or replaced, never across an await.
    active: RwLock<Active<A>>,
}

type Active<A> = Arc<BTreeMap<String, Arc<Package<A>>>>;

impl<A> Default for Packages<A> {
    fn default() -> Packages<A> {
        Packages::new(OwnRecord::default())
    }
}

impl<A> Packages<A> {
    /// Starts without active packages.
    pub fn new(own_record: OwnRecord) -> Packages<A> {
        Packages {
            own_record,
            active: RwLock::default(),
        }
    }

    /// Returns what this host records about its folder.
    pub fn own_record(&self) -> &OwnRecord {
        &self.own_record
    }

    /// Returns the active version of `name`.
    pub fn get(&self, name: &str) -> Option<Arc<Package<A>>> {
        self.all().get(name).cloned()
    }

    /// Returns all active packages at this moment.
    pub fn all(&self) -> Active<A> {
        // The map is whole even if a thread panicked while it held the lock.
        Arc::clone(&self.active.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Apply an addition, an update or a removal. The other changes do not affect the active packages.
    pub fn apply(&self, change: &Change<A>) {
        let mut active = self.active.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = BTreeMap::clone(&active);
        match change {
            Change::Added(new) | Change::Updated { new, .. } => {
                next.insert(new.name.clone(), Arc::clone(new));
            }
            Change::Removed(old) => {
                next.remove(&old.name);
            }
            Change::Rejected { .. } | Change::Restored(_) | Change::Gone(_) => return,
        }
        *active = Arc::new(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::LimitChanges;
    use crate::toml_reader::Document;
    use campanile_sandbox::Grants;
    use serde_json::json;
    use std::time::Duration;

    fn package(description: serde_json::Value, sidecar: Sidecar) -> Package<()> {
        Package {
            name: "backup".to_owned(),
            digest: ArtifactDigest::of(b""),
            artifact: Arc::new(()),
            manifest: Arc::new(Manifest::from_json("backup", &description).unwrap()),
            sidecar: Arc::new(sidecar),
            sidecar_hash: None,
            grant_record: GrantRecord::of(&Grants::default()),
            path: PathBuf::new(),
            signature: None,
            limits: Limits::default(),
        }
    }

    #[test]
    fn a_package_may_ask_for_less_time_and_only_the_sidecar_gives_more() {
        let description = json!({"tasks": [
            {"id": "quick", "timeout": "2s"}, {"id": "slow", "timeout": "1h", "max_attempts": 9},
            {"id": "plain"},
        ]});
        let proposed = package(description.clone(), Sidecar::default());
        let timeout = |package: &Package<()>, task: &str| package.limits_of(task).timeout;
        assert_eq!(timeout(&proposed, "quick"), Duration::from_secs(2));
        assert_eq!(timeout(&proposed, "slow"), Duration::from_secs(300));
        assert_eq!(timeout(&proposed, "plain"), Duration::from_secs(300));
        assert_eq!(proposed.max_attempts_of("slow"), 9);
        assert_eq!(proposed.max_attempts_of("plain"), 3);
        let limits = Document::parse("x.toml", "timeout = '30m'").unwrap();
        let ordered = package(
            description,
            Sidecar {
                limits: LimitChanges::read(limits.section(), u64::MAX).unwrap(),
                max_attempts: Some(1),
                ..Sidecar::default()
            },
        );
        for task in ["quick", "slow", "plain"] {
            assert_eq!(timeout(&ordered, task), Duration::from_secs(1800));
        }
        assert_eq!(ordered.max_attempts_of("slow"), 1);
    }

    #[test]
    fn a_sidecars_schedules_replace_the_proposals_and_its_context_is_their_base() {
        let description = json!({"schedules": [
            {"every": "5m", "context": {"b": 2}}, {"every": "6m", "name": "six"},
        ]});
        let context =
            [("a", 1), ("b", 1)].map(|(key, value)| (key.to_owned(), json!(value).into()));
        let context = context.into();
        let proposed = package(
            description.clone(),
            Sidecar {
                context,
                ..Sidecar::default()
            },
        );
        let schedules = proposed.schedules();
        assert_eq!(schedules[0].name, "backup");
        assert_eq!(json!(schedules[0].context), json!({"a": 1, "b": 2}));
        assert_eq!(schedules[1].name, "six");
        assert_eq!(json!(schedules[1].context), json!({"a": 1, "b": 1}));
        let silenced = package(
            description,
            Sidecar {
                schedules: Some(Vec::new()),
                ..Sidecar::default()
            },
        );
        assert_eq!(silenced.schedules(), []);
    }

    #[test]
    fn the_attempts_of_a_sidecar_stand_above_those_of_a_proposed_schedule() {
        let attempts = |sidecar| {
            let description = json!({"schedules": [{"every": "5m", "max_attempts": 9}]});
            package(description, sidecar).schedules()[0]
                .policies
                .max_attempts
        };
        assert_eq!(attempts(Sidecar::default()), Some(9));
        let sidecar = Sidecar {
            max_attempts: Some(2),
            ..Sidecar::default()
        };
        assert_eq!(attempts(sidecar), None);
    }

    #[test]
    fn a_rejection_is_one_line_for_any_file_name() {
        let change = Change::<()>::Rejected {
            name: "n\nl".to_owned(),
            digest: None,
            error: "a\nWARN forged".to_owned(),
            kept: None,
        };
        assert_eq!(change.to_string(), "rejected n\\nl: a\\nWARN forged");
    }
}
