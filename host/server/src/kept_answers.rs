//! The answers to costly reads, kept for half a second: programs that ask for the same at once, or again and again, share one.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::Instant;

/// The age up to which an answer is also given to the same request of other clients.
const KEPT: Duration = Duration::from_millis(500);
/// With more requests than this, the answers that no client waits for are dropped.
const REQUESTS_MAX: usize = 64;

/// A successful answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptAnswer {
    pub bytes: Bytes,
    /// The media type.
    pub kind: &'static str,
    /// The query of the next page.
    pub next: Option<String>,
}

/// The last answer to one request, and when it was given.
type Kept = Option<(Instant, KeptAnswer)>;

/// The answers, by the path and the query of their requests.
#[derive(Default)]
pub(crate) struct KeptAnswers(std::sync::Mutex<HashMap<String, Arc<Mutex<Kept>>>>);

/// The place of the answer to one request. Other clients with this request wait until it is dropped.
pub(crate) struct Place(OwnedMutexGuard<Kept>);

impl KeptAnswers {
    /// Wait for the place of the answer to `request`.
    pub(crate) async fn place(&self, request: String) -> Place {
        let kept = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if all.len() >= REQUESTS_MAX {
                all.retain(|_, kept| Arc::strong_count(kept) > 1);
            }
            Arc::clone(all.entry(request).or_default())
        };
        Place(kept.lock_owned().await)
    }
}

impl Place {
    /// Returns the answer that another client has just got.
    pub(crate) fn answer(&self) -> Option<KeptAnswer> {
        let kept = self.0.as_ref().filter(|(at, _)| at.elapsed() < KEPT);
        kept.map(|(_, answer)| answer.clone())
    }

    /// Keep an answer, if there is one to keep.
    pub(crate) fn keep(mut self, answer: Option<KeptAnswer>) {
        *self.0 = answer.map(|answer| (Instant::now(), answer));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;

    use super::*;

    #[tokio::test]
    async fn clients_that_ask_for_the_same_share_an_answer() {
        let answers = KeptAnswers::default();
        let asked = AtomicUsize::new(0);
        let ask = |request: String, is_done: bool| {
            let (answers, asked) = (&answers, &asked);
            async move {
                let place = answers.place(request).await;
                if place.answer().is_some() {
                    return;
                }
                tokio::task::yield_now().await;
                asked.fetch_add(1, Ordering::Relaxed);
                let answer = KeptAnswer {
                    bytes: Bytes::from_static(b"[1]"),
                    kind: "application/json",
                    next: None,
                };
                place.keep(is_done.then_some(answer));
            }
        };
        let same = || "/a".to_owned();
        // An answer that is no success is not shared.
        ask(same(), false).await;
        ask(same(), false).await;
        assert_eq!(asked.swap(0, Ordering::Relaxed), 2);
        join_all((0..50).map(|_| ask(same(), true))).await;
        assert_eq!(asked.swap(0, Ordering::Relaxed), 1);
        join_all((0..200).map(|number| ask(number.to_string(), true))).await;
        assert_eq!(asked.load(Ordering::Relaxed), 200);
        ask("/b".to_owned(), true).await;
        let kept = answers.0.lock().unwrap().len();
        assert!(kept <= REQUESTS_MAX + 1, "{kept}");
    }
}
