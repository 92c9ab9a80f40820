//! The dependencies of a package's tasks. Each is followed once: a package is untrusted, and the number of paths grows
//! exponentially.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::Task;

/// The tasks of a package by their indexes in the description. Each dependency is followed once.
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

    /// Return the tasks, each after those that it depends on, the earliest of the description first. The tasks of a
    /// cycle, and those that depend on them, are missing.
    pub(super) fn order(&self) -> Vec<usize> {
        let mut after = vec![Vec::new(); self.before.len()];
        let mut missing: Vec<usize> = self.before.iter().map(Vec::len).collect();
        for (place, before) in self.before.iter().enumerate() {
            before.iter().for_each(|&before| after[before].push(place));
        }
        let is_ready = |place: &usize| missing[*place] == 0;
        let ready = (0..missing.len()).filter(is_ready).map(Reverse);
        let mut ready: BinaryHeap<Reverse<usize>> = ready.collect();
        let mut order = Vec::with_capacity(missing.len());
        while let Some(Reverse(place)) = ready.pop() {
            order.push(place);
            for &next in &after[place] {
                missing[next] -= 1;
                if missing[next] == 0 {
                    ready.push(Reverse(next));
                }
            }
        }
        order
    }

    /// Return the tasks of one cycle, the first task again at the end; none when there is no cycle.
    pub(super) fn cycle(&self) -> Option<Vec<usize>> {
        let mut is_ordered = vec![false; self.before.len()];
        self.order()
            .into_iter()
            .for_each(|place| is_ordered[place] = true);
        // Each task without a place in the order depends on another one, so that following them ends in a cycle.
        let left = |place: &usize| !is_ordered[*place];
        let mut path = vec![(0..is_ordered.len()).find(left)?];
        let mut seen_at = vec![None; is_ordered.len()];
        loop {
            let last = *path.last()?;
            if let Some(start) = seen_at[last].replace(path.len() - 1) {
                return Some(path.split_off(start));
            }
            path.push(self.before[last].iter().copied().find(left)?);
        }
    }
}
