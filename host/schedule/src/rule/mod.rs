//! The rules of time: which slots a schedule has. Pure; nothing here asks what time it is.
//!
//! A [`RuleText`] is what a person wrote and what is stored. [`Rule::parse`] refuses what it does
//! not understand, and [`Rule::next`] walks the slots of what it does:
//!
//! ```text
//! text → fields (item, field) or a period → local times (cron, interval) → instants (passes) → slots
//! ```
//!
//! What to do with slots that were missed is decided in [`policy`](crate::policy).
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
//! [`DstGap`] and [`DstFold`] change this for one rule; [`Rule::touched`] tells what it comes to.
//!
//! # Days
//!
//! A day field that begins with `*` narrows the other; of two that do not, either matches, unless
//! the rule's [`DayMatch`] says otherwise. `L`, `L-3`, `15W`, `LW`, `MON#2` and `FRIL` are days of
//! an extension (`special.rs`). `H` is a number chosen for each schedule (`hash.rs`); it counts
//! as a number in every respect. Exclusions take local times away before they become instants.

mod cron;
mod days;
mod error;
mod exclude;
mod explain;
mod field;
mod fields;
mod fit;
mod hash;
mod interval;
mod item;
mod passes;
mod period;
mod special;
mod touched;
mod warnings;
mod zone;

#[cfg(test)]
mod cases;
#[cfg(test)]
mod clock_changes;
#[cfg(test)]
mod clock_overrides;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod refusals;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::iter;
use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, NaiveDateTime, SecondsFormat};

use campanile_model::clock::Timestamp;
pub use campanile_model::rule_text::{DayMatch, DstFold, DstGap, RuleKind, RuleText};
use cron::CronRule;
pub use error::RuleError;
use error::quoted;
use fields::Fields;
pub use fit::{Fit, Misfit, Shown};
pub use hash::HashKey;
use interval::Interval;
use period::Period;
pub use touched::{Fate, Touched, clock_text};
pub use warnings::{WARNED_AHEAD, Warning, WarningKind};
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
#[derive(Clone, Debug)]
pub struct Rule {
    kind: RuleKind,
    zone: &'static Zone,
    shape: Shape,
    /// The expression as it was written.
    written: String,
    notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
enum Shape {
    Cron(Box<CronRule>),
    Every(Box<Interval>),
    At(Timestamp),
    AfterCompletion(Period),
    HostStart,
}

impl Rule {
    /// Read a rule, whose hashed values are those of `key`.
    ///
    /// # Errors
    /// When the expression, the zone or an exclusion is not understood, when the rule would never
    /// fire, and when an anchor, an override or an exclusion means nothing to a rule of its kind.
    pub fn parse(text: &RuleText, key: HashKey) -> Result<Rule, RuleError> {
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
            Interval::new(period, text, zone).map(|interval| Shape::Every(Box::new(interval)))
        };
        let mut notes = Vec::new();
        let shape = match text.kind {
            RuleKind::Every => every(0)?,
            RuleKind::Cron if expression.trim_matches([' ', '\t']) == REBOOT => Shape::HostStart,
            RuleKind::Cron => match period_of_macro(expression) {
                Some(begin) => every(begin)?,
                None => {
                    let (cron, noted) = CronRule::parse(text, key)?;
                    notes = noted;
                    Shape::Cron(Box::new(cron))
                }
            },
            RuleKind::At => Shape::At(instant(expression, zone)?),
            RuleKind::AfterCompletion => Shape::AfterCompletion(Period::elapsed(expression)?),
        };
        shape.refuse_meaningless(text)?;
        let rule = Rule {
            kind: text.kind,
            zone,
            shape,
            written: expression.to_owned(),
            notes,
        };
        if rule.shape.has_many_slots() && rule.next(Timestamp::from_micros(i64::MIN)).is_none() {
            return Err(RuleError::new(
                "the rule never fires: every slot of the years 1970 to 2099 is left out",
                "exclude less",
            ));
        }
        Ok(rule)
    }

