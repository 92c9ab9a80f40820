//! How much of each bounded resource a call used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Limits, Resource, Share};

/// One resource, whose limit is its own business to refuse. Clones speak of the same.
#[derive(Clone)]
pub(super) struct Gauge {
    resource: Resource,
    used: Arc<AtomicU64>,
    pub(super) limit: u64,
}

impl Gauge {
    fn new(resource: Resource, limit: u64) -> Gauge {
        Gauge {
            resource,
            used: Arc::default(),
            limit,
        }
    }

    /// Use `amount` more, if so much is left.
    pub(super) fn take(&self, amount: u64) -> bool {
        let more = |used: u64| used.checked_add(amount).filter(|sum| *sum <= self.limit);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    /// Remember `amount` if it is the most so far.
    pub(super) fn reach(&self, amount: u64) {
        self.used.fetch_max(amount, Ordering::Relaxed);
    }

    fn share(&self) -> Share {
        Share {
            resource: self.resource,
            used: self.used.load(Ordering::Relaxed),
            limit: self.limit,
        }
    }
}

/// The gauges of one call that host calls move.
pub(super) struct Gauges {
    pub(super) random: Gauge,
    pub(super) open_files: Gauge,
    pub(super) http_requests: Gauge,
    pub(super) http_response: Gauge,
    pub(super) keyvalue: Gauge,
}

impl Gauges {
    pub(super) fn new(limits: &Limits) -> Gauges {
        Gauges {
            random: Gauge::new(Resource::Random, limits.random_bytes_max),
            open_files: Gauge::new(Resource::OpenFiles, limits.open_files_max),
            http_requests: Gauge::new(Resource::HttpRequests, limits.http_requests_max),
            http_response: Gauge::new(Resource::HttpResponse, limits.http_response_bytes_max),
            keyvalue: Gauge::new(Resource::Keyvalue, limits.keyvalue_bytes_max),
        }
    }

    pub(super) fn shares(&self) -> impl Iterator<Item = Share> {
        [
            &self.random,
            &self.open_files,
            &self.http_requests,
            &self.http_response,
            &self.keyvalue,
        ]
        .into_iter()
        .map(Gauge::share)
    }
}
