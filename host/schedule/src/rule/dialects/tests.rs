//! Expressions of other schedulers: each is refused with a hint containing a valid rule.

use super::super::testing::*;
use super::super::{RuleKind, RuleText};

/// Checks that each expression is refused, with `line` the first thing its hint puts in backquotes, and a valid rule.
fn check(cases: &[(&str, &str, &str)]) {
    for (expression, message, line) in cases {
        let error = cron(expression, "UTC").expect_err(expression);
        let text = error.to_string();
        assert!(text.contains(message), "`{expression}`: {text}");
        let proposed = error.hint().split('`').nth(1);
        assert_eq!(proposed, Some(*line), "`{expression}`: {}", error.hint());
        cron(line, "UTC").expect(line);
    }
}

#[test]
fn a_question_mark_is_hashed_in_minute_and_hour_only() {
    for (question, hashed) in [
        ("? 3 * * *", "H 3 * * *"),
        ("? ? * * MON", "H H * * MON"),
        ("30 ? ? * * *", "30 H H * * *"),
    ] {
        assert_eq!(cron(question, "UTC"), cron(hashed, "UTC"), "{question}");
    }
    for (expression, field) in [
        ("0 3 * * ?", "day-of-week"),
        ("15 4 ? * *", "day-of-month"),
        ("0 3 ? * MON", "day-of-month"),
        ("0 3 1 ? *", "month"),
        ("0 3 ?,1 * *", "day-of-month"),
        ("0 3 * * ?/2", "day-of-week"),
        ("? 0 3 * * *", "second"),
        ("0 0 0 ? ? ?", "day-of-month"),
    ] {
        let error = cron(expression, "UTC").expect_err(expression);
        assert!(error.to_string().contains(field), "`{expression}`: {error}");
        for fix in ["`*` for any", "`H` for one chosen by hash"] {
            assert!(
                error.hint().contains(fix),
                "`{expression}`: {}",
                error.hint()
            );
        }
    }
    let text = RuleText {
        exclude: vec!["* 0-7 ? * *".to_owned()],
        ..RuleText::new(RuleKind::Cron, "0 * * * *", "UTC")
    };
    assert!(rule(&text).unwrap_err().hint().contains("`*` for any"));
}

#[test]
fn six_fields_of_event_bridge_are_translated() {
    let look = "EventBridge";
    check(&[
        ("0 8 1 * ? *", look, "0 8 1 * *"),
        ("0 10 ? * MON-FRI *", look, "0 10 * * MON-FRI"),
        ("0 18 ? * 2-6 *", look, "0 18 * * MON-FRI"),
        ("0 18 ? * * *", look, "0 18 * * *"),
        ("0/15 9-17 ? * 1,7 *", look, "*/15 9-17 * * SUN,SAT"),
        ("15 10 ? * 6L 2026-2030", look, "15 10 * * FRIL"),
        ("0 9 ? * 2#1 *", look, "0 9 * * MON#1"),
        ("0 9 L * ? *", look, "0 9 L * *"),
        ("0 9 3W JAN,JUL ? 2027", look, "0 9 3W JAN,JUL *"),
        ("5/10 8 ? * L *", look, "5-59/10 8 * * SAT"),
        ("cron(0 8 1 * ? *)", look, "0 8 1 * *"),
        ("cron(30 2 * * *)", look, "30 2 * * *"),
        ("rate(5 minutes)", look, "@every 5m"),
        ("rate(1 day)", look, "@every 1d"),
    ]);
    let error = cron("15 10 ? * 6L 2026-2030", "UTC").unwrap_err();
    assert!(error.hint().contains("2026-2030"), "{}", error.hint());
}

