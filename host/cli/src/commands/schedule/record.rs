//! How schedules are printed.

use crate::output::{self, Record, Result};
use campanile_control::records::schedule::{NewSchedule, ScheduleDetail, ScheduleRecord};
use campanile_control::schedules::definition;
use campanile_schedule::rule::{DayMatch, DstFold, DstGap, Warning};
use campanile_store::schedules::Revision;

impl Record for NewSchedule {
    fn print(&self) -> Result {
        let schedule = &self.schedule;
        let (name, rule) = (&schedule.row.definition.name, schedule.rule_text());
        output::print_line!("added {name}: {rule}, {}", schedule.next_text())?;
        if let Some(when) = self.without_slots() {
            output::print_message(&when);
        }
        for note in &self.notes {
            output::print_message!("note: {note}");
        }
        for Warning { message, hint, .. } in &self.warnings {
            output::print_message!("warning: {message}; {hint}");
        }
        Ok(())
    }
}

impl Record for ScheduleRecord {
    const LIST: &'static str = "name package task rule timezone origin state next_slot";
    const DECIDING: &'static str = "rule state next_slot";

    fn text(&self, key: &str) -> Option<String> {
        let rule = &self.row.definition.rule;
        match key {
            "rule" => Some(self.rule_text()),
            // Choices about the rule are shown only when they differ from the default.
            "day_match" if rule.day_match == DayMatch::default() => Some(String::new()),
            "dst_gap" if rule.dst_gap == DstGap::default() => Some(String::new()),
            "dst_fold" if rule.dst_fold == DstFold::default() => Some(String::new()),
            "exclude" => Some(rule.exclude.join("\n")),
            "policies" => policies_text(&self.row.definition),
            "paused" => Some(self.pause_text()),
            _ => None,
        }
    }
}

impl Record for ScheduleDetail {
    const DETAIL: &'static str = "name id package task args rule anchor timezone day_match dst_gap dst_fold exclude policies \
        context origin state paused revision next_slot cursor launches_made skips replaces_proposals_of notes";

    fn text(&self, key: &str) -> Option<String> {
        match key {
            "notes" => Some(self.schedule.notes.join("\n")),
            "replaces_proposals_of" => Some(self.replaces_proposals_of.join("\n")),
            _ => self.schedule.schedule.text(key),
        }
    }

    fn print(&self) -> Result {
        output::print_detail(self)?;
        output::print_line("")?;
        output::print_table(&self.launches)
    }
}

/// Returns one line for each policy that the definition sets, and for each that the configuration sets.
fn policies_text(definition: &Revision) -> Option<String> {
    let own = definition::own_policies(definition).ok()?;
    let defaults = definition::defaults(definition).ok()?;
    let own = own
        .entries()
        .map(|(policy, text)| format!("{policy} {text}"));
    let defaults = defaults.entries();
    let defaults = defaults.map(|(policy, text)| format!("{policy} {text} (by the configuration)"));
    Some(own.chain(defaults).collect::<Vec<_>>().join("\n"))
}
