//! What a call does to the world outside, told step by step to whoever watches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Watches a call's effects, and may stop it before or after any of them, as a crash would.
///
/// An effect is one host call that changes something a later run can find: an entry of a bucket, a file, a request
/// that was sent. Reading is none. Several may be under way at once. Called on the guests' threads, and must not block.
pub trait EffectObserver: Send + Sync {
    /// `effect` is about to happen. Gives back its number, by which its end will be told.
    ///
    /// # Errors
    ///
    /// To stop the call here, with the effect undone.
    fn before(&self, effect: &str) -> Result<usize, Crash>;

    /// The effect of that number has happened, has failed or was given up, and the guest does not know it yet.
    ///
    /// # Errors
    ///
    /// To stop the call here.
    fn after(&self, number: usize) -> Result<(), Crash>;
}

/// A observer stopped the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the call was stopped by whoever watched its effects")]
pub struct Crash;

/// A call's observer, if it has one.
#[derive(Clone, Default)]
pub(super) struct Effects {
    observer: Option<Arc<dyn EffectObserver>>,
    /// Whether it has stopped the call: then nothing more happens.
    crashed: Arc<AtomicBool>,
}

/// An effect that has begun. It ends with [`Effects::end`], or when it is dropped, because nobody waits for it any more.
#[must_use = "an effect that begins also ends"]
pub(super) struct Begun(Option<(Effects, usize)>);

impl Begun {
    fn finish(&mut self) -> Result<(), Crash> {
        match self.0.take() {
            Some((effects, number)) => effects.tell_end(number),
            None => Ok(()),
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        // A crash is noted, and nothing more happens: there is no call here that it could end.
        let _ = self.finish();
    }
}

impl Effects {
    pub(super) fn new(observer: Option<Arc<dyn EffectObserver>>) -> Effects {
        Effects {
            observer,
            crashed: Arc::default(),
        }
    }

    /// Whether the observer stopped the call.
    pub(super) fn have_crashed(&self) -> bool {
        self.crashed.load(Ordering::Acquire)
    }

    fn note<T>(&self, said: Result<T, Crash>) -> Result<T, Crash> {
        if said.is_err() {
            self.crashed.store(true, Ordering::Release);
        }
        said
    }

    /// Whether anybody watches.
    pub(super) fn are_watched(&self) -> bool {
        self.observer.is_some()
    }

    /// Tell that the effect that `tell` names is about to happen.
    pub(super) fn begin(&self, tell: impl FnOnce() -> String) -> Result<Begun, Crash> {
        let Some(observer) = &self.observer else {
            return Ok(Begun(None));
        };
        if self.have_crashed() {
            return Err(Crash);
        }
        let number = self.note(observer.before(&tell()))?;
        Ok(Begun(Some((self.clone(), number))))
    }

    /// Tell that it has happened.
    pub(super) fn end(&self, mut begun: Begun) -> Result<(), Crash> {
        begun.finish()
    }

    fn tell_end(&self, number: usize) -> Result<(), Crash> {
        match &self.observer {
            // Whoever stopped the call has been told enough.
            Some(_) if self.have_crashed() => Err(Crash),
            Some(observer) => self.note(observer.after(number)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Writes down whose end it is told.
    #[derive(Default)]
    struct Ends {
        begun: Mutex<usize>,
        ended: Mutex<Vec<usize>>,
    }

    impl EffectObserver for Ends {
        fn before(&self, _: &str) -> Result<usize, Crash> {
            let mut begun = self.begun.lock().unwrap();
            *begun += 1;
            Ok(*begun)
        }

        fn after(&self, number: usize) -> Result<(), Crash> {
            self.ended.lock().unwrap().push(number);
            match number {
                3 => Err(Crash),
                _ => Ok(()),
            }
        }
    }

    #[test]
    fn each_end_is_told_once_and_of_its_own_effect() {
        let ends = Arc::new(Ends::default());
        let effects = Effects::new(Some(ends.clone()));
        let begin = || effects.begin(String::new).unwrap();
        let (first, second, third, fourth) = (begin(), begin(), begin(), begin());
        effects.end(second).unwrap();
        drop(first);
        assert!(!effects.have_crashed());
        assert_eq!(effects.end(third), Err(Crash));
        assert_eq!(effects.end(fourth), Err(Crash));
        assert!(effects.begin(String::new).is_err());
        assert_eq!(*ends.ended.lock().unwrap(), [2, 1, 3]);
    }
}
