//! Pure: compare two versions of a package.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::admin::schedule_admin::{Difference, differences};
use campanile_model::ids::ArtifactDigest;
use campanile_package::grant_record::RecordedGrants;
use campanile_package::requests::{Request, evaluate_requests};
use campanile_package::{Manifest, Task};
use campanile_store::package_versions::Version;

/// One of the two versions.
pub struct Side<'a> {
    pub version: &'a Version,
    pub manifest: &'a Manifest,
    /// The interfaces that it imports.
    pub imports: &'a BTreeSet<String>,
}

/// What changes from one version to another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Diff {
    pub from: ArtifactDigest,
    pub to: ArtifactDigest,
    /// Its name, version, summary, form and size.
    pub about: Vec<Difference>,
    pub tasks: Changes,
    /// The proposed schedules. A sidecar that lists schedules replaces them.
    pub schedules: Changes,
    /// All requests of both versions.
    pub requests: Vec<RequestChange>,
    pub imports: Changes,
}

/// Named things, of which some are added, some are removed and some are changed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Changes {
    pub added: Vec<String>,
    pub removed: Vec<String>,
    pub changed: Vec<Changed>,
}

/// One changed thing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Changed {
    pub name: String,
    pub differences: Vec<Difference>,
}

/// A capability that one version or both request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RequestChange {
    #[serde(flatten)]
    pub request: Request,
    /// `added`, `removed` or `kept`.
    pub change: Cow<'static, str>,
}

impl Changes {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        *self == Changes::default()
    }
}

/// Returns the differences between two versions of a package, `from` and `to`, under `grants`.
pub fn diff(from: &Side<'_>, to: &Side<'_>, grants: &RecordedGrants) -> Diff {
    let schedules = [from, to].map(|side| side.manifest.schedules());
    Diff {
        from: from.version.digest.clone(),
        to: to.version.digest.clone(),
        about: about(from, to),
        tasks: changes(
            named(&from.manifest.tasks, |task| &task.id),
            named(&to.manifest.tasks, |task| &task.id),
            |before, after| lines(task_lines(before), task_lines(after)),
        ),
        schedules: changes(
            named(&schedules[0], |schedule| &schedule.name),
            named(&schedules[1], |schedule| &schedule.name),
            |before, after| differences(before, after),
        ),
        requests: requests(from.manifest, to.manifest, grants),
        imports: changes(interfaces(from), interfaces(to), |_, _| Vec::new()),
    }
}

type Line = (&'static str, Option<String>);

/// Returns the lines in which two lists with the same keys differ.
fn lines<const N: usize>(before: [Line; N], after: [Line; N]) -> Vec<Difference> {
    let pairs = before.into_iter().zip(after);
    pairs
        .map(|((key, before), (_, after))| Difference {
            key: Cow::Borrowed(key),
            before,
            after,
        })
        .filter(|line| line.before != line.after)
        .collect()
}

fn about(from: &Side<'_>, to: &Side<'_>) -> Vec<Difference> {
    let of = |side: &Side<'_>| {
        let manifest = side.manifest;
        [
            ("name", manifest.name.clone()),
            ("version", manifest.version.clone()),
            ("summary", manifest.summary.clone()),
            ("form", Some(side.version.form.clone())),
            ("size_bytes", Some(side.version.size_bytes.to_string())),
        ]
    };
    lines(of(from), of(to))
}

fn task_lines(task: &Task) -> [Line; 4] {
    let depends_on = (!task.depends_on.is_empty()).then(|| task.depends_on.join(", "));
    let timeout = task.timeout.map(|timeout| format!("{timeout:?}"));
    [
        ("summary", task.summary.clone()),
        ("depends_on", depends_on),
        ("timeout", timeout),
        (
            "max_attempts",
            task.max_attempts.map(|most| most.to_string()),
        ),
    ]
}

fn named<T>(all: &[T], name: impl Fn(&T) -> &String) -> BTreeMap<String, &T> {
    all.iter().map(|one| (name(one).clone(), one)).collect()
}

fn interfaces(side: &Side<'_>) -> BTreeMap<String, ()> {
    let all = side.imports.iter();
    all.map(|import| (import.clone(), ())).collect()
}

fn changes<T>(
    before: BTreeMap<String, T>,
    after: BTreeMap<String, T>,
    differences: impl Fn(&T, &T) -> Vec<Difference>,
) -> Changes {
    let only_in = |these: &BTreeMap<String, T>, others: &BTreeMap<String, T>| {
        let names = these.keys().filter(|name| !others.contains_key(*name));
        names.cloned().collect()
    };
    let both = before.iter().filter_map(|(name, before)| {
        let differences = differences(before, after.get(name)?);
        let name = name.clone();
        Some(Changed { name, differences })
    });
    Changes {
        added: only_in(&after, &before),
        removed: only_in(&before, &after),
        changed: both.filter(|one| !one.differences.is_empty()).collect(),
    }
}

fn requests(from: &Manifest, to: &Manifest, grants: &RecordedGrants) -> Vec<RequestChange> {
    let before = evaluate_requests(&from.requests, grants);
    let after = evaluate_requests(&to.requests, grants);
    let has = |all: &[Request], one: &Request| all.iter().any(|other| other.key() == one.key());
    let requested = after.iter().map(|request| {
        if has(&before, request) {
            (request, "kept")
        } else {
            (request, "added")
        }
    });
    let gone = before.iter().filter(|request| !has(&after, request));
    let all = requested.chain(gone.map(|request| (request, "removed")));
    all.map(|(request, change)| RequestChange {
        request: request.clone(),
        change: Cow::Borrowed(change),
    })
    .collect()
}
