//! The rules of time: which slots a schedule has. Pure; nothing here asks what time it is.
//!
//! A [`RuleText`] is what a person wrote and what is stored. [`Rule::parse`] refuses what it does
//! not understand, and [`Rule::next`] walks the slots of what it does:
//!
//! ```text
//! text → fields (field, cron) or period (interval) → local times → instants (zone) → slots
//! ```
//!
//! What to do with slots that were missed is decided in [`late`].
//!
//! A rule has slots in the local years 1970 to 2099 only: the time zone database foretells no
//! change of offset after them, and no slot is better than a wrong one.
//!
//! # Clock changes
//!
//! A cron rule whose second, minute or hour begins with `*` follows the clock: it fires whenever
//! the clock matches, so not inside a gap and in both passes of a fold. Every other cron rule, and
//! an interval of days or more, names local times that happen once: in a fold at the first pass;
//! in a gap of at most 3 hours when the gap ends; in a longer gap, a day that a country left out,
//! not at all. Intervals of hours and less are elapsed time and do not look at the clock.

mod cron;
mod error;
mod field;
mod interval;
pub mod late;
mod text;
mod zone;

#[cfg(test)]
mod clock_changes;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod testing;

use std::iter;
use std::str::FromStr;

use chrono::{DateTime, NaiveDateTime, SecondsFormat};

use crate::clock::Timestamp;
use cron::CronRule;
pub use error::RuleError;
use error::quoted;
use interval::{Interval, Period};
pub use text::{RuleKind, RuleText};
use zone::Zone;

/// No expression may be longer.
const EXPRESSION_BYTES_MAX: usize = 1024;

/// The version of the IANA time zone database built in, such as `2025b`.
///
/// Slots computed with another version may differ.
pub fn tzdata_version() -> &'static str {
    chrono_tz::IANA_TZDB_VERSION
}

/// A rule that was understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    kind: RuleKind,
    zone: &'static Zone,
    shape: Shape,
}

#[derive(Clone, Debug, PartialEq)]
enum Shape {
    Cron(Box<CronRule>),
    Every(Interval),
    At(Timestamp),
}

impl Rule {
    /// Read a rule.
    ///
    /// # Errors
    /// When the expression or the zone is not understood, when the rule would never fire, and
    /// when an anchor is given to a rule that is not an interval.
    pub fn parse(text: &RuleText) -> Result<Rule, RuleError> {
        let zone = Zone::named(&text.timezone)?;
        let expression = text.expression.as_str();
        if expression.len() > EXPRESSION_BYTES_MAX {
            return Err(RuleError::new(
                format!("the expression has {} bytes", expression.len()),
                format!("write at most {EXPRESSION_BYTES_MAX} bytes"),
            ));
        }
        let every = |begin| {
            let period = Period::parse(expression, begin)?;
            Interval::new(period, text.anchor, zone).map(Shape::Every)
        };
        let shape = match text.kind {
            RuleKind::Every => every(0)?,
            RuleKind::Cron => match period_of_macro(expression) {
                Some(begin) => every(begin)?,
                None => Shape::Cron(Box::new(CronRule::parse(expression)?)),
            },
            RuleKind::At => Shape::At(instant(expression, zone)?),
        };
        if text.anchor.is_some() && !matches!(shape, Shape::Every(_)) {
            return Err(RuleError::new(
                format!("an anchor means nothing to a rule of kind {}", text.kind),
                "leave the anchor out, or use the kind `every`",
            ));
        }
        Ok(Rule {
            kind: text.kind,
            zone,
            shape,
        })
    }

