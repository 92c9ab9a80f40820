//! The sessions of browsers.
//!
//! A session exists in the memory of one host alone: a restart ends it. It keeps the token with which it began, and each
//! request checks that token again, so a revoked token ends its sessions.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::COOKIE;

use campanile_model::clock::Timestamp;
use campanile_model::ids::TokenHash;

/// How long a session lasts.
const LASTS: Duration = Duration::from_secs(12 * 3_600);
/// The most sessions at once. One more ends the oldest.
const SESSIONS_MAX: usize = 1_000;
/// The name of the cookie.
const COOKIE_NAME: &str = "campanile_session";

/// What a session is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    /// The token with which it began.
    pub secret: String,
    /// Whose token that was.
    pub principal: String,
    pub since: Timestamp,
}

/// The sessions of a host, by the hash of their ids.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<TokenHash, Session>>);

impl Sessions {
    fn locked(&self) -> MutexGuard<'_, HashMap<TokenHash, Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begin a session. Return its id, which the browser keeps.
    pub(crate) fn begin(&self, session: Session) -> String {
        let id = format!(
            "{:032x}{:032x}",
            rand::random::<u128>(),
            rand::random::<u128>()
        );
        let mut sessions = self.locked();
        let now = session.since;
        sessions.retain(|_, session| is_valid(session, now));
        if sessions.len() >= SESSIONS_MAX {
            let oldest = sessions.iter().min_by_key(|(_, session)| session.since);
            if let Some(oldest) = oldest.map(|(id, _)| id.clone()) {
                sessions.remove(&oldest);
            }
        }
        sessions.insert(TokenHash::of(id.as_bytes()), session);
        id
    }

    /// Returns the session of that id, unless it has ended.
    pub(crate) fn find(&self, id: &str, now: Timestamp) -> Option<Session> {
        let sessions = self.locked();
        let found = sessions.get(&TokenHash::of(id.as_bytes()));
        found.filter(|session| is_valid(session, now)).cloned()
    }

    /// End the session of that id.
    pub(crate) fn end(&self, id: &str) {
        self.locked().remove(&TokenHash::of(id.as_bytes()));
    }
}

fn is_valid(session: &Session, now: Timestamp) -> bool {
    now.since(session.since) < LASTS
}

/// Returns the id of the session that a request brings.
pub(crate) fn cookie(headers: &HeaderMap) -> Option<&str> {
    let values = headers.get_all(COOKIE).into_iter();
    let cookies = values.filter_map(|value| value.to_str().ok());
    let mut cookies = cookies.flat_map(|value| value.split(';'));
    cookies.find_map(|cookie| {
        let (name, value) = cookie.trim().split_once('=')?;
        (name == COOKIE_NAME).then_some(value)
    })
}

/// Returns the header that lets a browser keep the id of a session, or forget it when there is none.
pub(crate) fn set_cookie(id: Option<&str>, is_encrypted: bool) -> String {
    let secure = if is_encrypted { "; Secure" } else { "" };
    let seconds = id.map_or(0, |_| LASTS.as_secs());
    let id = id.unwrap_or_default();
    format!("{COOKIE_NAME}={id}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(at: u64) -> Session {
        Session {
            secret: "cmp_x".to_owned(),
            principal: "ada".to_owned(),
            since: Timestamp::EPOCH.plus(Duration::from_secs(at)),
        }
    }

    #[test]
    fn a_session_ends_by_request_or_after_twelve_hours() {
        let sessions = Sessions::default();
        let id = sessions.begin(session(0));
        let found = |at: u64| sessions.find(&id, Timestamp::EPOCH.plus(Duration::from_secs(at)));
        assert_eq!(id.len(), 64);
        assert_eq!(found(43_199), Some(session(0)));
        assert_eq!(found(43_200), None);
        assert_eq!(sessions.find("", Timestamp::EPOCH), None);
        sessions.end(&id);
        assert_eq!(found(0), None);
    }

    #[test]
    fn one_session_too_many_ends_the_oldest() {
        let sessions = Sessions::default();
        let ids = Vec::from_iter((0..=SESSIONS_MAX as u64).map(|at| sessions.begin(session(at))));
        let now = Timestamp::EPOCH.plus(Duration::from_secs(2_000));
        assert_eq!(sessions.find(&ids[0], now), None);
        for id in &ids[1..] {
            assert!(sessions.find(id, now).is_some());
        }
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        let mut headers = HeaderMap::new();
        assert_eq!(cookie(&headers), None);
        let text = "a=b; campanile_session=12ab; c=d";
        headers.insert(COOKIE, text.parse().unwrap());
        assert_eq!(cookie(&headers), Some("12ab"));
        let set = set_cookie(Some("12ab"), true);
        for part in [
            "campanile_session=12ab;",
            "HttpOnly",
            "SameSite=Strict",
            "Secure",
        ] {
            assert!(set.contains(part), "{set}");
        }
        assert!(set_cookie(None, false).contains("Max-Age=0"));
        assert!(!set_cookie(None, false).contains("Secure"));
    }
}
