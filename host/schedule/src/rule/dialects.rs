//! Recognising other schedulers' expressions, and translating them.
//!
//! Marks with a different meaning elsewhere are never guessed. Nothing here runs until an expression has been refused, so valid rules pay
//! nothing for it.

use super::error::{RuleError, quoted};
use super::field_spec::{DAY_OF_WEEK, is_digits};
use super::fields::{Fields, SPECS, is_year};
use super::hash::HashKey;
use super::macros::fields_of_macro;
use super::part::{Part, words};
use super::period::Period;
use super::zone::Zone;

/// Returns the error explaining another scheduler's expression, or `None` if it resembles none.
pub(super) fn explain(expression: &str) -> Option<RuleError> {
    let text = expression.trim();
    zone_before(text)
        .or_else(|| wrapped(text))
        .or_else(|| iso_8601(text))
        .or_else(|| in_words(text))
        .or_else(|| systemd(text))
        .or_else(|| with_day_mark(text))
        .or_else(|| random(text))
        .or_else(|| after_fields(text))
}

/// Explains a `?` among six fields, or seven for Quartz. Two dialects require one.
///
/// EventBridge starts with minutes and ends with a year; its day fields are the third and fifth. Quartz starts with seconds; its day
/// fields are the fourth and sixth.
pub(super) fn with_day_mark(text: &str) -> Option<RuleError> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let marked = |indices: [usize; 2]| indices.iter().any(|&index| fields.get(index) == Some(&"?"));
    match (fields.len(), marked([2, 4]), marked([3, 5])) {
        (6, true, false) if is_year(fields[5]) => Some(event_bridge(&fields)),
        (6 | 7, false, true) => Some(quartz(&fields)),
        _ => None,
    }
}

fn event_bridge(fields: &[&str]) -> RuleError {
    let message =
        "six fields with `?` look like a rule of EventBridge: minute first and a year last";
    let weekdays = renumbered(fields[4]);
    let line = weekdays.and_then(|weekdays| {
        let fields = [fields[0], fields[1], fields[2], fields[3], &weekdays];
        translated(&fields.map(str::to_owned))
    });
    let hint = match line {
        Some(line) if fields[5] == "*" => format!("write `{line}`"),
        Some(line) => format!(
            "write `{line}`, and end the schedule after {}: there is no year field",
            quoted(fields[5])
        ),
        None => "write minute hour day-of-month month day-of-week, with `*` for any day and names \
                 for weekdays"
            .to_owned(),
    };
    match fields[2] {
        "?" if fields[4] == "*" => RuleError::new(
            message,
            format!("{hint}; for an hour chosen by hash, with seconds first, write `H`"),
        ),
        _ => RuleError::new(message, hint),
    }
}

fn quartz(fields: &[&str]) -> RuleError {
    let with = |weekdays: String| {
        let mut line: Vec<String> = fields[..6].iter().map(|&field| field.to_owned()).collect();
        line[5] = weekdays;
        translated(&line)
    };
    let year = match fields.get(6) {
        None | Some(&"*") => String::new(),
        Some(year) => format!(
            ", and end the schedule after {}: there is no year field",
            quoted(year)
        ),
    };
    let as_written = with(fields[5].to_owned());
    let from_one = renumbered(fields[5]).and_then(with);
    let hint = match (from_one, as_written) {
        (Some(from_one), Some(as_written)) if is_numbered(fields[5]) => format!(
            "write `{from_one}`, or `{as_written}` if weekdays count from 0 for Sunday as in \
             Spring{year}"
        ),
        (Some(line), _) => format!("write `{line}`{year}"),
        _ => "write second minute hour day-of-month month day-of-week, with `*` for any day and \
              names for weekdays"
            .to_owned(),
    };
    RuleError::new(
        "fields with seconds first and `?` for a day look like a rule of Quartz",
        hint,
    )
}

