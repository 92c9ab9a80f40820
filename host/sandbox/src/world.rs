//! The facts that a call can read about its run, and the clock, files, buckets and network that it uses.

use std::sync::Arc;

use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, RunId};
use campanile_model::trace_context::TraceContext;

use crate::capability::keyvalue::buckets::Buckets;
use crate::effects::EffectObserver;

/// What the task reads through the imported interface `run-info`.
#[derive(Clone, Debug)]
pub struct RunFacts {
    pub execution_id: LaunchId,
    pub run_id: RunId,
    pub attempt: u32,
    pub is_recovery: bool,
    pub scheduled_time: Timestamp,
    pub original_scheduled_time: Timestamp,
    /// The span of the call, which its requests name as their caller; none for a request of the host itself.
    pub traceparent: Option<TraceContext>,
}

/// What a call meets outside of the sandbox.
#[derive(Clone)]
pub struct World {
    /// Where its buckets are stored.
    pub buckets: Arc<dyn Buckets>,
    /// Answers its granted requests in place of the network, for tests. With a script there are no sockets. None is the
    /// real network.
    pub replies: Option<Arc<dyn Replies>>,
    /// The time of its wall clock.
    pub time: Time,
    /// Observes its effects.
    pub observer: Option<Arc<dyn EffectObserver>>,
}

impl World {
    /// The real network and time, and `buckets`.
    pub fn real(buckets: Arc<dyn Buckets>) -> World {
        World {
            buckets,
            replies: None,
            time: Time::Real,
            observer: None,
        }
    }
}

/// Answers the requests of a call in place of the network.
pub trait Replies: Send + Sync {
    /// Returns the answer to `request`. Called on the guests' threads, and must not block.
    fn reply(&self, request: HttpRequest) -> HttpReply;
}

/// A request of a guest, as it would be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// As the guest wrote it. Its case counts.
    pub method: String,
    /// With scheme, host, path and query.
    pub url: String,
    /// Names in lower case. Values that are not UTF-8 have replacement characters.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// The answer of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpReply {
    Response {
        status: u16,
        headers: Vec<(String, String)>,
        body: Vec<u8>,
    },
    /// The connection is refused.
    Refused,
}

/// The time of a call's wall clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Time {
    /// The machine's time.
    #[default]
    Real,
    /// The clock starts at this time and runs.
    StartingAt(Timestamp),
    /// The clock stands still, and random bytes are the same in every call: equal calls in equal worlds do the same.
    Frozen(Timestamp),
}

impl Time {
    /// Returns the time at the start of the call; none is the machine's time.
    pub fn start(self) -> Option<Timestamp> {
        match self {
            Time::Real => None,
            Time::StartingAt(now) | Time::Frozen(now) => Some(now),
        }
    }
}
