//! The merge of contexts, compared with its former definition, and on graphs whose number of paths is exponential.

use std::collections::BTreeSet;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

use super::*;
use crate::graph::Step;
use crate::workflow::{CallResult, RecordedCall, Workflow};
use campanile_model::clock::Timestamp;
use campanile_model::status::FailureKind;
use campanile_sandbox::{Limits, object_of};

const NOW: Timestamp = Timestamp::EPOCH;
const KEYS: [&str; 2] = ["x", "y"];

/// For each step, the steps that it directly depends on, and the values that it passes on, by key.
#[derive(Clone, Debug)]
struct Case {
    depends_on: Vec<Vec<usize>>,
    gives: Vec<BTreeMap<&'static str, u32>>,
}

/// The keys that a step inherits with their values, or none when they conflict.
type Merged = Option<BTreeMap<&'static str, u32>>;

impl Case {
    /// Returns a graph of `steps` steps. Values are below `values`; if there are none, each is another one.
    fn random(random: &mut StdRng, steps: usize, values: Option<u32>) -> Case {
        let mut next = 0;
        let depends_on = (0..steps).map(|place| {
            let earlier: Vec<usize> = (0..place).filter(|_| random.random_bool(0.4)).collect();
            earlier[earlier.len().saturating_sub(3)..].to_vec()
        });
        let depends_on = depends_on.collect();
        let gives = (0..steps).map(|_| {
            let keys = KEYS.into_iter().filter(|_| random.random_bool(0.5));
            let keys: Vec<&str> = keys.collect();
            let values = keys.into_iter().map(|key| {
                next += 1;
                (
                    key,
                    values.map_or(next, |values| random.random_range(0..values)),
                )
            });
            values.collect()
        });
        Case {
            gives: gives.collect(),
            depends_on,
        }
    }

    /// The former definition, which follows every path.
    fn former(&self, place: usize) -> Option<BTreeMap<&'static str, (u32, usize)>> {
        let mut merged: BTreeMap<&str, (u32, usize)> = BTreeMap::new();
        for &before in &self.depends_on[place] {
            let mut passed = self.former(before)?;
            let gives = self.gives[before].iter();
            passed.extend(gives.map(|(key, value)| (*key, (*value, before))));
            for (key, (value, by)) in passed {
                match merged.get(key).copied() {
                    Some((other, setter)) if other == value || self.is_before(by, setter) => {}
                    Some((_, setter)) if !self.is_before(setter, by) => return None,
                    _ => _ = merged.insert(key, (value, by)),
                }
            }
        }
        Some(merged)
    }

    fn former_values(&self, place: usize) -> Merged {
        let merged = self.former(place)?.into_iter();
        Some(merged.map(|(key, (value, _))| (key, value)).collect())
    }

    fn is_before(&self, earlier: usize, later: usize) -> bool {
        let mut before = self.depends_on[later].iter();
        before.any(|place| *place == earlier || self.is_before(earlier, *place))
    }

    /// Returns the keys that the last step inherits. As in a run, a conflict of an earlier step comes first.
    fn merged(&self) -> Merged {
        let flow = self.flow();
        let last = self.depends_on.len() - 1;
        let earlier = flow
            .inheritance(last)
            .graph
            .ancestors(last)
            .collect::<Vec<_>>();
        for place in earlier {
            flow.inheritance(place).merged().ok()?;
        }
        let inheritance = flow.inheritance(last);
        let merged = inheritance.merged().ok()?;
        let value = |key: &str| merged.get(key)?.as_str().parse().ok();
        let values = KEYS.into_iter().filter_map(|key| Some((key, value(key)?)));
        Some(values.collect())
    }

    /// Returns a run in which all steps have succeeded.
    fn flow(&self) -> Workflow {
        let steps = self.depends_on.iter().enumerate();
        let steps = steps.map(|(place, depends_on)| step(place, depends_on.clone()));
        let mut flow = workflow(steps.collect());
        for (place, gives) in self.gives.iter().enumerate() {
            let gives = object_of(json!(gives).as_object().unwrap());
            flow.succeed(place, None, gives).unwrap();
        }
        flow
    }

    /// Returns this graph with the dependencies of every step in each order.
    fn reordered(&self) -> Vec<Case> {
        let mut cases = vec![self.clone()];
        for place in 0..self.depends_on.len() {
            let orders = permutations(&self.depends_on[place]);
            let reordered = cases.iter().flat_map(|case| {
                orders.iter().map(|order| {
                    let mut case = case.clone();
                    case.depends_on[place].clone_from(order);
                    case
                })
            });
            cases = reordered.collect();
        }
        cases
    }
}

fn permutations(items: &[usize]) -> Vec<Vec<usize>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let first = items.iter().flat_map(|first| {
        let rest: Vec<usize> = items.iter().copied().filter(|item| item != first).collect();
        let rest = permutations(&rest).into_iter();
        rest.map(|rest| [&[*first], &rest[..]].concat())
    });
    first.collect()
}

fn step(place: usize, depends_on: Vec<usize>) -> Step {
    Step {
        id: format!("s{place}"),
        depends_on,
        limits: Limits::default(),
        attempts_max: 1,
    }
}

fn workflow(steps: Vec<Step>) -> Workflow {
    Workflow::new(Arc::new(Graph::new(steps)), Arc::default())
}