/// Translates the fields to this dialect, or returns `None` if some part has no counterpart.
///
/// `?` becomes any day, `a/n` runs to the end of its field, and backward ranges are turned around.
fn translated(fields: &[String]) -> Option<String> {
    let specs = &SPECS[SPECS.len() - fields.len()..];
    let items = |spec: &super::field_spec::FieldSpec, field: &str| -> Vec<String> {
        let items = field.split(',').map(|item| match item.split_once('/') {
            Some((first, step)) if first == spec.min.to_string() => format!("*/{step}"),
            Some((first, step)) if !first.contains(['-', '*']) => {
                format!("{first}-{}/{step}", spec.max)
            }
            _ => item.to_owned(),
        });
        items.collect()
    };
    let line = fields
        .iter()
        .zip(specs)
        .map(|(field, spec)| match field.as_str() {
            "?" => "*".to_owned(),
            field => items(spec, field).join(","),
        });
    let line: Vec<String> = line.collect();
    let line = line.join(" ");
    parses(&line).then_some(line)
}

/// Rewrites a weekday field counting from 1 for Sunday using names. Returns `None` if it's malformed.
fn renumbered(field: &str) -> Option<String> {
    let weekday = |text: &str| {
        if is_digits(text) {
            let number: u8 = text
                .parse()
                .ok()
                .filter(|number| (1..=7).contains(number))?;
            Some(DAY_OF_WEEK.show(number - 1, true))
        } else {
            Some(text.to_owned())
        }
    };
    let item = |item: &str| -> Option<String> {
        if let Some((day, week)) = item.split_once('#') {
            return Some(format!("{}#{week}", weekday(day)?));
        }
        if let Some(day) = item.strip_suffix(['L', 'l']) {
            return match day {
                "" => Some("SAT".to_owned()),
                day => Some(format!("{}L", weekday(day)?)),
            };
        }
        let (days, step) = match item.split_once('/') {
            Some((days, step)) => (days, format!("/{step}")),
            None => (item, String::new()),
        };
        let ends: Option<Vec<String>> = days.split('-').map(weekday).collect();
        Some(ends?.join("-") + &step)
    };
    let items: Option<Vec<String>> = field.split(',').map(item).collect();
    Some(items?.join(","))
}

/// Whether a weekday field uses numbers, which other dialects count differently.
fn is_numbered(field: &str) -> bool {
    let mut items = field.split(',');
    items.any(|item| item.starts_with(|letter: char| letter.is_ascii_digit()))
}

/// Whether `line` is a valid rule here.
fn parses(line: &str) -> bool {
    match line.strip_prefix('@') {
        Some(_) => line == super::REBOOT || fields_of_macro(line).is_ok(),
        None => Fields::parse(line, HashKey::NONE).is_ok(),
    }
}

/// Explains `CRON_TZ=Asia/Tokyo 0 9 * * *`, or a zone following the fields.
fn zone_before(text: &str) -> Option<RuleError> {
    let parts: Vec<&str> = text.split_whitespace().collect();
    let (first, rest) = parts.split_first()?;
    let (name, rest) = match first.split_once('=') {
        Some(("CRON_TZ" | "TZ", name)) => (name.trim_matches(['"', '\'']), rest),
        Some(_) => return None,
        None => {
            let (last, rest) = parts.split_last()?;
            let is_zone = last.chars().any(|letter| letter.is_ascii_alphabetic());
            if !is_zone || rest.len() < 5 || !Zone::is_named(last) {
                return None;
            }
            (*last, rest)
        }
    };
    let zone = quoted(name);
    let rest = rest.join(" ");
    let line = if parses(&rest) {
        format!("write `{rest}` alone")
    } else {
        "write the fields alone".to_owned()
    };
    Some(RuleError::new(
        format!("the expression has the time zone {zone} in it"),
        format!("{line}, and give the zone with --tz {name}, or with the key `timezone`"),
    ))
}

/// Explains AWS's `cron(…)`, `rate(…)` and `at(…)`.
fn wrapped(text: &str) -> Option<RuleError> {
    let (name, rest) = text.split_once('(')?;
    let inner = rest.strip_suffix(')')?.trim();
    let refused = |hint: String| {
        let message = format!("`{name}(…)` is how EventBridge writes a rule");
        Some(RuleError::new(message, hint))
    };
    match name {
        "cron" if parses(inner) => refused(format!("write `{inner}`, without `cron()`")),
        "cron" => {
            let fields: Vec<&str> = inner.split_whitespace().collect();
            if fields.len() == 6 && is_year(fields[5]) {
                Some(event_bridge(&fields))
            } else {
                refused("write five fields, as in `30 2 * * *`".to_owned())
            }
        }
        "rate" => refused(match Period::parse(Part::whole(inner)) {
            Ok(period) => format!("write `@every {period}`, or --every {period}"),
            Err(_) => "write a period, as in `@every 5m`".to_owned(),
        }),
        "at" => refused("give one instant with --at, as in 2026-11-21T09:00:00Z".to_owned()),
        _ => None,
    }
}

