//! What a call does to the world outside, told step by step to whoever watches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Watches a call's effects, and may stop it before or after any of them, as a crash would.
///
/// An effect is one host call that changes something a later run can find: an entry of a bucket, a file, a request
/// that was sent. Reading is none. Called on the guests' threads, and must not block.
pub trait Witness: Send + Sync {
    /// `effect` is about to happen.
    ///
    /// # Errors
    ///
    /// To stop the call here, with the effect undone.
    fn before(&self, effect: &str) -> Result<(), Crash>;

    /// `effect` has happened, or failed, and the guest does not know it yet.
    ///
    /// # Errors
    ///
    /// To stop the call here.
    fn after(&self, effect: &str) -> Result<(), Crash>;
}

/// A witness stopped the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the call was stopped by whoever watched its effects")]
pub struct Crash;

/// A call's witness, if it has one.
#[derive(Clone, Default)]
pub(super) struct Effects {
    witness: Option<Arc<dyn Witness>>,
    /// Whether it has stopped the call: then nothing more happens.
    crashed: Arc<AtomicBool>,
}

/// An effect that has begun.
#[must_use = "an effect that begins also ends"]
pub(super) struct Begun(Option<String>);

impl Effects {
    pub(super) fn new(witness: Option<Arc<dyn Witness>>) -> Effects {
        Effects {
            witness,
            crashed: Arc::default(),
        }
    }

    /// Whether the witness stopped the call.
    pub(super) fn have_crashed(&self) -> bool {
        self.crashed.load(Ordering::Acquire)
    }

    fn note(&self, said: Result<(), Crash>) -> Result<(), Crash> {
        if said.is_err() {
            self.crashed.store(true, Ordering::Release);
        }
        said
    }

    /// Whether anybody watches.
    pub(super) fn are_watched(&self) -> bool {
        self.witness.is_some()
    }

    /// Tell that the effect that `tell` names is about to happen.
    pub(super) fn begin(&self, tell: impl FnOnce() -> String) -> Result<Begun, Crash> {
        let Some(witness) = &self.witness else {
            return Ok(Begun(None));
        };
        if self.have_crashed() {
            return Err(Crash);
        }
        let effect = tell();
        self.note(witness.before(&effect))?;
        Ok(Begun(Some(effect)))
    }

    /// Tell that it has happened.
    pub(super) fn end(&self, begun: Begun) -> Result<(), Crash> {
        match (&self.witness, begun.0) {
            (Some(witness), Some(effect)) => self.note(witness.after(&effect)),
            _ => Ok(()),
        }
    }
}
