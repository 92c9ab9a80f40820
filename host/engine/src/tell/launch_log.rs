//! One line in the log for each launch that failed, was cancelled, skipped or recovered; at the level `debug` also for each
//! that succeeded.
//!
//! A schedule that fails each second, or a thousand at once, must not fill a disk: the lines of a span are bounded, and a
//! line says how many were left out.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::tell::log_spans;
use campanile_control::lock::lock;
use campanile_model::ids::ScheduleId;
use campanile_model::text::{counted, printable_line};
use campanile_schedule::policy::Displacements;
use campanile_store::events::{EventKind, NewEvent};
use campanile_store::launch::{Finish, NewLaunch, RunEnd};
use campanile_store::{Db, Decision, schedules};
use tracing::level_filters::LevelFilter;

/// The most lines in a span of [`SPAN`].
const LINES_MAX: usize = 20;
const SPAN: Duration = Duration::from_secs(10);
/// The most characters of a message. `run show` has all of it.
const MESSAGE_CHARS_MAX: usize = 300;

/// How many lines this host has written lately, and how many launches it has ended.
#[derive(Default)]
pub(crate) struct LaunchLog(Mutex<Lines>);

/// How many launches a host has ended since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EndedLaunches {
    pub succeeded: u64,
    pub failed: u64,
    pub cancelled: u64,
}

impl EndedLaunches {
    fn count(&mut self, end: &RunEnd) {
        match end {
            RunEnd::Succeeded { .. } => self.succeeded += 1,
            RunEnd::Failed { .. } => self.failed += 1,
            RunEnd::Cancelled { .. } => self.cancelled += 1,
            RunEnd::Waiting { .. } => {}
        }
    }
}

#[derive(Default)]
struct Lines {
    ended: EndedLaunches,
    /// When the span ends; none before the first one.
    until: Option<Instant>,
    written: usize,
    left_out: usize,
}

impl Lines {
    /// Begins a new span if the last one is over. Returns how many lines that one left out.
    fn turn(&mut self, now: Instant) -> usize {
        if self.until.is_some_and(|until| now < until) {
            return 0;
        }
        self.until = Some(now + SPAN);
        self.written = 0;
        std::mem::take(&mut self.left_out)
    }

    /// Whether one more line may be written.
    fn admit(&mut self) -> bool {
        let is_admitted = self.written < LINES_MAX;
        if is_admitted {
            self.written += 1;
        } else {
            self.left_out += 1;
        }
        is_admitted
    }
}

impl LaunchLog {
    /// Whether a line may be written now.
    fn admits(&self) -> bool {
        self.report_left_out();
        lock(&self.0).admit()
    }

    /// Returns how many launches have ended.
    pub(crate) fn counts(&self) -> EndedLaunches {
        lock(&self.0).ended
    }

    /// Logs how many lines were left out, if the span is over.
    pub(crate) fn report_left_out(&self) {
        let left_out = lock(&self.0).turn(Instant::now());
        if left_out > 0 {
            tracing::warn!(
                left_out,
                "{} failed, were cancelled, skipped or recovered; `campanile launch list` shows them",
                counted(left_out, "more launch")
            );
        }
    }

