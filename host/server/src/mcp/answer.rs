//! The answer to a call: JSON, and perhaps a note.

use std::fmt::Display;

use rmcp::model::ContentBlock;
use serde::Serialize;

use super::bounds::keep_newest;
use super::tools::{self, RunLogs};
use campanile_control::problem::{ErrorCode, Problem};
use campanile_control::records::launch::TriggerReport;
use campanile_control::records::run::{RunDetail, TaskCall, TaskLogs};
use campanile_model::text::{printable, printable_json};
use campanile_store::launch::LOOKED_AT_MAX;
use campanile_store::task_runs::CallPlace;

/// The greatest size of an answer.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The answer to a call.
pub struct Answer {
    /// What the command of the same meaning prints with `--json`.
    json: String,
    /// What the command says beside it.
    note: Option<String>,
}

/// The newest texts of a run's calls, collected while adding logs page by page.
pub(super) struct LogTail {
    logs: Vec<TaskLogs>,
    task: Option<String>,
    bytes_max: usize,
    /// Bytes of older texts left out.
    cut: usize,
    has_calls: bool,
}

impl LogTail {
    /// Starts without any logs.
    pub(super) fn new(wanted: &RunLogs) -> LogTail {
        LogTail {
            logs: Vec::new(),
            task: wanted.task.clone(),
            bytes_max: wanted.bytes(),
            cut: 0,
            has_calls: false,
        }
    }

    /// Whether no call has been added.
    pub(super) fn is_empty(&self) -> bool {
        !self.has_calls
    }

    /// Adds a page of logs, dropping the oldest texts beyond the size.
    pub(super) fn add(&mut self, page: Vec<TaskLogs>) {
        self.has_calls |= !page.is_empty();
        let wanted = page.into_iter();
        let is_wanted = |call: &TaskLogs| self.task.as_ref().is_none_or(|task| *task == call.task);
        self.logs.extend(wanted.filter(is_wanted));
        self.cut += keep_newest(&mut self.logs, self.bytes_max);
    }
}

impl Answer {
    /// Answer with a record, or with a list of them.
    ///
    /// # Errors
    ///
    /// When the JSON has more than 1 MiB.
    pub(super) fn new(record: &impl Serialize) -> Result<Answer, Problem> {
        let json = serde_json::to_string(record);
        let json = json.map_err(|error| {
            let message = format!("the answer cannot be written as JSON: {error}");
            Problem::new(ErrorCode::Failed, message)
        })?;
        Answer::of_json(&json)
    }

    fn of_json(json: &str) -> Result<Answer, Problem> {
        let json = printable_json(json).into_owned();
        if json.len() > ANSWER_BYTES_MAX {
            let message = format!(
                "the answer has {} bytes, more than {ANSWER_BYTES_MAX}",
                json.len()
            );
            let hint = "ask for less: a lower `limit`, a filter, a shorter time span, or `run_logs` for the logs alone";
            return Err(Problem::new(ErrorCode::InvalidArgument, message).hint(hint));
        }
        Ok(Answer { json, note: None })
    }

    /// Answer as a host has answered, with the JSON and the note of its answer.
    pub fn of_host(json: String, note: Option<String>) -> Answer {
        Answer { json, note }
    }

    /// Answer with the logs of a run: those of one task if `arguments` names it, and the newest texts when there are many.
    /// `removed` says that retention has removed them.
    ///
    /// # Errors
    ///
    /// When the task has no call; otherwise as those of [`Answer::new`].
    pub(super) fn logs(
        tail: LogTail,
        run: &str,
        arguments: &RunLogs,
        removed: Option<String>,
    ) -> Result<Answer, Problem> {
        let LogTail {
            logs,
            cut,
            has_calls,
            ..
        } = tail;
        let refused = |message: String| Problem::new(ErrorCode::InvalidArgument, message);
        if !has_calls {
            let note = removed.or_else(|| Some("no call of this run has ended yet".to_owned()));
            return Ok(Answer::new(&logs)?.note(note));
        }
        if let (Some(task), true) = (&arguments.task, logs.is_empty()) {
            let message = format!("the run {run} has no call of a task `{task}`");
            return Err(refused(message).hint("`show_run` shows its calls"));
        }
        let note = (cut > 0).then(|| {
            let cut = cut_note(cut);
            format!(
                "{cut}, and `after` \"{}\" begins with the oldest",
                tools::START
            )
        });
        Ok(Answer::new(&logs)?.note(note))
    }

