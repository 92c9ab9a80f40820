//! What the tasks of a launch logged and printed, in the order of time, over all its runs.

use std::time::Duration;

use maud::{Markup, html};

use super::super::parts::command;
use super::super::words::{counted, rough, short, tail};
use super::super::{Visit, links};
use super::{LaunchQuery, Shown};
use crate::call::Result;
use crate::problem::ApiProblem;
use campanile_control::records::run::{TaskCall, TaskLogs};
use campanile_model::clock::Timestamp;
use campanile_model::ids::RunId;

/// The bytes of all lines that are shown, as HTML. The first of them may exceed these.
const BYTES_MAX: usize = 40 << 10;
/// About how many bytes a line has besides its text.
const LINE_BYTES: usize = 200;
/// The bytes that are shown of one text.
const TEXT_BYTES_MAX: usize = 4 << 10;
/// The most tasks that have a filter, and the most characters of a name.
const TASKS_MAX: usize = 12;
const NAME_MAX: usize = 40;
/// The levels, the worst last.
const LEVELS: [&str; 5] = ["trace", "debug", "info", "warn", "error"];
/// The levels of lines that tell more than what goes as it should.
const WARN: usize = 3;
const ERROR: usize = 4;
const INFO: usize = 2;

/// Which lines are shown.
#[derive(Default)]
pub(super) struct Filter {
    task: String,
    level: String,
    /// The least level, by its place.
    least: usize,
}

/// A line of the log.
struct Entry {
    at: Timestamp,
    of: String,
    /// What stands in the column of levels, and the level that it counts as.
    word: &'static str,
    level: usize,
    /// Whether the host wrote it. The words of a task could imitate such a line, but not its look.
    by_host: bool,
    text: String,
    after: String,
}

impl Filter {
    pub(super) fn of(query: LaunchQuery) -> Result<Filter> {
        let level = query.level.unwrap_or_default();
        let least = match level.as_str() {
            "" => Some(0),
            wanted => LEVELS.iter().position(|level| *level == wanted),
        };
        let Some(least) = least else {
            let levels = LEVELS.join(", ");
            return Err(ApiProblem::invalid(format!(
                "`level` is {level:?}, and can be {levels}"
            )));
        };
        Ok(Filter {
            task: query.task.unwrap_or_default(),
            level,
            least,
        })
    }
}

/// Shows the log with its filters.
pub(super) fn card(visit: &Visit, shown: &Shown) -> Markup {
    let filter = &shown.filter;
    let is_wanted = |id: RunId| shown.only.is_none_or(|only| only == id);
    let runs = shown.runs.iter().filter(|run| is_wanted(run.run.id));
    let runs = Vec::from_iter(runs);
    let calls = runs.iter().flat_map(|run| &run.tasks);
    let mut tasks: Vec<&str> = calls.clone().map(|call| call.row.task.as_str()).collect();
    tasks.dedup();
    let mut seen = Vec::new();
    tasks.retain(|task| {
        !seen.contains(task) && {
            seen.push(*task);
            true
        }
    });
    let wanted = calls.filter(|call| filter.task.is_empty() || call.row.task == filter.task);
    let mut entries = Vec::from_iter(wanted.flat_map(entries_of));
    entries.retain(|entry| entry.level >= filter.least);
    entries.sort_by_key(|entry| entry.at);
    let (kept, left_out) = bounded(&entries);
    let start = shown.started().unwrap_or(shown.launch().scheduled_time);
    let unread = shown.detail.runs.len() - shown.runs.len();
    html! {
        section.card #log aria-labelledby="log-title" {
            header {
                h2 #log-title { "Log" }
                (filters(visit, &tasks, filter))
                @if let Some(only) = shown.only {
                    span.far { "of run " (only.number()) " · " a href={ (links::path(&["launches", &shown.launch().id.to_string()])) "#log" } { "all runs" } }
                }
            }
            @if unread > 0 && shown.only.is_none() { p.more { "The first " (counted(unread as u64, "run")) " left out; the table above links to each." } }
            @if left_out > 0 { p.more { (counted(left_out as u64, "earlier line")) " left out; the command shows them." } }
            @if kept.is_empty() {
                p.more { @if entries.is_empty() && (filter.least > 0 || !filter.task.is_empty()) { "No line matches." } @else { "The tasks wrote nothing that is on record." } }
            } @else {
                div.log tabindex="0" role="region" aria-label="Lines of the log" {
                    @for entry in kept { (entry_row(entry, start, shown)) }
                }
            }
            div.more {
                @for run in &runs {
                    p.far { "As JSON: " code { "/api/v1/runs/" (run.run.id) "/logs" } }
                    (command(&format!("campanile run logs {}", run.run.id)))
                }
            }
        }
    }
}

