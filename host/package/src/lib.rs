//! Packages: the `.wasm` files of one folder, each with what it says of itself and what its operator allows.
//!
//! A scan ([`PluginsFolder::scan`]) finds what changed and publishes nothing; the engine records each change as
//! it is found and publishes it afterwards with [`Packages::apply`]. A run holds its `Arc` and ends on the
//! code it began with. This room knows nothing of the database, of launches, or of rules' meaning.

// Bad input ends in a sentence and an exit code, never in a panic. Tests may (clippy.toml).
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// Stdout is data, and the command line's.
#![warn(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use campanile_model::ids::ArtifactDigest;
use campanile_model::text::printable_line;
use campanile_sandbox::{Artifact, Grants, Limits, Resource};

mod assemble;
pub mod context;
pub mod files;
mod folder;
pub mod grant_record;
pub mod grants;
mod host_rules;
pub mod limits;
mod loader;
pub mod manifest;
pub mod names;
pub mod reference;
pub mod requests;
pub mod schedule_reader;
pub mod schedules_file;
pub mod sidecar;
pub mod spec;
pub mod toml_reader;

pub use assemble::{FILE_BYTES_MAX, OpenError, RecordedSidecar, name_of, open};
pub use folder::{FolderError, PluginsFolder, SETTLE, Scan};
pub use grant_record::GrantRecord;
pub use host_rules::HostRules;
pub use loader::{Loader, compile};
pub use manifest::{MAX_ATTEMPTS_DEFAULT, Manifest, Task};
pub use names::package_name_fault;
pub use sidecar::Sidecar;
pub use spec::ScheduleSpec;

/// One version of one package, as it can run. `A` is the compiled code; tests stand in for it.
pub struct Package<A = Artifact> {
    /// The file's name without `.wasm`: the package's identity, whatever its author calls it.
    pub name: String,
    pub digest: ArtifactDigest,
    pub artifact: Arc<A>,
    pub manifest: Arc<Manifest>,
    pub sidecar: Arc<Sidecar>,
    /// The SHA-256 of the sidecar's text; none when there is no sidecar.
    pub sidecar_hash: Option<String>,
    /// What the sidecar grants, as it is put on the record.
    pub grant_record: GrantRecord,
    pub path: PathBuf,
    /// The host's, before anything that the sidecar or the package says; see [`Package::limits_of`].
    pub limits: Limits,
}

impl<A> Package<A> {
    /// The code and what it says of itself.
    fn loaded(&self) -> assemble::Compiled<A> {
        (Arc::clone(&self.artifact), Arc::clone(&self.manifest))
    }

    /// Return the limits of a call of `task`: those of the host, with the changes of the sidecar.
    ///
    /// A package may ask for less time than it would get. Only the operator gives more, in the sidecar.
    pub fn limits_of(&self, task: &str) -> Limits {
        let mut limits = self.sidecar.limits.over(&self.limits);
        if self.sidecar.limits.get(Resource::Timeout).is_none()
            && let Some(proposed) = self.manifest.task(task).and_then(|task| task.timeout)
        {
            limits.timeout = limits.timeout.min(proposed);
        }
        limits
    }

    /// How often `task` may be attempted in one run: the sidecar's word, else the package's, else 3.
    pub fn max_attempts_of(&self, task: &str) -> u32 {
        let proposed = || self.manifest.task(task).and_then(|task| task.max_attempts);
        self.sidecar
            .max_attempts
            .or_else(proposed)
            .unwrap_or(MAX_ATTEMPTS_DEFAULT)
    }

    /// The schedules in force, each with its name and with the sidecar's context under its own:
    /// those of the sidecar when it lists any or none, else those that the package proposes.
    pub fn schedules(&self) -> Vec<(String, ScheduleSpec)> {
        let specs = match &self.sidecar.schedules {
            Some(specs) => specs,
            None => &self.manifest.schedules,
        };
        let mut named = spec::named(&self.name, specs);
        for (_, spec) in &mut named {
            spec.context = context::merge(&self.sidecar.context, &spec.context);
        }
        named
    }

