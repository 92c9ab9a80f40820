//! The slots of a rule in a calendar of months. It needs no colours.

use std::collections::BTreeMap;

use chrono::{Datelike as _, Months as Later, NaiveDate};
use clap::Args;
use serde::Serialize;

use crate::output::{self, Result, refused};
use campanile_model::clock::Timestamp;
use campanile_schedule::rule::Rule;

/// The longest line, in characters.
const COLUMNS_MAX: usize = 100;
/// The most months in one row.
const ROW_MONTHS_MAX: usize = 3;
/// The text between two months.
const GAP: &str = "   ";
/// The most slots that one calendar counts: one for each second of a month takes a second or two.
const SLOTS_MAX: usize = 2_700_000;

const WEEKDAYS: [&str; 7] = ["Mo", "Tu", "We", "Th", "Fr", "Sa", "Su"];

#[derive(Args)]
pub(crate) struct Months {
    /// How many months
    #[arg(long = "months", value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=24))]
    number: u32,
}

/// Consecutive months with the number of slots on each day.
struct Calendar {
    /// The first day of the first month.
    begin: NaiveDate,
    months: u32,
    counts: BTreeMap<NaiveDate, u32>,
}

/// A day that has slots.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct Day {
    /// Such as `2026-11-21`, in the rule's zone.
    date: String,
    /// The number of slots.
    count: u32,
}

impl Months {
    /// Print the `slots` of `rule` after `after`, from the month of `after` on.
    pub(crate) fn print(
        &self,
        rule: &Rule,
        slots: impl Iterator<Item = Timestamp>,
        after: Timestamp,
        as_json: bool,
    ) -> Result {
        let date = rule.local(after).date();
        let mut calendar = Calendar {
            begin: date.with_day(1).unwrap_or(date),
            months: self.number,
            counts: BTreeMap::new(),
        };
        let end = calendar.month(self.number);
        let dates = slots.map(|slot| rule.local(slot).date());
        for (number, date) in dates.take_while(|&date| date < end).enumerate() {
            if number == SLOTS_MAX {
                return Err(
                    refused!("the rule has more than {SLOTS_MAX} slots in these months")
                        .hint("ask for fewer with --months"),
                );
            }
            *calendar.counts.entry(date).or_default() += 1;
        }
        if as_json {
            let days = calendar.counts.iter().map(|(date, &count)| Day {
                date: date.to_string(),
                count,
            });
            return output::print_json(&Vec::from_iter(days));
        }
        output::print_line!(
            "Slots in {} after {}",
            rule.timezone(),
            rule.local(after).format("%Y-%m-%d %H:%M:%S")
        )?;
        for line in calendar.lines() {
            output::print_line(&line)?;
        }
        output::print_line("")?;
        output::print_line(calendar.legend())
    }
}

impl Calendar {
    /// Returns the first day of a month; the first month is 0.
    fn month(&self, number: u32) -> NaiveDate {
        let begin = self.begin.checked_add_months(Later::new(number));
        begin.unwrap_or(NaiveDate::MAX)
    }

    fn legend(&self) -> &'static str {
        match self.counts.values().max() {
            None => "no slots",
            Some(1) => "* a day with one slot",
            Some(_) => "* a day with one slot; *2 a day with two slots, and so on",
        }
    }

    /// Returns the mark after the number of a day.
    fn mark(&self, date: NaiveDate) -> String {
        match self.counts.get(&date) {
            None => String::new(),
            Some(1) => "*".to_owned(),
            Some(count) => format!("*{count}"),
        }
    }

    /// Returns the lines of all months, with as many months in a row as fit.
    fn lines(&self) -> Vec<String> {
        let marks = self.counts.keys().map(|&date| self.mark(date).len());
        let cell = 2 + marks.max().unwrap_or(1);
        let width = WEEKDAYS.len() * (cell + 1) - 1;
        let per_row = (COLUMNS_MAX + GAP.len()) / (width + GAP.len());
        let per_row = per_row.clamp(1, ROW_MONTHS_MAX);
        let mut lines = Vec::new();
        let months: Vec<Vec<String>> = (0..self.months)
            .map(|month| self.month_lines(self.month(month), cell, width))
            .collect();
        for row in months.chunks(per_row) {
            lines.push(String::new());
            let height = row.iter().map(Vec::len).max().unwrap_or_default();
            for number in 0..height {
                let line = |month: &Vec<String>| month.get(number).cloned().unwrap_or_default();
                let parts = row.iter().map(|month| format!("{:width$}", line(month)));
                let parts: Vec<String> = parts.collect();
                lines.push(parts.join(GAP).trim_end().to_owned());
            }
        }
        lines
    }

    /// Returns the lines of one month: its name, the weekdays, and its weeks from Monday.
    fn month_lines(&self, begin: NaiveDate, cell: usize, width: usize) -> Vec<String> {
        let weekdays = WEEKDAYS.map(|weekday| format!("{weekday:cell$}"));
        let mut lines = vec![
            format!("{:^width$}", begin.format("%B %Y").to_string()),
            weekdays.join(" "),
        ];
        let mut cells = vec![" ".repeat(cell); begin.weekday().num_days_from_monday() as usize];
        let days = begin.iter_days();
        let days = days.take_while(|day| day.month() == begin.month());
        cells.extend(days.map(|date| {
            let text = format!("{:>2}{}", date.day(), self.mark(date));
            format!("{text:cell$}")
        }));
        lines.extend(cells.chunks(WEEKDAYS.len()).map(|week| week.join(" ")));
        lines
    }
}
