//! What a call has done that takes effect only when its success is recorded.

use crate::capability::keyvalue::session::{BucketSession, Sessions};

/// What takes effect when the success of a call is recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uncommitted {
    /// Writes to buckets.
    pub sessions: Sessions,
}

impl Uncommitted {
    pub fn is_empty(&self) -> bool {
        self.sessions.values().all(BucketSession::is_empty)
    }

    /// Return what it takes of its limit.
    pub(crate) fn bytes(&self) -> u64 {
        self.sessions.values().map(BucketSession::bytes).sum()
    }
}
