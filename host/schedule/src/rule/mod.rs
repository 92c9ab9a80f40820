//! The rules of time: which slots a schedule has. Pure; this module does not read the clock.
//!
//! A [`RuleText`] is a rule as written and stored. [`Rule::parse`] refuses a text that it does not
//! understand. [`Rule::next`] and [`Rule::prev`] walk the slots:
//!
//! ```text
//! text → fields (field_item, field) or a period → local times (cron, interval) → instants (dst_mapping)
//! ```
//!
//! [`policy`](crate::policy) decides about missed slots.
//!
//! A rule has slots in the local years 1970 to 2099 only. The time zone database has no clock changes
//! after them, and no slot is better than a wrong slot.
//!
//! # Clock changes
//!
//! A cron rule whose second, minute or hour begins with `*` follows the clock: it fires whenever the
//! clock matches, so not in a gap, and in both passes of a fold. Every other cron rule, and an interval
//! of days or more, has local times that fire once. In a fold they fire in the first pass. In a gap of at
//! most 3 hours they fire at its end; in a longer gap, a day that a country left out, they do not fire.
//! Intervals of hours and less are elapsed time and do not depend on the clock. [`DstGap`] and
//! [`DstFold`] change this for one rule; [`Rule::dst_effects`] lists what happens.
//!
//! # Days
//!
//! A day field that begins with `*` narrows the other day field. Of two fields that do not, either may
//! match, unless the rule's [`DayMatch`] requires both. `L`, `L-3`, `15W`, `LW`, `MON#2` and `FRIL` are
//! days of Quartz (`quartz_days.rs`). `H` is a number chosen for each schedule (`hash.rs`), and counts as
//! a number. Exclusions remove local times before they are mapped to instants.

mod count;
mod cron;
mod dialects;
mod dst_effects;
mod dst_mapping;
mod error;
mod exclude;
mod explain;
mod field;
mod field_item;
mod field_spec;
mod fields;
mod hash;
mod interval;
mod macros;
mod month_days;
mod part;
mod period;
mod quartz_days;
mod search;
mod slot_check;
mod typed_time;
mod warnings;
mod zone;
mod zone_names;

#[cfg(test)]
mod dst_override_tables;
#[cfg(test)]
mod dst_tables;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod parse_errors;
#[cfg(test)]
mod slot_tables;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::iter;
use std::str::FromStr;
use std::time::Duration;

use chrono::{NaiveDateTime, Offset as _};

use campanile_model::clock::Timestamp;
pub use campanile_model::rule_text::{DayMatch, DstFold, DstGap, RuleKind, RuleText};
use cron::CronRule;
pub use dst_effects::{DstAction, DstEffect, clock_text};
pub use error::RuleError;
use error::quoted;
use fields::Fields;
pub use hash::HashKey;
pub(crate) use hash::hash_number;
use interval::Interval;
use part::Part;
use period::Period;
use search::last_before;
pub use slot_check::{FieldMismatch, SlotCheck};
pub use typed_time::instant_in_zone;
pub use warnings::{WARNED_AHEAD, Warning, WarningKind};
use zone::{DAY, LOCAL_FIRST, Zone};

/// The longest expression.
const EXPRESSION_BYTES_MAX: usize = 1024;

/// Returns the version of the built-in IANA time zone database, such as `2025b`.
///
/// Another version may give other slots.
pub fn tzdata_version() -> &'static str {
    chrono_tz::IANA_TZDB_VERSION
}

