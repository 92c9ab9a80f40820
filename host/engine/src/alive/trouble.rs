//! Failing steps in the log: one line when trouble begins, a few reminders while it lasts, and one when it's over.
//!
//! An hour-long outage stopping every service is one trouble, not thousands of lines. A trouble covers all the steps failing
//! because of it, and ends once each of them has succeeded again. So a step failing at every try alongside others succeeding is one
//! trouble too. A full disk ends only when the disk keeper says so, as small writes may succeed in the meantime. An outage coming
//! back soon, as when a server keeps restarting, is the same outage; it ends after staying away for a while.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;

use crate::error::{EngineError, Result};
use campanile_control::lock::lock;

/// How long after an outage a passing error still counts as part of it: a step that began during it may fail late.
const AFTERMATH: Duration = Duration::from_secs(2);

/// A step without a failure for this long no longer keeps a trouble going: it was tried just once, or its run is gone. Services
/// retry sooner than this.
const STEP_KEPT: Duration = Duration::from_secs(10);

/// An outage coming back within this time was never over.
const RETURNS_WITHIN: Duration = Duration::from_secs(60);
/// How long a returning outage must stay away before its end is logged.
const STAYS_AWAY: Duration = Duration::from_secs(10);

/// Trouble lasting this long shows up as an issue of the host. A full disk shows at once.
const SHOWN_AFTER: Duration = Duration::from_secs(1);
/// Longest description of a trouble on record, in characters.
const SHOWN_CHARS_MAX: usize = 300;

/// Ongoing trouble is logged again after this long, then at doubling intervals up to the maximum.
const REMINDER: Duration = Duration::from_secs(60);
const REMINDER_MAX: Duration = Duration::from_secs(3_600);

/// Distinct messages remembered per trouble. Beyond that, they're logged again.
const LOGGED_MAX: usize = 64;

/// A host's ongoing troubles, shared by all its services.
#[derive(Default)]
pub(crate) struct Trouble {
    /// Every failed step.
    errors: Counter,
    troubles: Mutex<Troubles>,
    /// Set when a write failed because the disk is full.
    disk_full: AtomicBool,
    /// What the host's row says about its trouble.
    recorded: Mutex<Option<String>>,
}

#[derive(Default)]
struct Troubles {
    ongoing: BTreeMap<Kind, Ongoing>,
    /// The last outage and when it ended.
    last_outage: Option<(Instant, Ongoing)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lasting {
    pub(crate) since: Instant,
    pub(crate) what: String,
}

/// What is wrong. Errors of the same kind count as one trouble.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    DiskFull,
    /// Passing database errors.
    Outage,
    /// Any other error, by step.
    Step(String),
}

struct Ongoing {
    since: Instant,
    /// The latest failure.
    what: String,
    /// Whether it ended once and came back.
    has_returned: bool,
    /// Whether to log its end.
    is_end_due: bool,
    failures: u64,
    /// When each of its steps last failed.
    steps: HashMap<String, Instant>,
    logged: HashSet<String>,
    reminder: Duration,
    remind_at: Instant,
}

impl Ongoing {
    fn new(now: Instant) -> Ongoing {
        Ongoing {
            since: now,
            what: String::new(),
            has_returned: false,
            is_end_due: false,
            failures: 0,
            steps: HashMap::new(),
            logged: HashSet::new(),
            reminder: REMINDER,
            remind_at: now + REMINDER,
        }
    }

    /// Counts a failure of `step`, returning the line to log.
    fn fail(
        &mut self,
        kind: &Kind,
        step: &str,
        error: &EngineError,
        now: Instant,
    ) -> Option<String> {
        self.failures += 1;
        self.what = format!("{step}: {error}")
            .chars()
            .take(SHOWN_CHARS_MAX)
            .collect();
        self.steps.insert(step.to_owned(), now);
        let passes = *kind != Kind::Step(step.to_owned());
        let is_new = if passes {
            self.failures == 1
        } else {
            if self.logged.len() >= LOGGED_MAX {
                self.logged.clear();
            }
            self.logged.insert(error.to_string())
        };
        if is_new {
            let until = if passes { " until it works" } else { "" };
            return Some(format!("{step}: {error}; trying again{until}"));
        }
        if now < self.remind_at {
            return None;
        }
        self.reminder = (self.reminder * 2).min(REMINDER_MAX);
        self.remind_at = now + self.reminder;
        Some(format!("{step}: {error}; {}", self.lasts(now)))
    }

