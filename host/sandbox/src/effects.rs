//! The changes that a call makes outside of the sandbox, reported one by one to an observer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::stop_signal::StopSignal;

/// Observes a call's effects, and may stop the call before or after any of them, as a crash would.
///
/// An effect is one host call that changes something a later run can find: an entry of a bucket, a file, a request
/// that was sent. Reading is not an effect. Several effects may be under way at once. The methods run on the guests'
/// threads and must not block.
pub trait EffectObserver: Send + Sync {
    /// `effect` is about to happen. Return its number, by which `after` names it.
    ///
    /// # Errors
    ///
    /// To stop the call here, before the effect.
    fn before(&self, effect: &str) -> Result<usize, Crash>;

    /// The effect of that number has happened, has failed or was given up. The guest does not know it yet.
    ///
    /// # Errors
    ///
    /// To stop the call here.
    fn after(&self, number: usize) -> Result<(), Crash>;
}

/// The call was stopped: by the observer, or because it is to be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the call was stopped at one of its effects")]
pub struct Crash;

/// Reports the effects of one call to its observer, if it has one, and refuses those of a call that is to be dropped.
#[derive(Clone, Default)]
pub(crate) struct Effects {
    stop: StopSignal,
    observer: Option<Arc<dyn EffectObserver>>,
    /// Whether the observer has stopped the call. Nothing more happens then.
    crashed: Arc<AtomicBool>,
}

/// An effect under way. It ends with [`EffectUnderWay::end`], or when it is dropped because the call no longer waits for it.
#[must_use = "an effect that begins also ends"]
pub(crate) struct EffectUnderWay(Option<(Effects, usize)>);

impl EffectUnderWay {
    /// Report that it has happened.
    pub(crate) fn end(&mut self) -> Result<(), Crash> {
        let Some((effects, number)) = self.0.take() else {
            return Ok(());
        };
        match &effects.observer {
            Some(observer) if !effects.have_crashed() => effects.note(observer.after(number)),
            // The observer has stopped the call and needs no more reports.
            _ => Err(Crash),
        }
    }
}

impl Drop for EffectUnderWay {
    fn drop(&mut self) {
        // A crash is recorded in `crashed`; there is no host call here that it could end.
        let _ = self.end();
    }
}

impl Effects {
    pub(crate) fn new(observer: Option<Arc<dyn EffectObserver>>, stop: StopSignal) -> Effects {
        Effects {
            stop,
            observer,
            crashed: Arc::default(),
        }
    }

    /// Whether the observer stopped the call.
    pub(crate) fn have_crashed(&self) -> bool {
        self.crashed.load(Ordering::Acquire)
    }

    fn note<T>(&self, answer: Result<T, Crash>) -> Result<T, Crash> {
        if answer.is_err() {
            self.crashed.store(true, Ordering::Release);
        }
        answer
    }

    /// Report that the effect that `describe` names is about to happen.
    ///
    /// # Errors
    ///
    /// When the call is to be dropped, for example because its lease is over, or when the observer stops it.
    pub(crate) fn begin(&self, describe: impl FnOnce() -> String) -> Result<EffectUnderWay, Crash> {
        if self.stop.is_dropped() {
            return Err(Crash);
        }
        let Some(observer) = &self.observer else {
            return Ok(EffectUnderWay(None));
        };
        if self.have_crashed() {
            return Err(Crash);
        }
        let number = self.note(observer.before(&describe()))?;
        Ok(EffectUnderWay(Some((self.clone(), number))))
    }

    /// Report the effect that `describe` names before and after `done` happens.
    pub(crate) async fn observe<T>(
        &self,
        describe: impl FnOnce() -> String,
        done: impl Future<Output = T>,
    ) -> Result<T, Crash> {
        let mut effect = self.begin(describe)?;
        let done = done.await;
        effect.end().map(|()| done)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Records the numbers of the effects that ended.
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
    fn each_effect_is_reported_to_have_ended_once() {
        let ends = Arc::new(Ends::default());
        let effects = Effects::new(Some(ends.clone()), StopSignal::default());
        let begin = || effects.begin(String::new).unwrap();
        let (first, mut second, mut third, mut fourth) = (begin(), begin(), begin(), begin());
        second.end().unwrap();
        drop(first);
        assert!(!effects.have_crashed());
        assert_eq!(third.end(), Err(Crash));
        assert_eq!(fourth.end(), Err(Crash));
        assert!(effects.begin(String::new).is_err());
        assert_eq!(*ends.ended.lock().unwrap(), [2, 1, 3]);
    }

    #[test]
    fn no_effect_begins_in_a_call_that_is_to_be_dropped() {
        let ends = Arc::new(Ends::default());
        let stop = StopSignal::default();
        let effects = Effects::new(Some(ends.clone()), stop.clone());
        drop(effects.begin(String::new).unwrap());
        stop.drop_now();
        assert!(effects.begin(String::new).is_err());
        assert_eq!(*ends.begun.lock().unwrap(), 1);
        assert!(!effects.have_crashed(), "the observer did not stop it");
    }
}
