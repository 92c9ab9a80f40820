//! A second parser of rules: it tries each number of each field, and each date.

use chrono::{DateTime, Datelike as _, Days, NaiveDate, Timelike as _, Weekday};

use super::super::{DayMatch, RuleText};
use super::{MONTHS, WEEKDAYS};

/// The numbers that the fields of an expression allow.
struct Expression {
    texts: [String; 6],
    allowed: [Vec<bool>; 6],
    both_days: bool,
}

/// A rule, parsed by the oracle.
pub(super) struct Reading {
    expression: Expression,
    excluded: Vec<Excluded>,
    pub(super) wildcard: bool,
}

enum Excluded {
    Dates(String, String),
    Yearly(String),
    Minutes(Box<Expression>),
}

impl Reading {
    /// Parse `text`. `expression` is its expression with numbers for `H`.
    pub(super) fn of(text: &RuleText, expression: &str) -> Reading {
        let mut read = Expression::read(expression);
        read.both_days |= text.day_match == DayMatch::And;
        let excluded = text.exclude.iter().map(|item| {
            if item.contains(' ') {
                Excluded::Minutes(Box::new(Expression::read(item)))
            } else if let Some((first, last)) = item.split_once("..") {
                Excluded::Dates(first.to_owned(), last.to_owned())
            } else if item.len() == 5 {
                Excluded::Yearly(item.clone())
            } else {
                Excluded::Dates(item.clone(), item.clone())
            }
        });
        Reading {
            wildcard: read.texts[..3].iter().any(|text| text.starts_with('*')),
            excluded: excluded.collect(),
            expression: read,
        }
    }

    pub(super) fn matches(&self, local: i64) -> bool {
        self.expression.matches(local) && !self.excluded.iter().any(|item| item.holds(local))
    }
}

impl Excluded {
    fn holds(&self, local: i64) -> bool {
        let time = DateTime::from_timestamp(local, 0).unwrap();
        let date = time.format("%Y-%m-%d").to_string();
        match self {
            Excluded::Dates(first, last) => (first..=last).contains(&&date),
            Excluded::Yearly(day) => date[5..] == *day,
            Excluded::Minutes(expression) => expression.matches(local / 60 * 60),
        }
    }
}

impl Expression {
    fn read(text: &str) -> Expression {
        let mut texts: Vec<String> = text.split(' ').map(str::to_uppercase).collect();
        if texts.len() == 5 {
            texts.insert(0, "0".to_owned());
        }
        let texts: [String; 6] = texts.try_into().unwrap();
        let starts = [0, 0, 0, 1, 1, 0];
        let ends = [59, 59, 23, 31, 12, 6];
        let allowed = std::array::from_fn(|field| {
            (0..64)
                .map(|number| {
                    let is = |number| allows(&texts[field], field, starts[field], number);
                    (starts[field]..=ends[field]).contains(&number)
                        && (is(number) || field == 5 && number == 0 && is(7))
                })
                .collect()
        });
        Expression {
            both_days: texts[3].starts_with('*') || texts[5].starts_with('*'),
            allowed,
            texts,
        }
    }

    fn matches(&self, local: i64) -> bool {
        let local = DateTime::from_timestamp(local, 0).unwrap();
        let is = |field: usize, number: u32| self.allowed[field][number as usize];
        if !(is(0, local.second())
            && is(1, local.minute())
            && is(2, local.hour())
            && is(4, local.month()))
        {
            return false;
        }
        let date = local.date_naive();
        let special = |field: usize| {
            self.texts[field]
                .split(',')
                .any(|item| is_quartz_day(item, date))
        };
        let day_of_month = is(3, date.day()) || special(3);
        let day_of_week = is(5, date.weekday().num_days_from_sunday()) || special(5);
        if self.both_days {
            day_of_month && day_of_week
        } else {
            day_of_month || day_of_week
        }
    }
}

fn is_quartz_day(item: &str, date: NaiveDate) -> bool {
    let in_month = |day: NaiveDate| day.month() == date.month();
    let later = |days| date + Days::new(days);
    if item == "L" {
        return !in_month(later(1));
    }
    if let Some(days) = item.strip_prefix("L-") {
        let days = days.parse().unwrap();
        return in_month(later(days)) && !in_month(later(days + 1));
    }
    let works = |day: NaiveDate| !matches!(day.weekday(), Weekday::Sat | Weekday::Sun);
    if item == "LW" {
        return works(date)
            && (1..)
                .map(later)
                .take_while(|&day| in_month(day))
                .all(|day| !works(day));
    }
    if let Some(day) = item.strip_suffix('W') {
        let Some(day) = date.with_day(day.parse().unwrap()) else {
            return false;
        };
        let near = [0, -1, 1, -2, 2].map(|days| day + chrono::TimeDelta::days(days));
        return near.into_iter().find(|&day| in_month(day) && works(day)) == Some(date);
    }
    let is_weekday =
        |text: &str| text.parse::<u32>().unwrap() % 7 == date.weekday().num_days_from_sunday();
    if let Some((weekday, week)) = item.split_once('#') {
        return is_weekday(weekday) && date.day0() / 7 + 1 == week.parse::<u32>().unwrap();
    }
    item.strip_suffix('L')
        .is_some_and(|weekday| is_weekday(weekday) && !in_month(later(7)))
}

fn allows(text: &str, field: usize, start: u32, number: u32) -> bool {
    let is_quartz_day =
        |item: &str| item.contains('#') || item.ends_with('W') || item.contains('L');
    let plain = |item: &&str| field != 3 && field != 5 || !is_quartz_day(item);
    text.split(',').filter(plain).any(|item| {
        let (base, step) = item.split_once('/').unwrap_or((item, "1"));
        let value = |text: &str| match text.parse() {
            Ok(number) => number,
            Err(_) => {
                let names = if field == 4 {
                    &MONTHS[..]
                } else {
                    &WEEKDAYS[..]
                };
                let is = |name: &&str| *name == text;
                start + names.iter().position(is).unwrap() as u32
            }
        };
        let (first, last) = match base.split_once('-') {
            Some((first, last)) => (value(first), value(last)),
            None if base == "*" => (start, 63),
            None => (value(base), value(base)),
        };
        let step: u32 = step.parse().unwrap();
        (first..=last).contains(&number) && (number - first).is_multiple_of(step)
    })
}
