//! What people write for a time zone besides the names of IANA: abbreviations, and offsets from UTC.

use campanile_model::text::counted;

/// Abbreviations, each with the zones of the places that use it, the most frequent meaning first.
///
/// An abbreviation names a clock of one season, and often several clocks, so that no rule can be read by it. A few are
/// names of IANA too: `Tz` knows them, and they never come here in upper case.
const ABBREVIATIONS: &[(&str, &[&str])] = &[
    ("ACDT", &["Australia/Adelaide"]),
    ("ACST", &["Australia/Adelaide", "Australia/Darwin"]),
    ("ADT", &["America/Halifax"]),
    ("AEDT", &["Australia/Sydney"]),
    ("AEST", &["Australia/Sydney", "Australia/Brisbane"]),
    ("AKDT", &["America/Anchorage"]),
    ("AKST", &["America/Anchorage"]),
    ("ART", &["America/Argentina/Buenos_Aires"]),
    ("AST", &["America/Halifax", "Asia/Riyadh"]),
    ("AWST", &["Australia/Perth"]),
    ("BRT", &["America/Sao_Paulo"]),
    ("BST", &["Europe/London", "Asia/Dhaka"]),
    ("CAT", &["Africa/Maputo"]),
    ("CDT", &["America/Chicago", "America/Havana"]),
    ("CEST", &["Europe/Berlin"]),
    ("CET", &["Europe/Berlin"]),
    ("CLT", &["America/Santiago"]),
    ("COT", &["America/Bogota"]),
    (
        "CST",
        &["America/Chicago", "Asia/Shanghai", "America/Havana"],
    ),
    ("CT", &["America/Chicago"]),
    ("EAT", &["Africa/Nairobi"]),
    ("EDT", &["America/New_York"]),
    ("EEST", &["Europe/Athens"]),
    ("EET", &["Europe/Athens"]),
    ("EST", &["America/New_York"]),
    ("ET", &["America/New_York"]),
    ("GST", &["Asia/Dubai"]),
    ("HDT", &["America/Adak"]),
    ("HKT", &["Asia/Hong_Kong"]),
    ("HST", &["Pacific/Honolulu"]),
    ("ICT", &["Asia/Bangkok"]),
    ("IDT", &["Asia/Jerusalem"]),
    ("IST", &["Asia/Kolkata", "Europe/Dublin", "Asia/Jerusalem"]),
    ("JST", &["Asia/Tokyo"]),
    ("KST", &["Asia/Seoul"]),
    ("MDT", &["America/Denver"]),
    ("MESZ", &["Europe/Berlin"]),
    ("MET", &["Europe/Berlin"]),
    ("MEZ", &["Europe/Berlin"]),
    ("MSK", &["Europe/Moscow"]),
    ("MST", &["America/Denver", "America/Phoenix"]),
    ("MT", &["America/Denver"]),
    ("NDT", &["America/St_Johns"]),
    ("NPT", &["Asia/Kathmandu"]),
    ("NST", &["America/St_Johns"]),
    ("NZDT", &["Pacific/Auckland"]),
    ("NZST", &["Pacific/Auckland"]),
    ("PDT", &["America/Los_Angeles"]),
    ("PET", &["America/Lima"]),
    ("PHT", &["Asia/Manila"]),
    ("PKT", &["Asia/Karachi"]),
    ("PST", &["America/Los_Angeles", "Asia/Manila"]),
    ("PT", &["America/Los_Angeles"]),
    ("SAST", &["Africa/Johannesburg"]),
    ("SGT", &["Asia/Singapore"]),
    ("TRT", &["Europe/Istanbul"]),
    ("WAT", &["Africa/Lagos"]),
    ("WEST", &["Europe/Lisbon"]),
    ("WET", &["Europe/Lisbon"]),
    ("WIB", &["Asia/Jakarta"]),
    ("Z", &["UTC"]),
];

/// Zones with an offset of no whole hour, by their minutes ahead of UTC outside summer time.
const FRACTIONS: &[(i64, &str)] = &[
    (-570, "Pacific/Marquesas"),
    (-210, "America/St_Johns"),
    (210, "Asia/Tehran"),
    (270, "Asia/Kabul"),
    (330, "Asia/Kolkata"),
    (345, "Asia/Kathmandu"),
    (390, "Asia/Yangon"),
    (525, "Australia/Eucla"),
    (570, "Australia/Darwin"),
    (630, "Australia/Lord_Howe"),
    (765, "Pacific/Chatham"),
];