    /// What a call may do beyond computing.
    pub fn grants(&self) -> Arc<Grants> {
        Arc::clone(&self.sidecar.grants)
    }
}

impl<A> fmt::Debug for Package<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.digest.short())
    }
}

/// What a scan found different between the folder and the live set.
pub enum Change<A = Artifact> {
    /// A package that was not there.
    Added(Arc<Package<A>>),
    /// Other code, another sidecar, or both.
    Updated {
        old: Arc<Package<A>>,
        new: Arc<Package<A>>,
    },
    /// The file is the live version again, after another was there that was not taken.
    Restored(Arc<Package<A>>),
    /// The file is gone.
    Removed(Arc<Package<A>>),
    /// A file is gone that was not live, but that something is on the record of.
    Gone(String),
    /// The file, or its sidecar, cannot be used. Told once, until either changes.
    Rejected {
        name: String,
        path: PathBuf,
        error: String,
        /// The version that stays in force, if there was one.
        kept: Option<ArtifactDigest>,
    },
}

/// One line for the log. Safe to print: an error may quote names out of the file.
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
            Change::Restored(live) => write!(f, "restored {live:?}"),
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

/// The packages in force, by name. Readers never wait for a scan.
pub struct Packages<A = Artifact> {
    // A std lock: held for as long as an Arc takes to clone, and never across an await.
    live: RwLock<Arc<Live<A>>>,
}

type Live<A> = BTreeMap<String, Arc<Package<A>>>;

impl<A> Default for Packages<A> {
    fn default() -> Packages<A> {
        Packages {
            live: RwLock::new(Arc::new(BTreeMap::new())),
        }
    }
}

impl<A> Packages<A> {
    /// The version of `name` that is in force.
    pub fn get(&self, name: &str) -> Option<Arc<Package<A>>> {
        self.all().get(name).cloned()
    }

    /// All of them, as they are at this moment.
    pub fn all(&self) -> Arc<BTreeMap<String, Arc<Package<A>>>> {
        // Nothing panics while it holds the lock; the map inside is whole in any case.
        Arc::clone(&self.live.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Put a change in force. A rejection changes nothing, nor does a file that is the live version again, or that never
    /// was live.
    pub fn apply(&self, change: &Change<A>) {
        let mut live = self.live.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = BTreeMap::clone(&live);
        match change {
            Change::Added(new) | Change::Updated { new, .. } => {
                next.insert(new.name.clone(), Arc::clone(new));
            }
            Change::Removed(old) => {
                next.remove(&old.name);
            }
            Change::Rejected { .. } | Change::Restored(_) | Change::Gone(_) => return,
        }
        *live = Arc::new(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let sidecar = toml_reader::Document::parse("x.toml", "timeout = '30m'").unwrap();
        let thirty_minutes = limits::LimitChanges::read(sidecar.section(), u64::MAX).unwrap();
        let ordered = package(
            description,
            Sidecar {
                limits: thirty_minutes,
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
    fn a_sidecars_schedules_replace_the_proposals_and_its_context_lies_under_all() {
        let description = json!({"schedules": [
            {"every": "5m", "context": {"b": 2}}, {"every": "6m", "name": "six"},
        ]});
        let context = json!({"a": 1, "b": 1}).as_object().unwrap().clone();
        let proposed = package(
            description.clone(),
            Sidecar {
                context,
                ..Sidecar::default()
            },
        );
        let schedules = proposed.schedules();
        assert_eq!(schedules[0].0, "backup");
        assert_eq!(json!(schedules[0].1.context), json!({"a": 1, "b": 2}));
        assert_eq!(schedules[1].0, "six");
        assert_eq!(json!(schedules[1].1.context), json!({"a": 1, "b": 1}));
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
    fn a_rejection_is_one_line_whatever_the_file_is_called() {
        let change = Change::<()>::Rejected {
            name: "n\nl".to_owned(),
            path: PathBuf::new(),
            error: "a\nWARN forged".to_owned(),
            kept: None,
        };
        assert_eq!(change.to_string(), "rejected n\\nl: a\\nWARN forged");
    }
}