    fn lasts(&self, now: Instant) -> String {
        let seconds = now.duration_since(self.since).as_secs();
        format!(
            "failing for {seconds} s now, with {} failed tries",
            self.failures
        )
    }

    /// Notes a success of `step`, returning whether all steps work again.
    fn succeed(&mut self, step: &str, now: Instant) -> bool {
        self.steps.remove(step);
        self.steps
            .retain(|_, failed| now.duration_since(*failed) < STEP_KEPT);
        self.steps.is_empty()
    }
}

impl Trouble {
    /// Counts each failed step with `errors`.
    pub(crate) fn new(errors: Counter) -> Trouble {
        Trouble {
            errors,
            ..Trouble::default()
        }
    }

    /// Logs a failure of `step` unless it belongs to a trouble already logged, or the end of a trouble after a success.
    pub(crate) fn note<T>(&self, step: &str, result: &Result<T>) {
        match result {
            Ok(_) => self.end(step),
            Err(error) => self.report(step, error),
        }
    }

    /// Logs a failure of `step` unless it belongs to a trouble already logged.
    pub(crate) fn report(&self, step: &str, error: &EngineError) {
        self.errors.inc();
        let kind = match error {
            EngineError::Db(error) if error.is_disk_full() => Kind::DiskFull,
            error if error.is_transient() => Kind::Outage,
            _ => Kind::Step(step.to_owned()),
        };
        if kind == Kind::DiskFull {
            self.disk_full.store(true, Ordering::Relaxed);
        }
        match self.fail(kind, step, error, Instant::now()) {
            Some(line) => tracing::error!("{line}"),
            None => tracing::debug!(step, %error, "the step failed again"),
        }
    }

    fn fail(&self, kind: Kind, step: &str, error: &EngineError, now: Instant) -> Option<String> {
        let mut troubles = lock(&self.troubles);
        if kind == Kind::Outage && !troubles.ongoing.contains_key(&kind) {
            match troubles.last_outage.take() {
                Some((over_at, last)) if now.duration_since(over_at) < AFTERMATH => {
                    troubles.last_outage = Some((over_at, last));
                    return None;
                }
                Some((over_at, last)) if now.duration_since(over_at) < RETURNS_WITHIN => {
                    let has_returned = true;
                    let again = Ongoing {
                        has_returned,
                        ..last
                    };
                    troubles.ongoing.insert(Kind::Outage, again);
                }
                _ => {}
            }
        }
        let ongoing = troubles.ongoing.entry(kind.clone());
        ongoing
            .or_insert_with(|| Ongoing::new(now))
            .fail(&kind, step, error, now)
    }

    /// Returns the worst trouble still going on at `now`.
    pub(crate) fn lasting(&self, now: Instant) -> Option<Lasting> {
        let troubles = lock(&self.troubles);
        let mut ongoing = troubles.ongoing.iter();
        // A full disk comes first.
        let found = ongoing.find(|(kind, trouble)| {
            **kind == Kind::DiskFull || now.duration_since(trouble.since) >= SHOWN_AFTER
        });
        found.map(|(_, trouble)| Lasting {
            since: trouble.since,
            what: trouble.what.clone(),
        })
    }

    /// Whether the host's row needs updating to match `lasting`.
    pub(crate) fn is_news(&self, lasting: Option<&Lasting>) -> bool {
        let recorded = lock(&self.recorded);
        // One update per trouble, even though the message may change with every try.
        recorded.is_some() != lasting.is_some()
    }

    /// Notes what the host's row now says, if anything.
    pub(crate) fn note_recorded(&self, lasting: Option<&Lasting>) {
        *lock(&self.recorded) = lasting.map(|lasting| lasting.what.clone());
    }

