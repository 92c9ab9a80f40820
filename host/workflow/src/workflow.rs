//! Pure: decide which tasks of a run may be called next, and with which context.
//!
//! A task is called when all tasks that it depends on have succeeded. Tasks that do not depend on each other run at the
//! same time. After a final failure no task is called.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use campanile_model::clock::Timestamp;
use campanile_model::status::FailureKind;
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

/// A call of a task that an earlier run of the launch recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedCall {
    pub task: String,
    pub result: CallResult,
    /// How many lost runs of the launch ended before the run of this call began.
    pub lost_runs_before: usize,
}

/// How a recorded call ended.
#[derive(Debug, Clone, PartialEq)]
pub enum CallResult {
    Succeeded {
        output: Option<Value>,
        /// The keys for the steps that depend on this one.
        context: Map<String, Value>,
    },
    Retry {
        retry_at: Timestamp,
    },
    Failed {
        kind: FailureKind,
        message: String,
    },
}

/// The state of a step.
#[derive(Debug, Clone, PartialEq)]
enum State {
    Pending,
    Running,
    /// Its output, and the keys that it passes to the steps that depend on it.
    Done {
        output: Option<Value>,
        gives: Map<String, Value>,
    },
    Waiting(Timestamp),
    Failed,
}

/// The steps of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Workflow {
    steps: Vec<Step>,
    states: Vec<State>,
    /// How many calls of each step are recorded or active.
    tries: Vec<i64>,
    /// How many calls of each step a lost run may have begun and not recorded.
    lost_calls: Vec<i64>,
}

/// The number of a call of a step, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallNumber {
    /// The number in the task's context: calls that a lost run may have begun count too.
    pub attempt: i64,
    /// The number for the retry limit: calls that were lost with a host do not count.
    pub tries: i64,
}

/// Two tasks that do not depend on each other passed on different values of one key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "tasks `{first}` and `{second}` set the context key `{key}` to different values, and `{reader}` depends on both; let only one of them set it"
)]
pub struct ContextConflict {
    key: String,
    first: String,
    second: String,
    reader: String,
}

impl Workflow {
    /// Return a run of `steps`. Each step comes after all steps that it depends on.
    pub fn new(steps: Vec<Step>) -> Workflow {
        Workflow {
            states: vec![State::Pending; steps.len()],
            tries: vec![0; steps.len()],
            lost_calls: vec![0; steps.len()],
            steps,
        }
    }

    /// Continue after the calls that earlier runs of the launch recorded, in the order of their start. A task that
    /// succeeded or finally failed is not called again.
    ///
    /// Return the first final failure. A lost run may have called a task without a record of it, but only if all tasks
    /// that it depends on were done.
    pub fn replay(
        &mut self,
        calls: Vec<RecordedCall>,
        lost_runs: usize,
    ) -> Option<(FailureKind, String)> {
        let mut failure = None;
        let mut done_before: Vec<Option<usize>> = vec![None; self.steps.len()];
        for call in calls {
            let Some(place) = self.steps.iter().position(|step| step.id == call.task) else {
                continue;
            };
            self.tries[place] += 1;
            match call.result {
                CallResult::Succeeded { output, context } => {
                    done_before[place] = Some(call.lost_runs_before);
                    self.succeed(place, output, context);
                }
                CallResult::Retry { retry_at } => self.wait(place, retry_at),
                CallResult::Failed { kind, message } => {
                    self.fail(place);
                    failure.get_or_insert((kind, self.failure_message(&call.task, &message)));
                }
            }
        }
        for (place, step) in self.steps.iter().enumerate() {
            // Count the runs lost since the last dependency was done; none while one is not done.
            let mut done = step.depends_on.iter().map(|before| done_before[*before]);
            let begun_after = done.try_fold(0, |newest, done| Some(newest.max(done?)));
            let may_have_called = begun_after.map_or(0, |before| lost_runs.saturating_sub(before));
            self.lost_calls[place] = i64::try_from(may_have_called).unwrap_or(i64::MAX);
        }
        failure
    }

