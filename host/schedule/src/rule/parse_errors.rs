//! The messages and hints of refused rules.

use super::testing::*;
use super::{DayMatch, DstFold, DstGap, RuleKind, RuleText};

/// Check a table of lines `expression => message => hint`.
fn check(table: &str) {
    for line in table.trim_matches('\n').lines() {
        let parts: Vec<&str> = line.split(" => ").collect();
        let [expression, message, hint] = parts[..] else {
            panic!("not three parts: {line}");
        };
        let error = cron(expression, "UTC").expect_err(expression);
        assert_eq!(error.to_string(), message, "for `{expression}`");
        assert_eq!(error.hint(), hint, "for `{expression}`");
    }
}

#[test]
fn numbers_and_names_outside_a_field_are_refused() {
    check(
        r"
60 * * * * => `60` in the minute field at position 1 is out of range 0-59 => write 0 to 59
* 24 * * * => `24` in the hour field at position 3 is out of range 0-23 => write 0 to 23; the minute stands before the hour
0 0 0 * * => `0` in the day-of-month field at position 5 is out of range 1-31 => write 1 to 31
0 0 * 13 * => `13` in the month field at position 7 is out of range 1-12 => write 1 to 12 or JAN to DEC
0 0 * * 1,8 => `8` in the day-of-week field at position 11 is out of range 0-7 => write 0 to 7 or SUN to SAT
99 0 0 * * * => `99` in the second field at position 1 is out of range 0-59 => write 0 to 59
0 999999999999 * * * => `999999999999` in the hour field at position 3 is out of range 0-23 => write 0 to 23
0 0 * * MONDAY => `MONDAY` in the day-of-week field at position 9 is neither a number nor a name => write `MON`: names have three letters
0 0 * MON * => `MON` in the month field at position 7 is neither a number nor a name => write 1 to 12 or JAN to DEC
0 MON * * * => `MON` in the hour field at position 3 is not a number => write 0 to 23
0 0 1? * MON => `1?` in the day-of-month field at position 5 is not a number => write 1 to 31
+1 * * * * => `+1` in the minute field at position 1 is not a number => write 0 to 59
é 0 ☃ * * => `é` in the minute field at position 1 is not a number => write 0 to 59
é * * * => expected 5 fields (minute hour day-of-month month day-of-week) or 6 (second first), found 4 => write five fields, as in `30 2 * * *`, or one of @hourly … @yearly
",
    );
}

#[test]
fn malformed_items_are_refused() {
    check(
        r"
1,,2 * * * * => the minute field has an empty item at position 3 => write a value between every two commas, and none at the ends
1, * * * * => the minute field has an empty item at position 3 => write a value between every two commas, and none at the ends
,1 * * * * => the minute field has an empty item at position 1 => write a value between every two commas, and none at the ends
1- * * * * => a number in the minute field is missing at position 3 => write a number, or both ends of a range, as in `1-5`
-1 * * * * => a number in the minute field is missing at position 1 => write a number, or both ends of a range, as in `1-5`
1-2-3 * * * * => `2-3` in the minute field at position 3 is not a number => write 0 to 59
** * * * * => `**` in the minute field at position 1 has something after its `*` => write `*` or `*/n`
*-5 * * * * => `*-5` in the minute field at position 1 has something after its `*` => write `*` or `*/n`
1,*5 * * * * => `*5` in the minute field at position 3 has something after its `*` => write `*` or `*/n`
",
    );
}

#[test]
fn backward_ranges_are_refused_with_a_correction() {
    check(
        r"
0 22-2 * * * => `22-2` in the hour field at position 3 runs backwards => write `22-23,0-2`
0 23-0 * * * => `23-0` in the hour field at position 3 runs backwards => write `23,0`
0 22-3/2 * * * => `22-3` in the hour field at position 3 runs backwards => write `22,0,2`
0 0 * * FRI-MON => `FRI-MON` in the day-of-week field at position 9 runs backwards => write `FRI-SAT,SUN-MON`
0 0 * * 5-0 => `5-0` in the day-of-week field at position 9 runs backwards => write `5-6,0`
0 0 * * 7-2 => `7-2` in the day-of-week field at position 9 runs backwards => write `0-2`
0 0 * NOV-FEB * => `NOV-FEB` in the month field at position 7 runs backwards => write `NOV-DEC,JAN-FEB`
",
    );
}

