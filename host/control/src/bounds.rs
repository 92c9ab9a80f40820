//! Spans, numbers and texts with bounds, enforced on every way in: options, request bodies, queries and tool arguments.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::ops::Deref;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::Value;

use campanile_model::{as_text, text};

/// Milliseconds in 366 days.
pub const YEAR_MS: u64 = 366 * 24 * 3_600_000;

/// A span of any length.
pub type AnySpan = Span<0, { u64::MAX }>;

/// Span of time between two bounds in milliseconds, written like `30s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<const MIN_MS: u64, const MAX_MS: u64>(pub Duration);

impl<const MIN_MS: u64, const MAX_MS: u64> FromStr for Span<MIN_MS, MAX_MS> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let [min, max] = [MIN_MS, MAX_MS].map(Duration::from_millis);
        text::duration_within(text, min, max).map(Span)
    }
}

impl<const MIN_MS: u64, const MAX_MS: u64> Display for Span<MIN_MS, MAX_MS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::duration_text(self.0))
    }
}

as_text!(Span<MIN_MS, MAX_MS>, const MIN_MS: u64, const MAX_MS: u64);

/// Number between two bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Number<const MIN: i64, const MAX: i64>(pub i64);

/// Maximum number of entries on a page of a list, 50 unless given.
pub type Limit = Number<1, LIMIT_MAX>;

/// Maximum [`Limit`].
pub const LIMIT_MAX: i64 = 500;

/// Returns the number of entries on a page.
pub fn limit(given: Option<Limit>) -> i64 {
    given.map_or(50, |limit| limit.0)
}

impl<const MIN: i64, const MAX: i64> FromStr for Number<MIN, MAX> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text
            .parse()
            .ok()
            .filter(|number| (MIN..=MAX).contains(number));
        number
            .map(Number)
            .ok_or_else(|| format!("must be a number from {MIN} to {MAX}"))
    }
}

impl<'de, const MIN: i64, const MAX: i64> Deserialize<'de> for Number<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        value.to_string().parse().map_err(de::Error::custom)
    }
}

impl<const MIN: i64, const MAX: i64> JsonSchema for Number<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Number".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}

/// Text with a length between two bounds in characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text<const MIN_CHARS: usize, const MAX_CHARS: usize>(String);

/// Why a person changes something, for the record.
pub type Note = Text<0, 2_000>;

impl<const MIN_CHARS: usize, const MAX_CHARS: usize> Text<MIN_CHARS, MAX_CHARS> {
    pub const CHARS_MAX: usize = MAX_CHARS;

    /// Checks the length of a text.
    ///
    /// # Errors
    ///
    /// Returns a clause saying which lengths are allowed.
    pub fn check(text: &str) -> Result<(), String> {
        let chars = text.chars().count();
        if (MIN_CHARS..=MAX_CHARS).contains(&chars) {
            Ok(())
        } else {
            Err(format!(
                "must have {MIN_CHARS} to {MAX_CHARS} characters, not {chars}"
            ))
        }
    }
}

impl<const MIN_CHARS: usize, const MAX_CHARS: usize> FromStr for Text<MIN_CHARS, MAX_CHARS> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::check(text).map(|()| Text(text.to_owned()))
    }
}

impl<const MIN_CHARS: usize, const MAX_CHARS: usize> Display for Text<MIN_CHARS, MAX_CHARS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl<const MIN_CHARS: usize, const MAX_CHARS: usize> Deref for Text<MIN_CHARS, MAX_CHARS> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

as_text!(
    Text<MIN_CHARS, MAX_CHARS>,
    const MIN_CHARS: usize,
    const MAX_CHARS: usize;
    "minLength": MIN_CHARS,
    "maxLength": MAX_CHARS
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_keeps_its_bounds_in_every_form() {
        type Second = Span<1, 1_000>;
        let span: Second = "1s".parse().unwrap();
        assert_eq!(serde_json::to_string(&span).unwrap(), "\"1s\"");
        assert_eq!(serde_json::from_str::<Second>("\"1s\"").unwrap(), span);
        for text in ["0s", "1001ms", "x"] {
            let why = text.parse::<Second>().unwrap_err();
            let json = format!("\"{text}\"");
            let error = serde_json::from_str::<Second>(&json).unwrap_err();
            assert!(error.to_string().starts_with(&why), "{error}");
        }
        assert!("1000000d".parse::<AnySpan>().is_ok());
    }
    #[test]
    fn a_number_has_bounds_as_json_and_as_text() {
        assert_eq!(limit(None), 50);
        assert_eq!(serde_json::from_str::<Limit>("500").unwrap(), Number(500));
        for text in ["0", "501", "-1", "x", "", "1.5"] {
            let why = text.parse::<Limit>().unwrap_err();
            assert_eq!(why, "must be a number from 1 to 500", "{text}");
        }
        for json in ["0", "501", "\"7\"", "1.5", "null"] {
            assert!(serde_json::from_str::<Limit>(json).is_err(), "{json}");
        }
    }
    #[test]
    fn a_text_has_bounds_as_json_as_text_and_in_the_schema() {
        type Word = Text<1, 3>;
        let word: Word = "ééé".parse().unwrap();
        assert_eq!(serde_json::to_string(&word).unwrap(), "\"ééé\"");
        assert_eq!(serde_json::from_str::<Word>("\"ééé\"").unwrap(), word);
        for (text, chars) in [("", 0), ("abcd", 4)] {
            let why = text.parse::<Word>().unwrap_err();
            assert_eq!(why, format!("must have 1 to 3 characters, not {chars}"));
            let json = format!("\"{text}\"");
            let error = serde_json::from_str::<Word>(&json).unwrap_err();
            assert!(error.to_string().starts_with(&why), "{error}");
        }
        let schema = schemars::schema_for!(Word);
        let bounds = ["minLength", "maxLength"].map(|key| schema.get(key).and_then(Value::as_u64));
        assert_eq!(bounds, [Some(1), Some(3)]);
    }
}