/// Explains durations like `PT5M` and repetitions like `R/2026-01-01T00:00:00Z/PT1H`.
fn iso_8601(text: &str) -> Option<RuleError> {
    let repeats = text.starts_with('R') && text.contains("/P");
    let duration = if repeats {
        &text[text.rfind("/P")? + 1..]
    } else {
        text
    };
    let digits = |letter: char| letter.is_ascii_digit();
    let rest = duration
        .strip_prefix('P')
        .filter(|rest| rest.contains(digits))?;
    if rest.contains(char::is_whitespace) {
        return None;
    }
    let (date, time) = rest.split_once('T').unwrap_or((rest, ""));
    let period = format!("{}{}", date.replace('M', "mo"), time).to_ascii_lowercase();
    let hint = match Period::parse(Part::whole(&period)) {
        Ok(period) => format!("write `@every {period}`, or --every {period}"),
        Err(_) => "write a period, as in `@every 1h30m`".to_owned(),
    };
    let anchor = if repeats {
        "; --anchor is its first instant"
    } else {
        ""
    };
    Some(RuleError::new(
        format!("{} is a duration of ISO 8601", quoted(text)),
        format!("{hint}{anchor}"),
    ))
}

fn in_words(text: &str) -> Option<RuleError> {
    let rest = text
        .strip_prefix("every ")
        .or_else(|| text.strip_prefix("Every "))?;
    let hint = match Period::parse(Part::whole(rest)) {
        Ok(period) => format!("write `@every {period}`, or --every {period}"),
        Err(_) => {
            "write five fields, as in `30 2 * * MON`, or a period, as in `@every 5m`".to_owned()
        }
    };
    let message = format!("{} is not a cron expression", quoted(text));
    Some(RuleError::new(message, hint))
}

