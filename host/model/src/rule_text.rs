//! A rule as it is written and stored.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::words;

words! {
    /// How to read an expression.
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
        /// A day that matches either field, as in every cron.
        #[default]
        Or => "or",
        /// A day that matches both fields: a Friday the 13th.
        And => "and",
    }
}

words! {
    /// What happens to a local time in a gap.
    #[derive(Default)]
    DstGap {
        /// It fires at the end of the gap, if the gap is at most 3 hours long.
        #[default]
        Shift => "shift",
        /// It does not fire.
        Skip => "skip",
    }
}

words! {
    /// In which pass of a fold a local time fires.
    #[derive(Default)]
    DstFold {
        /// In the first pass.
        #[default]
        First => "first",
        /// In the second pass.
        Second => "second",
        /// In both passes.
        Both => "both",
    }
}

/// A rule as its author wrote it, and as it is stored. `Rule::parse` of `campanile-schedule` reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RuleText {
    /// How to read the expression.
    pub kind: RuleKind,
    /// `0 2 * * *`, `10s` or `2026-11-21T09:00:00+01:00`. At most 1 KiB.
    pub expression: String,
    /// The first slot of an interval. Without an anchor, intervals count from 1970-01-01T00:00:00 in
    /// the zone, so that `10s` fires at :00, :10 and so on.
    #[serde(default)]
    pub anchor: Option<Timestamp>,
    /// The IANA name of the zone whose clock the rule follows.
    #[serde(default = "utc")]
    pub timezone: String,
    /// Which days match when both day fields are restricted. Cron rules only.
    #[serde(default)]
    pub day_match: DayMatch,
    /// What happens to local times in a gap. For cron rules whose second, minute and hour do not begin
    /// with `*`, and for intervals of days or more.
    #[serde(default)]
    pub dst_gap: DstGap,
    /// In which pass of a fold local times fire. For the same rules as `dst_gap`.
    #[serde(default)]
    pub dst_fold: DstFold,
    /// Excluded local times, at most 100 items: a date `2026-12-25`, a date of every year `12-25`, the
    /// days `2026-12-24..2027-01-01` (both included), or five cron fields that match the excluded
    /// minutes. The local time of the rule counts, also when a gap shifts it.
    #[serde(default)]
    pub exclude: Vec<String>,
}

impl RuleText {
    /// Returns a rule without an anchor, overrides and exclusions.
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
    fn kinds_print_as_they_are_stored() {
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
