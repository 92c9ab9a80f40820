//! A rule as it is written and stored.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::words::words;

words! {
    /// How an expression is to be read.
    RuleKind {
        /// Five fields, six with seconds first, or a macro: `0 2 * * *`, `@daily`, `@every 15m`.
        Cron => "cron",
        /// A period counted from an anchor: `10s`, `1h30m`, `1mo`.
        Every => "every",
        /// One instant, in RFC 3339.
        At => "at",
    }
}

/// A rule as a person wrote it. Stored as it is and read by
/// [`Rule::parse`](super::Rule::parse).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
}

fn utc() -> String {
    "UTC".to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn kinds_are_written_as_they_are_stored() {
        for kind in [RuleKind::Cron, RuleKind::Every, RuleKind::At] {
            assert_eq!(kind.as_str().parse(), Ok(kind));
            let json = serde_json::to_string(&kind).unwrap();
            assert_eq!(json, format!("\"{kind}\""));
        }
        let error = "Cron".parse::<RuleKind>().unwrap_err();
        assert!(error.to_string().starts_with("`Cron` is not a word"));
    }

    #[test]
    fn a_stored_rule_needs_neither_anchor_nor_timezone() {
        let stored = r#"{"kind":"every","expression":"10s"}"#;
        let text: RuleText = serde_json::from_str(stored).unwrap();
        assert_eq!(text, written(RuleKind::Every, "10s", "UTC"));
        let json = serde_json::to_string(&text).unwrap();
        assert_eq!(serde_json::from_str::<RuleText>(&json).unwrap(), text);
    }
}