#[test]
fn steps_without_a_range_or_a_number_are_refused() {
    check(
        r"
5/15 * * * * => `5/15` in the minute field at position 1 has a step without a range => write `5-59/15`
0 0 * * MON/2 => `MON/2` in the day-of-week field at position 9 has a step without a range => write `MON-SAT/2`
/5 * * * * => `/5` in the minute field at position 1 has a step without a range => write `*/5`
*/0 * * * * => the step of the minute field at position 3 is `0`, not a number of at least 1 => write a whole number of at least 1 after the `/`, as in `*/15`
*/ * * * * => the step of the minute field at position 3 is missing => write a whole number of at least 1 after the `/`, as in `*/15`
0 */-2 * * * => the step of the hour field at position 5 is `-2`, not a number of at least 1 => write a whole number of at least 1 after the `/`, as in `*/15`
0 */2/3 * * * => the step of the hour field at position 5 is `2/3`, not a number of at least 1 => write a whole number of at least 1 after the `/`, as in `*/15`
",
    );
}

#[test]
fn expressions_of_another_shape_are_refused() {
    check(
        r"
 => expected 5 fields (minute hour day-of-month month day-of-week) or 6 (second first), found 0 => write five fields, as in `30 2 * * *`, or one of @hourly … @yearly
* * * * => expected 5 fields (minute hour day-of-month month day-of-week) or 6 (second first), found 4 => write five fields, as in `30 2 * * *`, or one of @hourly … @yearly
0 0 0 1 1 * 2026 => expected 5 fields (minute hour day-of-month month day-of-week) or 6 (second first), found 7 => leave the year out: there is no year field
@Reboot => `@Reboot` is not a known macro => write one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly, @reboot or `@every 15m`
@Daily => `@Daily` is not a known macro => write one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly, @reboot or `@every 15m`
@ => `@` is not a known macro => write one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly, @reboot or `@every 15m`
@everyday => `@everyday` is not a known macro => write one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly, @reboot or `@every 15m`
",
    );
}

#[test]
fn expressions_that_never_fire_are_refused() {
    check(
        r"
0 0 31 2 * => the expression never fires: month 2 has no day 31 => write a day-of-month of at most 29, or other months
0 0 30,31 FEB */2 => the expression never fires: month 2 has no day 30 => write a day-of-month of at most 29, or other months
0 0 31 4,6,9,11 * => the expression never fires: month 4,6,9,11 has no day 31 => write a day-of-month of at most 30, or other months
0 0 31W 2 * => the expression never fires: month 2 has no day that is `31W` and on weekday `*` in the years 1970 to 2099 => write other days or other months
0 0 L-29,L-30 2 * => the expression never fires: month 2 has no day that is `L-29,L-30` and on weekday `*` in the years 1970 to 2099 => write other days or other months
0 0 */30 2 MON#2 => the expression never fires: month 2 has no day that is `*/30` and on weekday `1#2` in the years 1970 to 2099 => write other days or other months
",
    );
}

#[test]
fn only_spaces_and_tabs_separate_fields() {
    let cases = [
        (
            "0 0 * *\nMON *",
            "`*\\nMON` in the month field at position 7",
        ),
        (
            "0\u{a0}0 * * * *",
            "`0\\u{a0}0` in the minute field at position 1",
        ),
        ("0\r 0 * * *", "`0\\r` in the minute field at position 1"),
        ("0\0 0 * * *", "`0\\0` in the minute field at position 1"),
    ];
    for (expression, start) in cases {
        let message = cron(expression, "UTC").unwrap_err().to_string();
        assert!(message.starts_with(start), "{message}");
    }
}