    /// Whether every step has succeeded.
    pub fn is_done(&self) -> bool {
        (0..self.steps.len()).all(|place| self.has_succeeded(place))
    }

    fn has_succeeded(&self, place: usize) -> bool {
        matches!(self.states[place], State::Done { .. })
    }

    /// Return the steps to call at `now`.
    pub fn ready(&self, now: Timestamp) -> Vec<usize> {
        if self.has_failed() {
            return Vec::new();
        }
        let is_ready = |place: &usize| match self.states[*place] {
            State::Pending => {
                let mut before = self.steps[*place].depends_on.iter();
                before.all(|before| self.has_succeeded(*before))
            }
            State::Waiting(at) => at <= now,
            _ => false,
        };
        (0..self.steps.len()).filter(is_ready).collect()
    }

    /// Return the message of a run whose task failed; it names the task if there are several.
    pub fn failure_message(&self, task: &str, message: &str) -> String {
        match self.steps.len() {
            1 => message.to_owned(),
            _ => format!("task `{task}`: {message}"),
        }
    }

    /// Return the step at an index.
    pub fn step(&self, place: usize) -> &Step {
        &self.steps[place]
    }

    /// Record that a step is called. Return the number of the call.
    pub fn start(&mut self, place: usize) -> CallNumber {
        self.states[place] = State::Running;
        self.tries[place] += 1;
        CallNumber {
            attempt: self.tries[place] + self.lost_calls[place],
            tries: self.tries[place],
        }
    }

    /// Record that a step has succeeded.
    pub fn succeed(&mut self, place: usize, output: Option<Value>, gives: Map<String, Value>) {
        self.states[place] = State::Done { output, gives };
    }

    /// Record that a step is to be called again at `at`.
    pub fn wait(&mut self, place: usize, at: Timestamp) {
        self.states[place] = State::Waiting(at);
    }

    /// Record that a step has finally failed.
    pub fn fail(&mut self, place: usize) {
        self.states[place] = State::Failed;
    }

    /// Whether a step has finally failed: then no step is called.
    pub fn has_failed(&self) -> bool {
        self.states.contains(&State::Failed)
    }

    /// Return the earliest time at which a waiting step is to be called.
    pub fn next_retry(&self) -> Option<Timestamp> {
        let waiting = self.states.iter().filter_map(|state| match state {
            State::Waiting(at) => Some(*at),
            _ => None,
        });
        waiting.min()
    }

    /// Return `context` with the keys that the steps before `place` pass on.
    ///
    /// A step's own keys override those of the steps that it depends on.
    pub fn context_for(
        &self,
        place: usize,
        mut context: Map<String, Value>,
    ) -> Result<Map<String, Value>, ContextConflict> {
        let inherited = self.inherited(place)?.into_iter();
        context.extend(inherited.map(|(key, (value, _))| (key.to_owned(), value.clone())));
        Ok(context)
    }

    /// Return the keys that a step receives: the value of each key, and the step that set it.
    fn inherited(&self, place: usize) -> Result<BTreeMap<&str, (&Value, usize)>, ContextConflict> {
        let mut merged: BTreeMap<&str, (&Value, usize)> = BTreeMap::new();
        for before in &self.steps[place].depends_on {
            let mut passed = self.inherited(*before)?;
            if let State::Done { gives, .. } = &self.states[*before] {
                let gives = gives.iter();
                passed.extend(gives.map(|(key, value)| (key.as_str(), (value, *before))));
            }
            for (key, (value, by)) in passed {
                match merged.get(key).copied() {
                    Some((other, setter)) if other == value || self.is_before(by, setter) => {}
                    Some((_, setter)) if !self.is_before(setter, by) => {
                        return Err(ContextConflict {
                            key: key.to_owned(),
                            first: self.steps[setter].id.clone(),
                            second: self.steps[by].id.clone(),
                            reader: self.steps[place].id.clone(),
                        });
                    }
                    _ => _ = merged.insert(key, (value, by)),
                }
            }
        }
        Ok(merged)
    }