/// The names of IANA that are abbreviations too and that keep one offset all year: the hours, and the place of an author
/// who means a clock with summer time.
const FIXED: &[(&str, i64, &str)] = &[
    ("EST", -5, "America/New_York"),
    ("MST", -7, "America/Denver"),
    ("HST", -10, "America/Adak"),
];

/// The names of IANA that are abbreviations of a winter time, and that follow summer time all the same.
const SEASONAL: &[(&str, &str)] = &[
    ("CET", "Europe/Berlin"),
    ("MET", "Europe/Berlin"),
    ("EET", "Europe/Athens"),
    ("WET", "Europe/Lisbon"),
];

/// Returns what to write instead of an abbreviation or an offset; `None` when `name` is neither.
pub(super) fn replacement(name: &str) -> Option<String> {
    let name = name.trim().to_ascii_uppercase();
    if let Ok(found) = ABBREVIATIONS.binary_search_by_key(&name.as_str(), |(known, _)| known) {
        let zones = ABBREVIATIONS[found].1.join("` or `");
        return Some(format!(
            "write the IANA name of the place that you mean, `{zones}`, which follows summer time where that place does"
        ));
    }
    offset_minutes(&name).map(of_offset)
}

/// Returns a note on a surprising name.
pub(super) fn note(name: &str) -> Option<String> {
    let fixed = FIXED.iter().find(|(known, ..)| *known == name);
    if let Some((_, hours, place)) = fixed {
        return Some(format!(
            "`{name}` is {} all year, also in summer; `{place}` follows summer time",
            distance(*hours)
        ));
    }
    let seasonal = SEASONAL.iter().find(|(known, _)| *known == name);
    if let Some((_, place)) = seasonal {
        return Some(format!("`{name}` follows summer time, as `{place}` does"));
    }
    // The names have the signs of POSIX, which count westwards.
    let hours: i64 = name.strip_prefix("Etc/GMT")?.parse().ok()?;
    (hours != 0).then(|| format!("`{name}` is {} all year", distance(-hours)))
}

/// Returns a number of hours from UTC as people read it.
fn distance(hours: i64) -> String {
    let side = if hours < 0 { "behind" } else { "ahead of" };
    format!("{} {side} UTC", counted(hours.abs(), "hour"))
}

/// Returns what to write for an offset in minutes.
fn of_offset(minutes: i64) -> String {
    const HOURS_LEAST: i64 = -12;
    const HOURS_MOST: i64 = 14;
    let hours = minutes / 60;
    let fraction = FRACTIONS.iter().find(|(known, _)| *known == minutes);
    match (minutes, fraction) {
        (0, _) => "write `UTC`".to_owned(),
        (_, Some((_, place))) => {
            format!("write the IANA name of the place that you mean, such as `{place}`")
        }
        _ if minutes % 60 == 0 && (HOURS_LEAST..=HOURS_MOST).contains(&hours) => format!(
            "write `Etc/GMT{:+}`, which is {} all year (these names have the opposite sign), or the IANA name of a place, which \
             follows summer time where that place does",
            -hours,
            distance(hours)
        ),
        _ => format!(
            "no zone is that far from UTC: write the IANA name of a place, or one of `Etc/GMT{:+}` to `Etc/GMT{:+}`, whose \
             signs are the opposite ones",
            -HOURS_MOST, -HOURS_LEAST
        ),
    }
}

/// Read an offset such as `UTC+2`, `GMT-05:30` or `+0530`, in minutes.
fn offset_minutes(name: &str) -> Option<i64> {
    let text = name.strip_prefix("UTC").or(name.strip_prefix("GMT"));
    let text = text.unwrap_or(name).trim_start();
    let (sign, digits) = match text.split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = match digits.split_once(':') {
        Some(parts) => parts,
        None if digits.len() == 4 => digits.split_at_checked(2)?,
        None => (digits, "0"),
    };
    let number = |text: &str, most: i64| -> Option<i64> {
        let is_number = (1..=2).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_digit());
        let number = text.parse().ok().filter(|_| is_number)?;
        (number <= most).then_some(number)
    };
    Some(sign * (number(hours, 99)? * 60 + number(minutes, 59)?))
}