    /// Logs the recorded ends of runs, each in the span of its run.
    pub(crate) async fn ended<'e>(&self, db: &Db, ends: impl Iterator<Item = &'e Finish>) {
        let is_logged = |end: &&Finish| match &end.end {
            RunEnd::Failed { .. } | RunEnd::Cancelled { .. } => self.admits(),
            // A filter by field decides within the span.
            RunEnd::Succeeded { .. } => LevelFilter::current() >= LevelFilter::DEBUG,
            RunEnd::Waiting { .. } => false,
        };
        let count = |end: &&Finish| lock(&self.0).ended.count(&end.end);
        let ends: Vec<&Finish> = ends.inspect(count).filter(is_logged).collect();
        if ends.is_empty() {
            return;
        }
        // A line without a name is better than none.
        let names = names(db, &ends).await.unwrap_or_default();
        for Finish {
            run_id,
            schedule_id,
            scheduled_time,
            end,
            ..
        } in ends
        {
            let name = names.get(schedule_id).map(String::as_str);
            let launch = run_id.launch().short();
            let what = format!(
                "`{}` {scheduled_time}, launch {launch}",
                name.unwrap_or("?")
            );
            let _span = log_spans::run(name, *run_id).entered();
            match end {
                RunEnd::Failed { kind, message } => {
                    tracing::warn!("{what}: failed: {kind}: {}", shortened(message));
                }
                RunEnd::Cancelled { message } => {
                    tracing::warn!("{what}: cancelled: {}", shortened(message));
                }
                _ => tracing::debug!("{what}: succeeded"),
            }
        }
    }

    /// Logs the skipped slots among `decided`. `name_of` returns the name of a schedule.
    pub(crate) fn skipped<'s, 'd>(
        &self,
        decided: impl Iterator<Item = &'d NewLaunch>,
        name_of: impl Fn(ScheduleId) -> Option<&'s str>,
    ) {
        let is_skipped = |launch: &&NewLaunch| launch.decision == Decision::Skipped;
        for launch in decided.filter(is_skipped) {
            if !self.admits() {
                continue;
            }
            let name = name_of(launch.schedule_id);
            let _span = log_spans::decision(name, Some(launch.id)).entered();
            let name = name.unwrap_or("?");
            let (first, reason) = (launch.scheduled_time, launch.reason.unwrap_or_default());
            match launch.slot_count {
                1 => tracing::warn!("`{name}` {first}: skipped: {reason}"),
                count => {
                    let last = launch.last_scheduled_time;
                    tracing::warn!("`{name}` {first} to {last}: {count} slots skipped: {reason}");
                }
            }
        }
    }

    /// Logs queued launches skipped because others displaced them. `name_of` returns the name of a schedule.
    pub(crate) fn displaced<'s>(
        &self,
        displaced: &[(ScheduleId, Displacements, Duration)],
        name_of: impl Fn(ScheduleId) -> Option<&'s str>,
    ) {
        for (schedule, displacements, _) in displaced {
            for skipped in &displacements.skipped {
                if self.admits() {
                    let name = name_of(*schedule);
                    let _span = log_spans::decision(name, Some(skipped.launch)).entered();
                    let name = name.unwrap_or("?");
                    let (launch, by) = (skipped.launch.short(), skipped.by.short());
                    tracing::warn!(
                        "`{name}`, launch {launch}: skipped: overlap: launch {by} took its place"
                    );
                }
            }
        }
    }

    /// Logs recovered launches by their events.
    pub(crate) fn recovered(&self, news: &[NewEvent]) {
        for event in news {
            let NewEvent {
                kind,
                subject,
                launch_id,
                detail,
                ..
            } = event;
            let span = log_spans::decision(Some(subject), *launch_id);
            match kind {
                // An operator has to decide about the launch, so the line is never left out.
                EventKind::LaunchUnknown => span.in_scope(|| tracing::error!("{detail}")),
                _ if self.admits() => span.in_scope(|| tracing::warn!("`{subject}`: {detail}")),
                _ => {}
            }
        }
    }
}

async fn names(db: &Db, ends: &[&Finish]) -> Result<HashMap<ScheduleId, String>> {
    let mut ids: Vec<ScheduleId> = ends.iter().map(|end| end.schedule_id).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut tx = db.read().await?;
    let names = schedules::names_of(&mut tx, &ids).await?;
    Ok(names.into_iter().collect())
}

/// Returns a guest's message as a part of one line.
fn shortened(message: &str) -> String {
    let line = printable_line(message);
    match line.char_indices().nth(MESSAGE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_span_are_bounded_and_the_next_one_tells_what_was_left_out() {
        let mut lines = Lines::default();
        let start = Instant::now();
        assert_eq!(lines.turn(start), 0);
        let admitted = (0..LINES_MAX + 7).filter(|_| lines.admit());
        assert_eq!(admitted.count(), LINES_MAX);
        let end = start + SPAN;
        assert_eq!(
            lines.turn(end.checked_sub(Duration::from_micros(1)).unwrap()),
            0
        );
        assert!(!lines.admit());
        assert_eq!(lines.turn(end), 8);
        assert!(lines.admit());
        assert_eq!(lines.turn(end + SPAN), 0);
    }

    #[test]
    fn a_message_is_one_line_of_bounded_length() {
        let long = "é\n".repeat(MESSAGE_CHARS_MAX);
        let line = shortened(&long);
        assert!(!line.contains('\n') && line.ends_with('…'), "{line}");
        assert_eq!(line.chars().count(), MESSAGE_CHARS_MAX + 1);
        assert_eq!(shortened("no such file"), "no such file");
    }
}
