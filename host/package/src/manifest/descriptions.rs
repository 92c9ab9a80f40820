//! Package descriptions, stored just once however many files share them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{Manifest, Task};
use crate::requests::Requested;
use crate::spec::ScheduleDefinition;
use campanile_model::ids::sha256;

/// A checked description, leaving out whatever depends on the file's name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Description {
    /// The name given by the author.
    pub name: Option<String>,
    pub version: Option<String>,
    /// The programming language as reported by the build tools.
    pub language: Option<String>,
    pub summary: Option<String>,
    /// Grants the package asks for.
    pub requests: Vec<Requested>,
    /// One sentence for each key unknown to this host, possibly written by a newer SDK.
    pub warnings: Vec<String>,
    /// The description as JSON text, an empty object if the package has none.
    pub description: String,
    /// Empty if the description has none.
    pub(super) tasks: Arc<Vec<Task>>,
    /// Named as in the description, with the package left empty.
    pub(super) schedules: Vec<ScheduleDefinition>,
}

/// The descriptions in use, keyed by the digests of their texts.
///
/// A folder may contain thousands of names for one file. Each has a manifest of its own, all sharing one description.
#[derive(Debug, Default)]
pub struct Descriptions(Mutex<HashMap<String, Weak<Description>>>);

impl Descriptions {
    /// Returns the manifest, sharing the description with any already in use that's identical.
    pub fn share(&self, manifest: Manifest) -> Manifest {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = sha256(manifest.description.as_bytes());
        let same = known.get(&key).and_then(Weak::upgrade);
        if let Some(same) = same.filter(|same| **same == *manifest.described) {
            return manifest.with_description(same);
        }
        known.retain(|_, description| description.strong_count() > 0);
        known.insert(key, Arc::downgrade(&manifest.described));
        manifest
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(pool: &Descriptions, package: &str, description: &Value) -> Manifest {
        pool.share(Manifest::from_json(package, description).unwrap())
    }

    #[test]
    fn all_names_of_a_description_share_it_and_differ_in_what_the_name_adds() {
        let pool = Descriptions::default();
        let summary = "s".repeat(100_000);
        for tasks in [
            json!([]),
            json!([{"id": "a"}, {"id": "b", "summary": summary}]),
        ] {
            let schedules = json!([{"every": "5m", "context": {"text": summary}}, {"name": "x", "every": "6m"}]);
            let described = json!({"summary": summary, "tasks": tasks, "schedules": schedules});
            let names = Vec::from_iter((0..64).map(|number| format!("p{number}")));
            let names = names.iter().map(String::as_str).chain(["@team/p"]);
            let all = Vec::from_iter(names.map(|name| read(&pool, name, &described)));
            for one in &all {
                assert!(Arc::ptr_eq(&one.described, &all[0].described));
                let has_tasks = tasks != json!([]);
                assert_eq!(Arc::ptr_eq(&one.tasks, &all[0].described.tasks), has_tasks);
                // Sharing changes nothing about each.
                let alone = Manifest::from_json(&one.package, &described).unwrap();
                assert_eq!(*one, alone);
                assert_eq!(one.task(&one.package).is_some(), !has_tasks);
            }
            let names = |manifest: &Manifest| {
                let schedules = manifest.schedules().into_iter();
                Vec::from_iter(schedules.map(|schedule| (schedule.name, schedule.package)))
            };
            let own = |name: &str, package: &str| (name.to_owned(), package.to_owned());
            assert_eq!(names(&all[1]), [own("p1", "p1"), own("x", "p1")]);
            let of_team = [own("@team/p", "@team/p"), own("@team/x", "@team/p")];
            assert_eq!(names(&all[64]), of_team);
        }
    }

    #[test]
    fn a_description_is_forgotten_with_its_last_manifest() {
        let pool = Descriptions::default();
        let first = read(&pool, "a", &json!({"summary": "one"}));
        let weak = Arc::downgrade(&first.described);
        let other = read(&pool, "b", &json!({"summary": "two"}));
        assert!(!Arc::ptr_eq(&first.described, &other.described));
        drop(first);
        assert_eq!(weak.strong_count(), 0);
        let third = read(&pool, "c", &json!({"summary": "three"}));
        assert_eq!(pool.0.lock().unwrap().len(), 2);
        drop((other, third));
    }
}