    /// The first slot strictly after `after`; `None` when there is none before the year 2100.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.shape {
            Shape::Cron(cron) => {
                let from = after.micros().div_euclid(1_000_000) + 1;
                let second = cron.next(self.zone, from)?;
                Some(Timestamp::from_micros(second * 1_000_000))
            }
            Shape::Every(interval) => interval.next(self.zone, after),
            Shape::At(slot) => Some(*slot).filter(|&slot| slot > after),
        }
    }

    /// The slots after `after`, up to and with `until`, in order.
    pub fn slots(
        &self,
        after: Timestamp,
        until: Timestamp,
    ) -> impl Iterator<Item = Timestamp> + '_ {
        iter::successors(self.next(after), |&slot| self.next(slot))
            .take_while(move |&slot| slot <= until)
    }

    /// `slot` on the clock of the rule's zone: `2026-11-21T09:00:00+01:00[Europe/Paris]`.
    pub fn local_text(&self, slot: Timestamp) -> String {
        let local = slot.to_chrono().with_timezone(&self.zone.tz);
        let text = local.to_rfc3339_opts(SecondsFormat::AutoSi, false);
        format!("{text}[{}]", self.timezone())
    }

    /// The expression in one fixed spelling, which parses to the same rule: expressions that mean
    /// the same have the same one.
    pub fn normal_form(&self) -> String {
        match &self.shape {
            Shape::Cron(cron) => cron.normal_form(),
            Shape::Every(interval) if self.kind == RuleKind::Cron => {
                format!("{EVERY} {}", interval.period())
            }
            Shape::Every(interval) => interval.period().to_string(),
            Shape::At(slot) => slot.to_string(),
        }
    }

    /// The IANA name of the zone whose clock the rule follows.
    pub fn timezone(&self) -> &str {
        self.zone.tz.name()
    }
}

/// How an interval is written where cron expressions are expected.
const EVERY: &str = "@every";

/// The byte at which the period of `@every 15m` begins, if `expression` is of that form.
fn period_of_macro(expression: &str) -> Option<usize> {
    let period = expression
        .trim_start_matches([' ', '\t'])
        .strip_prefix(EVERY)?;
    (period.is_empty() || period.starts_with([' ', '\t']))
        .then_some(expression.len() - period.len())
}

/// Read one instant.
fn instant(expression: &str, zone: &Zone) -> Result<Timestamp, RuleError> {
    const EXAMPLE: &str = "2026-11-21T09:00:00+01:00";
    let text = expression.trim_matches([' ', '\t']);
    let time = DateTime::parse_from_rfc3339(text).map_err(|_| {
        let lacks_offset = NaiveDateTime::from_str(text).is_ok();
        let hint = if lacks_offset {
            format!("add the offset from UTC, as in {EXAMPLE}, or Z for UTC")
        } else {
            format!("write date, time and offset, as in {EXAMPLE}")
        };
        RuleError::new(format!("{} is not an RFC 3339 time", quoted(text)), hint)
    })?;
    let slot = Timestamp::from(time.to_utc());
    if interval::answers_for(slot, zone) {
        return Ok(slot);
    }
    Err(RuleError::new(
        format!("{} is outside the years 1970 to 2099", quoted(text)),
        "write a time of these years",
    ))
}

#[cfg(test)]
mod tests {
    use super::testing::*;
    use super::*;
    use rand::Rng as _;

    #[test]
    fn an_instant_rings_once_and_to_the_microsecond() {
        let rule = at("2026-11-21T09:00:00.000001+01:00", "Europe/Paris").unwrap();
        let slot = time("2026-11-21T08:00:00.000001Z");
        assert_eq!(rule.next(time("2026-11-21T08:00:00Z")), Some(slot));
        assert_eq!(rule.next(slot), None);
        assert_eq!(rule.normal_form(), "2026-11-21T08:00:00.000001Z");
    }

