//! What a process knows about the time, from readings of two clocks of its machine. Pure.
//!
//! `now` is an anchor plus the monotonic time since. A step of the wall clock therefore moves nothing by itself. It makes
//! the time unknown, until the anchor is set anew.

use std::time::Duration;

use super::{Anchor, Monotonic, Timestamp};

/// The wall clock stepped when it parts from the monotonic clock by so much between two looks. Less is followed.
pub const STEP_MIN: Duration = Duration::from_millis(500);
/// Without a database's clock, a stepped wall clock is believed after this time without another step.
pub const CONFIRM: Duration = Duration::from_secs(5);
/// A reading that took longer is not used: the process was stopped while it read the clocks.
const READING_MAX_US: i64 = 100_000;
/// So much time between two looks means that the process or the machine was suspended.
const SUSPENDED_US: i64 = 5_000_000;

/// Both clocks of the machine at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    pub(super) monotonic: Monotonic,
    pub(super) wall: Timestamp,
    /// The time between the first and the last look at a clock, in microseconds.
    pub(super) took_us: i64,
}

impl Reading {
    /// Returns the wall clock minus the monotonic clock, in microseconds.
    fn difference_us(self) -> i64 {
        self.wall.micros() - self.monotonic.micros()
    }
}

/// What a look at the machine's clocks found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Both clocks advanced together.
    Steady,
    /// Both clocks advanced together, and the process did not run for seconds.
    Resumed,
    /// The wall clock stepped by this number of microseconds. The time is unknown.
    Stepped(i64),
    /// The wall clock is believed again. `now` moved by this number of microseconds.
    Confirmed(i64),
}

/// Whose time counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Authority {
    Wall,
    Database,
}

/// What a process knows about the time.
#[derive(Debug)]
pub(super) struct TimeState {
    /// `now` minus the monotonic clock, in microseconds.
    anchor_us: i64,
    authority: Authority,
    is_known: bool,
    /// The wall clock minus the monotonic clock at the last look, in microseconds.
    difference_us: i64,
    /// When the wall clock stepped last.
    stepped_at: Monotonic,
    looked_at: Monotonic,
}

impl TimeState {
    /// Believe the wall clock.
    pub(super) fn new(reading: Reading) -> TimeState {
        TimeState {
            anchor_us: reading.difference_us(),
            authority: Authority::Wall,
            is_known: true,
            difference_us: reading.difference_us(),
            stepped_at: reading.monotonic,
            looked_at: reading.monotonic,
        }
    }

    /// Returns `now` minus the monotonic clock, in microseconds.
    pub(super) fn anchor_us(&self) -> i64 {
        self.anchor_us
    }

    /// Returns whether a database's clock counts.
    pub(super) fn follows_database(&self) -> bool {
        self.authority == Authority::Database
    }

    /// Returns whether the time is known at `reading`.
    pub(super) fn is_known(&self, reading: Reading) -> bool {
        self.is_known && self.step_us(reading).is_none()
    }

    /// Let the time be unknown until the anchor is set.
    pub(super) fn forget(&mut self) {
        self.is_known = false;
    }

    /// Returns by how much the wall clock stepped since the last look, if it did.
    fn step_us(&self, reading: Reading) -> Option<i64> {
        let moved = reading.difference_us() - self.difference_us;
        let least = STEP_MIN.as_micros() as i64 + reading.took_us;
        (reading.took_us <= READING_MAX_US && moved.abs() >= least).then_some(moved)
    }

    /// Note a reading.
    pub(super) fn look(&mut self, reading: Reading) -> Look {
        if reading.took_us > READING_MAX_US {
            return Look::Steady;
        }
        let step = self.step_us(reading);
        let pause_us = reading.monotonic.micros() - self.looked_at.micros();
        self.difference_us = reading.difference_us();
        self.looked_at = reading.monotonic;
        if let Some(step) = step {
            self.is_known = false;
            self.stepped_at = reading.monotonic;
            return Look::Stepped(step);
        }
        if self.authority == Authority::Wall {
            if !self.is_known && reading.monotonic.since(self.stepped_at) < CONFIRM {
                return Look::Steady;
            }
            let moved = self.difference_us - self.anchor_us;
            self.anchor_us = self.difference_us;
            if !self.is_known {
                self.is_known = true;
                return Look::Confirmed(moved);
            }
        }
        if pause_us >= SUSPENDED_US {
            Look::Resumed
        } else {
            Look::Steady
        }
    }