/// A parsed rule.
#[derive(Clone, Debug)]
pub struct Rule {
    kind: RuleKind,
    zone: &'static Zone,
    shape: Shape,
    /// The expression as written.
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
    /// Read a rule. `key` chooses the numbers for `H`.
    ///
    /// # Errors
    /// When the expression, the zone or an exclusion is malformed, when the rule never fires, or when
    /// an anchor, an override or an exclusion means nothing to a rule of this kind.
    pub fn parse(text: &RuleText, key: HashKey) -> Result<Rule, RuleError> {
        let zone = Zone::named(&text.timezone)?;
        let expression = text.expression.as_str();
        if expression.len() > EXPRESSION_BYTES_MAX {
            return Err(RuleError::new(
                format!("the expression has {} bytes", expression.len()),
                format!("write at most {EXPRESSION_BYTES_MAX} bytes"),
            ));
        }
        let every = |part| {
            let period = Period::parse(part)?;
            Interval::new(period, text, zone).map(|interval| Shape::Every(Box::new(interval)))
        };
        let shape = match text.kind {
            RuleKind::Every => every(Part::whole(expression))
                .map_err(|error| dialects::explain(expression).unwrap_or(error))?,
            RuleKind::Cron if expression.trim_matches([' ', '\t']) == REBOOT => Shape::HostStart,
            RuleKind::Cron => match period_of_macro(expression) {
                Some(period) => every(period)?,
                None => Shape::Cron(Box::new(CronRule::parse(text, key)?)),
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
            notes: zone_names::note(&text.timezone).into_iter().collect(),
        };
        if rule.shape.has_many_slots() && rule.next(Timestamp::FIRST).is_none() {
            return Err(RuleError::new(
                "the rule never fires: its exclusions match every slot of the years 1970 to 2099",
                "exclude less",
            ));
        }
        Ok(rule)
    }

    /// Returns the first slot strictly after `after`; `None` when there is no slot before the year 2100.
    ///
    /// A rule whose launches follow an event has no slots; see [`Rule::delay_after_completion`] and
    /// [`Rule::at_host_start`].
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        self.next_micros(after.micros()).map(Timestamp::from_micros)
    }

    fn next_micros(&self, after: i64) -> Option<i64> {
        match &self.shape {
            Shape::Cron(cron) => cron.dst.next(&**cron, self.zone, after),
            Shape::Every(interval) => interval.next(self.zone, after),
            Shape::At(slot) => Some(slot.micros()).filter(|&slot| slot > after),
            Shape::AfterCompletion(_) | Shape::HostStart => None,
        }
    }

    /// Returns the last slot strictly before `before`; `None` when there is no slot since the year 1970.
    ///
    /// This is the inverse of [`Rule::next`].
    pub fn prev(&self, before: Timestamp) -> Option<Timestamp> {
        // No local time of a rule is at an earlier instant.
        const BEGIN: i64 = LOCAL_FIRST - DAY;
        let slot = last_before(before.micros(), BEGIN, |from| self.next_micros(from - 1));
        slot.map(Timestamp::from_micros)
    }

    /// Returns the exact number of slots after `after`, up to and including `until`, without walking through them.
    pub fn count(&self, after: Timestamp, until: Timestamp) -> u64 {
        let (after, until) = (after.micros(), until.micros());
        match &self.shape {
            Shape::Cron(cron) => cron.dst.count(&**cron, self.zone, after, until),
            Shape::Every(interval) => interval.count(self.zone, after, until),
            Shape::At(slot) => u64::from(after < slot.micros() && slot.micros() <= until),
            Shape::AfterCompletion(_) | Shape::HostStart => 0,
        }
    }

    /// Returns the last slot before `end`, and how many slots there are from `first` (itself a slot) through that one. If none follows
    /// before `end`, that's just `first`.
    pub fn run(&self, first: Timestamp, end: Timestamp) -> (Timestamp, u64) {
        let last = self.prev(end).map_or(first, |last| last.max(first));
        (last, 1 + self.count(first, last))
    }

    /// Whether `instant` is a slot.
    pub fn matches(&self, instant: Timestamp) -> bool {
        self.next(instant.minus(Duration::from_micros(1))) == Some(instant)
    }

    /// Returns the time from the end of a launch to the next launch, for the kind `after_completion`.
    ///
    /// The engine creates the next slot of such a rule when a launch ends.
    pub fn delay_after_completion(&self) -> Option<Duration> {
        match self.shape {
            Shape::AfterCompletion(seconds) => {
                Some(Duration::from_secs(seconds.amount.unsigned_abs()))
            }
            _ => None,
        }
    }

    /// Returns a rule with this slot alone, in the same zone.
    pub fn only(&self, slot: Timestamp) -> Rule {
        Rule {
            kind: RuleKind::At,
            zone: self.zone,
            shape: Shape::At(slot),
            written: slot.to_string(),
            notes: Vec::new(),
        }
    }

    /// Whether the rule is `@reboot`: one launch at the start of a host, and no slots.
    pub fn at_host_start(&self) -> bool {
        self.shape == Shape::HostStart
    }

