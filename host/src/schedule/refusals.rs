//! What is refused, in which words, and what is proposed instead.

use super::testing::*;

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
fn numbers_and_names_that_a_field_lacks_are_refused() {
    check(
        r"
60 * * * * => `60` in the minute field at position 1 is out of range 0-59 => write 0 to 59
* 24 * * * => `24` in the hour field at position 3 is out of range 0-23 => write 0 to 23
0 0 0 * * => `0` in the day-of-month field at position 5 is out of range 1-31 => write 1 to 31
0 0 * 13 * => `13` in the month field at position 7 is out of range 1-12 => write 1 to 12 or JAN to DEC
0 0 * * 1,8 => `8` in the day-of-week field at position 11 is out of range 0-7 => write 0 to 7 or SUN to SAT
99 0 0 * * * => `99` in the second field at position 1 is out of range 0-59 => write 0 to 59
0 999999999999 * * * => `999999999999` in the hour field at position 3 is out of range 0-23 => write 0 to 23
0 0 * * MONDAY => `MONDAY` in the day-of-week field at position 9 is neither a number nor a name => write `MON`: names have three letters
0 0 * MON * => `MON` in the month field at position 7 is neither a number nor a name => write 1 to 12 or JAN to DEC
0 MON * * * => `MON` in the hour field at position 3 is not a number => write 0 to 23
0 0 ? * MON => `?` in the day-of-month field at position 5 is not a number => write `*`
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
1- * * * * => a range in the minute field lacks its end at position 3 => write both ends, as in `1-5`
-1 * * * * => a range in the minute field lacks its end at position 1 => write both ends, as in `1-5`
1-2-3 * * * * => `2-3` in the minute field at position 3 is not a number => write 0 to 59
** * * * * => `**` in the minute field at position 1 has something after its `*` => write `*` or `*/n`
*-5 * * * * => `*-5` in the minute field at position 1 has something after its `*` => write `*` or `*/n`
1,*5 * * * * => `*5` in the minute field at position 3 has something after its `*` => write `*` or `*/n`
",
    );
}

#[test]
fn backward_ranges_are_refused_with_what_was_meant() {
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
@reboot => `@reboot` is not a known macro => write one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly or `@every 15m`
@Daily => `@Daily` is not a known macro => write one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly or `@every 15m`
@ => `@` is not a known macro => write one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly or `@every 15m`
@everyday => `@everyday` is not a known macro => write one of @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly or `@every 15m`
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
        let said = cron(expression, "UTC").unwrap_err().to_string();
        assert!(said.starts_with(start), "{said}");
    }
}

#[test]
fn what_is_not_a_period_is_refused() {
    check(
        r"
@every => the period is empty => write a period such as 10s, 15m, 2h, 1h30m, 1d, 1w, 1mo or 1y
@every   => the period is empty => write a period such as 10s, 15m, 2h, 1h30m, 1d, 1w, 1mo or 1y
@every 10 => the period `10` lacks a unit at position 10 => write a period such as 10s, 15m, 2h, 1h30m, 1d, 1w, 1mo or 1y
@every s => the period `s` lacks a number at position 8 => write a period such as 10s, 15m, 2h, 1h30m, 1d, 1w, 1mo or 1y
@every -5s => the period `-5s` lacks a number at position 8 => write a period such as 10s, 15m, 2h, 1h30m, 1d, 1w, 1mo or 1y
@every 1h 30m => the period `1h 30m` lacks a number at position 10 => write a period such as 10s, 15m, 2h, 1h30m, 1d, 1w, 1mo or 1y
@every 1.5h => the period `1.5h` lacks a unit at position 9 => write a period such as 10s, 15m, 2h, 1h30m, 1d, 1w, 1mo or 1y
@every  5min => `min` at position 10 is not a unit of time => write a period such as 10s, 15m, 2h, 1h30m, 1d, 1w, 1mo or 1y
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
    let error = every(" 5 s", "UTC").unwrap_err();
    assert_eq!(
        error.to_string(),
        "the period `5 s` lacks a unit at position 3"
    );
}
