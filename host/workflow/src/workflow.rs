//! Pure: decide which tasks of a run may be called next, and with which context.
//!
//! A task is called when all tasks that it depends on have succeeded. Tasks that do not depend on each other run at the
//! same time. After a final failure no task is called.

use std::mem;
use std::sync::Arc;

use crate::graph::Graph;
use crate::inheritance::Inheritance;
use campanile_model::clock::Timestamp;
use campanile_model::status::FailureKind;
use campanile_model::text::size_text;
use campanile_sandbox::{JsonObject, JsonText, Resource, object_bytes, object_text};

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
        output: Option<JsonText>,
        /// The keys for the steps that depend on this one.
        context: JsonObject,
    },
    Retry {
        retry_at: Timestamp,
        kind: FailureKind,
    },
    Failed {
        kind: FailureKind,
        message: String,
    },
}

/// The state of a step.
#[derive(Debug, Clone)]
enum State {
    Pending,
    Running,
    /// Its output, and the keys that it passes to the steps that depend on it.
    Done {
        output: Option<JsonText>,
        gives: Arc<JsonObject>,
    },
    /// When it is to be called again, and how its last call failed.
    Waiting(Timestamp, FailureKind),
    Failed,
}

/// The steps of one run.
#[derive(Debug, Clone)]
pub struct Workflow {
    graph: Arc<Graph>,
    /// The keys of the run, which every step gets.
    user: Arc<JsonObject>,
    states: Vec<State>,
    /// How many calls of each step are recorded or active.
    tries: Vec<i64>,
    /// How many calls of each step a lost run may have begun and not recorded.
    lost_calls: Vec<i64>,
    held_bytes: usize,
}

/// The number of a call of a step, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallNumber {
    /// The number in the task's context: calls that a lost run may have begun count too.
    pub attempt: i64,
    /// The number for the retry limit: calls that were lost with a host do not count.
    pub tries: i64,
}

impl Workflow {
    /// Returns a run of `graph` with the keys `user`, before its first call.
    pub fn new(graph: Arc<Graph>, user: Arc<JsonObject>) -> Workflow {
        let steps = graph.steps();
        Workflow {
            states: vec![State::Pending; steps.len()],
            tries: vec![0; steps.len()],
            lost_calls: vec![0; steps.len()],
            held_bytes: object_bytes(&user),
            graph,
            user,
        }
    }