    /// Returns the slots after `after` up to `until`, inclusive, in order.
    pub fn slots(
        &self,
        after: Timestamp,
        until: Timestamp,
    ) -> impl Iterator<Item = Timestamp> + '_ {
        iter::successors(self.next(after), |&slot| self.next(slot))
            .take_while(move |&slot| slot <= until)
    }

    /// Returns the local time of the rule's zone at `instant`.
    pub fn local(&self, instant: Timestamp) -> NaiveDateTime {
        let local = instant.to_chrono().with_timezone(&self.zone.tz);
        local.naive_local()
    }

    /// Print `slot` in the rule's zone: `2026-11-21T09:00:00+01:00[Europe/Paris]`.
    pub fn local_text(&self, slot: Timestamp) -> String {
        slot.local_text(self.utc_offset(slot), self.timezone())
    }

    /// Returns by how many seconds the clock of the rule's zone is ahead of UTC at `slot`.
    pub fn utc_offset(&self, slot: Timestamp) -> i64 {
        let local = slot.to_chrono().with_timezone(&self.zone.tz);
        local.offset().fix().local_minus_utc().into()
    }

    /// Print the expression in one fixed spelling, which parses to the same rule. `H` stays `H`.
    ///
    /// Expressions that mean the same have the same spelling.
    pub fn normal_form(&self) -> String {
        self.form(Fields::normal_form)
    }

    /// Print [`Rule::normal_form`] with numbers for `H`.
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

    /// Returns notes for the author about parts that another scheduler reads differently, one sentence each.
    ///
    /// Rules that differ in their notes alone are equal.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the IANA name of the rule's zone.
    pub fn timezone(&self) -> &str {
        self.zone.tz.name()
    }
}

/// Rules that mean the same are equal, whatever their spelling.
impl PartialEq for Rule {
    fn eq(&self, other: &Rule) -> bool {
        self.kind == other.kind && self.zone.tz == other.zone.tz && self.shape == other.shape
    }
}

impl Shape {
    /// Whether the rule can have more than one slot, so that exclusions make sense.
    fn has_many_slots(&self) -> bool {
        matches!(self, Shape::Cron(_) | Shape::Every(_))
    }

    /// Refuse the parts of `text` that mean nothing to a rule of this shape.
    fn refuse_meaningless(&self, text: &RuleText) -> Result<(), RuleError> {
        let what = match self {
            Shape::HostStart => format!("`{REBOOT}`"),
            Shape::Every(_) => "an interval".to_owned(),
            _ => format!("a rule of kind {}", text.kind),
        };
        let is_interval = matches!(self, Shape::Every(_));
        let (message, hint) = if text.anchor.is_some() && !is_interval {
            (
                format!("an anchor means nothing to {what}"),
                "leave the anchor out, or use the kind `every`",
            )
        } else if text.day_match != DayMatch::default() && !matches!(self, Shape::Cron(_)) {
            (
                format!("day_match `{}` means nothing to {what}", text.day_match),
                "leave day_match out, or write a cron expression",
            )
        } else if self.has_many_slots() {
            return Ok(());
        } else {
            dst_mapping::refuse_overrides(text, &what, "write a cron expression")?;
            if text.exclude.is_empty() {
                return Ok(());
            }
            (
                format!("exclusions mean nothing to {what}"),
                "leave them out, or write a cron expression or an interval",
            )
        };
        Err(RuleError::new(message, hint))
    }
}

/// The expression of a rule that launches at the start of a host.
const REBOOT: &str = "@reboot";

/// The macro for an interval in a cron expression.
const EVERY: &str = "@every";

/// Returns the period of `@every 15m`; `None` for another expression.
fn period_of_macro(expression: &str) -> Option<Part<'_>> {
    let part = Part::whole(expression).trimmed();
    let period = part.text.strip_prefix(EVERY)?;
    (period.is_empty() || period.starts_with([' ', '\t'])).then(|| part.split_at(EVERY.len()).1)
}

/// Read the instant of an `at` rule.
fn instant(expression: &str, zone: &Zone) -> Result<Timestamp, RuleError> {
    const EXAMPLE: &str = "2026-11-21T09:00:00+01:00";
    let text = expression.trim_matches([' ', '\t']);
    let slot: Timestamp = text.parse().map_err(|_| {
        let lacks_offset = NaiveDateTime::from_str(text).is_ok();
        let hint = if lacks_offset {
            format!("add the offset from UTC, as in {EXAMPLE}, or Z for UTC")
        } else {
            format!("write date, time and offset, as in {EXAMPLE}")
        };
        RuleError::new(format!("{} is not an RFC 3339 time", quoted(text)), hint)
    })?;
    if zone.covers(slot.micros()) {
        return Ok(slot);
    }
    Err(RuleError::new(
        format!("{} is outside the years 1970 to 2099", quoted(text)),
        "write a time of these years",
    ))
}
