//! The crash-point check: is a task that dies anywhere and is run again as good as one that was not disturbed?
//!
//! ```text
//!  undisturbed   ──1──2──3──▶ world A            1, 2, 3: effects
//!  crash at 2    ──1──╳ ──1──2──3──▶ world B     before the effect, and once more after it
//!                        is_recovery = true
//! ```
//!
//! The task is idempotent, as far as this can tell, when B is A at every effect: the same entries of buckets, the same
//! files, the same requests by their idempotency keys. The clock stands still and random bytes are always the same, so
//! that two worlds differ for no other reason; a run id is of one run, and a world that holds it differs.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use super::world::Difference;
use super::{Scene, Stage, Subject, facts, recovered};
use crate::clock::Clock;
use crate::wasm::{Crash, Outcome, Report, Sandbox, Time, Witness};

/// The most effects at which a task is crashed; of those beyond, every so many-th.
const CRASHES_MAX: usize = 200;

/// What the check found.
///
/// Shown, it names each effect that makes the difference, and the difference.
#[derive(Debug)]
pub struct Idempotence {
    pub undisturbed: Undisturbed,
    /// The crashes after which the world was another, in the order of the effects.
    pub broken: Vec<Crashed>,
    /// How often the task was crashed.
    pub crashes: usize,
}

/// The call that nothing disturbed.
#[derive(Debug)]
pub struct Undisturbed {
    pub report: Report,
    /// Its effects, in their order.
    pub effects: Vec<String>,
    /// What differed between two calls that nothing disturbed: then nothing can be said about crashes.
    pub unlike: Vec<Difference>,
}

/// A crash, and what was wrong after the recovery.
#[derive(Debug)]
pub struct Crashed {
    /// Of the effect, from 1.
    pub number: usize,
    pub effect: String,
    pub moment: Moment,
    /// How the recovering run ended.
    pub report: Report,
    pub differences: Vec<Difference>,
}

/// On which side of an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Moment {
    Before,
    After,
}

impl Idempotence {
    /// Whether the task succeeded, and no crash made a difference.
    pub fn holds(&self) -> bool {
        self.undisturbed.report.outcome == Outcome::Succeeded
            && self.undisturbed.unlike.is_empty()
            && self.broken.is_empty()
    }
}

impl fmt::Display for Idempotence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let undisturbed = &self.undisturbed;
        if let Some(failure) = &undisturbed.report.failure {
            return write!(
                f,
                "the undisturbed run did not succeed, so that nothing can be said of crashes: {}: {}",
                failure.kind, failure.message
            );
        }
        if let Some(unlike) = undisturbed.unlike.first() {
            let what = &unlike.what;
            return write!(
                f,
                "two undisturbed runs leave different worlds, so that nothing can be said of crashes: {what} is not the same in both"
            );
        }
        let effects = undisturbed.effects.len();
        if self.broken.is_empty() {
            return write!(
                f,
                "idempotent: {} crashes at {effects} effects, and each recovery left the same world",
                self.crashes
            );
        }
        write!(f, "not idempotent, at {effects} effects:")?;
        for crashed in &self.broken {
            write!(f, "\n{crashed}")?;
        }
        Ok(())
    }
}

/// `crashed after effect 1 of 1, "wasi:keyvalue: …": …`
impl fmt::Display for Crashed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = match self.moment {
            Moment::Before => "before",
            Moment::After => "after",
        };
        write!(
            f,
            "crashed {moment} effect {}, {}",
            self.number, self.effect
        )?;
        if let Some(failure) = &self.report.failure {
            write!(
                f,
                "\n  the recovery ended as {}: {}",
                failure.kind, failure.message
            )?;
        }
        for difference in &self.differences {
            write!(f, "\n  {difference}")?;
        }
        Ok(())
    }
}

