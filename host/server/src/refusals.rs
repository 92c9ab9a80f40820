//! The record of refused requests: one event for each principal and address in a minute, with their number.
//!
//! A flood of requests must not fill the record. So refusals are counted in memory, and a bounded number of events is
//! recorded, the first within a second. The log is bounded the same way: it has the first request of a client in its span, and then
//! the numbers of the events.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use tokio::time::Instant;
use tracing::field::display;

use crate::peer::{Peer, actor};
use crate::problem::ApiProblem;
use campanile_control::admin::token_admin::Principal;
use campanile_model::access::{Actor, Channel};
use campanile_model::text::counted;

/// The least time between two events about one principal and address.
const INTERVAL: Duration = Duration::from_secs(60);
/// The most pairs of principal and address with counts of their own. The refusals of all further pairs are counted together.
const APART_MAX: usize = 64;
/// The most characters of the reason that an event has.
const WHY_CHARS_MAX: usize = 300;
/// The principal of an event about a request without a valid token. No token can have this name.
const UNKNOWN: &str = "unknown client";

/// Who made a request, as far as that is known: a principal, the channel and an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Client {
    principal: String,
    channel: Channel,
    /// None for a Unix socket, and for the clients that are counted together.
    address: Option<String>,
}

/// The refusals of one client that are in no event yet.
#[derive(Debug)]
struct Count {
    refused: u64,
    /// How many of them have a line of their own in the log.
    logged: u64,
    /// The last refused request, and why.
    request: String,
    why: String,
    recorded_at: Option<Instant>,
}

/// An event that is due.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Due {
    client: Client,
    refused: u64,
    logged: u64,
    /// The route of the last request.
    pub request: String,
    pub detail: String,
}

impl Due {
    /// Returns the principal, channel and address of the event.
    pub(crate) fn actor(&self) -> Actor {
        let Client {
            principal,
            channel,
            address,
        } = self.client.clone();
        Actor {
            principal: Some(principal),
            channel,
            address,
        }
    }
}

impl Due {
    /// Logs how many requests were refused, unless each has a line in the log.
    pub(crate) fn log(&self) {
        if self.refused > self.logged {
            let Client {
                principal, address, ..
            } = &self.client;
            let (refused, request) = (self.refused, &self.request);
            let address = address.as_deref().map(display);
            tracing::warn!(%principal, address, refused, %request, "refused requests");
        }
    }
}

/// The refused requests of a host.
#[derive(Default)]
pub(crate) struct Refusals(Mutex<HashMap<Client, Count>>);

impl Refusals {
    fn locked(&self) -> MutexGuard<'_, HashMap<Client, Count>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request refused because of who made it, logging the first one of a client. `request` names its route,
    /// not what the client wrote.
    pub(crate) fn note(
        &self,
        problem: &ApiProblem,
        (principal, peer, channel): (Option<&Principal>, Option<&Peer>, Channel),
        request: &str,
    ) {
        let refused = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN];
        if !refused.contains(&problem.status) {
            return;
        }
        let client = client(principal, peer, channel);
        let why = problem.problem.message.lines().next().unwrap_or_default();
        let why: String = why.chars().take(WHY_CHARS_MAX).collect();
        let address = client.address.clone();
        if self.count(client, request, &why) {
            let status = problem.status.as_u16();
            let address = address.as_deref().map(display);
            tracing::warn!(status, address, why, "refused a request");
        }
    }

    /// Counts a refused request. Returns whether its client had none within the last minute.
    fn count(&self, client: Client, request: &str, why: &str) -> bool {
        let mut all = self.locked();
        let client = if all.contains_key(&client) || all.len() < APART_MAX {
            client
        } else {
            Client {
                principal: UNKNOWN.to_owned(),
                address: None,
                ..client
            }
        };
        let count = all.entry(client).or_insert_with(|| Count {
            refused: 0,
            logged: 0,
            request: String::new(),
            why: String::new(),
            recorded_at: None,
        });
        let is_first = count.refused == 0 && count.recorded_at.is_none();
        count.refused += 1;
        count.logged += u64::from(is_first);
        request.clone_into(&mut count.request);
        why.clone_into(&mut count.why);
        is_first
    }

    /// Takes the events due at `now`; with `all`, also those of clients with one within the last minute.
    pub(crate) fn take_due(&self, now: Instant, all: bool) -> Vec<Due> {
        let mut counts = self.locked();
        let is_recent = |count: &Count| {
            let recorded_at = count.recorded_at;
            recorded_at.is_some_and(|at| now.duration_since(at) < INTERVAL)
        };
        counts.retain(|_, count| count.refused > 0 || is_recent(count));
        let due = counts.iter_mut();
        let due = due.filter(|(_, count)| count.refused > 0 && (all || !is_recent(count)));
        let taken = due.map(|(client, count)| {
            count.recorded_at = Some(now);
            let refused = std::mem::take(&mut count.refused);
            let logged = std::mem::take(&mut count.logged);
            let detail = match refused {
                1 => format!("it was refused: {}", count.why),
                _ => format!(
                    "{} were refused, this one last: {}",
                    counted(refused, "request"),
                    count.why
                ),
            };
            Due {
                client: client.clone(),
                refused,
                logged,
                request: count.request.clone(),
                detail,
            }
        });
        taken.collect()
    }

    /// Counts refusals again whose event could not be recorded.
    pub(crate) fn put_back(&self, due: Due) {
        if let Some(count) = self.locked().get_mut(&due.client) {
            count.refused += due.refused;
            count.logged += due.logged;
            count.recorded_at = None;
        }
    }
}