    #[test]
    fn an_instant_that_is_not_one_is_refused() {
        let cases = [
            (
                "2026-11-21T09:00:00",
                "`2026-11-21T09:00:00` is not an RFC 3339 time",
                "add the offset from UTC, as in 2026-11-21T09:00:00+01:00, or Z for UTC",
            ),
            (
                "tomorrow",
                "`tomorrow` is not an RFC 3339 time",
                "write date, time and offset, as in 2026-11-21T09:00:00+01:00",
            ),
            (
                "2026-02-29T00:00:00Z",
                "`2026-02-29T00:00:00Z` is not an RFC 3339 time",
                "write date, time and offset, as in 2026-11-21T09:00:00+01:00",
            ),
            (
                "2100-01-01T00:00:00Z",
                "`2100-01-01T00:00:00Z` is outside the years 1970 to 2099",
                "write a time of these years",
            ),
        ];
        for (text, message, hint) in cases {
            let error = at(text, "UTC").unwrap_err();
            assert_eq!((error.to_string().as_str(), error.hint()), (message, hint));
        }
    }

    #[test]
    fn an_anchor_belongs_to_an_interval() {
        let anchor = Some(time("2026-01-01T00:00:07Z"));
        let with_anchor = |kind, expression| {
            let text = RuleText {
                anchor,
                ..written(kind, expression, "UTC")
            };
            Rule::parse(&text)
        };
        let rule = with_anchor(RuleKind::Cron, "@every 10s").unwrap();
        assert_eq!(
            rule.next(time("2026-01-01T00:00:20Z")),
            Some(time("2026-01-01T00:00:27Z"))
        );
        let error = with_anchor(RuleKind::Cron, "@daily").unwrap_err();
        assert_eq!(
            error.to_string(),
            "an anchor means nothing to a rule of kind cron"
        );
    }

    #[test]
    fn an_expression_of_more_than_1_kib_is_refused() {
        let longest = format!("{}0 0 * * *", " ".repeat(1024 - 9));
        cron(&longest, "UTC").unwrap();
        let error = cron(&format!(" {longest}"), "UTC").unwrap_err();
        assert_eq!(error.to_string(), "the expression has 1025 bytes");
    }

    #[test]
    fn a_slot_is_shown_on_the_clock_of_its_zone() {
        let rule = cron("0 9 * * *", "Europe/Paris").unwrap();
        let text = |slot| rule.local_text(time(slot));
        assert_eq!(
            text("2026-11-21T08:00:00Z"),
            "2026-11-21T09:00:00+01:00[Europe/Paris]"
        );
        assert_eq!(
            text("2026-07-01T07:00:00.5Z"),
            "2026-07-01T09:00:00.500+02:00[Europe/Paris]"
        );
        assert_eq!(rule.timezone(), "Europe/Paris");
        let utc = cron("0 9 * * *", "UTC").unwrap();
        assert_eq!(
            utc.local_text(time("2026-11-21T09:00:00Z")),
            "2026-11-21T09:00:00+00:00[UTC]"
        );
    }

    #[test]
    fn slots_exclude_the_start_and_include_the_end() {
        let rule = cron("0 * * * *", "UTC").unwrap();
        let slots: Vec<_> = rule
            .slots(time("2026-01-01T01:00:00Z"), time("2026-01-01T03:00:00Z"))
            .collect();
        assert_eq!(
            slots,
            [time("2026-01-01T02:00:00Z"), time("2026-01-01T03:00:00Z")]
        );
    }

    #[test]
    fn no_rule_answers_outside_the_years_1970_to_2099() {
        let year_1 = Timestamp::from_micros(i64::MIN);
        let year_9999 = Timestamp::from_micros(i64::MAX);
        let rules = [
            cron("* * * * *", "America/New_York").unwrap(),
            cron("0 0 * * *", "America/New_York").unwrap(),
            every("1h", "America/New_York").unwrap(),
            every("1d", "America/New_York").unwrap(),
            every("1mo", "America/New_York").unwrap(),
        ];
        for rule in rules {
            let first = time("1970-01-01T00:00:00-05:00");
            assert_eq!(rule.next(year_1), Some(first));
            assert_eq!(rule.next(year_9999), None);
            assert_eq!(rule.next(time("2100-01-01T00:00:00-05:00")), None);
            assert_eq!(rule.next(time("2099-12-31T23:59:59-05:00")), None);
            assert!(rule.next(time("2099-11-30T00:00:00-05:00")).is_some());
        }
        let yearly = cron("@yearly", "UTC").unwrap();
        assert_eq!(yearly.next(time("2099-06-01T00:00:00Z")), None);
    }

