//! `campanile top`: what the hosts do now.

use crate::Common;
use crate::output::{self, Record, Result};
use campanile_control::questions::hosts::GetTop;
use campanile_control::records::top::{ActiveRun, DueSchedule, FailedLaunch, LiveHost, TopReport};
use campanile_control::reports::statistics::Statistics;
use campanile_store::stats::Unfinished;

impl Record for LiveHost {
    const LIST: &'static str = "name state version started_at heartbeat_age";
    const DECIDING: &'static str = "state heartbeat_age";

    fn text(&self, key: &str) -> Option<String> {
        (key == "heartbeat_age").then(|| span_text(self.heartbeat_age))
    }
}

impl Record for ActiveRun {
    const LIST: &'static str = "launch schedule status host age";
    const DECIDING: &'static str = "schedule status age";

    fn text(&self, key: &str) -> Option<String> {
        match key {
            "launch" => Some(self.run.launch.short()),
            "age" => Some(span_text(self.age)),
            _ => None,
        }
    }
}

impl Record for DueSchedule {
    const LIST: &'static str = "schedule slot due_in";
    const DECIDING: &'static str = "due_in";

    fn text(&self, key: &str) -> Option<String> {
        (key == "due_in").then(|| span_text(self.due_in))
    }
}

impl Record for FailedLaunch {
    const LIST: &'static str = "launch schedule scheduled_time status reason message";
    const DECIDING: &'static str = "schedule status message";

    fn text(&self, key: &str) -> Option<String> {
        (key == "launch").then(|| self.launch.short())
    }
}

impl Record for TopReport {
    fn print(&self) -> Result {
        let Unfinished {
            running,
            open,
            queued,
        } = self.unfinished;
        let Statistics {
            counts,
            rates,
            lag_ms,
            ..
        } = &self.last_minute;
        let average = rates.average_time_ms;
        let average = average.map_or_else(String::new, |ms| format!(", {ms:.0} ms on average"));
        output::print_line!("now          {running} running, {open} open, {queued} queued")?;
        output::print_line!(
            "last minute  {} launches, {} succeeded, {} failed, {} skipped, {} lost{average}, lag p99 {:.0} ms",
            counts.launches,
            counts.succeeded,
            counts.failed,
            counts.skipped,
            rates.lost,
            lag_ms.p99
        )?;
        table(
            "hosts",
            &self.hosts,
            "no host serves; start `campanile serve`",
        )?;
        table("runs", &self.runs, "none")?;
        table("next slots", &self.next, "none")?;
        table("failures", &self.failures, "none")
    }
}

/// Print a table with its title, or `none` when it has no rows.
fn table<R: Record>(title: &str, rows: &[R], none: &str) -> Result {
    if rows.is_empty() {
        return output::print_line!("\n{title}: {none}");
    }
    output::print_line!("\n{title}")?;
    output::print_table(rows)
}

/// Returns a number of seconds as people read it.
pub(crate) fn span_text(seconds: f64) -> String {
    let sign = if seconds <= -0.5 { "-" } else { "" };
    let seconds = seconds.abs().round() as u64;
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    match (hours, minutes) {
        (0, 0) => format!("{sign}{seconds} s"),
        (0, _) => format!("{sign}{minutes} min {} s", seconds % 60),
        (1..48, _) => format!("{sign}{hours} h {minutes} min"),
        _ => format!("{sign}{} days", hours / 24),
    }
}

/// Print what the hosts do now.
pub(crate) async fn run(common: &Common) -> Result {
    common.print_answer("", &GetTop {}).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_shown_in_two_units_at_most() {
        for (seconds, text) in [
            (0.2, "0 s"),
            (-0.2, "0 s"),
            (59.4, "59 s"),
            (61.0, "1 min 1 s"),
            (-75.0, "-1 min 15 s"),
            (7_260.0, "2 h 1 min"),
            (172_800.0, "2 days"),
        ] {
            assert_eq!(span_text(seconds), text);
        }
    }
}
