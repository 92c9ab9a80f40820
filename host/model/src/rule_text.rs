//! A rule as it is written and stored.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::words;

words! {
    /// How an expression is to be read.
    RuleKind {
        /// Five fields, six with seconds first, or a macro: `0 2 * * *`, `@daily`, `@every 15m`.
        Cron => "cron",
        /// A period counted from an anchor: `10s`, `1h30m`, `1mo`.
        Every => "every",
        /// One instant, in RFC 3339.
        At => "at",
        /// A period of elapsed time from the end of one launch to the next: `10m`.
        AfterCompletion => "after_completion",
    }
}

words! {
    /// Which days match when both day fields of a cron rule are restricted.
    #[derive(Default)]
    DayMatch {
        /// Those that match either field, as in every cron.
        #[default]
        Or => "or",
        /// Those that match both: a Friday that is the 13th.
        And => "and",
    }
}

words! {
    /// What becomes of a local time that a gap leaves out.
    #[derive(Default)]
    DstGap {
        /// It fires when the gap ends, if that is not longer than 3 hours.
        #[default]
        Shift => "shift",
        /// It does not fire.
        Skip => "skip",
    }
}

words! {
    /// In which pass a local time fires that a fold shows twice.
    #[derive(Default)]
    DstFold {
        /// In the first.
        #[default]
        First => "first",
        /// In the second.
        Second => "second",
        /// In both.
        Both => "both",
    }
}

/// A rule as a person wrote it. Stored as it is and read by
/// [`Rule::parse`](super::Rule::parse).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RuleText {
    /// How to read the expression.
    pub kind: RuleKind,
    /// `0 2 * * *`, `10s` or `2026-11-21T09:00:00+01:00`. At most 1 KiB.
    pub expression: String,
    /// The first slot of an interval, from which the others count. Without one, intervals count
    /// from 1970-01-01T00:00:00 in the zone, so that `10s` rings on :00, :10 and so on.
    #[serde(default)]
    pub anchor: Option<Timestamp>,
    /// The IANA name of the zone whose clock the rule follows.
    #[serde(default = "utc")]
    pub timezone: String,
    /// Which days match when both day fields are restricted. Cron rules only.
    #[serde(default)]
    pub day_match: DayMatch,
    /// What becomes of local times in a gap. For rules that name local times: cron rules whose
    /// second, minute and hour do not begin with `*`, and intervals of days or more.
    #[serde(default)]
    pub dst_gap: DstGap,
    /// In which pass of a fold local times fire. For the same rules.
    #[serde(default)]
    pub dst_fold: DstFold,
    /// Local times that are left out, at most 100 items: a date `2026-12-25`, a date of every
    /// year `12-25`, the days `2026-12-24..2027-01-01` (both included), or five cron fields that
    /// match the minutes left out. What counts is the local time that the rule names, also where
    /// a gap moves it.
    #[serde(default)]
    pub exclude: Vec<String>,
}

impl RuleText {
    /// A rule without an anchor, overrides and exclusions.
    pub fn new(
        kind: RuleKind,
        expression: impl Into<String>,
        timezone: impl Into<String>,
    ) -> RuleText {
        RuleText {
            kind,
            expression: expression.into(),
            anchor: None,
            timezone: timezone.into(),
            day_match: DayMatch::default(),
            dst_gap: DstGap::default(),
            dst_fold: DstFold::default(),
            exclude: Vec::new(),
        }
    }
}

fn utc() -> String {
    "UTC".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_written_as_they_are_stored() {
        for &kind in RuleKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
            let json = serde_json::to_string(&kind).unwrap();
            assert_eq!(json, format!("\"{kind}\""));
        }
        let error = "Cron".parse::<RuleKind>().unwrap_err();
        assert!(error.to_string().starts_with("`Cron` is not a word"));
    }

    #[test]
    fn a_stored_rule_needs_only_a_kind_and_an_expression() {
        let stored = r#"{"kind":"every","expression":"10s"}"#;
        let text: RuleText = serde_json::from_str(stored).unwrap();
        assert_eq!(text, RuleText::new(RuleKind::Every, "10s", "UTC"));
        let json = serde_json::to_string(&text).unwrap();
        assert_eq!(serde_json::from_str::<RuleText>(&json).unwrap(), text);
    }
}
