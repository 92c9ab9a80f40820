//! What a database's replies reveal about its own condition: damage, or a possible role change of its server.
//!
//! Every statement goes through [`Answers::wait`], so the first one running into trouble tells all others.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use sqlx::ConnectOptions;
use tokio::time::timeout;

use super::{DbError, Result};

/// What is known about a database, shared by all its connections.
#[derive(Default)]
pub(super) struct Condition {
    /// The first error only a damaged database can cause.
    damage: OnceLock<String>,
    doubt: Mutex<Doubt>,
}

/// Doubt about the role of the server behind the connections.
#[derive(Clone, Copy, Default)]
struct Doubt {
    /// Connections older than this are abandoned.
    raised_at: Option<Instant>,
    /// Whether no server accepting writes has been found since.
    is_open: bool,
    /// Whether idle connections still need closing.
    must_drain: bool,
}

impl Condition {
    /// Returns why the database counts as damaged. This lasts until the process ends.
    pub(super) fn damage(&self) -> Option<&str> {
        self.damage.get().map(String::as_str)
    }

    /// Abandons all present connections, as their server's role may have changed.
    pub(super) fn raise_doubt(&self) {
        *self.doubt() = Doubt {
            raised_at: Some(Instant::now()),
            is_open: true,
            must_drain: true,
        };
    }

    /// Returns when the server's role came into doubt, if it still is.
    pub(super) fn doubted_since(&self) -> Option<Instant> {
        let doubt = self.doubt();
        doubt.raised_at.filter(|_| doubt.is_open)
    }

    /// Ends the doubt raised at `since`, but not a later one.
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

    /// Whether to close idle connections. True once per doubt.
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

/// How long to wait for each reply from a database, and where to note what it reveals.
#[derive(Clone)]
pub(super) struct Answers {
    /// None on SQLite, whose connections limit each wait themselves.
    pub(super) limit: Option<Duration>,
    pub(super) condition: Arc<Condition>,
}

impl Answers {
    /// Waits for one step's reply, noting any error.
    pub(super) async fn wait<T, E: Into<DbError>>(
        &self,
        step: impl Future<Output = Result<T, E>>,
    ) -> Result<T> {
        let answer = within(self.limit, step).await;
        answer.inspect_err(|error| self.condition.note(error))
    }

    /// Waits for the reply to a statement, and warns about a slow one by the name of its function. `_place` is a closure of that
    /// function.
    pub(super) async fn wait_for<P, T, E: Into<DbError>>(
        &self,
        _place: P,
        step: impl Future<Output = Result<T, E>>,
    ) -> Result<T> {
        let begun = Instant::now();
        let answer = self.wait(step).await;
        let took = begun.elapsed();
        if took >= SLOW {
            let statement = name_of(std::any::type_name::<P>());
            tracing::warn!(
                statement,
                elapsed_ms = took.as_millis() as u64,
                "the database took {:.1} s for one statement",
                took.as_secs_f64()
            );
        }
        answer
    }
}

/// From this time on a statement counts as slow.
const SLOW: Duration = Duration::from_secs(1);

/// Returns the name of a function, such as `outbox::due`, from the type of a closure in it.
fn name_of(closure: &str) -> &str {
    let function = closure.split("::{{closure}}").next().unwrap_or(closure);
    function.split_once("::").map_or(function, |(_, name)| name)
}

/// Leaves slow statements to [`Answers::wait_for`]: the driver would log their texts, which are long and of no use to who reads
/// the log. A filter that names `sqlx` shows all statements.
pub(super) fn without_slow_statements<O: ConnectOptions>(options: O) -> O {
    match "off".parse() {
        Ok(off) => options.log_slow_statements(off, Duration::MAX),
        Err(_) => options,
    }
}

/// Gives up on replies taking longer than `limit`, if there is one.
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

    /// Returns what the macros of `sql.rs` find in a function.
    async fn due() -> &'static str {
        fn name<P>(_: P) -> &'static str {
            name_of(std::any::type_name::<P>())
        }
        name(|| ())
    }

    #[tokio::test]
    async fn a_slow_statement_is_named_by_its_function() {
        assert_eq!(due().await, "condition::tests::due");
        for (closure, name) in [
            (
                "campanile_store::outbox::due::{{closure}}::{{closure}}",
                "outbox::due",
            ),
            (
                "campanile_store::launch::search::window::{{closure}}",
                "launch::search::window",
            ),
            ("other", "other"),
        ] {
            assert_eq!(name_of(closure), name);
        }
    }

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
