//! The tasks of a version and their dependencies, prepared once for all its runs.

use std::collections::HashMap;

use campanile_sandbox::Limits;

/// A task of the package, as a run sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub id: String,
    /// The indexes of earlier steps.
    pub depends_on: Vec<usize>,
    pub limits: Limits,
    pub attempts_max: i64,
}

/// The steps of a version, each after all steps that it depends on.
#[derive(Debug)]
pub struct Graph {
    steps: Vec<Step>,
    places: HashMap<String, usize>,
    /// For each step, whether it depends on each other step, directly or not.
    ancestors: Vec<Vec<bool>>,
}

impl Graph {
    /// Returns the graph of `steps`. Each step comes after all steps that it depends on. The time is proportional to the
    /// number of steps times the number of dependencies.
    pub fn new(steps: Vec<Step>) -> Graph {
        let mut ancestors = vec![vec![false; steps.len()]; steps.len()];
        for (place, step) in steps.iter().enumerate() {
            let (earlier, later) = ancestors.split_at_mut(place);
            for &before in &step.depends_on {
                let inherited = later[0].iter_mut().zip(&earlier[before]);
                inherited.for_each(|(is_ancestor, is_earlier)| *is_ancestor |= is_earlier);
                later[0][before] = true;
            }
        }
        let ids = steps.iter().enumerate();
        Graph {
            places: ids.map(|(place, step)| (step.id.clone(), place)).collect(),
            steps,
            ancestors,
        }
    }

    /// Returns the steps in their order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns the limit of the contexts and outputs of one run. One sidecar sets it for all steps.
    pub fn run_context_bytes_max(&self) -> usize {
        let limits = self.steps.first().map(|step| &step.limits);
        limits.map_or(0, |limits| limits.run_context_bytes_max)
    }

    /// Returns the index of the step `id`.
    pub(crate) fn place(&self, id: &str) -> Option<usize> {
        self.places.get(id).copied()
    }

    /// Returns the steps on which no other step depends.
    pub(crate) fn last_steps(&self) -> Vec<usize> {
        let is_before_any =
            |place: usize| (place..self.steps.len()).any(|later| self.is_before(place, later));
        let places = 0..self.steps.len();
        places.filter(|place| !is_before_any(*place)).collect()
    }

    /// Returns the steps that `place` depends on, directly or not, in their order.
    pub(crate) fn ancestors(&self, place: usize) -> impl Iterator<Item = usize> {
        (0..place).filter(move |earlier| self.is_before(*earlier, place))
    }

    /// Whether `later` depends on `earlier`, directly or not.
    pub(crate) fn is_before(&self, earlier: usize, later: usize) -> bool {
        self.ancestors[later][earlier]
    }
}