/// Crash the task of `stage` at each of its effects, run it again, and compare what it leaves with an undisturbed run.
///
/// Nothing outside is touched: directories are copied, buckets are in memory, and requests go to the stage's script,
/// which it must have.
///
/// # Errors
///
/// When a directory cannot be copied or read.
pub async fn check(
    sandbox: &Sandbox,
    subject: &Subject,
    stage: &Stage,
    clock: &Clock,
) -> io::Result<Idempotence> {
    let now = stage.time.beginning().unwrap_or_else(|| clock.now());
    let stage = Stage {
        time: Time::Still(now),
        ..stage.clone()
    };
    let facts = facts(&stage, now);
    let mut worlds = Vec::new();
    let mut first = None;
    for _ in 0..2 {
        let scene = Scene::set(&stage, true).await?;
        let tape = Arc::new(Tape::default());
        let report = scene
            .call(sandbox, subject, &stage, facts.clone(), Some(tape.clone()))
            .await;
        let trial = scene.trial(report).await?;
        worlds.push(trial.left);
        first.get_or_insert((trial.report, tape.effects()));
    }
    let (undisturbed, again) = (worlds.swap_remove(0), worlds.swap_remove(0));
    let Some((report, effects)) = first else {
        return Err(io::Error::other("no call was made"));
    };
    let unlike = undisturbed.differences(&again);
    let mut found = Idempotence {
        broken: Vec::new(),
        crashes: 0,
        undisturbed: Undisturbed {
            report,
            effects,
            unlike,
        },
    };
    if !found.holds() {
        return Ok(found);
    }
    for number in chosen(found.undisturbed.effects.len()) {
        for moment in [Moment::Before, Moment::After] {
            let scene = Scene::set(&stage, true).await?;
            let tape = Arc::new(Tape {
                crash_at: Some((number, moment)),
                ..Tape::default()
            });
            let call = scene.call(sandbox, subject, &stage, facts.clone(), Some(tape.clone()));
            call.await;
            let effect = tape.effects().pop().unwrap_or_default();
            let again = scene
                .call(sandbox, subject, &stage, recovered(&facts), None)
                .await;
            let trial = scene.trial(again).await?;
            found.crashes += 1;
            let differences = undisturbed.differences(&trial.left);
            if trial.report.outcome != Outcome::Succeeded || !differences.is_empty() {
                found.broken.push(Crashed {
                    number,
                    effect,
                    moment,
                    report: trial.report,
                    differences,
                });
            }
        }
    }
    Ok(found)
}

/// The numbers of the effects to crash at, out of `effects`: all, or evenly many.
fn chosen(effects: usize) -> BTreeSet<usize> {
    match effects {
        0 => BTreeSet::new(),
        few if few <= CRASHES_MAX => (1..=few).collect(),
        many => (0..CRASHES_MAX)
            .map(|place| 1 + place * (many - 1) / (CRASHES_MAX - 1))
            .collect(),
    }
}

/// Writes the effects down, and stops the call at one of them.
#[derive(Default)]
struct Tape {
    effects: Mutex<Vec<String>>,
    crash_at: Option<(usize, Moment)>,
}

impl Tape {
    fn effects(&self) -> Vec<String> {
        let effects = self.effects.lock().unwrap_or_else(PoisonError::into_inner);
        effects.clone()
    }

    fn reach(&self, number: usize, moment: Moment) -> Result<(), Crash> {
        match self.crash_at == Some((number, moment)) {
            true => Err(Crash),
            false => Ok(()),
        }
    }
}

impl Witness for Tape {
    fn before(&self, effect: &str) -> Result<(), Crash> {
        let mut effects = self.effects.lock().unwrap_or_else(PoisonError::into_inner);
        effects.push(effect.to_owned());
        self.reach(effects.len(), Moment::Before)
    }

    fn after(&self, _: &str) -> Result<(), Crash> {
        let effects = self.effects.lock().unwrap_or_else(PoisonError::into_inner);
        self.reach(effects.len(), Moment::After)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_very_many_effects_the_first_and_the_last_are_among_those_chosen() {
        assert_eq!(chosen(0).len(), 0);
        assert_eq!(chosen(3), BTreeSet::from([1, 2, 3]));
        let many = chosen(100_000);
        assert_eq!(many.len(), CRASHES_MAX);
        assert!(many.contains(&1) && many.contains(&100_000));
    }
}
