//! Secrets: values that a guest may read and that nobody else is to see.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use super::run::MESSAGE_CUT;
use super::stdio::STREAM_CUT;

/// What stands in the place of a value shorter than this would be found in many texts by chance.
const REDACTED_BYTES_MIN: usize = 4;

/// What stands where a message, or a stream, was cut.
const CUT_MARKS: [&str; 2] = [MESSAGE_CUT, STREAM_CUT];

/// A value that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// The values of secrets, by name.
pub type Secrets = BTreeMap<String, Secret>;

impl Secret {
    pub fn new(value: impl Into<String>) -> Secret {
        Secret(value.into())
    }

    /// The value, for the guest that it was granted to.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Takes the values of secrets out of whatever a call leaves behind: as they are, and as JSON writes them.
pub(crate) struct Redaction(Vec<(String, String)>);

impl Redaction {
    pub(crate) fn of(secrets: &Secrets) -> Redaction {
        let mut found = Vec::new();
        for (name, secret) in secrets {
            let mark = format!("[secret {name}]");
            // Line by line: a key of many lines is also printed so.
            for value in std::iter::once(secret.reveal()).chain(secret.reveal().lines()) {
                let value = value.trim();
                if value.len() < REDACTED_BYTES_MIN {
                    continue;
                }
                let json = Value::from(value).to_string();
                let json = json.trim_matches('"').to_owned();
                if json != value {
                    found.push((json, mark.clone()));
                }
                found.push((value.to_owned(), mark.clone()));
            }
        }
        // The longest first, so that one secret inside another leaves nothing behind.
        found.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
        found.dedup();
        Redaction(found)
    }

    /// Take them out of `text`, also what is left of one where the text was cut and marked so.
    pub(crate) fn text(&self, text: &mut String) {
        for (value, mark) in &self.0 {
            if text.contains(value.as_str()) {
                *text = text.replace(value.as_str(), mark);
            }
        }
        if let Some(end) = CUT_MARKS.iter().filter_map(|mark| text.rfind(mark)).max() {
            self.before(text, end);
        }
    }

    /// Take what is left of one out of the end of `text`, which was cut there.
    pub(super) fn end_of(&self, text: &mut String) {
        self.before(text, text.len());
    }

    /// Take the beginning of a value, if it is so long that it would be looked for, out of what ends at `end`.
    fn before(&self, text: &mut String, end: usize) {
        let kept = &text[..end];
        let begun = self.0.iter().filter_map(|(value, mark)| {
            let mut lengths = (REDACTED_BYTES_MIN..value.len()).rev();
            let begun = lengths.find(|&length| {
                value.is_char_boundary(length) && kept.ends_with(&value[..length])
            })?;
            Some((begun, mark))
        });
        if let Some((length, mark)) = begun.max_by_key(|(length, _)| *length) {
            text.replace_range(end - length..end, mark);
        }
    }

    /// Take them out of every text in `value`, keys included.
    pub(super) fn json(&self, value: &mut Value) {
        if self.0.is_empty() {
            return;
        }
        match value {
            Value::String(text) => self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.json(item)),
            Value::Object(entries) => {
                let old = std::mem::take(entries);
                for (mut key, mut value) in old {
                    self.text(&mut key);
                    self.json(&mut value);
                    entries.insert(key, value);
                }
            }
            Value::Number(number) => {
                let mut text = number.to_string();
                self.text(&mut text);
                if text != number.to_string() {
                    *value = Value::String(text);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn redaction(values: &[(&str, &str)]) -> Redaction {
        let secrets = values
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Secret::new(*value)));
        Redaction::of(&secrets.collect())
    }

    #[test]
    fn a_value_is_replaced_wherever_it_stands() {
        let redaction = redaction(&[("db", "hunter2"), ("long", "hunter2-and-more")]);
        let mut text = "a hunter2 b hunter2-and-more c".to_owned();
        redaction.text(&mut text);
        assert_eq!(text, "a [secret db] b [secret long] c");
        let mut value = json!({"hunter2": ["x hunter2", 1, null]});
        redaction.json(&mut value);
        assert_eq!(value, json!({"[secret db]": ["x [secret db]", 1, null]}));
    }

    #[test]
    fn a_value_is_found_as_json_writes_it_and_line_by_line() {
        let redaction = redaction(&[("key", "-----BEGIN\nab\"cd\n-----END")]);
        let mut text = r#"{"k":"-----BEGIN\nab\"cd\n-----END"} and ab"cd alone"#.to_owned();
        redaction.text(&mut text);
        assert_eq!(text, r#"{"k":"[secret key]"} and [secret key] alone"#);
    }

    #[test]
    fn the_beginning_of_a_value_is_taken_from_where_a_text_was_cut() {
        let redaction = redaction(&[("db", "hunter2-and-more"), ("other", "r2-and-other")]);
        let cut = |text: &str| {
            let mut text = text.to_owned();
            redaction.text(&mut text);
            text
        };
        assert_eq!(
            cut("a hunter2-an [the rest was dropped]"),
            "a [secret db] [the rest was dropped]"
        );
        assert_eq!(
            cut("a hunt\n[campanile: 12 more bytes were dropped"),
            "a [secret db]\n[campanile: 12 more bytes were dropped"
        );
        // Too little of it to know, and what was not cut.
        assert_eq!(
            cut("a hun [the rest was dropped]"),
            "a hun [the rest was dropped]"
        );
        assert_eq!(cut("a hunter2"), "a hunter2");
        let mut line = "a hunter2-and-mor".to_owned();
        redaction.end_of(&mut line);
        assert_eq!(line, "a [secret db]");
    }

    #[test]
    fn a_value_of_digits_is_found_in_numbers() {
        let redaction = redaction(&[("pin", "8421973")]);
        let mut value = json!({"n": 8_421_973, "m": 842_197, "f": 1.5});
        redaction.json(&mut value);
        assert_eq!(value, json!({"n": "[secret pin]", "m": 842_197, "f": 1.5}));
    }

    #[test]
    fn a_value_of_a_few_letters_is_not_looked_for() {
        let redaction = redaction(&[("pin", "abc")]);
        let mut text = "abc".to_owned();
        redaction.text(&mut text);
        assert_eq!(text, "abc");
    }

    #[test]
    fn a_secret_is_not_shown_by_accident() {
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "Secret(…)");
    }
}