#[test]
fn malformed_periods_are_refused() {
    check(
        r"
@every => the period is empty => write a period such as 10s, 15m, 2h, 1h30m, 1d, 1w, 1mo or 1y
@every   => the period is empty => write a period such as 10s, 15m, 2h, 1h30m, 1d, 1w, 1mo or 1y
@every 10 => the period `10` lacks a unit at position 10 => write a period such as 10s, 15m, 2h, 1h30m, 1d, 1w, 1mo or 1y
@every s => the period `s` lacks a number at position 8 => write a period such as 10s, 15m, 2h, 1h30m, 1d, 1w, 1mo or 1y
@every -5s => the period `-5s` lacks a number at position 8 => write a period such as 10s, 15m, 2h, 1h30m, 1d, 1w, 1mo or 1y
@every 1h and 30m => the period `1h and 30m` lacks a number at position 11 => write a period such as 10s, 15m, 2h, 1h30m, 1d, 1w, 1mo or 1y
@every 5 fortnights => `fortnights` at position 10 is not a unit of time => write a period such as 10s, 15m, 2h, 1h30m, 1d, 1w, 1mo or 1y
@every 1.5h => the period `1.5h` lacks a unit at position 9 => write a period such as 10s, 15m, 2h, 1h30m, 1d, 1w, 1mo or 1y
@every  5minu => `minu` at position 10 is not a unit of time => write a period such as 10s, 15m, 2h, 1h30m, 1d, 1w, 1mo or 1y
@every 5M => `M` at position 9 is not a unit of time => write a period such as 10s, 15m, 2h, 1h30m, 1d, 1w, 1mo or 1y
@every 5é => the period `5é` lacks a unit at position 9 => write a period such as 10s, 15m, 2h, 1h30m, 1d, 1w, 1mo or 1y
@every 0s => the period `0s` is zero => write a period of at least 1s
@every 0h0m => the period `0h0m` is zero => write a period of at least 1s
@every 30m1h => the unit `h` at position 12 comes after one no larger => write each unit once, the largest first, as in 1h30m
@every 1h1h => the unit `h` at position 11 comes after one no larger => write each unit once, the largest first, as in 1h30m
@every 1d12h => the unit `h` at position 12 cannot be added to those before it => write years with months, weeks with days, or hours with minutes and seconds: only the last are elapsed time, so 36h instead of 1d12h
@every 1mo1d => the unit `d` at position 12 cannot be added to those before it => write years with months, weeks with days, or hours with minutes and seconds: only the last are elapsed time, so 36h instead of 1d12h
@every 101y => the period `101y` is longer than 100 years => write a shorter period; for a single time, use the kind `at`
@every 99999999999999999999s => the period `99999999999999999999s` is longer than 100 years => write a shorter period; for a single time, use the kind `at`
",
    );
    let error = every(" 5 x", "UTC").unwrap_err();
    assert_eq!(error.to_string(), "`x` at position 4 is not a unit of time");
}

#[test]
fn malformed_quartz_days_are_refused() {
    check(
        r"
0 0 L-0 * * => `L-0` in the day-of-month field at position 5 is not a day => write `L`, `L-1` to `L-30`, `1W` to `31W` or `LW`
0 0 L-31 * * => `L-31` in the day-of-month field at position 5 is not a day => write `L`, `L-1` to `L-30`, `1W` to `31W` or `LW`
0 0 1,32W * * => `32W` in the day-of-month field at position 7 is not a day => write `L`, `L-1` to `L-30`, `1W` to `31W` or `LW`
0 0 1-5W * * => `1-5W` in the day-of-month field at position 5 is not a day => write `L`, `L-1` to `L-30`, `1W` to `31W` or `LW`
0 0 L/2 * * => `L/2` in the day-of-month field at position 5 has a step, which no such day can have => write `L`, alone or in a list
0 0 1-L * * => `L` in the day-of-month field at position 7 is not a number => write 1 to 31
0 0 * * L => `L` in the day-of-week field at position 9 names no weekday => write `FRIL` for the last Friday of the month, or `SAT` for every Saturday
0 0 * * 8L => `8` in the day-of-week field at position 9 is out of range 0-7 => write 0 to 7 or SUN to SAT
0 0 * * MON#6 => `MON#6` in the day-of-week field at position 9 has no week of 1 to 5 after its `#` => write the second Monday of the month as `MON#2`
0 0 * * 1,MON# => `MON#` in the day-of-week field at position 11 has no week of 1 to 5 after its `#` => write the second Monday of the month as `MON#2`
0 0 * * #2 => a number in the day-of-week field is missing at position 9 => write a number, or both ends of a range, as in `1-5`
0 0 * * FRIL/2 => `FRIL/2` in the day-of-week field at position 9 has a step, which no such day can have => write `FRIL`, alone or in a list
0 L * * * => `L` in the hour field at position 3 is not a number => write 0 to 23
0 0 * L * => `L` in the month field at position 7 is neither a number nor a name => write 1 to 12 or JAN to DEC
",
    );
}

