//! The dependencies of a package's tasks. No path is followed twice: a package is untrusted, and the number of paths
//! grows exponentially.

use std::collections::{BTreeMap, BTreeSet};

use super::Task;

/// The tasks of a package by their indexes in the description.
pub(super) struct TaskGraph<'t> {
    pub(super) places: BTreeMap<&'t str, usize>,
    /// For each task, the tasks that it depends on.
    pub(super) before: Vec<Vec<usize>>,
}

impl<'t> TaskGraph<'t> {
    pub(super) fn of(tasks: &'t [Task]) -> TaskGraph<'t> {
        let ids = tasks.iter().enumerate();
        let places: BTreeMap<&str, usize> = ids.map(|(place, task)| (&*task.id, place)).collect();
        let before = tasks.iter().map(|task| {
            let ids = task.depends_on.iter();
            ids.filter_map(|id| places.get(id.as_str()).copied())
                .collect()
        });
        TaskGraph {
            before: before.collect(),
            places,
        }
    }

    /// Returns the tasks, each after those that it depends on, the earliest of the description first. The tasks of a
    /// cycle, and those that depend on them, are missing.
    ///
    /// The time is at most the number of tasks times that of dependencies, which are both bounded.
    pub(super) fn order(&self) -> Vec<usize> {
        let mut order = Vec::with_capacity(self.before.len());
        let mut is_ordered = vec![false; self.before.len()];
        loop {
            let is_next = |place: &usize| {
                let mut before = self.before[*place].iter();
                !is_ordered[*place] && before.all(|before| is_ordered[*before])
            };
            let Some(next) = (0..is_ordered.len()).find(is_next) else {
                return order;
            };
            is_ordered[next] = true;
            order.push(next);
        }
    }

    /// Returns the tasks of one cycle, the first task again at the end; none when there is no cycle.
    pub(super) fn cycle(&self) -> Option<Vec<usize>> {
        let ordered: BTreeSet<usize> = self.order().into_iter().collect();
        // Each task without a place in the order depends on another one, so that following them ends in a cycle.
        let left = |place: &usize| !ordered.contains(place);
        let mut path = vec![(0..self.before.len()).find(left)?];
        let mut seen_at = vec![None; self.before.len()];
        loop {
            let last = *path.last()?;
            if let Some(start) = seen_at[last].replace(path.len() - 1) {
                return Some(path.split_off(start));
            }
            path.push(self.before[last].iter().copied().find(left)?);
        }
    }
}