    /// Whether a write failed since the last call because the disk is full.
    pub(crate) fn take_disk_full(&self) -> bool {
        self.disk_full.swap(false, Ordering::Relaxed)
    }

    /// Call this once the disk has space again.
    pub(crate) fn end_disk_full(&self) {
        lock(&self.troubles).ongoing.remove(&Kind::DiskFull);
    }

    /// Notes a success of `step`, logging the end of every trouble it settles.
    pub(crate) fn end(&self, step: &str) {
        for line in self.succeed(step, Instant::now()) {
            tracing::info!("{line}");
        }
    }

    fn succeed(&self, step: &str, now: Instant) -> Vec<String> {
        let mut troubles = lock(&self.troubles);
        let Troubles {
            ongoing,
            last_outage,
        } = &mut *troubles;
        let mut lines = Vec::new();
        if let Some((over_at, last)) = last_outage
            && last.is_end_due
            && now.duration_since(*over_at) >= STAYS_AWAY
        {
            last.is_end_due = false;
            lines.push(back(over_at.duration_since(last.since)));
        }
        let mut over = None;
        ongoing.retain(|kind, trouble| {
            let is_over = match kind {
                Kind::DiskFull => false,
                Kind::Outage => trouble.succeed(step, now),
                Kind::Step(of) => of == step,
            };
            if is_over {
                let lasted = now.duration_since(trouble.since);
                match kind {
                    Kind::Outage => {
                        trouble.is_end_due = trouble.has_returned;
                        if !trouble.has_returned {
                            lines.push(back(lasted));
                        }
                        over = Some(std::mem::replace(trouble, Ongoing::new(now)));
                    }
                    _ => lines.push(format!(
                        "{step}: it works again, after {:.1} s and {} failed tries",
                        lasted.as_secs_f64(),
                        trouble.failures
                    )),
                }
            }
            !is_over
        });
        if let Some(over) = over {
            *last_outage = Some((now, over));
        }
        lines
    }
}

