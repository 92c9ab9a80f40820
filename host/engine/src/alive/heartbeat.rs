//! The history of this host's own heartbeat: it decides whether the host may declare others dead.

use std::sync::Mutex;
use std::time::Duration;

use campanile_control::lock::lock;
use campanile_model::clock::Timestamp;

/// Since when this host's heartbeat has been recorded without a gap, and when it was recorded last.
#[derive(Default)]
pub(crate) struct HeartbeatHistory(Mutex<Option<(Timestamp, Timestamp)>>);

impl HeartbeatHistory {
    /// Note that a heartbeat was recorded at `now`. A gap of more than `gap_max` begins a new streak.
    pub(crate) fn note(&self, now: Timestamp, gap_max: Duration) {
        let mut streak = lock(&self.0);
        let since = match *streak {
            Some((since, last)) if now.since(last) <= gap_max => since,
            _ => now,
        };
        *streak = Some((since, now));
    }

    /// Begin a new streak at the next heartbeat: times before and after now cannot be compared.
    pub(crate) fn forget(&self) {
        *lock(&self.0) = None;
    }

    /// Whether the database lost the last heartbeat that this host committed. `recorded` is the heartbeat that it has now.
    ///
    /// A standby that had not received the newest commits may have been promoted. It lacks the heartbeats of other hosts too.
    pub(crate) fn is_lost(&self, recorded: Option<Timestamp>) -> bool {
        lock(&self.0).is_some_and(|(_, last)| recorded < Some(last))
    }

    /// Returns the beginning of the current unbroken sequence of accepted heartbeats, or none before the first.
    pub(crate) fn since(&self) -> Option<Timestamp> {
        lock(&self.0).map(|(since, _)| since)
    }

    /// Whether the database has accepted a heartbeat of this host within `span` up to `now`.
    pub(crate) fn is_recent(&self, now: Timestamp, span: Duration) -> bool {
        lock(&self.0).is_some_and(|(_, last)| now.since(last) <= span)
    }

    /// Whether the database has accepted this host's heartbeats for at least `span` up to `now`.
    ///
    /// Only then does another host's silence mean that it is dead. After an outage of the database, or a sleep of the
    /// machine, every host looks silent, this one too.
    pub(crate) fn may_declare_dead(&self, now: Timestamp, span: Duration) -> bool {
        let streak = lock(&self.0);
        streak.is_some_and(|(since, last)| now.since(since) >= span && now.since(last) <= span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH.plus(Duration::from_secs(seconds))
    }

    #[test]
    fn only_a_host_without_gaps_of_its_own_may_declare_others_dead() {
        let history = HeartbeatHistory::default();
        assert!(!history.may_declare_dead(at(0), LEASE));
        for second in [0, 10, 20] {
            assert!(!history.may_declare_dead(at(second), LEASE));
            history.note(at(second), LEASE);
        }
        history.note(at(30), LEASE);
        assert!(history.may_declare_dead(at(30), LEASE));
        assert!(history.may_declare_dead(at(60), LEASE));
        // An outage: no heartbeat of any host was recorded.
        assert!(!history.may_declare_dead(at(61), LEASE));
        history.note(at(100), LEASE);
        assert!(!history.may_declare_dead(at(101), LEASE));
        history.note(at(130), LEASE);
        assert!(history.may_declare_dead(at(131), LEASE));
        // The host's time jumped.
        history.forget();
        history.note(at(140), LEASE);
        assert!(!history.may_declare_dead(at(169), LEASE));
    }

    #[test]
    fn a_heartbeat_is_lost_when_the_database_has_an_earlier_one_or_none() {
        let history = HeartbeatHistory::default();
        assert!(!history.is_lost(None));
        history.note(at(10), LEASE);
        assert!(!history.is_lost(Some(at(10))));
        assert!(history.is_lost(Some(at(9))));
        assert!(history.is_lost(None));
        history.forget();
        assert!(!history.is_lost(Some(at(9))));
    }
}
