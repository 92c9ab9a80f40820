//! A rule as it is written and stored.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::error::{RuleError, quoted};
use crate::clock::Timestamp;

/// How an expression is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleKind {
    /// Five fields, six with seconds first, or a macro: `0 2 * * *`, `@daily`, `@every 15m`.
    Cron,
    /// A period counted from an anchor: `10s`, `1h30m`, `1mo`.
    Every,
    /// One instant, in RFC 3339.
    At,
}

impl RuleKind {
    /// As it is stored and written: `cron`, `every` or `at`.
    pub fn as_str(self) -> &'static str {
        match self {
            RuleKind::Cron => "cron",
            RuleKind::Every => "every",
            RuleKind::At => "at",
        }
    }
}

impl fmt::Display for RuleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for RuleKind {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<RuleKind, RuleError> {
        [RuleKind::Cron, RuleKind::Every, RuleKind::At]
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| {
                RuleError::new(
                    format!("{} is not a kind of schedule", quoted(text)),
                    "write cron, every or at",
                )
            })
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
        assert_eq!(error.to_string(), "`Cron` is not a kind of schedule");
        assert_eq!(error.hint(), "write cron, every or at");
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