fn client(principal: Option<&Principal>, peer: Option<&Peer>, channel: Channel) -> Client {
    let Some(peer) = peer else {
        return Client {
            principal: UNKNOWN.to_owned(),
            channel,
            address: None,
        };
    };
    if let Some(principal) = principal {
        let Actor {
            channel, address, ..
        } = actor(principal, peer, channel);
        return Client {
            principal: principal.name.clone(),
            channel,
            address,
        };
    }
    let (principal, address) = match peer {
        Peer::Unix { uid } => (format!("uid {uid}"), None),
        Peer::Tcp { address } => (UNKNOWN.to_owned(), Some(address.to_string())),
    };
    Client {
        principal,
        channel,
        address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: usize) -> Client {
        Client {
            principal: "ada".to_owned(),
            channel: Channel::Api,
            address: Some(format!("10.0.0.{number}")),
        }
    }

    #[test]
    fn a_client_has_one_event_in_a_minute_with_the_number_of_its_requests() {
        let refusals = Refusals::default();
        let start = Instant::now();
        let due = |seconds| refusals.take_due(start + Duration::from_secs(seconds), false);
        assert_eq!(due(0), []);
        assert!(refusals.count(client(1), "GET /a", "no"));
        let first = due(1);
        assert_eq!(first[0].detail, "it was refused: no");
        assert_eq!((first[0].refused, first[0].logged), (1, 1));
        for _ in 0..1_000 {
            assert!(!refusals.count(client(1), "GET /b", "no"));
        }
        refusals.count(client(2), "GET /c", "no");
        let second = due(2);
        assert_eq!((second.len(), &second[0].client), (1, &client(2)));
        assert_eq!(due(60), []);
        let third = due(61);
        assert_eq!((third.len(), third[0].refused), (1, 1_000));
        assert_eq!(third[0].logged, 0, "the event's line is the only one");
        assert_eq!(third[0].request, "GET /b");
        refusals.put_back(third.into_iter().next().unwrap());
        assert_eq!(due(62)[0].refused, 1_000);
        refusals.count(client(1), "GET /d", "no");
        assert_eq!(
            refusals.take_due(start + Duration::from_secs(63), true)[0].refused,
            1
        );
        // A client without refusals is forgotten after a minute.
        assert_eq!(due(200), []);
        assert!(refusals.locked().is_empty());
    }

    #[test]
    fn too_many_clients_are_counted_together() {
        let refusals = Refusals::default();
        for number in 0..1_000 {
            refusals.count(client(number), "GET /a", "no");
        }
        let due = refusals.take_due(Instant::now(), false);
        assert_eq!(due.len(), APART_MAX + 1);
        let together = due.iter().find(|due| due.client.address.is_none());
        let together = together.unwrap();
        assert_eq!(together.refused, 1_000 - APART_MAX as u64);
        assert_eq!(together.client.principal, UNKNOWN);
    }
}