    /// Answers with a run and as many of its first calls as fit. `next` is where to continue in the record, if it has more.
    ///
    /// # Errors
    ///
    /// As for [`Answer::new`].
    pub(super) fn run(
        mut run: RunDetail,
        mut next: Option<CallPlace>,
        removed: Option<String>,
    ) -> Result<Answer, Problem> {
        let mut notes = Vec::from_iter(removed.filter(|_| run.tasks.is_empty()));
        let answer = loop {
            let answer = Answer::new(&run);
            match (answer, run.tasks.len()) {
                (Ok(answer), _) => break answer,
                (Err(_), 2..) => {
                    run.tasks.truncate(run.tasks.len() / 2);
                    next = run.tasks.last().map(|call| CallPlace::of(&call.row));
                }
                (Err(problem), _) => {
                    let left_out = run.tasks.first_mut().and_then(leave_out);
                    notes.push(left_out.ok_or(problem)?.to_owned());
                }
            }
        };
        notes.extend(next.map(|place| more_calls_note(&place)));
        Ok(answer.note((!notes.is_empty()).then(|| notes.join("; "))))
    }

    /// Answers with the logs and output of `run`'s first calls, about as much as `arguments` asks for. `next` is where to continue in the
    /// record, if it has more.
    ///
    /// # Errors
    ///
    /// As for [`Answer::new`].
    pub(super) fn logs_after(
        run: RunDetail,
        mut next: Option<CallPlace>,
        arguments: &RunLogs,
        removed: Option<String>,
    ) -> Result<Answer, Problem> {
        let bytes_max = arguments.bytes();
        let mut notes = Vec::from_iter(removed.filter(|_| run.tasks.is_empty()));
        let (mut logs, mut bytes, mut last) = (Vec::new(), 0, None);
        for TaskCall { row, .. } in run.tasks {
            let place = CallPlace::of(&row);
            if arguments.task.as_ref().is_none_or(|task| *task == row.task) {
                bytes += row.logs.len() + row.stdout.len() + row.stderr.len();
                if bytes > bytes_max && !logs.is_empty() {
                    next = last;
                    break;
                }
                logs.push(TaskLogs::from(row));
            }
            last = Some(place);
        }
        let cut = keep_newest(&mut logs, bytes_max);
        notes.extend((cut > 0).then(|| cut_note(cut)));
        notes.extend(next.map(|place| more_calls_note(&place)));
        let note = (!notes.is_empty()).then(|| notes.join("; "));
        Ok(Answer::new(&logs)?.note(note))
    }

    /// Add a note, if there is one.
    #[must_use]
    pub(super) fn note(self, note: Option<String>) -> Answer {
        Answer {
            note: note.or(self.note),
            ..self
        }
    }

    /// Returns the answer as the blocks of a result: the JSON, and perhaps the note.
    pub(super) fn blocks(self) -> Vec<ContentBlock> {
        let note = self.note.map(|note| printable(&note).into_owned());
        let texts = [self.json].into_iter().chain(note);
        texts.map(ContentBlock::text).collect()
    }
}

/// Drops texts from a call too large for an answer, saying which, or returns none if nothing is left to drop.
fn leave_out(call: &mut TaskCall) -> Option<&'static str> {
    let row = &mut call.row;
    if !row.stdout.is_empty() || !row.stderr.is_empty() || row.logs != "[]" {
        row.stdout.clear();
        row.stderr.clear();
        "[]".clone_into(&mut row.logs);
        return Some("what the call logged and printed is left out: `run_logs` shows it");
    }
    let output = row.output.take();
    (output.is_some() | row.context.take().is_some())
        .then_some("its output and context are left out: `campanile run show` prints them")
}

fn cut_note(cut: usize) -> String {
    format!("{cut} bytes of older text are left out: a greater `bytes_max` shows more of it")
}

fn more_calls_note(place: &CallPlace) -> String {
    format!("the run has more calls: call again with `after` \"{place}\"")
}

/// Returns the note of a page after which there may be more.
pub(super) fn next_page_note(key: &impl Display) -> String {
    format!("there may be more: call again with `after` \"{key}\"")
}

/// Returns the note of a page whose search for launches ended before it was full.
pub(super) fn searched_note(found: usize, last: &impl Display) -> String {
    format!(
        "found {found} among {LOOKED_AT_MAX} launches: call again with `after` \"{last}\" for older ones"
    )
}

/// Returns the note of a launch that the overlap policy skipped.
pub(super) fn trigger_note(report: &TriggerReport) -> Option<String> {
    report.overlaps.map(|other| {
        format!("the overlap policy skipped it, because the launch {other} is unfinished")
    })
}
