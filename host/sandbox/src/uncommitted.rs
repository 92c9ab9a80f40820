//! The effects of a call that wait until its success is recorded.

use crate::capability::keyvalue::session::{BucketSession, Sessions};
use crate::capability::outbox::message::OutboxMessage;

/// What takes effect when the success of a call is recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uncommitted {
    /// Writes to buckets.
    pub sessions: Sessions,
    /// Messages for the outbox, in the order in which the call sent them.
    pub messages: Vec<OutboxMessage>,
    message_bytes: u64,
}

impl Uncommitted {
    /// Returns the sessions of a call without messages.
    pub fn of_sessions(sessions: Sessions) -> Uncommitted {
        Uncommitted {
            sessions,
            ..Uncommitted::default()
        }
    }

    pub fn push(&mut self, message: OutboxMessage) {
        self.message_bytes += message.bytes();
        self.messages.push(message);
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.sessions.values().all(BucketSession::is_empty)
    }

    /// Returns the bytes of the messages.
    pub fn message_bytes(&self) -> u64 {
        self.message_bytes
    }

    /// Returns the bytes that count against the limit `uncommitted`.
    pub(crate) fn bytes(&self) -> u64 {
        let sessions = self.sessions.values().map(BucketSession::bytes);
        sessions.sum::<u64>() + self.message_bytes
    }
}
