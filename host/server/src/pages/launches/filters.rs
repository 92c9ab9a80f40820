//! The filters of the list of launches, as one line to search with and as an address.

use std::collections::BTreeMap;

use url::form_urlencoded;

use super::super::links;
use super::super::words::{line, shell};
use crate::call::Result;
use crate::problem::ApiProblem;
use crate::query::{Query, parameters};
use campanile_control::questions::launches::ListLaunches;
use campanile_model::text::did_you_mean;

/// The filters of the command with the same names. The search line has all but the last.
pub(super) const FILTERS: [&str; 8] = [
    "schedule", "status", "kind", "reason", "package", "since", "until", "after",
];
pub(super) const KEYS: &[&str] = FILTERS.split_at(7).0;
/// The filters in force, by name.
pub(super) struct Filters(pub(super) BTreeMap<&'static str, String>);

impl Filters {
    /// Reads the filters of a query: what its line has comes before its fields.
    pub(super) fn of(query: &Query) -> Result<Filters> {
        let mut filters = BTreeMap::new();
        for name in FILTERS {
            let given = Vec::from_iter(query.all(name));
            if !given.is_empty() {
                filters.insert(name, given.join(","));
            }
        }
        for (name, value) in parse(query.text("q").unwrap_or_default())? {
            filters.insert(name, value);
        }
        Ok(Filters(filters))
    }

    pub(super) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Returns the filters as a query of the list, without one of them.
    pub(super) fn query(&self, without: &str) -> Result<Query> {
        let mut text = form_urlencoded::Serializer::new(String::new());
        text.extend_pairs(self.0.iter().filter(|(name, _)| **name != without));
        Query::read(&text.finish(), parameters::<ListLaunches>())
    }

    /// Returns the filters as a line that [`parse`] reads.
    pub(super) fn line(&self) -> String {
        let quoted = |value: &str| {
            let mut text = String::with_capacity(value.len());
            for next in value.chars() {
                if matches!(next, '"' | '\\') {
                    text.push('\\');
                }
                text.push(next);
            }
            if value.contains(char::is_whitespace) {
                format!("\"{text}\"")
            } else {
                text
            }
        };
        let given = KEYS.iter().filter_map(|key| {
            let value = self.0.get(key)?;
            Some(format!("{key}:{}", quoted(value)))
        });
        Vec::from_iter(given).join(" ")
    }

    /// Returns the address of the list with other values of some filters, from its first page on.
    pub(super) fn with(&self, others: &[(&str, &str)]) -> String {
        let given = KEYS.iter().map(|key| {
            let other = others.iter().find(|(name, _)| name == key);
            (*key, other.map_or(self.get(key), |(_, value)| value))
        });
        format!("/launches{}", links::query(&Vec::from_iter(given)))
    }

    pub(super) fn command(&self) -> String {
        let mut same = "campanile launch list".to_owned();
        for name in FILTERS {
            if let Some(value) = self.0.get(name) {
                same += &format!(" --{} {}", name.replace('_', "-"), shell(value));
            }
        }
        same
    }
}

/// Reads a search line: `key:value` for each filter, and a word alone for a schedule. A value with blanks stands in quotes, and
/// a backslash stands before a quote or a backslash that is meant.
fn parse(text: &str) -> Result<Vec<(&'static str, String)>> {
    let mut words: Vec<String> = Vec::new();
    let (mut quoted, mut is_new) = (false, true);
    let mut chars = text.chars().peekable();
    while let Some(mut next) = chars.next() {
        let is_escaped = next == '\\' && matches!(chars.peek(), Some('"' | '\\'));
        if is_escaped {
            next = chars.next().unwrap_or(next);
        }
        if next == '"' && !is_escaped {
            quoted = !quoted;
        } else if next.is_whitespace() && !quoted {
            is_new = true;
        } else {
            if is_new {
                words.push(String::new());
                is_new = false;
            }
            if let Some(word) = words.last_mut() {
                word.push(next);
            }
        }
    }
    words.iter().map(|word| filter_of(word)).collect()
}

fn filter_of(word: &str) -> Result<(&'static str, String)> {
    let Some((key, value)) = word.split_once(':') else {
        return Ok(("schedule", word.to_owned()));
    };
    let known = KEYS.iter().find(|known| **known == key);
    let known = known.filter(|_| !value.is_empty()).ok_or_else(|| {
        let keys = KEYS.join(", ");
        let near = did_you_mean(key, KEYS.iter().copied());
        let problem =
            ApiProblem::invalid(format!("the search has no filter `{}`{near}", line(word)));
        problem.hint(format!("write `key:value` with the keys {keys}"))
    })?;
    Ok((known, value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filters(text: &str) -> Filters {
        Filters(parse(text).unwrap().into_iter().collect())
    }

    #[test]
    fn a_line_has_filters_and_is_written_again_as_it_was_read() {
        let text =
            "schedule:nightly status:failed,abandoned reason:\"a b\" since:2026-11-21T08:00:00Z";
        let found = filters(text);
        assert_eq!(found.get("status"), "failed,abandoned");
        assert_eq!(found.get("since"), "2026-11-21T08:00:00Z");
        assert_eq!(found.line(), text);
        assert_eq!(filters(" nightly ").get("schedule"), "nightly");
        assert_eq!(filters("").line(), "");
        for wrong in ["state:failed", "after:1", "status:"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        let to = found.with(&[("status", ""), ("since", "1h"), ("reason", "")]);
        assert_eq!(to, "/launches?schedule=nightly&since=1h");
        assert_eq!(
            filters("x kind:manual").command(),
            "campanile launch list --schedule x --kind manual"
        );
    }

    #[test]
    fn a_value_with_quotes_is_read_as_it_was_written() {
        for value in [
            "a\"b",
            "\"",
            "a b\"c d",
            "back\\slash",
            "\\",
            "\\\"",
            "C:\\new \"x\"",
        ] {
            let found = Filters([("reason", value.to_owned())].into_iter().collect());
            assert_eq!(filters(&found.line()).get("reason"), value);
        }
    }
}
