//! What the capabilities of one call share: its grants, its limits, and what was refused.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use serde_json::Value;
use tokio::sync::Semaphore;

use crate::effects::Effects;
use crate::grants::Grants;
use crate::limits::{Limits, Resource, Share};
use crate::secrets::Secrets;
use crate::stop_signal::StopSignal;
use crate::world::Network;

/// The HTTP requests of a call under way at once, each with its connection. Further requests wait for a permit.
pub(crate) const REQUESTS_UNDER_WAY_MAX: usize = 16;

/// The lookups of names of a call at once, so that a call with unknown names leaves permits for others.
const LOOKUPS_MAX: usize = 4;

/// What the capabilities of one call share.
pub(crate) struct Shared {
    pub(crate) grants: Arc<Grants>,
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) limits: Limits,
    pub(crate) network: Network,
    pub(crate) stop: StopSignal,
    pub(crate) effects: Effects,
    pub(crate) budgets: Budgets,
    /// Files, directories and sockets that are open.
    pub(crate) open_files: AtomicU64,
    pub(crate) request_permits: Arc<Semaphore>,
    pub(crate) lookup_permits: Arc<Semaphore>,
    denied: OnceLock<String>,
    exceeded: OnceLock<String>,
}

impl Shared {
    pub(crate) fn new(
        grants: Arc<Grants>,
        secrets: Arc<Secrets>,
        limits: &Limits,
        network: Network,
        stop: StopSignal,
        effects: Effects,
    ) -> Shared {
        Shared {
            grants,
            secrets,
            limits: limits.clone(),
            network,
            stop,
            effects,
            budgets: Budgets::new(limits),
            open_files: AtomicU64::new(0),
            request_permits: Arc::new(Semaphore::new(REQUESTS_UNDER_WAY_MAX)),
            lookup_permits: Arc::new(Semaphore::new(LOOKUPS_MAX)),
            denied: OnceLock::new(),
            exceeded: OnceLock::new(),
        }
    }

    /// Record that a grant is missing. Only the first is kept: it is the cause of what follows.
    pub(crate) fn deny(&self, message: String) {
        let _ = self.denied.set(message);
    }

    /// Record that the limit of `resource` was reached. Only the first is kept.
    pub(crate) fn exceed(&self, message: String) {
        let _ = self.exceeded.set(message);
    }

    /// Return why the first request without a grant was refused.
    pub(crate) fn denied(&self) -> Option<&str> {
        self.denied.get().map(String::as_str)
    }

    /// Return which limit the call reached first, other than those of memory and tables.
    pub(crate) fn exceeded(&self) -> Option<&str> {
        self.exceeded.get().map(String::as_str)
    }
}

/// How much of the limited resources a call has used.
pub(crate) struct Budgets {
    pub(crate) random: Budget,
    /// The most open at once.
    pub(crate) open_files: Budget,
    pub(crate) http_requests: Budget,
    /// The largest response body.
    pub(crate) http_response: Budget,
    /// The largest that a bucket was after a change.
    pub(crate) keyvalue: Budget,
}

impl Budgets {
    fn new(limits: &Limits) -> Budgets {
        let budget = |resource| Budget {
            resource,
            used: AtomicU64::new(0),
            limit: limits.get(resource).unwrap_or(u64::MAX),
        };
        Budgets {
            random: budget(Resource::Random),
            open_files: budget(Resource::OpenFiles),
            http_requests: budget(Resource::HttpRequests),
            http_response: budget(Resource::HttpResponse),
            keyvalue: budget(Resource::Keyvalue),
        }
    }

    pub(crate) fn shares(&self) -> impl Iterator<Item = Share> {
        [
            &self.random,
            &self.open_files,
            &self.http_requests,
            &self.http_response,
            &self.keyvalue,
        ]
        .into_iter()
        .map(|budget| Share {
            resource: budget.resource,
            used: budget.used.load(Ordering::Relaxed),
            limit: budget.limit,
        })
    }
}

/// The use of one resource.
pub(crate) struct Budget {
    resource: Resource,
    used: AtomicU64,
    pub(crate) limit: u64,
}

impl Budget {
    /// Use `amount` more and return true, or return false when less is left.
    pub(crate) fn spend(&self, amount: u64) -> bool {
        let more = |used: u64| used.checked_add(amount).filter(|sum| *sum <= self.limit);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    /// Record `amount` if it is the greatest so far.
    pub(crate) fn record_peak(&self, amount: u64) {
        self.used.fetch_max(amount, Ordering::Relaxed);
    }
}

/// Return the clause that proposes one more grant of `kind`.
pub(crate) fn to_allow<'k>(kind: &str, keys: impl IntoIterator<Item = (&'k str, Value)>) -> String {
    let line = grant_line(kind, keys);
    format!("to allow it, add `{line}` at the top of the package's sidecar file")
}

/// Return one more grant of `kind` as one line of TOML. It is valid above the first table of a sidecar file.
pub(crate) fn grant_line<'k>(
    kind: &str,
    keys: impl IntoIterator<Item = (&'k str, Value)>,
) -> String {
    // A JSON string is also a TOML string on one line, except for this character.
    let value = |value: Value| value.to_string().replace('\u{7f}', "\\u007f");
    let keys = keys.into_iter();
    let keys: Vec<String> = keys
        .map(|(key, what)| format!("{key} = {}", value(what)))
        .collect();
    format!("grants.{kind} = [{{ {} }}]", keys.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_grants_is_toml_whatever_is_named() {
        let name = "a\"b' \\ {}\n\u{7f}\u{1}é";
        let line = grant_line("keyvalue", [("bucket", name.into()), ("port", 1.into())]);
        assert!(!line.contains('\n'), "{line}");
        let read: toml::Table = line.parse().unwrap();
        assert_eq!(read["grants"]["keyvalue"][0]["bucket"].as_str(), Some(name));
    }
}
