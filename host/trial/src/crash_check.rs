//! The crash check: does a task that crashes anywhere and is recovered leave the same state as an undisturbed one?
//!
//! ```text
//!  undisturbed   ──1──2──3──▶ state A            1, 2, 3: effects
//!  crash at 2    ──1──╳ ──1──2──3──▶ state B     before the effect, and once more after it
//!                        is_recovery = true
//! ```
//!
//! The task is idempotent, as far as this check can tell, if B equals A at every effect: the same bucket entries, the
//! same files, the same requests by their idempotency keys. The clock stands still, and random bytes are the same in the
//! undisturbed call and in the recovery; only the run id differs. The crashing call is a minute earlier and has other
//! random bytes: a name made from the time or from random bytes is then there twice.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::final_state::FinalState;
use super::idempotence::{Crashed, Idempotence, Moment, Undisturbed, Unreached};
use super::prepared::{PreparedStage, facts, recovered};
use super::{Stage, Subject};
use campanile_sandbox::{Crash, EffectObserver, Redaction, Time};
use campanile_workflow::context::Facts;

/// At how many effects a task is crashed by default: each costs four calls.
pub const EFFECTS_CRASHED: usize = 200;

/// How long after a crash its recovery is, about as with real hosts.
const RECOVERED_AFTER: Duration = Duration::from_secs(60);

/// Crash the task of `stage` at each of its effects, recover it, and compare the final state with an undisturbed run.
///
/// Of more than `effects_max` effects, the task is crashed at so many, evenly spread; see [`EFFECTS_CRASHED`]. Calls
/// change copies of directories and buckets in memory. The stage must have a script for requests.
///
/// # Errors
/// When a directory cannot be copied or read.
pub async fn check(
    subject: &Subject,
    stage: &Stage,
    effects_max: usize,
) -> io::Result<Idempotence> {
    let now = stage.time.start().unwrap_or_else(|| subject.sandbox.now());
    let check = CrashCheck {
        subject,
        stage: Stage {
            time: Time::Frozen(now.plus(RECOVERED_AFTER)),
            writes_to_copies: true,
            ..stage.clone()
        },
        crash_time: Time::Frozen(now),
        facts: facts(stage, now),
        redaction: Redaction::of(&stage.secrets),
    };
    let (undisturbed, left) = check.undisturbed().await?;
    let numbers = if undisturbed.is_repeatable() {
        chosen(undisturbed.effects.len(), effects_max)
    } else {
        BTreeSet::new()
    };
    let mut found = Idempotence {
        broken: Vec::new(),
        unreached: Vec::new(),
        tried: numbers.len(),
        crashes: 0,
        undisturbed,
    };
    for number in numbers {
        for moment in [Moment::Before, Moment::After] {
            match check.crash(number, moment, &left).await? {
                None => found.unreached.push(Unreached {
                    effect: found.undisturbed.effects[number - 1].clone(),
                    number,
                    moment,
                }),
                Some(crashed) => {
                    found.crashes += 1;
                    if crashed.makes_a_difference() {
                        found.broken.push(crashed);
                    }
                }
            }
        }
    }
    Ok(found)
}

/// The common part of all calls.
struct CrashCheck<'a> {
    subject: &'a Subject,
    /// For undisturbed and recovering calls.
    stage: Stage,
    /// The time of crashing calls.
    crash_time: Time,
    facts: Facts,
    redaction: Redaction,
}

