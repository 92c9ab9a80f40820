//! What the answers of a database say about the database itself: that it is damaged, or that its server may have another
//! role now.
//!
//! Every statement passes [`Answers::wait`], so whoever meets such an answer first tells all others.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::{DbError, Result};

/// What is known about a database, shared by all its connections.
#[derive(Default)]
pub(super) struct Condition {
    /// What the first answer said that only a damaged database gives.
    damage: OnceLock<String>,
    doubt: Mutex<Doubt>,
}

/// Doubt about the role of the server behind the connections.
#[derive(Clone, Copy, Default)]
struct Doubt {
    /// Connections that are older are given up.
    raised_at: Option<Instant>,
    /// Whether no server that accepts writes was found since.
    is_open: bool,
    /// Whether idle connections are still to be closed.
    must_drain: bool,
}

impl Condition {
    /// Returns why the database counts as damaged until this process ends.
    pub(super) fn damage(&self) -> Option<&str> {
        self.damage.get().map(String::as_str)
    }

    /// Gives up all connections that exist now, because their server may have another role.
    pub(super) fn raise_doubt(&self) {
        *self.doubt() = Doubt {
            raised_at: Some(Instant::now()),
            is_open: true,
            must_drain: true,
        };
    }

    /// Whether the role of the server is in doubt, and since when.
    pub(super) fn doubted_since(&self) -> Option<Instant> {
        let doubt = self.doubt();
        doubt.raised_at.filter(|_| doubt.is_open)
    }

    /// Ends the doubt raised at `since`. One that was raised later stays.
    pub(super) fn settle_doubt(&self, since: Instant) {
        let mut doubt = self.doubt();
        if doubt.raised_at == Some(since) {
            doubt.is_open = false;
        }
    }

    /// Whether a connection of this age was opened before the last doubt.
    pub(super) fn is_given_up(&self, age: Duration) -> bool {
        let raised_at = self.doubt().raised_at;
        raised_at.is_some_and(|raised_at| age >= raised_at.elapsed())
    }

    /// Whether idle connections are to be closed. True once for each doubt.
    pub(super) fn take_drain(&self) -> bool {
        std::mem::take(&mut self.doubt().must_drain)
    }

    fn note(&self, error: &DbError) {
        match error {
            DbError::Damaged(why) => {
                let _ = self.damage.set(why.clone());
            }
            DbError::ReadOnly(_) | DbError::Unavailable(_) => self.raise_doubt(),
            _ => {}
        }
    }

    fn doubt(&self) -> MutexGuard<'_, Doubt> {
        self.doubt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long to wait for each answer of a database, and where to note what it says about the database.
#[derive(Clone)]
pub(super) struct Answers {
    /// None on SQLite, whose connections bound each wait themselves.
    pub(super) limit: Option<Duration>,
    pub(super) condition: Arc<Condition>,
}

impl Answers {
    /// Waits for the answer to one step, and notes an error.
    pub(super) async fn wait<T, E: Into<DbError>>(
        &self,
        step: impl Future<Output = Result<T, E>>,
    ) -> Result<T> {
        let answer = within(self.limit, step).await;
        answer.inspect_err(|error| self.condition.note(error))
    }
}

/// Gives up on an answer that does not come within `limit`, where there is any bound.
pub(super) async fn within<T, E: Into<DbError>>(
    limit: Option<Duration>,
    step: impl Future<Output = Result<T, E>>,
) -> Result<T> {
    let Some(limit) = limit else {
        return step.await.map_err(Into::into);
    };
    let no_answer = |_| DbError::Unavailable(format!("no answer in {} s", limit.as_secs()));
    let answer = timeout(limit, step).await.map_err(no_answer)?;
    answer.map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubt_gives_up_older_connections_and_ends_with_its_own_settlement() {
        let condition = Condition::default();
        let old = Duration::from_secs(3_600);
        assert!(!condition.is_given_up(old) && condition.doubted_since().is_none());
        condition.note(&DbError::ReadOnly(String::new()));
        let first = condition.doubted_since().expect("a doubt");
        assert!(condition.is_given_up(old) && !condition.is_given_up(Duration::ZERO));
        assert!(condition.take_drain() && !condition.take_drain());
        std::thread::sleep(Duration::from_millis(1));
        condition.note(&DbError::Unavailable(String::new()));
        condition.settle_doubt(first);
        let second = condition.doubted_since().expect("the later doubt stays");
        condition.settle_doubt(second);
        assert!(condition.doubted_since().is_none());
        assert!(condition.is_given_up(old), "what is given up stays so");
    }

    #[test]
    fn the_first_damage_is_kept_and_other_errors_are_no_damage() {
        let condition = Condition::default();
        condition.note(&DbError::Busy("x".to_owned()));
        assert_eq!(condition.damage(), None);
        condition.note(&DbError::Damaged("a page".to_owned()));
        condition.note(&DbError::Damaged("an index".to_owned()));
        assert_eq!(condition.damage(), Some("a page"));
    }
}