/// Explains systemd calendar events like `Mon..Fri *-*-* 02:30:00` or `daily`.
fn systemd(text: &str) -> Option<RuleError> {
    let refused = |hint: String| {
        let message = format!("{} looks like a calendar event of systemd", quoted(text));
        Some(RuleError::new(message, hint))
    };
    let short = format!("@{text}");
    if parses(&short) {
        return refused(format!("write `{short}`"));
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_time = |word: &&str| word.contains(':') && !word.contains(char::is_alphabetic);
    let is_date = |word: &&str| {
        let parts: Vec<&str> = word.split('-').collect();
        let digits = |part: &&str| {
            part.chars()
                .all(|letter| "*0123456789,/.~".contains(letter))
        };
        matches!(parts.len(), 2..=3) && parts.contains(&"*") && parts.iter().all(digits)
    };
    if words.len() > 4 || !words.iter().any(|word| is_time(word) || is_date(word)) {
        return None;
    }
    let time = words
        .iter()
        .find(|word| is_time(word))
        .copied()
        .unwrap_or("00:00");
    let date = words.iter().find(|word| is_date(word)).copied();
    let others: Vec<&&str> = words
        .iter()
        .filter(|word| !is_time(word) && !is_date(word))
        .collect();
    let clock: Vec<&str> = time.split(':').collect();
    let weekdays = match others[..] {
        [] => "*".to_owned(),
        [days] => days.replace("..", "-"),
        _ => String::new(),
    };
    let (month, day) = match date.map(|date| date.split('-').collect::<Vec<_>>()) {
        None => ("*", "*"),
        Some(parts) => match parts[..] {
            ["*", month, day] | [month, day] => (month, day),
            _ => ("", ""),
        },
    };
    let plain = |text: &str| match text.parse::<u8>() {
        Ok(number) => number.to_string(),
        Err(_) => text.to_owned(),
    };
    let line = match clock[..] {
        [hour, minute] | [hour, minute, "00" | "0"] => translated(&[
            plain(minute),
            plain(hour),
            plain(day),
            plain(month),
            weekdays,
        ]),
        [hour, minute, second] => translated(&[
            plain(second),
            plain(minute),
            plain(hour),
            plain(day),
            plain(month),
            weekdays,
        ]),
        _ => None,
    };
    refused(match line {
        Some(line) => format!("write `{line}`"),
        None => "write five fields, as in `30 2 * * MON-FRI`".to_owned(),
    })
}

/// Explains random values as in OpenBSD and cronie (`0~29`) or croniter (`R`).
fn random(text: &str) -> Option<RuleError> {
    let parts: Vec<Part<'_>> = words(text).collect();
    let (first_spec, last) = (6_usize.checked_sub(parts.len())?, parts.len());
    let specs = SPECS.get(first_spec..).filter(|_| last >= 5)?;
    let hashed = |spec: &super::field_spec::FieldSpec, field: &str| -> Option<String> {
        let (field, step) = match field.split_once('/') {
            Some((field, step)) => (field, format!("/{step}")),
            None => (field, String::new()),
        };
        if let Some(rest) = field.strip_prefix('R') {
            return (rest.is_empty() || rest.starts_with('(')).then(|| format!("H{rest}{step}"));
        }
        let (first, last) = field.split_once('~')?;
        let or = |text: &str, other: u8| match text {
            "" => other.to_string(),
            text => text.to_owned(),
        };
        Some(match (first, last) {
            ("", "") => format!("H{step}"),
            _ => format!("H({}-{}){step}", or(first, spec.min), or(last, spec.max)),
        })
    };
    let fields: Vec<(Part<'_>, Option<String>)> = parts
        .iter()
        .zip(specs)
        .map(|(part, spec)| (*part, hashed(spec, part.text)))
        .collect();
    let (index, (part, _)) = fields
        .iter()
        .enumerate()
        .find(|(_, (_, hashed))| hashed.is_some())?;
    let line: Vec<&str> = fields
        .iter()
        .map(|(part, hashed)| hashed.as_deref().unwrap_or(part.text))
        .collect();
    let line = line.join(" ");
    let hint = if parses(&line) {
        format!("write `{line}`: a value chosen by hash, which stays the same for a schedule")
    } else {
        "write `H`, or `H(0-29)`: a value chosen by hash, which stays the same for a \
                  schedule"
            .to_owned()
    };
    Some(specs[index].refusal(*part, "is a random value of another cron", hint))
}

/// Explains five fields or a macro followed by something else: a year, or a crontab's command.
fn after_fields(text: &str) -> Option<RuleError> {
    let parts: Vec<Part<'_>> = words(text).collect();
    let count = if text.starts_with('@') { 1 } else { 5 };
    let next = parts.get(count)?;
    let fields: Vec<&str> = parts[..count].iter().map(|part| part.text).collect();
    let line = fields.join(" ");
    if !parses(&line) {
        return None;
    }
    let position = next.position;
    if count == 5 && parts.len() == 6 && next.text != "*" && is_year(next.text) {
        return Some(RuleError::new(
            format!(
                "{} at position {position} looks like a year, and there is no year field",
                quoted(next.text)
            ),
            format!("write `{line}`, and end the schedule after that year"),
        ));
    }
    is_command(next.text).then(|| {
        RuleError::new(
            format!(
                "{} at position {position}, after the fields, looks like the command of a crontab",
                quoted(next.text)
            ),
            format!("write `{line}` alone; `campanile schedule import` reads crontabs"),
        )
    })
}

/// Whether a word looks like the command following the fields in a crontab, rather than a mistaken field.
fn is_command(word: &str) -> bool {
    let letters = || word.split(|letter: char| !letter.is_ascii_alphabetic());
    let is_name = |letters: &str| {
        let start = letters.get(..3);
        start.is_some_and(|start| {
            let names = SPECS.iter().flat_map(|spec| spec.names);
            names
                .into_iter()
                .any(|name| name[..3].eq_ignore_ascii_case(start))
        })
    };
    word.contains([
        '.', '_', '=', '$', '"', '\'', '%', ';', '&', '|', '>', '<', '{', '[',
    ]) || letters().any(|letters| letters.len() > 1 && !is_name(letters) && letters != "LW")
}

#[cfg(test)]
mod tests;
