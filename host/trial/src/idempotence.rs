//! The report of a crash check.

use std::fmt;

use serde::{Serialize, Serializer};

use super::final_state::Difference;
use campanile_model::text::printable_line;
use campanile_model::words;
use campanile_sandbox::{Outcome, Report};

/// The result of a crash check, without the values of secrets. Its text names each effect with a difference.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Idempotence {
    /// The number of effects at which the task was to crash.
    pub tried: usize,
    /// The number of crashes.
    pub crashes: usize,
    #[serde(flatten)]
    pub undisturbed: Undisturbed,
    /// The crashes after which a second run did not restore the expected result, in the order of the effects.
    pub broken: Vec<Crashed>,
    /// The crashes that did not happen, because the run had other effects, in the order of the effects.
    pub unreached: Vec<Unreached>,
}

/// The undisturbed call.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Undisturbed {
    #[serde(skip)]
    pub report: Report,
    /// The effects of a call without a crash, in order.
    pub effects: Vec<String>,
    /// The differences between two calls without a crash. If there are any, the check is inconclusive.
    pub unlike: Vec<Difference>,
}

/// A crash after which a second run did not restore the expected result.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[schemars(rename = "BrokenCrash")]
pub struct Crashed {
    pub effect: String,
    /// The number of the effect, from 1.
    pub number: usize,
    pub moment: Moment,
    /// The outcome of the second run.
    #[serde(rename = "outcome", serialize_with = "outcome")]
    #[schemars(with = "Outcome")]
    pub report: Report,
    pub differences: Vec<Difference>,
}

/// Write only the outcome of a report.
fn outcome<S: Serializer>(report: &Report, serializer: S) -> Result<S::Ok, S::Error> {
    report.outcome.serialize(serializer)
}

/// A crash that did not happen: unlike the undisturbed run, the run ended before the effect. The check is undecided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Unreached {
    /// The number of the effect, from 1.
    pub number: usize,
    /// The effect with this number in the undisturbed run.
    pub effect: String,
    pub moment: Moment,
}

words! {
    /// On which side of an effect.
    Moment {
        Before => "before",
        After => "after",
    }
}

impl Idempotence {
    /// Whether the task succeeded, and each crash happened and made no difference.
    pub fn holds(&self) -> bool {
        self.undisturbed.is_repeatable() && self.broken.is_empty() && self.unreached.is_empty()
    }

    /// Returns the result in one sentence.
    fn summary(&self) -> String {
        let undisturbed = &self.undisturbed;
        if let Some(failure) = &undisturbed.report.failure {
            return format!(
                "the undisturbed run did not succeed, so that nothing can be said of crashes: {}: {}",
                failure.kind,
                printable_line(&failure.text())
            );
        }
        if let Some(unlike) = undisturbed.unlike.first() {
            return format!(
                "two undisturbed runs leave different states, so that nothing can be said of crashes: {} is not the same in both",
                printable_line(&unlike.what)
            );
        }
        let (tried, all) = (self.tried, undisturbed.effects.len());
        let place = match (tried, all) {
            (_, 0) => {
                return "idempotent: the task has no effects, so there is nothing to crash at"
                    .to_owned();
            }
            (1, 1) => "its only effect".to_owned(),
            _ if tried == all => format!("each of its {all} effects"),
            _ => format!("{tried} of its {all} effects, spread over the whole run"),
        };
        let crashed = format!("crashed before and after {place}");
        let same = "and each recovery left the same state";
        match (self.broken.len(), self.unreached.is_empty()) {
            (0, true) if tried < all => {
                format!("idempotent as far as was tried: {crashed}, {same}")
            }
            (0, true) => format!("idempotent: {crashed}, {same}"),
            (0, false) => format!("undecided: to be {crashed}, and not every crash came"),
            (broken, _) => format!(
                "not idempotent: {crashed}, and {broken} of {} crashes made a difference",
                self.crashes
            ),
        }
    }
}

impl Crashed {
    pub(super) fn makes_a_difference(&self) -> bool {
        self.report.outcome != Outcome::Succeeded || !self.differences.is_empty()
    }
}

impl Undisturbed {
    /// Whether it succeeded and leaves the same state each time.
    pub(super) fn is_repeatable(&self) -> bool {
        self.report.outcome == Outcome::Succeeded && self.unlike.is_empty()
    }
}

/// Texts of guests are printed on one line each, so that none of them looks like a line of the report.
impl fmt::Display for Idempotence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary())?;
        for crashed in &self.broken {
            write!(f, "\n{crashed}")?;
        }
        for unreached in &self.unreached {
            write!(f, "\n{unreached}")?;
        }
        Ok(())
    }
}

/// `crashed after effect 1, wasi:keyvalue: …`
impl fmt::Display for Crashed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = place(self.moment, self.number, &self.effect);
        write!(f, "crashed {place}")?;
        if let Some(failure) = &self.report.failure {
            write!(
                f,
                "\n  the recovery ended as {}: {}",
                failure.kind,
                printable_line(&failure.text())
            )?;
        }
        for difference in &self.differences {
            write!(f, "\n  {}", printable_line(&difference.to_string()))?;
        }
        Ok(())
    }
}

/// `not crashed after effect 1, wasi:keyvalue: …`
impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = place(self.moment, self.number, &self.effect);
        write!(
            f,
            "not crashed {place}: the run ended before it, so that its effects are not those of the undisturbed run"
        )
    }
}

fn place(moment: Moment, number: usize, effect: &str) -> String {
    format!("{moment} effect {number}, {}", printable_line(effect))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(effects: usize, tried: usize) -> Idempotence {
        Idempotence {
            undisturbed: Undisturbed {
                report: Report {
                    outcome: Outcome::Succeeded,
                    failure: None,
                    ..Report::without_call(Outcome::Succeeded, String::new())
                },
                effects: vec!["wasi:http: POST https://a.example/".to_owned(); effects],
                unlike: Vec::new(),
            },
            broken: Vec::new(),
            unreached: Vec::new(),
            tried,
            crashes: 2 * tried,
        }
    }

    #[test]
    fn what_was_found_is_told_in_sentences() {
        assert_eq!(
            found(0, 0).to_string(),
            "idempotent: the task has no effects, so there is nothing to crash at"
        );
        assert_eq!(
            found(1, 1).to_string(),
            "idempotent: crashed before and after its only effect, and each recovery left the same state"
        );
        assert_eq!(
            found(22, 22).to_string(),
            "idempotent: crashed before and after each of its 22 effects, and each recovery left the same state"
        );
        assert_eq!(
            found(1000, 200).to_string(),
            "idempotent as far as was tried: crashed before and after 200 of its 1000 effects, spread over the whole run, \
             and each recovery left the same state"
        );
    }

    #[test]
    fn a_crash_that_did_not_come_is_no_proof() {
        let mut found = found(2, 2);
        assert!(found.holds());
        found.unreached.push(Unreached {
            number: 2,
            effect: "wasi:http: POST https://a.example/\nidempotent: all is well".to_owned(),
            moment: Moment::After,
        });
        assert!(!found.holds());
        assert_eq!(
            found.to_string(),
            "undecided: to be crashed before and after each of its 2 effects, and not every crash came\n\
             not crashed after effect 2, wasi:http: POST https://a.example/\\nidempotent: all is well: the run ended before it, \
             so that its effects are not those of the undisturbed run"
        );
    }
}