#[test]
fn fields_of_quartz_are_translated() {
    let look = "Quartz";
    check(&[
        ("0 0 12 * * ?", look, "0 0 12 * * *"),
        ("0 15 10 ? * MON-FRI", look, "0 15 10 * * MON-FRI"),
        ("0 0 12 1 1 ? 2027", look, "0 0 12 1 1 *"),
        ("0 0 12 1 1 ? *", look, "0 0 12 1 1 *"),
        ("0 0/5 14 * * ?", look, "0 */5 14 * * *"),
        ("0 0 9 ? * 2-6", look, "0 0 9 * * MON-FRI"),
        ("0 15 10 ? * 6#3", look, "0 15 10 * * FRI#3"),
        ("0 15 10 L-2 * ?", look, "0 15 10 L-2 * *"),
    ]);
    // Spring starts counting at 0, so these numbers are ambiguous.
    let error = cron("0 0 9 ? * 2-6", "UTC").unwrap_err();
    assert!(
        error.hint().contains("`0 0 9 * * 2-6` if"),
        "{}",
        error.hint()
    );
}

#[test]
fn a_zone_in_an_expression_is_an_option_here() {
    check(&[
        ("CRON_TZ=Asia/Tokyo 0 9 * * *", "`Asia/Tokyo`", "0 9 * * *"),
        (
            "TZ=Europe/London\nH 4 * * *",
            "`Europe/London`",
            "H 4 * * *",
        ),
        ("TZ='Asia/Tokyo' @daily", "`Asia/Tokyo`", "@daily"),
        (
            "0 9 * * * America/New_York",
            "`America/New_York`",
            "0 9 * * *",
        ),
        ("30 0 9 * * MON UTC", "`UTC`", "30 0 9 * * MON"),
    ]);
    let error = every("TZ=Asia/Tokyo 1d", "UTC").unwrap_err();
    for fix in ["--tz Asia/Tokyo", "`timezone`"] {
        assert!(error.hint().contains(fix), "{}", error.hint());
    }
}

#[test]
fn other_notations_are_translated() {
    check(&[
        ("0~59 3 * * *", "random", "H(0-59) 3 * * *"),
        ("~ 3 * * *", "random", "H 3 * * *"),
        ("30~ 3 * * *", "random", "H(30-59) 3 * * *"),
        ("R R(0-7) * * *", "random", "H H(0-7) * * *"),
        ("R/15 * * * *", "random", "H/15 * * * *"),
        ("0 5 * * * /usr/bin/backup", "crontab", "0 5 * * *"),
        (
            "0 5 * * * root /usr/bin/backup --all",
            "crontab",
            "0 5 * * *",
        ),
        ("0 5 * * 1 mail -s hi me%body", "crontab", "0 5 * * 1"),
        ("@daily backup.sh", "crontab", "@daily"),
        ("0 8 1 * MON 2027", "year", "0 8 1 * MON"),
        ("daily", "systemd", "@daily"),
        ("*-*-* 02:30:00", "systemd", "30 2 * * *"),
        ("Mon..Fri *-*-* 10:00", "systemd", "0 10 * * Mon-Fri"),
        ("Mon,Thu 08:15", "systemd", "15 8 * * Mon,Thu"),
        ("*-*-01 04:00:00", "systemd", "0 4 1 * *"),
        ("*-*-* *:0/10:00", "systemd", "*/10 * * * *"),
        ("every 5 minutes", "not a cron expression", "@every 5m"),
        ("PT5M", "ISO 8601", "@every 5m"),
        ("P1M", "ISO 8601", "@every 1mo"),
        ("R/2026-01-01T00:00:00Z/PT1H30M", "ISO 8601", "@every 1h30m"),
    ]);
}

#[test]
fn a_mistake_of_this_dialect_keeps_its_own_error() {
    for (expression, message) in [
        ("0 0 12 * * 8", "`8` in the day-of-week field"),
        ("0 0 * * MONDAY", "`MONDAY` in the day-of-week field"),
        ("0 0 12 * * Monday", "`Monday` in the day-of-week field"),
        ("0 24 * * *", "`24` in the hour field"),
        ("0 0 0 1 1 * 2026", "found 7"),
        ("Rome 0 * * *", "`Rome` in the minute field"),
    ] {
        let error = cron(expression, "UTC").expect_err(expression);
        assert!(
            error.to_string().contains(message),
            "`{expression}`: {error}"
        );
    }
}
