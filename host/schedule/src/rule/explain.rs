//! A rule in plain English.

use super::cron::CronRule;
use super::field::Field;
use super::field_spec::{
    DAY_OF_MONTH, DAY_OF_WEEK, FieldSpec, HOUR, MINUTE, MONTH, SECOND, ones, ranges, runs,
};
use super::fields::Fields;
use super::period::Period;
use super::quartz_days::QuartzDay;
use super::{Rule, Shape};
use campanile_model::clock::Timestamp;
use campanile_model::rule_text::{DstFold, DstGap};
use campanile_model::text::counted;

const TIMES_MAX: usize = 8;

/// How several weekdays are joined.
#[derive(Clone, Copy)]
pub(super) enum Naming {
    /// `Monday to Friday`.
    Together,
    /// `a Monday or a Friday`.
    OneOf,
}

impl Rule {
    /// Explain the rule in English, with numbers for `H`: `At 02:30 on Monday to Friday, in Europe/Paris.`
    pub fn explanation(&self) -> String {
        let mut text = match &self.shape {
            Shape::Cron(cron) => format!("{}, in {}.", cron.sentence(), self.timezone()),
            Shape::Every(interval) => {
                let anchor = self.local_text(Timestamp::from_micros(interval.anchor));
                let clock = if interval.is_elapsed() {
                    "of elapsed time"
                } else {
                    "on the clock"
                };
                let period = in_words(interval.period, true);
                format!("Every {period} {clock}, counted from {anchor}.")
            }
            Shape::At(slot) => format!("Once, at {}.", self.local_text(*slot)),
            Shape::AfterCompletion(period) => {
                format!("{} after each launch ends.", in_words(*period, false))
            }
            Shape::HostStart => "Once at every start of a host.".to_owned(),
        };
        let (dst, excluded) = match &self.shape {
            Shape::Cron(cron) => (cron.dst, &cron.exclude.texts),
            Shape::Every(interval) => (interval.dst, &interval.exclude.texts),
            _ => return text,
        };
        if dst.gap == DstGap::Skip && !dst.follows_clock {
            text += " A local time that the clock skips does not fire.";
        }
        text += match dst.fold {
            _ if dst.follows_clock => "",
            DstFold::First => "",
            DstFold::Second => " A local time that the clock shows twice fires the second time.",
            DstFold::Both => " A local time that the clock shows twice fires both times.",
        };
        if !excluded.is_empty() {
            let items: Vec<String> = excluded.iter().map(|item| format!("`{item}`")).collect();
            text += &format!(" Excluded: {}.", joined(&items));
        }
        text
    }

    /// Says when a cron rule fires, without its zone and exceptions: `At 02:30 on Monday to Friday`. None for other kinds of rule.
    pub fn cron_sentence(&self) -> Option<String> {
        match &self.shape {
            Shape::Cron(cron) => Some(cron.sentence()),
            _ => None,
        }
    }
}

impl CronRule {
    /// Explain the expression without its zone: `At 02:30 on Monday to Friday in January`.
    fn sentence(&self) -> String {
        let fields = &self.fields;
        let days = fields.days_text();
        let mut text = match fields.times_of_day() {
            Some(times) if days.is_empty() => format!("{times} every day"),
            Some(times) => times,
            None => fields.rhythm(),
        };
        if !days.is_empty() {
            text += &format!(" {days}");
        }
        if !fields.month.is_full(&MONTH) {
            let months = ranges(fields.month.bits, " to ", |month| MONTH.name_of(month));
            text += &format!(" in {}", joined(&months));
        }
        // Each sentence begins with an ASCII letter.
        text[..1].make_ascii_uppercase();
        text
    }
}

impl Fields {
    /// Returns `at 09:00, 12:00 and 15:00`; `None` for many times, or a field with a star.
    fn times_of_day(&self) -> Option<String> {
        let count = |field: Field| field.numbers().count();
        let number = count(self.hour) * count(self.minute) * count(self.second);
        if number > TIMES_MAX || self.second.star || self.minute.star || self.hour.star {
            return None;
        }
        let mut times = Vec::with_capacity(number);
        for hour in self.hour.numbers() {
            for minute in self.minute.numbers() {
                for second in self.second.numbers() {
                    let time = format!("{hour:02}:{minute:02}");
                    times.push(if self.has_seconds() {
                        format!("{time}:{second:02}")
                    } else {
                        time
                    });
                }
            }
        }
        Some(format!("at {}", joined(&times)))
    }

    /// Returns `every 15 minutes from 09:00 to 17:59` or `at minute 30 of every hour`.
    fn rhythm(&self) -> String {
        let every_hour = self.hour.is_full(&HOUR);
        let minutes = unit(self.minute, &MINUTE, self.has_seconds());
        let mut text = if !self.has_seconds() {
            minutes.clone()
        } else {
            let seconds = unit(self.second, &SECOND, false);
            if self.second.star && self.minute.is_full(&MINUTE) && every_hour {
                seconds
            } else {
                format!("{seconds} of {minutes}")
            }
        };
        let hours = runs(self.hour.bits);
        let each_minute = minutes.starts_with("every");
        if every_hour && each_minute {
            return text;
        }
        if each_minute && hours.len() <= 3 {
            let spans: Vec<String> = hours
                .iter()
                .map(|(first, last)| format!("from {first:02}:00 to {last:02}:59"))
                .collect();
            text += &format!(" {}", joined(&spans));
        } else {
            text += &format!(" of {}", unit(self.hour, &HOUR, true));
        }
        text
    }