    /// Continue after the calls that earlier runs of the launch recorded, in the order of their start. A task that
    /// succeeded or finally failed is not called again.
    ///
    /// Returns the first final failure. A lost run may have called a task without a record of it, but only if all tasks
    /// that it depends on were done.
    pub fn replay(
        &mut self,
        calls: Vec<RecordedCall>,
        lost_runs: usize,
    ) -> Option<(FailureKind, String)> {
        let graph = Arc::clone(&self.graph);
        let mut failure = None;
        let mut done_before: Vec<Option<usize>> = vec![None; self.states.len()];
        for call in calls {
            let Some(place) = graph.place(&call.task) else {
                continue;
            };
            self.tries[place] += 1;
            match call.result {
                CallResult::Succeeded { output, context } => {
                    done_before[place] = Some(call.lost_runs_before);
                    if let Err(exceeded) = self.succeed(place, output, context) {
                        let message = self.failure_message(&call.task, &exceeded);
                        failure.get_or_insert((FailureKind::InvalidOutput, message));
                    }
                }
                CallResult::Retry { retry_at, kind } => self.wait(place, retry_at, kind),
                CallResult::Failed { kind, message } => {
                    self.fail(place);
                    failure.get_or_insert((kind, self.failure_message(&call.task, &message)));
                }
            }
        }
        for (place, step) in graph.steps().iter().enumerate() {
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
        (0..self.states.len()).all(|place| self.has_succeeded(place))
    }

    fn has_succeeded(&self, place: usize) -> bool {
        matches!(self.states[place], State::Done { .. })
    }

    /// Returns the steps to call at `now`.
    pub fn ready(&self, now: Timestamp) -> Vec<usize> {
        if self.has_failed() {
            return Vec::new();
        }
        let steps = self.graph.steps();
        let has_succeeded = |before: &usize| self.has_succeeded(*before);
        let is_ready = |place: &usize| match self.states[*place] {
            State::Pending => steps[*place].depends_on.iter().all(has_succeeded),
            State::Waiting(at, _) => at <= now,
            _ => false,
        };
        (0..self.states.len()).filter(is_ready).collect()
    }

    /// Returns the message of a run whose task failed; it names the task if there are several.
    pub fn failure_message(&self, task: &str, message: &str) -> String {
        match self.states.len() {
            1 => message.to_owned(),
            _ => format!("task `{task}`: {message}"),
        }
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
    ///
    /// # Errors
    ///
    /// A sentence, when the run would hold more than its limit. Then the step has finally failed, and nothing of its
    /// result is kept.
    pub fn succeed(
        &mut self,
        place: usize,
        output: Option<JsonText>,
        gives: JsonObject,
    ) -> Result<(), String> {
        let output_bytes = output.as_ref().map_or(0, |output| output.as_str().len());
        let bytes = output_bytes + object_bytes(&gives);
        let (held, limit) = (self.held_bytes + bytes, self.graph.run_context_bytes_max());
        if held > limit {
            self.fail(place);
            return Err(format!(
                "the task returned {bytes} bytes, and with them the contexts and outputs of this run have {held}; their limit is {}; put large values in a file or a database and pass on where they are, or {}",
                size_text(limit as u64),
                Resource::RunContext.raise()
            ));
        }
        self.held_bytes = held;
        let gives = Arc::new(gives);
        self.states[place] = State::Done { output, gives };
        Ok(())
    }

    /// Forget the success of a step whose success was not recorded.
    pub fn forget_success(&mut self, place: usize) {
        let state = mem::replace(&mut self.states[place], State::Running);
        if let State::Done { output, gives } = state {
            let output_bytes = output.map_or(0, |output| output.as_str().len());
            self.held_bytes -= output_bytes + object_bytes(&gives);
        }
    }

    /// Returns how many bytes of contexts and outputs the run holds, as `limits.run_context` counts them.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Record that a step, whose call failed as `kind` says, is to be called again at `at`.
    pub fn wait(&mut self, place: usize, at: Timestamp, kind: FailureKind) {
        self.states[place] = State::Waiting(at, kind);
    }

    /// Record that no waiting step is called again. Return the first final failure.
    pub fn expire(&mut self, expires_at: Timestamp) -> Option<(FailureKind, String)> {
        let mut failure = None;
        for place in 0..self.states.len() {
            if let State::Waiting(due, kind) = self.states[place] {
                self.fail(place);
                let message = format!(
                    "its retry was due at {due} and did not begin by {expires_at}, when `retry_expiration` ended"
                );
                let task = &self.graph.steps()[place].id;
                failure.get_or_insert((kind, self.failure_message(task, &message)));
            }
        }
        failure
    }

    /// Record that a step has finally failed.
    pub fn fail(&mut self, place: usize) {
        self.states[place] = State::Failed;
    }

    /// Whether a step has finally failed: then no step is called.
    pub fn has_failed(&self) -> bool {
        let mut states = self.states.iter();
        states.any(|state| matches!(state, State::Failed))
    }

    /// Returns the earliest time at which a waiting step is to be called.
    pub fn next_retry(&self) -> Option<Timestamp> {
        let waiting = self.states.iter().filter_map(|state| match state {
            State::Waiting(at, _) => Some(*at),
            _ => None,
        });
        waiting.min()
    }

    /// Returns the contexts from which that of `place` is merged.
    pub fn inheritance(&self, place: usize) -> Inheritance {
        let passed = self.graph.ancestors(place);
        let passed = passed.filter_map(|before| match &self.states[before] {
            State::Done { gives, .. } => Some((before, Arc::clone(gives))),
            _ => None,
        });
        Inheritance {
            passed: passed.collect(),
            graph: Arc::clone(&self.graph),
            place,
            user: Arc::clone(&self.user),
        }
    }

    /// Returns the result of the run as JSON: the output of its only last task, or an object with the outputs of its last
    /// tasks.
    pub fn output(&self) -> Option<String> {
        let last = self.graph.last_steps();
        let output = |place: usize| match &self.states[place] {
            State::Done { output, .. } => output.as_ref().map(JsonText::as_str),
            _ => None,
        };
        if let [only] = last[..] {
            return output(only).map(str::to_owned);
        }
        let steps = self.graph.steps();
        let named = |place: usize| Some((steps[place].id.as_str(), output(place)?));
        let mut outputs = last.into_iter().filter_map(named).peekable();
        outputs.peek().is_some().then(|| object_text(outputs))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use crate::context::Facts;
    use crate::graph::Step;
    use campanile_sandbox::{Limits, object_of};

    const NOW: Timestamp = Timestamp::EPOCH;

    fn flow(steps: Vec<Step>) -> Workflow {
        let user = keys(json!({"mine": 0}));
        Workflow::new(Arc::new(Graph::new(steps)), Arc::new(user))
    }

    /// `a`, then `b` and `c` beside each other, then `d`.
    fn diamond() -> Workflow {
        let step = |id: &str, depends_on: &[usize]| Step {
            id: id.to_owned(),
            depends_on: depends_on.to_vec(),
            limits: Limits::default(),
            attempts_max: 3,
        };
        flow(vec![
            step("a", &[]),
            step("b", &[0]),
            step("c", &[0]),
            step("d", &[1, 2]),
        ])
    }

    fn keys(value: Value) -> JsonObject {
        object_of(value.as_object().unwrap())
    }

    /// Returns the context of a step, without the reserved keys, or the conflict.
    fn context(flow: &Workflow, place: usize) -> Result<Value, String> {
        let facts = Facts::by_hand(NOW);
        let inheritance = flow.inheritance(place);
        let text = inheritance.context(&facts)?;
        let mut context: Value = serde_json::from_str(&text).unwrap();
        let reserved = campanile_package::context::RESERVED;
        let object = context.as_object_mut().unwrap();
        object.retain(|key, _| !reserved.contains(&key.as_str()));
        Ok(context)
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
        flow.succeed(1, None, JsonObject::new()).unwrap();
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
        flow.succeed(0, None, JsonObject::new()).unwrap();
        assert_eq!(flow.ready(NOW), [1, 2]);
        flow.start(1);
        flow.start(2);
        flow.succeed(2, None, JsonObject::new()).unwrap();
        assert!(flow.ready(NOW).is_empty());
        flow.succeed(1, None, JsonObject::new()).unwrap();
        assert_eq!(flow.ready(NOW), [3]);
        flow.start(3);
        flow.succeed(3, Some(json!(7).into()), JsonObject::new())
            .unwrap();
        assert!(flow.ready(NOW).is_empty());
        assert_eq!(flow.output().as_deref(), Some("7"));
    }

    #[test]
    fn nothing_new_is_called_after_a_failure_for_good() {
        let mut flow = diamond();
        flow.start(0);
        flow.succeed(0, None, JsonObject::new()).unwrap();
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
        flow.wait(0, later, FailureKind::TimedOut);
        assert!(flow.ready(NOW).is_empty());
        assert_eq!(flow.next_retry(), Some(later));
        assert_eq!(flow.ready(later), [0]);
        assert_eq!(flow.start(0).attempt, 2);
    }

    #[test]
    fn a_waiting_task_whose_time_is_over_has_failed_as_before() {
        let mut flow = diamond();
        assert_eq!(flow.expire(NOW), None);
        flow.succeed(0, None, JsonObject::new()).unwrap();
        flow.wait(1, NOW, FailureKind::TimedOut);
        let (kind, message) = flow.expire(NOW).unwrap();
        assert_eq!(kind, FailureKind::TimedOut);
        let expected = "task `b`: its retry was due at 1970-01-01T00:00:00Z and did not begin by";
        assert!(message.starts_with(expected), "{message}");
        assert!(flow.has_failed() && flow.next_retry().is_none());
    }

    #[test]
    fn what_has_succeeded_is_not_called_again() {
        let mut flow = diamond();
        let later = NOW.plus(Duration::from_secs(1));
        let retry = CallResult::Retry {
            retry_at: later,
            kind: FailureKind::Failed,
        };
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
        assert_eq!(context(&flow, 2), Ok(json!({"mine": 0, "x": 1})));
    }

    #[test]
    fn contexts_merge_and_a_conflict_names_both_tasks() {
        let mut flow = diamond();
        flow.succeed(0, None, keys(json!({"x": 1}))).unwrap();
        flow.succeed(1, None, keys(json!({"y": 1}))).unwrap();
        flow.succeed(2, None, keys(json!({"y": 1}))).unwrap();
        assert_eq!(context(&flow, 3), Ok(json!({"mine": 0, "x": 1, "y": 1})));

        flow.succeed(2, None, keys(json!({"y": 2}))).unwrap();
        assert_eq!(
            context(&flow, 3).unwrap_err(),
            "tasks `b` and `c` set the context key `y` to different values, and `d` depends on both; let only one of them set it"
        );
    }

    #[test]
    fn a_task_may_cover_a_key_of_the_task_it_depends_on() {
        let mut flow = diamond();
        flow.succeed(0, None, keys(json!({"x": 1}))).unwrap();
        flow.succeed(1, None, keys(json!({"x": 2}))).unwrap();
        flow.succeed(2, None, JsonObject::new()).unwrap();
        assert_eq!(context(&flow, 3), Ok(json!({"mine": 0, "x": 2})));
    }

    #[test]
    fn several_last_tasks_give_an_object() {
        let step = |id: &str| Step {
            id: id.to_owned(),
            depends_on: Vec::new(),
            limits: Limits::default(),
            attempts_max: 1,
        };
        let mut flow = flow(vec![step("a"), step("b")]);
        flow.succeed(0, Some(json!(1).into()), JsonObject::new())
            .unwrap();
        flow.succeed(1, None, JsonObject::new()).unwrap();
        assert_eq!(flow.output().as_deref(), Some(r#"{"a":1}"#));
    }
}
