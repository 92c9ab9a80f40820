//! A time zone as a table of spans, each with one offset from UTC.
//!
//! chrono-tz does not tell which pass of a fold is the first, nor when a gap ends. A table shows both.
//! Each process builds the table of a zone once, in about 2 ms, and then only reads it.

use std::fmt;
use std::sync::OnceLock;

use chrono::{DateTime, Offset as _, TimeZone as _};
use chrono_tz::{TZ_VARIANTS, Tz};

use super::error::{RuleError, quoted};
use super::zone_names;

// In microseconds.
pub(super) const SECOND: i64 = 1_000_000;
pub(super) const DAY: i64 = 86_400 * SECOND;

/// Local 1970-01-01T00:00:00, in microseconds: the first local time of a rule.
pub(super) const LOCAL_FIRST: i64 = 0;

/// Local 2100-01-01T00:00:00, in microseconds: the end of the local times of a rule.
///
/// chrono-tz has no clock changes after 2099, so instants of later summers would be wrong.
pub(super) const LOCAL_END: i64 = 4_102_444_800 * SECOND;

pub(super) struct Zone {
    pub(super) tz: Tz,
    /// Ascending and without gaps, from before 1970 to the end of time.
    spans: Vec<Span>,
}

/// A time with one offset. All values are in microseconds.
pub(super) struct Span {
    pub(super) begin: i64,
    pub(super) end: i64,
    /// Local time minus UTC.
    pub(super) offset: i64,
    pub(super) local_begin: i64,
    /// The local time at `end`, exclusive.
    pub(super) local_end: i64,
    /// The local time at the end of the span before. Local times from here on are new in this span; those
    /// below `local_begin` are in a gap.
    pub(super) reached: i64,
    /// The local time at the begin of the next span. Local times of this span from here on are in a fold.
    pub(super) shown_again: i64,
}

impl Zone {
    /// Returns the zone with an IANA name.
    pub(super) fn named(name: &str) -> Result<&'static Zone, RuleError> {
        let tz: Tz = name.parse().map_err(|_| {
            let hint = zone_names::replacement(name).unwrap_or_else(|| {
                let nearest = nearest_names(name).join(", ");
                format!("write an IANA name such as {nearest}")
            });
            RuleError::new(format!("timezone {} is not known", quoted(name)), hint)
        })?;
        Ok(Zone::of(tz))
    }

    /// Whether this is a zone's IANA name. Unlike [`Zone::named`], this builds no table and suggests no similar names.
    pub(super) fn is_named(name: &str) -> bool {
        name.parse::<Tz>().is_ok()
    }

    fn of(tz: Tz) -> &'static Zone {
        static ZONES: [OnceLock<Zone>; TZ_VARIANTS.len()] =
            [const { OnceLock::new() }; TZ_VARIANTS.len()];
        // The discriminants of `Tz` count from 0, in the order of the variants.
        ZONES[tz as usize].get_or_init(|| Zone::build(tz))
    }

    fn build(tz: Tz) -> Zone {
        let offset_at = |instant: i64| {
            let utc = DateTime::from_timestamp_micros(instant).unwrap_or_default();
            let offset = tz.offset_from_utc_datetime(&utc.naive_utc());
            i64::from(offset.fix().local_minus_utc()) * SECOND
        };
        // Offsets range from -12 to +14 hours. No zone changes twice within a day, so one look a day
        // finds every change.
        let (first, last) = (LOCAL_FIRST - 2 * DAY, LOCAL_END + 2 * DAY);
        let mut begins = vec![(i64::MIN, offset_at(first))];
        let mut seen = offset_at(first);
        for day in (first..last).step_by(DAY as usize) {
            let offset = offset_at(day + DAY);
            if offset != seen {
                let (mut before, mut after) = (day / SECOND, (day + DAY) / SECOND);
                while after - before > 1 {
                    let middle = before.midpoint(after);
                    if offset_at(middle * SECOND) == seen {
                        before = middle;
                    } else {
                        after = middle;
                    }
                }
                begins.push((after * SECOND, offset));
                seen = offset;
            }
        }
        let mut spans = Vec::with_capacity(begins.len());
        let mut reached = i64::MIN;
        for (index, &(begin, offset)) in begins.iter().enumerate() {
            let next = begins.get(index + 1);
            let end = next.map_or(i64::MAX, |&(begin, _)| begin);
            let local_end = end.saturating_add(offset);
            spans.push(Span {
                begin,
                end,
                offset,
                local_begin: begin.saturating_add(offset),
                local_end,
                reached,
                shown_again: next.map_or(i64::MAX, |&(begin, offset)| begin + offset),
            });
            reached = local_end;
        }
        Zone { tz, spans }
    }

    /// Returns the span that contains `instant`, and those after it.
    pub(super) fn spans_from(&self, instant: i64) -> &[Span] {
        let after = self.spans.partition_point(|span| span.begin <= instant);
        &self.spans[after.saturating_sub(1)..]
    }

    /// Returns the instants at which the clock shows `local`, ascending: none in a gap, two in a fold.
    pub(super) fn instants_of(&self, local: i64) -> Vec<i64> {
        let spans = self.spans_from(local.saturating_sub(2 * DAY)).iter();
        spans
            .take_while(|span| span.begin <= local.saturating_add(2 * DAY))
            .filter(|span| (span.local_begin..span.local_end).contains(&local))
            .map(|span| local - span.offset)
            .collect()
    }

    /// Returns the end of the gap that contains `local`.
    pub(super) fn gap_end(&self, local: i64) -> i64 {
        let mut spans = self.spans.iter();
        let after = spans.find(|span| local < span.local_begin);
        after.map_or(local, |span| span.begin)
    }

    pub(super) fn local_at(&self, instant: i64) -> i64 {
        let offset = self
            .spans_from(instant)
            .first()
            .map_or(0, |span| span.offset);
        instant.saturating_add(offset)
    }

    /// Whether `instant` is in the local years 1970 to 2099.
    pub(super) fn covers(&self, instant: i64) -> bool {
        (LOCAL_FIRST..LOCAL_END).contains(&self.local_at(instant))
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.tz.name())
    }
}

