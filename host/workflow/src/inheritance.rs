//! The context of a step: the keys of the run, and those that the steps before it pass on.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::context::{self, Facts};
use crate::graph::Graph;
use campanile_sandbox::{JsonObject, JsonText, object_bytes};

/// The contexts from which the context of one step is merged. It shares their texts, so that a large merge can be done on
/// another thread.
#[derive(Debug)]
pub struct Inheritance {
    pub(crate) graph: Arc<Graph>,
    pub(crate) place: usize,
    /// The keys of the run.
    pub(crate) user: Arc<JsonObject>,
    /// The steps that `place` depends on, in their order, each with the keys that it passes on.
    pub(crate) passed: Vec<(usize, Arc<JsonObject>)>,
}

/// The value of a key, and the steps that set it and that no later step overrides.
struct Inherited<'c> {
    value: &'c JsonText,
    /// The steps that set the key, the latest first.
    setters: Vec<usize>,
}

impl Inheritance {
    /// Returns at most how many bytes the merged context has, without the keys of the host.
    pub fn bytes(&self) -> usize {
        let passed = self.passed.iter();
        let passed: usize = passed.map(|(_, context)| object_bytes(context)).sum();
        object_bytes(&self.user) + passed
    }

    /// Returns the context of one call as text, with the values of the reserved keys.
    ///
    /// # Errors
    ///
    /// A sentence, when two tasks that do not depend on each other passed on different values of one key.
    pub fn context(&self, facts: &Facts) -> Result<String, String> {
        Ok(context::of_call(self.merged()?, facts))
    }

    /// Returns the keys of the run, overridden by the keys passed on.
    fn merged(&self) -> Result<BTreeMap<&str, &JsonText>, String> {
        let user = self.user.iter().map(|(key, value)| (key.as_str(), value));
        let mut merged: BTreeMap<&str, &JsonText> = user.collect();
        let inherited = self.inherited()?.into_iter();
        merged.extend(inherited.map(|(key, inherited)| (key, inherited.value)));
        Ok(merged)
    }

    /// Returns the keys passed on. A step's value overrides those of the steps that it depends on; all values of a
    /// key that are not overridden must be the same.
    fn inherited(&self) -> Result<BTreeMap<&str, Inherited<'_>>, String> {
        let mut inherited: BTreeMap<&str, Inherited<'_>> = BTreeMap::new();
        // The latest steps first, so that a value comes after all that may override it.
        let passed = self.passed.iter().rev();
        let entries = passed.flat_map(|(setter, context)| {
            let entries = context.iter();
            entries.map(move |(key, value)| (*setter, key.as_str(), value))
        });
        for (setter, key, value) in entries {
            let Some(found) = inherited.get_mut(key) else {
                let setters = vec![setter];
                inherited.insert(key, Inherited { value, setters });
                continue;
            };
            let mut setters = found.setters.iter();
            if setters.any(|later| self.graph.is_before(setter, *later)) {
                continue;
            }
            if value != found.value {
                return Err(self.conflict(key, setter, found.setters[0]));
            }
            found.setters.push(setter);
        }
        Ok(inherited)
    }

    fn conflict(&self, key: &str, first: usize, second: usize) -> String {
        let [first, second, reader] =
            [first, second, self.place].map(|place| &self.graph.steps()[place].id);
        format!(
            "tasks `{first}` and `{second}` set the context key `{key}` to different values, and `{reader}` depends on both; let only one of them set it"
        )
    }
}

#[cfg(test)]
mod tests;
