//! The locks of this crate.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lock `shared`. Nothing under these locks panics, or what a panic leaves is harmless.
pub fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