    #[test]
    fn the_normal_form_parses_to_the_same_rule() {
        let cases = [
            (RuleKind::Cron, "  0\t2 *  * MON-FRI ", "0 2 * * 1-5"),
            (RuleKind::Cron, "0 0 2 * jan,Feb,MAR 7", "0 2 * 1-3 0"),
            (
                RuleKind::Cron,
                "*/15 8-18 1-31/2 * *",
                "*/15 8-18 1-31/2 * *",
            ),
            (RuleKind::Cron, "* 0-59 */24 * * *", "* 0-59 */24 * * *"),
            (RuleKind::Cron, "*/1 *,5 5,* * *", "* * 1-31 * *"),
            (
                RuleKind::Cron,
                "*/30,31,7 2 * * */99",
                "*/30,7,31 2 * * */7",
            ),
            (RuleKind::Cron, "0 0 * * 5-7", "0 0 * * 0,5,6"),
            (RuleKind::Cron, "@weekly", "0 0 * * 0"),
            (RuleKind::Cron, "@every 90m", "@every 1h30m"),
            (RuleKind::Every, "7d", "1w"),
            (RuleKind::Every, " 25h ", "25h"),
            (
                RuleKind::At,
                "2026-01-01T00:00:00+01:00",
                "2025-12-31T23:00:00Z",
            ),
        ];
        for (kind, expression, normal) in cases {
            let rule = parsed(kind, expression, "UTC").unwrap();
            assert_eq!(rule.normal_form(), normal, "of `{expression}`");
            assert_eq!(parsed(kind, normal, "UTC").unwrap(), rule);
        }
    }

    #[test]
    fn what_nobody_would_write_is_refused_without_a_panic() {
        let mut random = seeded("random text");
        let letters: Vec<char> = "0123456789*/-,@ \tMONFRIJAevrymohdwsTZ:+.?#LW\n\0é☃\u{a0}"
            .chars()
            .collect();
        let plausible = [
            "*/15 9-17 1,15 JAN-MAR MON-FRI",
            "0 0 2 * * 5-7",
            "@every 1h30m15s",
            "@weekly",
            "1y6mo",
            "2w3d",
            "2026-11-21T09:00:00.25+01:00",
            "",
        ];
        let mut understood = 0;
        for _ in 0..100_000 {
            let mut expression: Vec<char> = plausible[random.random_range(0..plausible.len())]
                .chars()
                .collect();
            for _ in 0..random.random_range(0..6) {
                let letter = letters[random.random_range(0..letters.len())];
                let at = random.random_range(0..=expression.len());
                match random.random_range(0..3) {
                    0 => expression.insert(at, letter),
                    1 if at < expression.len() => expression[at] = letter,
                    _ => expression.truncate(at.max(3)),
                }
            }
            let expression = String::from_iter(expression);
            let kind = [RuleKind::Cron, RuleKind::Every, RuleKind::At][random.random_range(0..3)];
            match parsed(kind, &expression, "Asia/Tehran") {
                Ok(rule) => {
                    understood += 1;
                    let after = Timestamp::from_micros(random.random());
                    assert!(rule.next(after).is_none_or(|slot| slot > after));
                    assert_eq!(parsed(kind, &rule.normal_form(), "Asia/Tehran"), Ok(rule));
                }
                Err(error) => {
                    let said = error.to_string();
                    assert!(!said.is_empty() && !said.contains('\n'), "{said:?}");
                    assert!(!error.hint().is_empty());
                }
            }
        }
        assert!(
            understood > 1_000,
            "only {understood} of the texts are rules"
        );
    }
}
