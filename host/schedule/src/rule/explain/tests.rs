//! Rules in English.

use super::super::testing::*;
use super::super::{DayMatch, RuleKind, RuleText};
use super::*;

#[test]
fn cron_rules_are_explained_in_english() {
    let cases = [
        ("30 2 * * *", "At 02:30 every day, in Europe/Paris."),
        (
            "30 2 * JAN MON-FRI",
            "At 02:30 on Monday to Friday in January, in Europe/Paris.",
        ),
        ("* * * * *", "Every minute, in Europe/Paris."),
        ("* * * * * *", "Every second, in Europe/Paris."),
        ("*/15 * * * *", "Every 15 minutes, in Europe/Paris."),
        (
            "*/40 * * * *",
            "At minutes 0 and 40 of every hour, in Europe/Paris.",
        ),
        ("5 * * * *", "At minute 5 of every hour, in Europe/Paris."),
        (
            "*/15 9-17 * * MON-FRI",
            "Every 15 minutes from 09:00 to 17:59 on Monday to Friday, in Europe/Paris.",
        ),
        (
            "*/5 9-11,14-15 * * *",
            "Every 5 minutes from 09:00 to 11:59 and from 14:00 to 15:59, in Europe/Paris.",
        ),
        (
            "0 */2 * * *",
            "At minute 0 of every 2nd hour, in Europe/Paris.",
        ),
        (
            "10-20 3 * * *",
            "At minutes 10 to 20 of hour 3, in Europe/Paris.",
        ),
        (
            "0 0,6,12,18 * * *",
            "At 00:00, 06:00, 12:00 and 18:00 every day, in Europe/Paris.",
        ),
        ("15 30 2 * * *", "At 02:30:15 every day, in Europe/Paris."),
        ("*/10 * * * * *", "Every 10 seconds, in Europe/Paris."),
        (
            "*/10 */5 3 * * *",
            "Every 10 seconds of every 5th minute from 03:00 to 03:59, in Europe/Paris.",
        ),
        (
            "30 * * * * *",
            "At second 30 of every minute, in Europe/Paris.",
        ),
        (
            "0 9 1,15 * *",
            "At 09:00 on the 1st and the 15th, in Europe/Paris.",
        ),
        (
            "0 9 1-7 1,4,7-9 *",
            "At 09:00 on the 1st to the 7th in January, April and July to September, in Europe/Paris.",
        ),
        (
            "0 9 */2 * *",
            "At 09:00 on every 2nd day from the 1st of the month, in Europe/Paris.",
        ),
        (
            "0 0 13 * FRI",
            "At 00:00 on the 13th and on Friday, in Europe/Paris.",
        ),
        (
            "0 0 */2 * MON,WED",
            "At 00:00 on every 2nd day from the 1st of the month, if that is a Monday or a Wednesday, in Europe/Paris.",
        ),
        (
            "0 0 * * 5-7",
            "At 00:00 on Friday to Sunday, in Europe/Paris.",
        ),
        (
            "0 0 * * SAT,SUN",
            "At 00:00 on Saturday and Sunday, in Europe/Paris.",
        ),
        (
            "0 0 L * *",
            "At 00:00 on the last day of the month, in Europe/Paris.",
        ),
        (
            "0 0 1,L-3 * *",
            "At 00:00 on the 1st and 3 days before the last of the month, in Europe/Paris.",
        ),
        (
            "0 0 15W * *",
            "At 00:00 on the Monday to Friday nearest the 15th, in Europe/Paris.",
        ),
        (
            "0 0 LW * *",
            "At 00:00 on the last Monday to Friday of the month, in Europe/Paris.",
        ),
        (
            "0 0 * * MON#2,FRIL",
            "At 00:00 on the 2nd Monday of the month and the last Friday of the month, in Europe/Paris.",
        ),
        (
            "H(30-30) H(4-4) * * *",
            "At 04:30 every day, in Europe/Paris.",
        ),
        (
            "@every 90m",
            "Every 1 hour and 30 minutes of elapsed time, counted from 1970-01-01T00:00:00+01:00[Europe/Paris].",
        ),
        ("@reboot", "Once at every start of a host."),
    ];
    for (expression, english) in cases {
        let rule = cron(expression, "Europe/Paris").unwrap();
        assert_eq!(rule.explanation(), english, "`{expression}`");
        let sentence = english.split_once(", in Europe/Paris.");
        let sentence = sentence.map(|(sentence, _)| sentence.to_owned());
        assert_eq!(rule.cron_sentence(), sentence, "`{expression}`");
    }
}

#[test]
fn other_rules_are_explained_in_english() {
    let cases = [
        (
            RuleKind::Every,
            "1d",
            "Every day on the clock, counted from 1970-01-01T00:00:00+00:00[UTC].",
        ),
        (
            RuleKind::Every,
            "2w",
            "Every 2 weeks on the clock, counted from 1970-01-01T00:00:00+00:00[UTC].",
        ),
        (
            RuleKind::At,
            "2026-11-21T09:00:00+01:00",
            "Once, at 2026-11-21T08:00:00+00:00[UTC].",
        ),
        (
            RuleKind::AfterCompletion,
            "1h",
            "1 hour after each launch ends.",
        ),
    ];
    for (kind, expression, english) in cases {
        assert_eq!(
            parsed(kind, expression, "UTC").unwrap().explanation(),
            english
        );
    }
}

#[test]
fn overrides_and_exclusions_follow_the_rule() {
    let text = RuleText {
        dst_gap: DstGap::Skip,
        dst_fold: DstFold::Both,
        day_match: DayMatch::And,
        exclude: vec!["12-25".to_owned(), "* * * * SAT".to_owned()],
        ..RuleText::new(RuleKind::Cron, "0 0 13 * FRI-SUN", "Europe/Paris")
    };
    assert_eq!(
        rule(&text).unwrap().explanation(),
        "At 00:00 on the 13th, if that is a Friday, a Saturday or a Sunday, in Europe/Paris. A local time that the \
         clock skips does not fire. A local time that the clock shows twice fires both times. \
         Excluded: `12-25` and `* * * * SAT`."
    );
}
