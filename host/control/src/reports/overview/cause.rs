//! When two failures have the same cause.

use serde::Deserialize;

use crate::stored::stored_json;

/// A recorded failure.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Failure {
    #[serde(default)]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) message: String,
}

impl Failure {
    /// Reads a failure from the record; an empty one if it doesn't read well.
    pub(super) fn read(text: &str) -> Failure {
        stored_json(Some(text)).unwrap_or_default()
    }
}

/// Pure: returns what is the same in messages with the same cause: the first line, in which `#` stands for each number, id,
/// address and time.
pub fn cause(message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    let is_of_word = |part: char| part.is_alphanumeric() || part == '_';
    let mut cause = String::with_capacity(first.len());
    let mut word = String::new();
    for part in first.chars().chain([' ']) {
        if is_of_word(part) {
            word.push(part);
            continue;
        }
        let has_digit = word.chars().any(|part| part.is_ascii_digit());
        if !has_digit {
            cause.push_str(&word);
        } else if !cause.ends_with('#') {
            cause.push('#');
        }
        word.clear();
        // The parts of an address or a time are one number.
        let joins = matches!(part, '.' | ':' | '-' | '+') && cause.ends_with('#');
        if !joins {
            cause.push(part);
        }
    }
    cause.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_ids_and_times_make_no_difference() {
        for (a, b) in [
            (
                "expired 2 days ago (2026-11-26T12:00:00Z)",
                "expired 13 days ago (2026-11-15T08:30:00+01:00)",
            ),
            (
                "connection to 10.0.0.7:5432 refused",
                "connection to 192.168.1.20:5433 refused",
            ),
            (
                "run 01a220a9-0e47-84b9 was lost",
                "run 7fffa9a9-1111-84b0 was lost",
            ),
            ("first line\nand 1", "first line\nand more"),
        ] {
            assert_eq!(cause(a), cause(b));
        }
        assert_ne!(cause("no answer"), cause("no route"));
        assert_eq!(cause("slot 5 of `a_b`"), "slot # of `a_b`");
        assert_eq!(cause(""), "");
    }

    #[test]
    fn a_failure_that_does_not_read_well_has_no_message() {
        assert_eq!(Failure::read("[").message, "");
        assert_eq!(Failure::read("{\"message\": \"x\"}").message, "x");
    }
}