/// Returns as many layers of two steps, each of which depends on both steps of the layer before.
fn layers(layers: usize) -> Vec<Step> {
    let before = |place: usize| (place / 2 * 2).saturating_sub(2)..place / 2 * 2;
    (0..2 * layers)
        .map(|place| step(place, before(place).collect()))
        .collect()
}

#[test]
fn the_merge_equals_its_former_definition() {
    for seed in 0..3_000 {
        let mut random = StdRng::seed_from_u64(seed);
        let steps = random.random_range(1..10);
        let case = Case::random(&mut random, steps, None);
        let former = case.former_values(steps - 1);
        assert_eq!(case.merged(), former, "seed {seed}: {case:?}");
    }
}

/// Where values repeat, the former definition sometimes depended on the order in which a task names its dependencies:
/// it forgot one of two tasks that set the same value. Otherwise both are equal.
#[test]
fn the_order_of_dependencies_makes_no_difference() {
    let mut unequal = 0;
    for seed in 0..1_500 {
        let mut random = StdRng::seed_from_u64(seed);
        let steps = random.random_range(1..7);
        let case = Case::random(&mut random, steps, Some(2));
        let merged = case.merged();
        let reordered = case.reordered();
        let reordered = reordered.iter();
        let former: BTreeSet<Merged> = reordered
            .map(|case| case.former_values(steps - 1))
            .collect();
        assert!(former.contains(&merged), "seed {seed}: {case:?}");
        match former.len() {
            1 => {}
            _ => unequal += 1,
        }
    }
    assert!(unequal > 0, "no case depends on the order");
}

#[test]
fn layers_merge_and_replay_at_once() {
    for count in [40, 128] {
        let mut flow = workflow(layers(count));
        let mut calls = Vec::new();
        for place in 0..2 * count {
            assert_eq!(flow.ready(NOW)[0], place);
            flow.start(place);
            let inheritance = flow.inheritance(place);
            let context = inheritance.context(&Facts::by_hand(NOW)).unwrap();
            let context: Value = serde_json::from_str(&context).unwrap();
            let inherited = (0..2 * count).filter(|step| !context[format!("s{step}")].is_null());
            assert_eq!(inherited.count(), place / 2 * 2);
            let gives: JsonObject = [(format!("s{place}"), json!(place).into())].into();
            flow.succeed(place, Some(json!(place).into()), gives.clone())
                .unwrap();
            let output = Some(json!(place).into());
            calls.push(RecordedCall {
                task: format!("s{place}"),
                result: CallResult::Succeeded {
                    output,
                    context: gives,
                },
                lost_runs_before: 0,
            });
        }
        assert!(flow.is_done());
        let (a, b) = (2 * count - 2, 2 * count - 1);
        let output = format!(r#"{{"s{a}":{a},"s{b}":{b}}}"#);
        assert_eq!(flow.output(), Some(output.clone()));
        let mut again = workflow(layers(count));
        assert_eq!(again.replay(calls, 1), None);
        assert!(again.is_done());
        assert_eq!(again.output(), Some(output));
        assert_eq!(again.held_bytes(), flow.held_bytes());
    }
}

#[test]
fn a_key_that_all_of_many_tasks_set_to_one_value_is_merged() {
    let mut steps: Vec<Step> = (0..255).map(|place| step(place, Vec::new())).collect();
    steps.push(step(255, (0..255).collect()));
    let mut flow = workflow(steps);
    for place in 0..255 {
        let keys = (0..200).map(|key| (format!("k{key}"), json!({"n": key, "m": 0}).into()));
        flow.succeed(place, None, keys.collect()).unwrap();
    }
    let inheritance = flow.inheritance(255);
    assert_eq!(inheritance.merged().unwrap().len(), 200);
}

#[test]
fn the_result_that_exceeds_the_limit_fails_the_run_and_so_does_its_replay() {
    let steps = || {
        let limits = Limits {
            run_context_bytes_max: 1_000,
            ..Limits::default()
        };
        let steps = (0..20).map(|place| Step {
            limits: limits.clone(),
            ..step(place, Vec::new())
        });
        workflow(steps.collect())
    };
    // 300 bytes each: a key of one letter, its value, 64 for the key, and the output.
    let output = || Some(json!("x".repeat(98)).into());
    let gives = || JsonObject::from([("k".to_owned(), json!("x".repeat(133)).into())]);
    let mut flow = steps();
    for place in 0..3 {
        flow.succeed(place, output(), gives()).unwrap();
    }
    assert_eq!(flow.held_bytes(), 900);
    let error = flow.succeed(3, output(), gives()).unwrap_err();
    assert_eq!(
        error,
        "the task returned 300 bytes, and with them the contexts and outputs of this run have 1200; their limit is 1000B; \
         put large values in a file or a database and pass on where they are, or raise `limits.run_context` in the package's \
         sidecar file"
    );
    assert!(flow.has_failed() && flow.ready(NOW).is_empty());
    assert_eq!(flow.held_bytes(), 900);

    let calls = (0..5).map(|place| RecordedCall {
        task: format!("s{place}"),
        result: CallResult::Succeeded {
            output: output(),
            context: gives(),
        },
        lost_runs_before: 0,
    });
    let mut again = steps();
    let failure = again.replay(calls.collect(), 1);
    assert_eq!(
        failure,
        Some((FailureKind::InvalidOutput, format!("task `s3`: {error}")))
    );
    assert_eq!(again.held_bytes(), 900);
    assert_eq!(again.next_retry(), None);
    assert!(again.ready(NOW.plus(Duration::from_secs(1))).is_empty());
}