/// Returns the newest lines that fit, and how many are left out.
fn bounded(entries: &[Entry]) -> (&[Entry], usize) {
    let mut bytes = 0;
    let fits = entries.iter().rev().take_while(|entry| {
        let fits = bytes < BYTES_MAX;
        bytes += entry.text.len().min(TEXT_BYTES_MAX) + LINE_BYTES;
        fits
    });
    let left_out = entries.len() - fits.count();
    (entries.get(left_out..).unwrap_or_default(), left_out)
}

fn filters(visit: &Visit, tasks: &[&str], filter: &Filter) -> Markup {
    let here = |task: &str, level: &str| {
        let query = links::query(&[("task", task), ("level", level)]);
        format!("{}{query}#log", visit.call.uri)
    };
    let current = |is: bool| is.then_some("true");
    let is_all = filter.task.is_empty() && filter.level.is_empty();
    html! {
        nav.filters aria-label="Filters of the log" {
            a href=(here("", "")) aria-current=[current(is_all)] { "All" }
            @if tasks.len() > 1 || !filter.task.is_empty() {
                @for task in tasks.iter().take(TASKS_MAX) {
                    a href=(here(task, &filter.level)) aria-current=[current(*task == filter.task)] { (short(task, NAME_MAX)) }
                }
            }
            @for level in ["warn", "error"] {
                a href=(here(&filter.task, level)) aria-current=[current(level == filter.level)] { (level) @if level == "warn" { "+" } }
            }
        }
    }
}

/// Returns the lines of a call.
fn entries_of(call: &TaskCall) -> Vec<Entry> {
    let row = &call.row;
    let of = match row.attempt {
        1 => row.task.clone(),
        attempt => format!("{}·{attempt}", row.task),
    };
    let entry = |at, word, level, text: String| Entry {
        at,
        of: of.clone(),
        word,
        level,
        by_host: false,
        text,
        after: String::new(),
    };
    let logs = TaskLogs::from(row.clone());
    let mut entries = Vec::new();
    for log in &logs.logs {
        let text = match log.context.as_str() {
            "" => log.message.clone(),
            group => format!("[{group}] {}", log.message),
        };
        let (word, level) = level_of(&log.level);
        entries.push(Entry {
            by_host: log.by_host,
            ..entry(log.at, word, level, text)
        });
    }
    let at = row.finished_at;
    for (word, text, dropped) in [
        ("stdout", &logs.stdout, logs.stdout_bytes_dropped),
        ("stderr", &logs.stderr, logs.stderr_bytes_dropped),
    ] {
        if !text.is_empty() {
            entries.push(entry(at, word, INFO, text.trim_end().to_owned()));
        }
        if dropped > 0 {
            let text = format!("{dropped} more bytes of {word} were dropped");
            entries.push(Entry {
                by_host: true,
                ..entry(at, "warn", WARN, text)
            });
        }
    }
    if let Some(failure) = row.failure {
        let message = row.message.as_deref().unwrap_or_default();
        let retry = row.retry_at.map(|retry| retry.since(at));
        entries.push(Entry {
            after: retry.map_or(String::new(), |wait| {
                format!("called again after {}", rough(wait))
            }),
            ..entry(
                at,
                "error",
                ERROR,
                format!("{}: {message}", failure.as_str().replace('_', " ")),
            )
        });
    }
    entries.extend(row.note.as_ref().map(|note| Entry {
        by_host: true,
        ..entry(at, "error", ERROR, note.clone())
    }));
    entries
}

/// Returns a level's word and place. An unknown one counts as `info`, and a `critical` line as an error.
fn level_of(level: &str) -> (&'static str, usize) {
    match LEVELS
        .iter()
        .enumerate()
        .find(|(_, known)| **known == level)
    {
        Some((place, known)) => (known, place),
        None if level == "critical" => ("critical", ERROR),
        None => ("info", INFO),
    }
}