impl CrashCheck<'_> {
    /// Call the task twice and compare; return the final state of the first call, too.
    async fn undisturbed(&self) -> io::Result<(Undisturbed, FinalState)> {
        let recorder = Arc::new(EffectRecorder::default());
        let prepared = PreparedStage::new(self.subject, &self.stage)?;
        let first = prepared.last_call(&self.facts, Some(recorder.clone()));
        let first = first.await?;
        let prepared = PreparedStage::new(self.subject, &self.stage)?;
        let second = prepared.last_call(&self.facts, None).await?;
        let mut effects = recorder.take().effects;
        for effect in &mut effects {
            self.redaction.text(effect);
        }
        let undisturbed = Undisturbed {
            report: first.report,
            effects,
            unlike: first.left.differences(&second.left, &self.redaction),
        };
        Ok((undisturbed, first.left))
    }

    /// Crash the task once, recover it, and compare with an undisturbed call; none if the task ended before the effect.
    async fn crash(
        &self,
        number: usize,
        moment: Moment,
        undisturbed: &FinalState,
    ) -> io::Result<Option<Crashed>> {
        let mut prepared = PreparedStage::new(self.subject, &self.stage)?;
        let recorder = Arc::new(EffectRecorder::crashing_at(number, moment));
        prepared.stage.time = self.crash_time;
        prepared.call(&self.facts, Some(recorder.clone())).await;
        let Some(mut effect) = recorder.take().crashed_at else {
            return Ok(None);
        };
        self.redaction.text(&mut effect);
        prepared.stage.time = self.stage.time;
        let trial = prepared.last_call(&recovered(&self.facts), None).await?;
        Ok(Some(Crashed {
            number,
            effect,
            moment,
            differences: undisturbed.differences(&trial.left, &self.redaction),
            report: trial.report,
        }))
    }
}

/// Returns the numbers of the effects to crash at: all, or `most` evenly spread ones.
fn chosen(effects: usize, most: usize) -> BTreeSet<usize> {
    if effects <= most {
        return (1..=effects).collect();
    }
    let gaps = most.saturating_sub(1).max(1);
    (0..most)
        .map(|place| 1 + place * (effects - 1) / gaps)
        .collect()
}

/// Records the effects of a call, and crashes it at one of them.
#[derive(Default)]
struct EffectRecorder {
    crash_at: Option<(usize, Moment)>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    effects: Vec<String>,
    /// The effect at which the call crashed.
    crashed_at: Option<String>,
}

impl EffectRecorder {
    fn crashing_at(number: usize, moment: Moment) -> EffectRecorder {
        EffectRecorder {
            crash_at: Some((number, moment)),
            seen: Mutex::default(),
        }
    }

    fn take(&self) -> Seen {
        std::mem::take(&mut *self.seen())
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reach(&self, seen: &mut Seen, number: usize, moment: Moment) -> Result<(), Crash> {
        if self.crash_at != Some((number, moment)) {
            return Ok(());
        }
        seen.crashed_at = seen.effects.get(number - 1).cloned();
        Err(Crash)
    }
}

impl EffectObserver for EffectRecorder {
    fn before(&self, effect: &str) -> Result<usize, Crash> {
        let mut seen = self.seen();
        seen.effects.push(effect.to_owned());
        let number = seen.effects.len();
        self.reach(&mut seen, number, Moment::Before)?;
        Ok(number)
    }

    fn after(&self, number: usize) -> Result<(), Crash> {
        self.reach(&mut self.seen(), number, Moment::After)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_very_many_effects_the_first_and_the_last_are_among_those_chosen() {
        assert_eq!(chosen(0, 200).len(), 0);
        assert_eq!(chosen(3, 200), BTreeSet::from([1, 2, 3]));
        assert_eq!(chosen(3, 1), BTreeSet::from([1]));
        let many = chosen(100_000, 200);
        assert_eq!(many.len(), 200);
        assert!(many.contains(&1) && many.contains(&100_000));
    }

    #[test]
    fn a_crash_is_at_the_effect_that_it_names_also_when_two_are_under_way() {
        let recorder = EffectRecorder::crashing_at(1, Moment::After);
        let first = recorder.before("the first").unwrap();
        let second = recorder.before("the second").unwrap();
        recorder.after(second).unwrap();
        assert_eq!(recorder.after(first), Err(Crash));
        assert_eq!(recorder.take().crashed_at.as_deref(), Some("the first"));
        // A call that never reaches the effect has not crashed.
        let recorder = EffectRecorder::crashing_at(2, Moment::Before);
        let first = recorder.before("the first").unwrap();
        recorder.after(first).unwrap();
        assert_eq!(recorder.take().crashed_at, None);
    }
}