/// Returns the known names nearest to `name`, by name or by city.
fn nearest_names(name: &str) -> Vec<&'static str> {
    const NAMES_MAX: usize = 3;
    // A longer text resembles no name, and is slow to compare.
    const BYTES_MAX: usize = 64;
    if name.is_empty() || name.len() > BYTES_MAX {
        return vec!["UTC", "Europe/Paris", "America/New_York"];
    }
    let wanted = name.to_lowercase().replace(' ', "_");
    let mut ranked: Vec<(usize, usize, &'static str)> = TZ_VARIANTS
        .iter()
        .map(|tz| {
            let known = tz.name().to_lowercase();
            let city = known.rsplit('/').next().unwrap_or(&known);
            let whole = strsim::damerau_levenshtein(&wanted, &known);
            let nearest = whole.min(strsim::damerau_levenshtein(&wanted, city));
            (nearest, whole, tz.name())
        })
        .collect();
    ranked.sort_unstable();
    ranked
        .into_iter()
        .take(NAMES_MAX)
        .map(|(_, _, name)| name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use rand::Rng as _;

    #[test]
    fn every_zone_is_found_by_its_name() {
        for tz in TZ_VARIANTS {
            assert_eq!(Zone::named(tz.name()).unwrap().tz, tz);
        }
    }

    #[test]
    fn the_tables_have_every_clock_change() {
        let mut random = seeded("offsets");
        for tz in TZ_VARIANTS {
            let zone = Zone::of(tz);
            for _ in 0..2_000 {
                let instant = random.random_range(LOCAL_FIRST..LOCAL_END);
                let utc = DateTime::from_timestamp_micros(instant).unwrap();
                let local = utc.with_timezone(&tz).naive_local().and_utc();
                let expected = local.timestamp_micros();
                assert_eq!(zone.local_at(instant), expected, "{tz} {utc}");
            }
            for pair in zone.spans.windows(2) {
                // The walk that builds a table would miss changes less than a day apart.
                let length = pair[1].begin.saturating_sub(pair[0].begin);
                assert!(length > 3 * DAY, "{tz} {}", pair[1].begin);
                assert_ne!(pair[0].offset, pair[1].offset);
            }
        }
    }

    #[test]
    fn an_unknown_zone_is_refused_with_the_nearest_names() {
        let cases = [
            ("Europe/Pariss", "Europe/Paris"),
            ("Paris", "Europe/Paris"),
            ("europe/paris", "Europe/Paris"),
            ("America/New York", "America/New_York"),
            ("utc", "UTC"),
        ];
        for (name, near) in cases {
            let error = Zone::named(name).unwrap_err();
            assert_eq!(error.to_string(), format!("timezone `{name}` is not known"));
            let first = format!("write an IANA name such as {near}");
            assert!(error.hint().starts_with(&first), "{name}: {}", error.hint());
        }
        assert!(Zone::named("").is_err());
        assert!(Zone::named(&"x".repeat(100_000)).is_err());
    }
}