    /// Follow the clock of a database from now on. Return by how many microseconds `now` moves.
    pub(super) fn follow(&mut self, anchor: Anchor) -> i64 {
        let anchor_us = anchor.time.micros() - anchor.at.micros();
        let moved = anchor_us - self.anchor_us;
        self.anchor_us = anchor_us;
        self.authority = Authority::Database;
        self.is_known = true;
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: i64 = 1_800_000_000_000_000;
    const BOOTED: i64 = 7_000_000_000;

    /// Returns a reading `millis` after the start, with a wall clock that is `ahead` milliseconds ahead of the true time.
    fn reading(millis: i64, ahead: i64) -> Reading {
        Reading {
            monotonic: Monotonic(BOOTED + millis * 1_000),
            wall: Timestamp::from_micros(START + (millis + ahead) * 1_000),
            took_us: 1,
        }
    }

    /// Returns by how many milliseconds `now` is ahead of the true time at a reading.
    fn error_ms(state: &TimeState) -> i64 {
        (state.anchor_us() - (START - BOOTED)) / 1_000
    }

    fn database(millis: i64) -> Anchor {
        Anchor {
            at: Monotonic(BOOTED + millis * 1_000),
            time: Timestamp::from_micros(START + millis * 1_000),
            error: Duration::ZERO,
        }
    }

    #[test]
    fn a_step_of_the_wall_clock_moves_nothing_where_the_database_counts() {
        for ahead in [3_600_000, -3_600_000, 40_000, -40_000, 100_000, 120_000] {
            let mut state = TimeState::new(reading(0, 0));
            assert_eq!(state.follow(database(0)), 0);
            assert_eq!(state.look(reading(500, 0)), Look::Steady);
            let stepped = reading(900, ahead);
            // The next decision sees the step before the next look does.
            assert!(!state.is_known(stepped), "{ahead}");
            assert_eq!(
                state.look(reading(1_000, ahead)),
                Look::Stepped(ahead * 1_000)
            );
            // However long the database does not answer.
            for millis in [1_500, 10_000, 600_000] {
                state.look(reading(millis, ahead));
                assert!(!state.is_known(reading(millis, ahead)), "{ahead} {millis}");
                assert_eq!(error_ms(&state), 0, "{ahead} {millis}");
            }
            assert_eq!(state.follow(database(600_000)), 0);
            assert!(state.is_known(reading(600_000, ahead)), "{ahead}");
        }
    }

    #[test]
    fn a_wall_clock_that_is_wrong_at_the_start_does_not_count_beside_a_database() {
        let mut state = TimeState::new(reading(0, -100_000));
        assert_eq!(error_ms(&state), -100_000);
        assert_eq!(state.follow(database(5)), 100_000_000);
        assert_eq!(error_ms(&state), 0);
        assert!(state.is_known(reading(500, -100_000)));
        assert_eq!(state.look(reading(500, -100_000)), Look::Steady);
        // NTP corrects the wall clock.
        assert_eq!(state.look(reading(1_000, 0)), Look::Stepped(100_000_000));
        assert_eq!(state.follow(database(1_001)), 0);
    }

    #[test]
    fn a_stepped_wall_clock_is_believed_when_it_is_steady() {
        let confirm = CONFIRM.as_millis() as i64;
        for ahead in [3_600_000, -3_600_000, 40_000, -40_000] {
            let mut state = TimeState::new(reading(0, 0));
            assert_eq!(
                state.look(reading(500, ahead)),
                Look::Stepped(ahead * 1_000)
            );
            let before = reading(499 + confirm, ahead);
            assert_eq!(state.look(before), Look::Steady);
            assert!(!state.is_known(before), "{ahead}");
            assert_eq!(error_ms(&state), 0, "{ahead}");
            let after = reading(500 + confirm, ahead);
            assert_eq!(state.look(after), Look::Confirmed(ahead * 1_000));
            assert!(state.is_known(after), "{ahead}");
            assert_eq!(error_ms(&state), ahead);
        }
    }

    #[test]
    fn a_step_that_is_taken_back_moves_nothing() {
        let mut state = TimeState::new(reading(0, 0));
        state.look(reading(500, 3_600_000));
        assert_eq!(
            state.look(reading(4_000, 0)),
            Look::Stepped(-3_600_000_000),
            "the time to confirm begins anew"
        );
        assert_eq!(state.look(reading(8_999, 0)), Look::Steady);
        assert_eq!(state.look(reading(9_000, 0)), Look::Confirmed(0));
    }

    #[test]
    fn a_small_error_of_rate_is_followed() {
        let mut state = TimeState::new(reading(0, 0));
        for second in 1..=100 {
            // A tenth of a second is gained each second.
            let at = reading(second * 1_000, second * 100);
            assert_eq!(state.look(at), Look::Steady);
            assert_eq!(error_ms(&state), second * 100);
        }
        // Beside a database the measurement is followed, not the wall clock.
        state.follow(database(100_000));
        assert_eq!(state.look(reading(101_000, 10_100)), Look::Steady);
        assert_eq!(error_ms(&state), 0);
    }

    #[test]
    fn a_suspended_process_is_noticed_and_its_reading_is_not_trusted() {
        let mut state = TimeState::new(reading(0, 0));
        assert_eq!(state.look(reading(90_000, 0)), Look::Resumed);
        assert_eq!(error_ms(&state), 0);
        // The process was stopped between its looks at the two clocks.
        let torn = Reading {
            took_us: 90_000_000,
            ..reading(90_500, 45_000)
        };
        assert!(state.is_known(torn));
        assert_eq!(state.look(torn), Look::Steady);
        assert_eq!(error_ms(&state), 0);
        // The error of a reading is at most the time that it took.
        let slow = Reading {
            took_us: 90_000,
            ..reading(91_000, 550)
        };
        assert!(state.is_known(slow));
    }

    #[test]
    fn a_forgotten_time_is_known_when_it_is_measured() {
        let mut state = TimeState::new(reading(0, 0));
        state.follow(database(0));
        state.forget();
        assert!(!state.is_known(reading(1, 0)));
        state.look(reading(500, 0));
        assert!(!state.is_known(reading(500, 0)));
        state.follow(database(501));
        assert!(state.is_known(reading(501, 0)));
    }
}