    /// Whether `later` depends on `earlier`, directly or not.
    fn is_before(&self, earlier: usize, later: usize) -> bool {
        let mut before = self.steps[later].depends_on.iter();
        before.any(|place| *place == earlier || self.is_before(earlier, *place))
    }

    /// Return the result of the run: the output of its only last task, or an object with the outputs of its last tasks.
    pub fn output(&self) -> Option<Value> {
        let inner = self.steps.iter().flat_map(|step| &step.depends_on);
        let is_last = |place: &usize| !inner.clone().any(|before| before == place);
        let last: Vec<usize> = (0..self.steps.len()).filter(is_last).collect();
        let output = |place: usize| match &self.states[place] {
            State::Done { output, .. } => output.clone(),
            _ => None,
        };
        if let [only] = last[..] {
            return output(only);
        }
        let named = |place: usize| Some((self.steps[place].id.clone(), output(place)?));
        let outputs: Map<String, Value> = last.into_iter().filter_map(named).collect();
        (!outputs.is_empty()).then_some(Value::Object(outputs))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp::EPOCH;

    /// `a`, then `b` and `c` beside each other, then `d`.
    fn diamond() -> Workflow {
        let step = |id: &str, depends_on: &[usize]| Step {
            id: id.to_owned(),
            depends_on: depends_on.to_vec(),
            limits: Limits::default(),
            attempts_max: 3,
        };
        Workflow::new(vec![
            step("a", &[]),
            step("b", &[0]),
            step("c", &[0]),
            step("d", &[1, 2]),
        ])
    }

    fn keys(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    /// A call of the first run.
    fn succeeded(task: &str) -> RecordedCall {
        let result = CallResult::Succeeded {
            output: None,
            context: keys(json!({"x": 1})),
        };
        call(task, result)
    }

    fn call(task: &str, result: CallResult) -> RecordedCall {
        RecordedCall {
            task: task.to_owned(),
            result,
            lost_runs_before: 0,
        }
    }

    #[test]
    fn a_lost_run_counts_only_for_the_tasks_that_it_may_have_called() {
        // The run was lost during `b`: `d` had not been called.
        let mut flow = diamond();
        flow.replay(vec![succeeded("a"), succeeded("c")], 1);
        assert_eq!(flow.ready(NOW), [1]);
        assert_eq!(flow.start(1).attempt, 2);
        flow.succeed(1, None, Map::new());
        assert_eq!(flow.start(3).attempt, 1);
        // The second run was lost during `d`.
        let mut flow = diamond();
        let b = RecordedCall {
            lost_runs_before: 1,
            ..succeeded("b")
        };
        flow.replay(vec![succeeded("a"), succeeded("c"), b], 2);
        assert_eq!(flow.ready(NOW), [3]);
        assert_eq!(flow.start(3).attempt, 2);
        // A task without dependencies may have been called in both.
        let mut flow = diamond();
        flow.replay(Vec::new(), 2);
        assert_eq!(flow.start(0).attempt, 3);
    }

    #[test]
    fn tasks_come_in_order_and_independent_ones_together() {
        let mut flow = diamond();
        assert_eq!(flow.ready(NOW), [0]);
        flow.start(0);
        assert!(flow.ready(NOW).is_empty());
        flow.succeed(0, None, Map::new());
        assert_eq!(flow.ready(NOW), [1, 2]);
        flow.start(1);
        flow.start(2);
        flow.succeed(2, None, Map::new());
        assert!(flow.ready(NOW).is_empty());
        flow.succeed(1, None, Map::new());
        assert_eq!(flow.ready(NOW), [3]);
        flow.start(3);
        flow.succeed(3, Some(json!(7)), Map::new());
        assert!(flow.ready(NOW).is_empty());
        assert_eq!(flow.output(), Some(json!(7)));
    }

    #[test]
    fn nothing_new_is_called_after_a_failure_for_good() {
        let mut flow = diamond();
        flow.start(0);
        flow.succeed(0, None, Map::new());
        flow.start(1);
        flow.fail(1);
        assert!(flow.ready(NOW).is_empty());
        assert!(flow.has_failed());
    }

    #[test]
    fn what_has_failed_for_good_is_not_called_again_after_a_recovery() {
        let mut flow = diamond();
        let failed = CallResult::Failed {
            kind: FailureKind::Denied,
            message: "no grant".to_owned(),
        };
        let failure = flow.replay(vec![succeeded("a"), call("b", failed)], 1);
        let message = "task `b`: no grant".to_owned();
        assert_eq!(failure, Some((FailureKind::Denied, message)));
        assert!(flow.ready(NOW).is_empty());
    }

    #[test]
    fn a_waiting_task_is_called_again_at_its_time() {
        let mut flow = diamond();
        let later = NOW.plus(Duration::from_secs(1));
        assert_eq!(flow.start(0).attempt, 1);
        flow.wait(0, later);
        assert!(flow.ready(NOW).is_empty());
        assert_eq!(flow.next_retry(), Some(later));
        assert_eq!(flow.ready(later), [0]);
        assert_eq!(flow.start(0).attempt, 2);
    }

    #[test]
    fn what_has_succeeded_is_not_called_again() {
        let mut flow = diamond();
        let later = NOW.plus(Duration::from_secs(1));
        let retry = CallResult::Retry { retry_at: later };
        let calls = vec![succeeded("a"), call("b", retry)];
        assert_eq!(flow.replay(calls, 1), None);
        assert_eq!(flow.ready(NOW), [2]);
        assert_eq!(flow.ready(later), [1, 2]);
        // The lost run may have called it once more; no retry is used up by that.
        let second = CallNumber {
            attempt: 3,
            tries: 2,
        };
        assert_eq!(flow.start(1), second);
        let context = flow.context_for(2, keys(json!({"mine": 0})));
        assert_eq!(context, Ok(keys(json!({"mine": 0, "x": 1}))));
    }

    #[test]
    fn contexts_merge_and_a_conflict_names_both_tasks() {
        let mut flow = diamond();
        flow.succeed(0, None, keys(json!({"x": 1})));
        flow.succeed(1, None, keys(json!({"y": 1})));
        flow.succeed(2, None, keys(json!({"y": 1})));
        let merged = flow.context_for(3, Map::new());
        assert_eq!(merged, Ok(keys(json!({"x": 1, "y": 1}))));

        flow.succeed(2, None, keys(json!({"y": 2})));
        let conflict = flow.context_for(3, Map::new()).unwrap_err();
        assert_eq!(
            conflict.to_string(),
            "tasks `b` and `c` set the context key `y` to different values, and `d` depends on both; let only one of them set it"
        );
    }

    #[test]
    fn a_task_may_cover_a_key_of_the_task_it_depends_on() {
        let mut flow = diamond();
        flow.succeed(0, None, keys(json!({"x": 1})));
        flow.succeed(1, None, keys(json!({"x": 2})));
        flow.succeed(2, None, Map::new());
        let merged = flow.context_for(3, Map::new());
        assert_eq!(merged, Ok(keys(json!({"x": 2}))));
    }

    #[test]
    fn several_last_tasks_give_an_object() {
        let step = |id: &str| Step {
            id: id.to_owned(),
            depends_on: Vec::new(),
            limits: Limits::default(),
            attempts_max: 1,
        };
        let mut flow = Workflow::new(vec![step("a"), step("b")]);
        flow.succeed(0, Some(json!(1)), Map::new());
        flow.succeed(1, None, Map::new());
        assert_eq!(flow.output(), Some(json!({"a": 1})));
    }
}