    /// The first slot strictly after `after`; `None` when there is none before the year 2100, and
    /// always for a rule whose launches an event makes, not the clock: see
    /// [`Rule::delay_after_completion`] and [`Rule::at_host_start`].
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.shape {
            Shape::Cron(cron) => {
                let slot = cron.passes.next(&**cron, self.zone, after.micros())?;
                Some(Timestamp::from_micros(slot))
            }
            Shape::Every(interval) => interval.next(self.zone, after),
            Shape::At(slot) => Some(*slot).filter(|&slot| slot > after),
            Shape::AfterCompletion(_) | Shape::HostStart => None,
        }
    }

    /// The last slot strictly before `before`; `None` when there is none since the year 1970.
    ///
    /// The inverse of [`Rule::next`]: no slot lies between a slot and the one before it.
    pub fn prev(&self, before: Timestamp) -> Option<Timestamp> {
        match &self.shape {
            Shape::Cron(cron) => {
                let slot = cron.passes.prev(&**cron, self.zone, before.micros())?;
                Some(Timestamp::from_micros(slot))
            }
            Shape::Every(interval) => interval.prev(self.zone, before),
            Shape::At(slot) => Some(*slot).filter(|&slot| slot < before),
            Shape::AfterCompletion(_) | Shape::HostStart => None,
        }
    }

    /// Whether `instant` is a slot.
    pub fn matches(&self, instant: Timestamp) -> bool {
        self.next(instant.minus(Duration::from_micros(1))) == Some(instant)
    }

    /// How long after the end of one launch the next is due, for a rule of the kind
    /// `after_completion`. Its next slot is made when a launch ends, not by [`Rule::next`].
    pub fn delay_after_completion(&self) -> Option<Duration> {
        match self.shape {
            Shape::AfterCompletion(Period::Seconds(seconds)) => {
                Some(Duration::from_secs(seconds.unsigned_abs()))
            }
            _ => None,
        }
    }

    /// The rule that has this slot and no other, on the clock of the same zone.
    pub fn only(&self, slot: Timestamp) -> Rule {
        Rule {
            kind: RuleKind::At,
            zone: self.zone,
            shape: Shape::At(slot),
            written: slot.to_string(),
            notes: Vec::new(),
        }
    }

    /// Whether the rule is `@reboot`: one launch when a host starts, and no slots.
    pub fn at_host_start(&self) -> bool {
        self.shape == Shape::HostStart
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

    /// What the clock of the rule's zone shows at `instant`.
    pub fn local(&self, instant: Timestamp) -> NaiveDateTime {
        let local = instant.to_chrono().with_timezone(&self.zone.tz);
        local.naive_local()
    }

    /// `slot` on the clock of the rule's zone: `2026-11-21T09:00:00+01:00[Europe/Paris]`.
    pub fn local_text(&self, slot: Timestamp) -> String {
        let local = slot.to_chrono().with_timezone(&self.zone.tz);
        let text = local.to_rfc3339_opts(SecondsFormat::AutoSi, false);
        format!("{text}[{}]", self.timezone())
    }

    /// The expression in one fixed spelling, which parses to the same rule: expressions that mean
    /// the same have the same one. Hashed values stay `H`.
    pub fn normal_form(&self) -> String {
        self.form(Fields::normal_form)
    }

    /// [`Rule::normal_form`] with numbers for hashed values: what the rule is for this schedule.
    pub fn resolved_form(&self) -> String {
        self.form(|fields| fields.resolved().normal_form())
    }

    fn form(&self, of_fields: impl Fn(&Fields) -> String) -> String {
        match &self.shape {
            Shape::Cron(cron) => of_fields(&cron.fields),
            Shape::Every(interval) if self.kind == RuleKind::Cron => {
                format!("{EVERY} {}", interval.period)
            }
            Shape::Every(interval) => interval.period.to_string(),
            Shape::At(slot) => slot.to_string(),
            Shape::AfterCompletion(period) => period.to_string(),
            Shape::HostStart => REBOOT.to_owned(),
        }
    }

    /// Where the expression was read otherwise than it may look; one sentence each, to be shown
    /// to whoever wrote it. Notes are no part of the rule: rules that differ in them are equal.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The IANA name of the zone whose clock the rule follows.
    pub fn timezone(&self) -> &str {
        self.zone.tz.name()
    }
}

/// Equal are rules that mean the same, however they were written.
impl PartialEq for Rule {
    fn eq(&self, other: &Rule) -> bool {
        self.kind == other.kind && self.zone == other.zone && self.shape == other.shape
    }
}

impl Shape {
    /// Whether it has slots which can be left out one by one.
    fn has_many_slots(&self) -> bool {
        matches!(self, Shape::Cron(_) | Shape::Every(_))
    }

    /// Refuse what `text` says besides the expression and means nothing to a rule of this shape.
    ///
    /// # Errors
    /// When there is such a thing.
    fn refuse_meaningless(&self, text: &RuleText) -> Result<(), RuleError> {
        let what = match self {
            Shape::HostStart => format!("`{REBOOT}`"),
            _ => format!("a rule of kind {}", text.kind),
        };
        if text.anchor.is_some() && !matches!(self, Shape::Every(_)) {
            return Err(RuleError::new(
                format!("an anchor means nothing to {what}"),
                "leave the anchor out, or use the kind `every`",
            ));
        }
        if text.day_match != DayMatch::default() && !matches!(self, Shape::Cron(_)) {
            let what = match self {
                Shape::Every(_) => "an interval",
                _ => what.as_str(),
            };
            return Err(RuleError::new(
                format!("day_match `{}` means nothing to {what}", text.day_match),
                "leave day_match out, or write a cron expression",
            ));
        }
        if self.has_many_slots() {
            return Ok(());
        }
        cron::refuse_clock_overrides(text, &what, "write a cron expression")?;
        if !text.exclude.is_empty() {
            return Err(RuleError::new(
                format!("exclusions mean nothing to {what}"),
                "leave them out, or write a cron expression or an interval",
            ));
        }
        Ok(())
    }
}

/// The expression of a rule that launches when a host starts.
const REBOOT: &str = "@reboot";

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
    if zone.answers_for(slot.micros()) {
        return Ok(slot);
    }
    Err(RuleError::new(
        format!("{} is outside the years 1970 to 2099", quoted(text)),
        "write a time of these years",
    ))
}
