//! Clocks, and subscriptions to them.

use crate::p1::*;

crate::cases![
    clock_getres_monotonic,
    clock_getres_realtime,
    clock_gettime_monotonic,
    clock_gettime_realtime,
    clock_time_get,
    poll_oneoff_clock,
    poll_oneoff_clock_absolute,
    poll_oneoff_clock_past,
    poll_oneoff_realtime_past,
    poll_oneoff_without_subscription,
];

const ABSOLUTE: Subclockflags = SUBCLOCKFLAGS_SUBSCRIPTION_CLOCK_ABSTIME;
const MILLISECOND: u64 = 1_000_000;
const YEAR: u64 = 365 * 86_400 * 1_000_000_000;

fn clock_getres_monotonic(_: Fd) {
    assert!((1..=1_000 * MILLISECOND).contains(&works(resolution(CLOCKID_MONOTONIC))));
}

fn clock_getres_realtime(_: Fd) {
    assert!((1..=1_000 * MILLISECOND).contains(&works(resolution(CLOCKID_REALTIME))));
}

fn clock_gettime_monotonic(_: Fd) {
    let first = works(time(CLOCKID_MONOTONIC, 1));
    let mut last = first;
    for _ in 0..1_000 {
        let now = works(time(CLOCKID_MONOTONIC, 1));
        assert!(now >= last, "{now} is before {last}");
        last = now;
    }
    assert!(last > first, "a thousand calls take time");
}

fn clock_gettime_realtime(_: Fd) {
    let now = works(time(CLOCKID_REALTIME, 1));
    let years = now / YEAR;
    assert!((50..200).contains(&years), "{years} years since 1970");
}

/// The clock works with every requested precision.
fn clock_time_get(_: Fd) {
    for clock in [CLOCKID_MONOTONIC, CLOCKID_REALTIME] {
        for precision in [0, 1, MILLISECOND, u64::MAX] {
            works(time(clock, precision));
        }
    }
}

fn poll_oneoff_clock(_: Fd) {
    let begun = works(time(CLOCKID_MONOTONIC, 1));
    let events = works(poll(&[
        until(1, CLOCKID_MONOTONIC, 60_000 * MILLISECOND, 0),
        until(2, CLOCKID_MONOTONIC, 20 * MILLISECOND, 0),
    ]));
    let waited = works(time(CLOCKID_MONOTONIC, 1)) - begun;
    assert!(waited >= 20 * MILLISECOND, "{waited} ns");
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].userdata, 2);
    assert_eq!(events[0].error, ERRNO_SUCCESS);
    assert_eq!(events[0].type_, EVENTTYPE_CLOCK);
}

fn poll_oneoff_clock_absolute(_: Fd) {
    for clock in [CLOCKID_MONOTONIC, CLOCKID_REALTIME] {
        let then = works(time(clock, 1)) + 20 * MILLISECOND;
        let events = works(poll(&[until(7, clock, then, ABSOLUTE)]));
        let now = works(time(clock, 1));
        assert!(now >= then, "{now} is before {then}");
        assert_eq!(events[0].userdata, 7);
    }
}

/// A subscription to a time in the past is ready at once.
fn poll_oneoff_clock_past(_: Fd) {
    past(CLOCKID_MONOTONIC);
}

fn poll_oneoff_realtime_past(_: Fd) {
    past(CLOCKID_REALTIME);
}

fn past(clock: Clockid) {
    let events = works(poll(&[until(8, clock, 1, ABSOLUTE)]));
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].userdata, 8);
}

fn poll_oneoff_without_subscription(_: Fd) {
    fails(poll(&[]), &[ERRNO_INVAL]);
}