#[test]
fn malformed_hashed_values_are_refused() {
    check(
        r"
H5 * * * * => `H5` in the minute field at position 1 is not a hashed value => write `H`, `H(0-59)`, `H/n` or `H(0-59)/n`
H(5) * * * * => `H(5)` in the minute field at position 1 is not a hashed value => write `H`, `H(0-59)`, `H/n` or `H(0-59)/n`
H(0-9 * * * * => `H(0-9` in the minute field at position 1 is not a hashed value => write `H`, `H(0-59)`, `H/n` or `H(0-59)/n`
0 H() * * * => `H()` in the hour field at position 3 is not a hashed value => write `H`, `H(0-23)`, `H/n` or `H(0-23)/n`
0 0 H-2 * * => `H-2` in the day-of-month field at position 5 is not a hashed value => write `H`, `H(1-28)`, `H/n` or `H(1-28)/n`
H(9-5) * * * * => `(9-5)` in the minute field at position 2 runs backwards => write the smaller number first: hashed choices do not wrap around
H(0-60) * * * * => `60` in the minute field at position 5 is out of range 0-59 => write 0 to 59
H/0 * * * * => the step of the minute field at position 3 is `0`, not a number of at least 1 => write a whole number of at least 1 after the `/`, as in `*/15`
H(0-29)/x * * * * => the step of the minute field at position 9 is `x`, not a number of at least 1 => write a whole number of at least 1 after the `/`, as in `*/15`
5,H * * * * => `H` in the minute field at position 3 is one of a list => write a hashed value alone in its field
?,5 * * * * => `?` in the minute field at position 1 is one of a list => write a hashed value alone in its field
?/5 * * * * => `?/5` in the minute field at position 1 has something after its `?` => write `H/5`
",
    );
}

/// Check that `text` is refused with this message and hint.
fn check_text(text: &RuleText, message: &str, hint: &str) {
    let error = rule(text).expect_err(message);
    assert_eq!((error.to_string().as_str(), error.hint()), (message, hint));
}

#[test]
fn an_override_that_means_nothing_to_the_rule_is_refused() {
    let new = |kind, expression| RuleText::new(kind, expression, "Europe/Paris");
    let cron = |expression| new(RuleKind::Cron, expression);
    check_text(
        &RuleText {
            dst_fold: DstFold::Both,
            ..cron("*/5 * * * *")
        },
        "dst_fold `both` means nothing to a rule that follows the clock: it fires whenever the \
         clock matches",
        "leave dst_fold out, or give the second, minute and hour without `*`",
    );
    check_text(
        &RuleText {
            dst_gap: DstGap::Skip,
            ..new(RuleKind::Every, "24h")
        },
        "dst_gap `skip` means nothing to elapsed time, which does not look at the clock",
        "leave dst_gap out, or write the period in days, weeks, months or years",
    );
    check_text(
        &RuleText {
            dst_gap: DstGap::Skip,
            ..new(RuleKind::At, "2026-11-21T09:00:00Z")
        },
        "dst_gap `skip` means nothing to a rule of kind at",
        "leave dst_gap out, or write a cron expression",
    );
    check_text(
        &RuleText {
            day_match: DayMatch::And,
            ..cron("0 0 13 * *")
        },
        "day_match `and` means nothing when a day field begins with `*`: both must match anyway",
        "leave day_match out, or restrict both day fields, as in `0 0 13 * FRI`",
    );
    check_text(
        &RuleText {
            day_match: DayMatch::And,
            ..cron("@every 1d")
        },
        "day_match `and` means nothing to an interval",
        "leave day_match out, or write a cron expression",
    );
    check_text(
        &RuleText {
            dst_fold: DstFold::Second,
            ..cron("@reboot")
        },
        "dst_fold `second` means nothing to `@reboot`",
        "leave dst_fold out, or write a cron expression",
    );
    check_text(
        &RuleText {
            anchor: Some(time("2026-01-01T00:00:00Z")),
            ..cron("@reboot")
        },
        "an anchor means nothing to `@reboot`",
        "leave the anchor out, or use the kind `every`",
    );
    check_text(
        &RuleText {
            exclude: vec!["12-25".to_owned()],
            ..new(RuleKind::AfterCompletion, "1h")
        },
        "exclusions mean nothing to a rule of kind after_completion",
        "leave them out, or write a cron expression or an interval",
    );
}

#[test]
fn a_delay_is_elapsed_time() {
    let delay = |expression| RuleText::new(RuleKind::AfterCompletion, expression, "UTC");
    check_text(
        &delay("1w1d"),
        "the period `1w1d` is not elapsed time",
        "write `192h`: days and more follow the clock, and a delay does not",
    );
    check_text(
        &delay("1mo"),
        "the period `1mo` is not elapsed time",
        "write hours, such as `24h`: days and more follow the clock, and a delay does not",
    );
    check_text(
        &delay("0s"),
        "the period `0s` is zero",
        "write a period of at least 1s",
    );
}

#[test]
fn malformed_exclusions_are_refused() {
    const FORMS: &str =
        "write 2026-12-25, 12-25 for every year, 2026-12-24..2027-01-01, or five cron fields";
    const FIVE: &str = "write five fields that match the minutes to exclude, as in `* 0-7 * * *`";
    let cases = [
        ("2026-02-29", "`2026-02-29` is not a date", FORMS),
        ("02-30", "`02-30` is not a date", FORMS),
        ("", "`` is not a date", FORMS),
        ("Christmas", "`Christmas` is not a date", FORMS),
        ("@daily", "`@daily` is not a date", FORMS),
        (
            "2026-12-24 .. 12-26",
            "`12-26` has no year",
            "give both dates of a range their year, or name the days of every year one by one",
        ),
        (
            "2027-01-01..2026-12-24",
            "`2027-01-01..2026-12-24` runs backwards",
            "write the earlier date first; both dates have a year",
        ),
        (
            "2100-01-01",
            "`2100-01-01` is outside the years 1970 to 2099",
            "write a date of these years",
        ),
        (
            "0 24 * * *",
            "`24` in the hour field at position 3 is out of range 0-23",
            "write 0 to 23; the minute stands before the hour",
        ),
        ("0 0 0 * * *", "it has a second field", FIVE),
        (
            "H 0 * * *",
            "`H` and `?` would exclude a time that the author did not choose",
            FIVE,
        ),
    ];
    for (item, message, hint) in cases {
        let text = RuleText {
            exclude: vec!["12-25".to_owned(), item.to_owned()],
            ..RuleText::new(RuleKind::Cron, "0 9 * * *", "UTC")
        };
        check_text(&text, &format!("exclusion 2: {message}"), hint);
    }
    let many = RuleText {
        exclude: vec!["12-25".to_owned(); 101],
        ..RuleText::new(RuleKind::Cron, "0 9 * * *", "UTC")
    };
    check_text(
        &many,
        "the rule has 101 exclusions",
        "write at most 100; days in a row are one: 2026-12-24..2027-01-01",
    );
}

#[test]
fn a_rule_whose_slots_are_all_excluded_is_refused() {
    let cases = [
        (RuleKind::Cron, "0 9 * * *", vec!["1970-01-01..2099-12-31"]),
        (RuleKind::Cron, "0 9 * * MON", vec!["* * * * 1-5"]),
        (
            RuleKind::Cron,
            "0 2,14 * * *",
            vec!["0 2 * * *", "0-30 14 * * *"],
        ),
        (RuleKind::Cron, "0 0 25 12 *", vec!["12-25"]),
        (RuleKind::Every, "1h", vec!["0 * * * *"]),
        (RuleKind::Every, "7s", vec!["0-30 * * * *", "31-59 * * * *"]),
        (RuleKind::Every, "1d", vec!["0 0 * * *"]),
    ];
    for (kind, expression, exclude) in cases {
        let text = RuleText {
            exclude: exclude.into_iter().map(str::to_owned).collect(),
            ..RuleText::new(kind, expression, "Europe/Paris")
        };
        check_text(
            &text,
            "the rule never fires: its exclusions match every slot of the years 1970 to 2099",
            "exclude less",
        );
    }
}
