//! The ends of runs that are not recorded yet.
//!
//! A run that has ended needs no permit any more, so another launch may start before the end is recorded. While slots
//! are due, their decisions go first: a launch that is late matters more than an end that is recorded a moment later.
//! Both are bounded. A crash repeats runs whose ends are not recorded.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// From this number of unrecorded ends on, a run keeps its permit until its own end is recorded.
const UNRECORDED_MAX: usize = 1_024;
/// How long the ends of one transaction wait for decisions.
const DECISIONS_FIRST_MAX: Duration = Duration::from_millis(50);

/// How many ends are not recorded, and whether slots are being decided that are due.
#[derive(Default)]
pub(crate) struct UnrecordedEnds {
    count: AtomicUsize,
    is_deciding: watch::Sender<bool>,
}

impl UnrecordedEnds {
    /// Count the end of a run. Return whether the run may give its permit back before the end is recorded.
    pub(crate) fn add(&self) -> bool {
        self.count.fetch_add(1, Ordering::Relaxed) < UNRECORDED_MAX
    }

    /// Note that `ends` are recorded, or never will be.
    pub(crate) fn remove(&self, ends: usize) {
        self.count.fetch_sub(ends, Ordering::Relaxed);
    }

    /// Note whether the scheduler is about to decide slots that are due.
    pub(crate) fn set_deciding(&self, is_deciding: bool) {
        self.is_deciding.send_replace(is_deciding);
    }

    /// Wait while slots that are due are decided, if not too many ends wait already.
    pub(crate) async fn let_decisions_go_first(&self) {
        if self.count.load(Ordering::Relaxed) < UNRECORDED_MAX {
            let mut is_deciding = self.is_deciding.subscribe();
            let decided = is_deciding.wait_for(|is_deciding| !is_deciding);
            let _ = timeout(DECISIONS_FIRST_MAX, decided).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_permit_is_kept_while_too_many_ends_are_not_recorded() {
        let unrecorded = UnrecordedEnds::default();
        assert!((0..UNRECORDED_MAX).all(|_| unrecorded.add()));
        assert!(!unrecorded.add());
        unrecorded.remove(2);
        assert!(unrecorded.add());
        assert!(!unrecorded.add());
    }

    #[tokio::test]
    async fn ends_wait_for_decisions_for_a_bounded_time_and_not_when_they_are_too_many() {
        let unrecorded = UnrecordedEnds::default();
        let waited = async || {
            let begun = Instant::now();
            unrecorded.let_decisions_go_first().await;
            begun.elapsed()
        };
        assert!(waited().await < DECISIONS_FIRST_MAX);
        unrecorded.set_deciding(true);
        assert!(waited().await >= DECISIONS_FIRST_MAX);
        (0..UNRECORDED_MAX).for_each(|_| _ = unrecorded.add());
        assert!(waited().await < DECISIONS_FIRST_MAX);
    }
}