fn back(lasted: Duration) -> String {
    format!(
        "the database answers again, after {:.1} s",
        lasted.as_secs_f64()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use campanile_store::DbError;

    const LEASES: &str = "renewing leases";
    const SLOTS: &str = "deciding slots";

    fn gone() -> EngineError {
        DbError::Unavailable("no route".to_owned()).into()
    }

    fn fail(trouble: &Trouble, step: &str, error: &EngineError, at: Instant) -> Option<String> {
        let kind = if error.is_transient() {
            Kind::Outage
        } else {
            Kind::Step(step.to_owned())
        };
        trouble.fail(kind, step, error, at)
    }

    #[test]
    fn an_outage_of_all_steps_is_one_line_and_few_reminders() {
        let (trouble, begin) = (Trouble::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let lines = |step, from, to| -> usize {
            let tries = (from..to).filter_map(|second| fail(&trouble, step, &gone(), at(second)));
            tries.count()
        };
        assert_eq!(lines(SLOTS, 0, 1), 1);
        assert_eq!(lines(LEASES, 0, 60), 0);
        // After 1, 3, 7, 15, 31 and 63 minutes.
        assert_eq!(lines(LEASES, 60, 3_600), 5);
        assert_eq!(
            trouble.succeed(SLOTS, at(3_600)),
            [""; 0],
            "one step still fails"
        );
        let over = trouble.succeed(LEASES, at(3_601));
        assert_eq!(over, ["the database answers again, after 3601.0 s"]);
        assert_eq!(
            fail(&trouble, SLOTS, &gone(), at(3_602)),
            None,
            "it began before"
        );
        let returned = fail(&trouble, SLOTS, &gone(), at(3_604));
        assert_eq!(returned, None, "it is the same outage");
        trouble.succeed(SLOTS, at(3_605));
        assert!(fail(&trouble, SLOTS, &gone(), at(3_700)).is_some());
    }

    /// The heartbeat works while deciding slots fails. This used to log two lines per try.
    #[test]
    fn a_step_that_fails_beside_others_that_succeed_is_one_trouble() {
        let (trouble, begin) = (Trouble::default(), Instant::now());
        let damaged = EngineError::Db(DbError::Unexpected("no such index".to_owned()));
        for error in [damaged, gone()] {
            let mut lines = 0;
            for second in 0..50 {
                let now = begin + Duration::from_secs(second);
                lines += usize::from(fail(&trouble, SLOTS, &error, now).is_some());
                lines += trouble.succeed(LEASES, now).len();
            }
            assert_eq!(lines, 1, "{error}");
            let over = trouble.succeed(SLOTS, begin + Duration::from_secs(50));
            assert_eq!(over.len(), 1, "{over:?}");
        }
    }

    #[test]
    fn another_error_of_a_step_is_logged_and_a_step_that_was_tried_once_is_forgotten() {
        let (trouble, begin) = (Trouble::default(), Instant::now());
        let error = |text: &str| EngineError::Db(DbError::Unexpected(text.to_owned()));
        assert!(fail(&trouble, SLOTS, &error("a"), begin).is_some());
        assert!(fail(&trouble, SLOTS, &error("b"), begin).is_some());
        assert!(fail(&trouble, SLOTS, &error("a"), begin).is_none());
        fail(&trouble, "recording a delivery", &gone(), begin);
        assert!(
            trouble
                .succeed(LEASES, begin + Duration::from_secs(9))
                .is_empty()
        );
        assert_eq!(
            trouble
                .succeed(LEASES, begin + Duration::from_secs(10))
                .len(),
            1
        );
    }

    /// A server without space for its log keeps crashing and restarting every few seconds.
    #[test]
    fn an_outage_that_returns_again_and_again_is_one() {
        let (trouble, begin) = (Trouble::default(), Instant::now());
        let mut lines = Vec::new();
        for second in 0..120 {
            let now = begin + Duration::from_secs(second);
            match second % 6 {
                0..3 => lines.extend(fail(&trouble, LEASES, &gone(), now)),
                _ => lines.extend(trouble.succeed(LEASES, now)),
            }
        }
        assert_eq!(lines.len(), 3, "begin, first end, one reminder: {lines:#?}");
        let quiet: Vec<String> = (120..140)
            .flat_map(|second| trouble.succeed(LEASES, begin + Duration::from_secs(second)))
            .collect();
        assert_eq!(quiet, ["the database answers again, after 117.0 s"]);
    }

    #[test]
    fn a_trouble_that_lasts_is_shown() {
        let (trouble, begin) = (Trouble::default(), Instant::now());
        fail(&trouble, LEASES, &gone(), begin);
        assert_eq!(trouble.lasting(begin), None);
        let later = begin + Duration::from_secs(1);
        let lasting = trouble.lasting(later);
        assert!(trouble.is_news(lasting.as_ref()));
        trouble.note_recorded(lasting.as_ref());
        assert!(!trouble.is_news(lasting.as_ref()));
        let what = lasting.map(|lasting| lasting.what).unwrap_or_default();
        assert_eq!(
            what,
            "renewing leases: the database cannot be reached: no route"
        );
        let full = EngineError::Db(DbError::DiskFull("no space".to_owned()));
        trouble.report(SLOTS, &full);
        let lasting = trouble.lasting(Instant::now()).map(|lasting| lasting.what);
        assert!(lasting.is_some_and(|what| what.contains("no space")));
    }

    #[test]
    fn a_full_disk_is_over_when_the_disk_keeper_says_so() {
        let trouble = Trouble::default();
        let full = EngineError::Db(DbError::DiskFull("no space".to_owned()));
        trouble.report(SLOTS, &full);
        assert!(trouble.take_disk_full() && !trouble.take_disk_full());
        trouble.end(SLOTS);
        let is_full = || {
            lock(&trouble.troubles)
                .ongoing
                .contains_key(&Kind::DiskFull)
        };
        assert!(is_full());
        trouble.end_disk_full();
        assert!(!is_full());
    }
}
