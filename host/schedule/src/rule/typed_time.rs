//! A time that a person typed, as an instant on the clock of a zone.

use campanile_model::clock::Timestamp;
use campanile_model::time_text::TimeText;

use super::dst_effects::clock_text;
use super::error::RuleError;
use super::zone::Zone;

/// Returns the instant of a time at `now`. A time without an offset is what the clock of `zone` shows.
///
/// # Errors
/// When the zone is not known, or when its clock never shows the time, or shows it twice.
pub fn instant_in_zone(text: TimeText, zone: &str, now: Timestamp) -> Result<Timestamp, RuleError> {
    let TimeText::Local(local) = text else {
        return Ok(text.in_utc(now));
    };
    let clock = Zone::named(zone)?;
    let today = now.to_chrono().with_timezone(&clock.tz).date_naive();
    let shown = local.on(today);
    let instants = clock.instants_of(shown.and_utc().timestamp_micros());
    let refused = |what: &str| {
        RuleError::new(
            format!("the clock of {zone} {what} {}", clock_text(shown)),
            "add the offset from UTC, as in 2026-11-21T09:00:00+01:00, or give another time",
        )
    };
    match instants[..] {
        [instant] => Ok(Timestamp::from_micros(instant)),
        [] => Err(refused("never shows")),
        _ => Err(refused("shows twice")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, zone: &str, now: &str) -> Result<String, String> {
        let (text, now) = (text.parse().unwrap(), now.parse().unwrap());
        let instant = instant_in_zone(text, zone, now).map(|instant| instant.to_string());
        instant.map_err(|error| format!("{error}; {}", error.hint()))
    }

    #[test]
    fn a_time_without_an_offset_is_on_the_clock_of_the_zone() {
        // In Auckland it is the 22nd already.
        let now = "2026-11-21T12:30:00Z";
        for (text, zone, expected) in [
            (
                "2026-11-21T08:00:00Z",
                "Europe/Paris",
                "2026-11-21T08:00:00Z",
            ),
            ("2026-11-21 08:00", "Europe/Paris", "2026-11-21T07:00:00Z"),
            ("2026-07-01", "Europe/Paris", "2026-06-30T22:00:00Z"),
            ("tomorrow 9:00", "Europe/Paris", "2026-11-22T08:00:00Z"),
            ("tomorrow 9:00", "Pacific/Auckland", "2026-11-22T20:00:00Z"),
            ("yesterday 14:00", "UTC", "2026-11-20T14:00:00Z"),
            ("now+2h", "Europe/Paris", "2026-11-21T14:30:00Z"),
        ] {
            let found = read(text, zone, now);
            assert_eq!(found.as_deref(), Ok(expected), "{text} {zone}");
        }
    }

    #[test]
    fn a_time_of_a_clock_change_is_refused() {
        let now = "2026-11-21T12:30:00Z";
        for (text, zone, expected) in [
            (
                "2027-03-14 02:30",
                "America/New_York",
                "the clock of America/New_York never shows 2027-03-14 02:30; add the offset",
            ),
            (
                "2026-11-01 01:45",
                "America/New_York",
                "the clock of America/New_York shows twice 2026-11-01 01:45; add the offset",
            ),
            ("tomorrow", "Mars", "timezone `Mars` is not known; write an"),
        ] {
            let error = read(text, zone, now).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
