//! Whole rules: instants, anchors, the ends of time, normal forms, and refusals.

use super::testing::*;
use super::*;
use rand::Rng as _;

#[test]
fn an_instant_fires_once_and_to_the_microsecond() {
    let rule = at("2026-11-21T09:00:00.000001+01:00", "Europe/Paris").unwrap();
    let slot = time("2026-11-21T08:00:00.000001Z");
    assert_eq!(rule.next(time("2026-11-21T08:00:00Z")), Some(slot));
    assert_eq!(rule.next(slot), None);
    assert_eq!(rule.normal_form(), "2026-11-21T08:00:00.000001Z");
}

#[test]
fn a_malformed_instant_is_refused() {
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
fn an_anchor_is_for_an_interval_only() {
    let anchor = Some(time("2026-01-01T00:00:07Z"));
    let with_anchor = |kind, expression| {
        let text = RuleText {
            anchor,
            ..RuleText::new(kind, expression, "UTC")
        };
        rule(&text)
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
fn a_slot_is_printed_in_its_zone() {
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
fn no_rule_has_slots_outside_the_years_1970_to_2099() {
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
fn garbage_is_refused_without_a_panic() {
    let mut random = seeded("random text");
    let letters: Vec<char> = "0123456789*/-,@ \tMONFRIJAevrymohdwsTZ:+.?#LWH()\n\0é☃\u{a0}"
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
        let kind = RuleKind::ALL[random.random_range(0..RuleKind::ALL.len())];
        match parsed(kind, &expression, "Asia/Tehran") {
            Ok(rule) => {
                understood += 1;
                let after = Timestamp::from_micros(random.random());
                let next = rule.next(after);
                assert!(next.is_none_or(|slot| slot > after));
                assert!(
                    next.and_then(|slot| rule.prev(slot))
                        .is_none_or(|slot| slot <= after)
                );
                assert!(!rule.explanation().is_empty());
                rule.warnings(after);
                assert_eq!(parsed(kind, &rule.normal_form(), "Asia/Tehran"), Ok(rule));
            }
            Err(error) => {
                let message = error.to_string();
                assert!(
                    !message.is_empty() && !message.contains('\n'),
                    "{message:?}"
                );
                assert!(!error.hint().is_empty());
            }
        }
    }
    assert!(
        understood > 1_000,
        "only {understood} of the texts are rules"
    );
}

#[test]
fn a_rule_of_events_has_no_slots() {
    let always = time("2026-01-01T00:00:00Z");
    let delay = parsed(RuleKind::AfterCompletion, "1h30m", "Europe/Paris").unwrap();
    assert_eq!(
        delay.delay_after_completion(),
        Some(Duration::from_secs(5_400))
    );
    assert!(!delay.at_host_start());
    let start = cron("\t@reboot", "Europe/Paris").unwrap();
    assert_eq!(start.delay_after_completion(), None);
    assert!(start.at_host_start());
    for rule in [delay, start] {
        assert_eq!((rule.next(always), rule.prev(always)), (None, None));
    }
    let daily = cron("@daily", "Europe/Paris").unwrap();
    assert!(!daily.at_host_start() && daily.delay_after_completion().is_none());
}

#[test]
fn prev_finds_slots_to_the_ends_of_time() {
    let year_1 = Timestamp::from_micros(i64::MIN);
    let year_9999 = Timestamp::from_micros(i64::MAX);
    let rules = [
        cron("30 2 * * *", "America/New_York").unwrap(),
        cron("*/15 * * * *", "America/New_York").unwrap(),
        every("1h", "America/New_York").unwrap(),
        every("1d", "America/New_York").unwrap(),
        every("1mo", "America/New_York").unwrap(),
    ];
    for rule in rules {
        let first = rule.next(year_1).unwrap();
        let last = rule.prev(year_9999).unwrap();
        assert_eq!((rule.prev(year_1), rule.prev(first)), (None, None));
        assert_eq!((rule.next(year_9999), rule.next(last)), (None, None));
        assert!(rule.matches(first) && rule.matches(last));
        assert!(last > time("2099-11-30T00:00:00Z") && last < time("2100-01-01T05:00:00Z"));
        assert_eq!(rule.prev(rule.next(first).unwrap()), Some(first));
    }
    let once = at("2026-11-21T09:00:00Z", "UTC").unwrap();
    let slot = time("2026-11-21T09:00:00Z");
    assert_eq!((once.prev(slot), once.prev(year_9999)), (None, Some(slot)));
}