#[cfg(test)]
mod tests {
    use super::super::zone::{SECOND, Zone};
    use super::*;

    // In microseconds: 2026-01-15 and 2026-07-15, noon in UTC.
    const WINTER: i64 = 1_768_478_400 * SECOND;
    const SUMMER: i64 = 1_784_116_800 * SECOND;

    /// Returns the minutes ahead of UTC in winter and in summer of the northern half.
    fn offsets(zone: &str) -> [i64; 2] {
        let zone = Zone::named(zone).unwrap();
        [WINTER, SUMMER].map(|instant| (zone.local_at(instant) - instant) / (60 * SECOND))
    }

    #[test]
    fn the_tables_name_zones_that_exist() {
        let names: Vec<&str> = ABBREVIATIONS.iter().map(|(name, _)| *name).collect();
        assert!(names.is_sorted(), "binary search needs it");
        let zones = ABBREVIATIONS.iter().flat_map(|(_, zones)| *zones);
        for zone in zones {
            assert!(Zone::named(zone).is_ok(), "{zone}");
        }
        for (minutes, zone) in FRACTIONS {
            assert!(offsets(zone).contains(minutes), "{zone}");
        }
    }

    #[test]
    fn the_notes_are_true() {
        for (name, hours, place) in FIXED {
            assert_eq!(offsets(name), [hours * 60; 2], "{name}");
            assert_eq!(offsets(place), [hours * 60, hours * 60 + 60], "{place}");
        }
        for (name, place) in SEASONAL {
            assert_eq!(offsets(name), offsets(place), "{name}");
            assert_ne!(offsets(name)[0], offsets(name)[1], "{name}");
        }
        assert_eq!(
            note("EST").unwrap(),
            "`EST` is 5 hours behind UTC all year, also in summer; `America/New_York` follows summer time"
        );
        let reversed = note("Etc/GMT+1").unwrap();
        assert_eq!(reversed, "`Etc/GMT+1` is 1 hour behind UTC all year");
        for name in ["UTC", "Etc/GMT", "Etc/GMT0", "Etc/GMT+0", "Europe/Berlin"] {
            assert_eq!(note(name), None, "{name}");
        }
    }

    #[test]
    fn an_offset_is_answered_with_the_reversed_sign() {
        for (text, expected) in [
            ("UTC+2", "`Etc/GMT-2`, which is 2 hours ahead of UTC"),
            ("GMT+5", "`Etc/GMT-5`"),
            ("utc-8", "`Etc/GMT+8`, which is 8 hours behind UTC"),
            ("+02:00", "`Etc/GMT-2`"),
            ("-0300", "`Etc/GMT+3`"),
            ("UTC+1", "which is 1 hour ahead of UTC"),
            ("UTC+14", "`Etc/GMT-14`"),
            ("UTC-12", "`Etc/GMT+12`"),
            ("UTC+5:30", "such as `Asia/Kolkata`"),
            ("UTC-00:00", "write `UTC`"),
            ("UTC+15", "no zone is that far from UTC"),
            ("UTC+15", "`Etc/GMT-14` to `Etc/GMT+12`"),
            ("UTC+2:07", "no zone"),
        ] {
            let hint = replacement(text).unwrap_or_else(|| panic!("{text}"));
            assert!(hint.contains(expected), "{text}: {hint}");
        }
        for hours in -12..=14 {
            let hint = replacement(&format!("UTC{hours:+}")).unwrap();
            let zone = hint.split('`').nth(1).unwrap();
            assert_eq!(offsets(zone), [hours * 60; 2], "{hours}: {zone}");
        }
        for text in [
            "",
            "+",
            "UTC+",
            "UTC+é",
            "UTC+123",
            "UTC+1:2:3",
            "UTC+2:60",
            "UTC",
            "2",
        ] {
            assert_eq!(replacement(text), None, "{text}");
        }
    }

    #[test]
    fn an_abbreviation_is_answered_with_places() {
        for (text, expected) in [
            ("PST", "`America/Los_Angeles` or `Asia/Manila`"),
            ("cest", "`Europe/Berlin`"),
            (
                "IST",
                "`Asia/Kolkata` or `Europe/Dublin` or `Asia/Jerusalem`",
            ),
            ("est", "`America/New_York`"),
        ] {
            let error = Zone::named(text).unwrap_err();
            assert!(error.hint().contains(expected), "{text}: {}", error.hint());
        }
    }
}