fn entry_row(entry: &Entry, start: Timestamp, shown: &Shown) -> Markup {
    let (text, left_out) = tail(&entry.text, TEXT_BYTES_MAX);
    let class = match entry.level {
        WARN => "warn",
        ERROR => "error",
        _ => "",
    };
    html! {
        div class=[Some(class).filter(|class| !class.is_empty())] {
            time.at datetime=(entry.at.to_string()) title=(shown.clock.whole(entry.at)) { (offset(entry.at.since(start))) }
            span.of title=(short(&entry.of, NAME_MAX)) { (short(&entry.of, NAME_MAX)) }
            b { (entry.word) }
            span {
                @if left_out > 0 { "… " span.far { (left_out) " bytes left out; the command shows them. " } }
                @if entry.by_host { strong.from-host { "The host notes: " } (text) } @else { (text) }
                @if !entry.after.is_empty() { " " span.far { (entry.after) } }
            }
        }
    }
}

/// Returns a time after the start: `+7.606 s`, or `+3:07.606`.
fn offset(after: Duration) -> String {
    let (minutes, millis) = (after.as_secs() / 60, after.as_millis() % 60_000);
    match minutes {
        0 => format!("+{}.{:03} s", millis / 1_000, millis % 1_000),
        _ => format!("+{minutes}:{:02}.{:03}", millis / 1_000, millis % 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use campanile_model::status::FailureKind;
    use campanile_store::task_runs::TaskRun;

    fn at(millis: u64) -> Timestamp {
        Timestamp::EPOCH.plus(Duration::from_millis(millis))
    }

    #[test]
    fn a_line_says_how_long_after_the_start_it_was_written() {
        let shown = [0, 7_606, 59_999, 187_606].map(|millis| offset(Duration::from_millis(millis)));
        assert_eq!(shown, ["+0.000 s", "+7.606 s", "+59.999 s", "+3:07.606"]);
    }

    #[test]
    fn a_call_has_its_lines_and_why_it_failed() {
        let logs = r#"[{"at":"1970-01-01T00:00:01Z","level":"warn","context":"db","message":"slow"},
            {"at":"1970-01-01T00:00:02Z","level":"critical","context":"","message":"gone"}]"#;
        let row = TaskRun {
            succeeded: false,
            failure: Some(FailureKind::Failed),
            message: Some("no answer".to_owned()),
            note: Some("grant it".to_owned()),
            retry_at: Some(at(4_000)),
            logs: logs.to_owned(),
            stdout: "printed\n".to_owned(),
            stdout_bytes_dropped: 7,
            ..TaskRun::succeeded("load", 2, at(0), at(3_000))
        };
        let entries = entries_of(&TaskCall::from(row));
        let shown = entries
            .iter()
            .map(|entry| (entry.word, entry.by_host, entry.text.as_str()));
        assert_eq!(
            Vec::from_iter(shown),
            [
                ("warn", false, "[db] slow"),
                ("critical", false, "gone"),
                ("stdout", false, "printed"),
                ("warn", true, "7 more bytes of stdout were dropped"),
                ("error", false, "failed: no answer"),
                ("error", true, "grant it"),
            ]
        );
        assert_eq!(entries[0].of, "load·2");
        assert_eq!(entries[4].after, "called again after 1 s");
    }

    #[test]
    fn the_newest_lines_are_kept() {
        let entry = |text: &str| Entry {
            at: at(0),
            of: String::new(),
            word: "info",
            level: INFO,
            by_host: false,
            text: text.to_owned(),
            after: String::new(),
        };
        let entries = Vec::from_iter((0..1_000).map(|_| entry("x")));
        let (kept, left_out) = bounded(&entries);
        assert_eq!(kept.len() + left_out, 1_000);
        assert!(
            kept.len() * LINE_BYTES <= BYTES_MAX + LINE_BYTES,
            "{}",
            kept.len()
        );
        assert_eq!(bounded(&[entry(&"x".repeat(1 << 20))]).1, 0);
    }

    #[test]
    fn a_level_is_one_of_the_list() {
        let of = |level: &str| {
            Filter::of(LaunchQuery {
                level: Some(level.to_owned()),
                task: None,
            })
        };
        assert_eq!(of("warn").unwrap().least, WARN);
        assert!(of("loud").is_err());
    }
}