    /// Returns `on the 13th and on Friday`; an empty text for every day.
    pub(super) fn days_text(&self) -> String {
        let all = |field: Field, spec| field.star && field.is_full(spec);
        let number = days_of_month(self.day_of_month);
        let weekday = |naming| days_of_week(self.day_of_week, naming);
        let any_number = all(self.day_of_month, &DAY_OF_MONTH);
        let any_weekday = all(self.day_of_week, &DAY_OF_WEEK);
        match (any_number, any_weekday) {
            (true, true) => String::new(),
            (true, false) => format!("on {}", weekday(Naming::Together)),
            (false, true) => format!("on {number}"),
            (false, false) if !self.match_both_days() => {
                format!("on {number} and on {}", weekday(Naming::Together))
            }
            (false, false) => format!("on {number}, if that is {}", weekday(Naming::OneOf)),
        }
    }
}

/// Explain a field of time: `every 15 minutes`, `minutes 0 and 30`, `every 2nd hour`.
///
/// `within` is true for a field that a smaller unit divides; otherwise numbers follow `at`.
fn unit(field: Field, spec: &FieldSpec, within: bool) -> String {
    let name = spec.name;
    if field.is_full(spec) {
        return format!("every {name}");
    }
    let whole = spec.max + 1;
    if let Some(step) = field.step(spec).filter(|step| whole.is_multiple_of(*step)) {
        // The list may have more numbers than the multiples of the step.
        if field.numbers().count() == usize::from(whole / step) && step < whole {
            return if within {
                format!("every {} {name}", ordinal(step))
            } else {
                format!("every {step} {name}s")
            };
        }
    }
    let numbers = ranges(field.bits, " to ", |number| number.to_string());
    let plural = if field.numbers().count() > 1 { "s" } else { "" };
    let at = if within { "" } else { "at " };
    format!("{at}{name}{plural} {}", joined(&numbers))
}

fn days_of_month(field: Field) -> String {
    let mut texts = Vec::new();
    match field.step(&DAY_OF_MONTH) {
        Some(step) if field.numbers().count() == (31usize).div_ceil(usize::from(step)) => {
            texts.push(format!(
                "every {} day from the 1st of the month",
                ordinal(step)
            ));
        }
        _ => texts.extend(ranges(field.bits, " to ", |day| {
            format!("the {}", ordinal(day))
        })),
    }
    texts.extend(QuartzDay::of_month(field.quartz).map(|day| match day {
        QuartzDay::BeforeLast(0) => "the last day of the month".to_owned(),
        QuartzDay::BeforeLast(1) => "the day before the last of the month".to_owned(),
        QuartzDay::BeforeLast(days) => format!("{days} days before the last of the month"),
        QuartzDay::Nearest(day) => format!("the Monday to Friday nearest the {}", ordinal(day)),
        _ => "the last Monday to Friday of the month".to_owned(),
    }));
    joined(&texts)
}

/// Returns the weekdays of a field: `Monday to Friday`, or `a Monday or a Friday`.
pub(super) fn days_of_week(field: Field, naming: Naming) -> String {
    // The week begins on Monday here, so that Friday to Sunday is one range.
    let sunday_last = field.bits & !1 | (field.bits & 1) << 7;
    let name = |weekday: u8| DAY_OF_WEEK.name_of(DAY_OF_WEEK.folded(weekday));
    let mut texts = match naming {
        Naming::Together => ranges(sunday_last, " to ", name),
        Naming::OneOf => ones(sunday_last)
            .map(|weekday| format!("a {}", name(weekday)))
            .collect(),
    };
    texts.extend(QuartzDay::of_week(field.quartz).map(|day| match day {
        QuartzDay::Nth { weekday, week } => {
            format!("the {} {} of the month", ordinal(week), name(weekday))
        }
        QuartzDay::Last { weekday } => format!("the last {} of the month", name(weekday)),
        _ => String::new(),
    }));
    match naming {
        Naming::Together => joined(&texts),
        Naming::OneOf => joined_by(&texts, "or"),
    }
}

/// Returns `1 hour`, `2 hours` or `1 hour and 30 minutes`. After `every`, `1 hour` is `hour`.
fn in_words(period: Period, after_every: bool) -> String {
    let parts: Vec<String> = period
        .parts()
        .map(|(_, unit, count)| counted(count, unit))
        .collect();
    match &parts[..] {
        [one] if after_every => one.strip_prefix("1 ").unwrap_or(one).to_owned(),
        parts => joined(parts),
    }
}

fn ordinal(number: u8) -> String {
    let suffix = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{suffix}")
}

fn joined(texts: &[String]) -> String {
    joined_by(texts, "and")
}

fn joined_by(texts: &[String], word: &str) -> String {
    match texts {
        [] => String::new(),
        [one] => one.clone(),
        [start @ .., last] => format!("{} {word} {last}", start.join(", ")),
    }
}

#[cfg(test)]
mod tests;
