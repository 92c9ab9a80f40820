//! The lease of the chores, as this host knows it.

use std::sync::Mutex;

use campanile_control::lock::lock;
use campanile_model::clock::Monotonic;

/// The lease of the chores; none while another host has it.
#[derive(Default)]
pub(crate) struct ChoreLease(Mutex<Option<Held>>);

/// A lease that this host has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub(crate) epoch: i64,
    /// When this host begins no more chores: [`held_until`](crate::alive::lease_table::held_until).
    pub(crate) until: Monotonic,
    /// Whether it was taken by the last heartbeat.
    pub(crate) is_new: bool,
}

impl ChoreLease {
    pub(crate) fn held(&self) -> Option<Held> {
        *lock(&self.0)
    }

    /// Set what the last heartbeat proved, and return what the one before proved.
    pub(crate) fn replace(&self, held: Option<Held>) -> Option<Held> {
        std::mem::replace(&mut *lock(&self.0), held)
    }
}
