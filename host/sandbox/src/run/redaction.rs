//! Removing the values of secrets from the texts that a call leaves behind.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde_json::{Map, Value};

use crate::capability::stdio::STREAM_CUT;
use crate::grants::Secrets;
use crate::outcome::MESSAGE_CUT;

/// Shorter values are not replaced: many texts contain them by chance.
const REDACTED_BYTES_MIN: usize = 4;

/// A shorter line of a value of many lines may be no secret at all, such as `{` or `-----END`.
const REDACTED_LINE_BYTES_MIN: usize = 16;

/// The longest spelling of one letter: two surrogates, or four percent-encoded bytes.
const SPELLING_BYTES_MAX: usize = 12;

/// Where a message or a stream was cut.
const CUT_MARKS: [&str; 2] = [MESSAGE_CUT, STREAM_CUT];

/// Replaces the values of secrets in what a call leaves behind. It finds them in either case of their letters, in the
/// escapes of JSON, and in percent-encoding.
pub struct Redaction {
    values: Vec<SoughtValue>,
    /// The first bytes of the values, in lower case.
    beginnings: BTreeSet<u8>,
}

/// A value to look for, and the text that replaces it.
struct SoughtValue {
    value: Vec<char>,
    mark: String,
}

impl Redaction {
    pub fn of(secrets: &Secrets) -> Redaction {
        let mut values = Vec::new();
        let mut beginnings = BTreeSet::new();
        for (name, secret) in secrets {
            let value = secret.reveal().trim();
            // A guest may print a value of many lines, such as a key, line by line.
            let lines = value.lines().map(str::trim);
            let lines = lines.filter(|line| line.len() >= REDACTED_LINE_BYTES_MIN);
            let whole = Some(value).filter(|value| value.len() >= REDACTED_BYTES_MIN);
            for value in whole.into_iter().chain(lines) {
                beginnings.extend(value.bytes().next().map(|byte| byte.to_ascii_lowercase()));
                values.push(SoughtValue {
                    value: value.chars().collect(),
                    mark: format!("[secret {name}]"),
                });
            }
        }
        // The longest first, so that a secret that contains another is replaced whole.
        values.sort_by_key(|sought| std::cmp::Reverse(sought.value.len()));
        Redaction { values, beginnings }
    }

    /// Replace the values in `text`, and the beginning of a value before a mark of a cut.
    pub fn text(&self, text: &mut String) {
        if self.values.is_empty() {
            return;
        }
        let mut redacted = String::new();
        let mut from = 0;
        while let Some((place, mark)) = self.find(text, from) {
            redacted.push_str(&text[from..place.start]);
            redacted.push_str(mark);
            from = place.end;
        }
        if from > 0 {
            redacted.push_str(&text[from..]);
            *text = redacted;
        }
        if let Some(end) = CUT_MARKS.iter().filter_map(|mark| text.rfind(mark)).max() {
            self.before(text, end);
        }
    }

    /// Replace the beginning of a value at the end of `text`, which was cut there.
    pub(crate) fn end_of(&self, text: &mut String) {
        self.before(text, text.len());
    }

    /// Return the place of the first value in `text` after `from`, and its replacement.
    fn find(&self, text: &str, from: usize) -> Option<(Range<usize>, &str)> {
        let places = text[from..].char_indices();
        let places = places.map(|(place, _)| from + place);
        let mut places = places.filter(|place| self.may_begin(text.as_bytes()[*place]));
        places.find_map(|place| {
            self.values.iter().find_map(|sought| {
                let end = spelled(text, place, &sought.value, false)?;
                Some((place..end, sought.mark.as_str()))
            })
        })
    }

    /// Whether a value may begin with this byte, in one of its spellings.
    fn may_begin(&self, byte: u8) -> bool {
        matches!(byte, b'\\' | b'%' | b'+') || self.beginnings.contains(&byte.to_ascii_lowercase())
    }

    /// Replace the beginning of a value that ends at `end`, if it is long enough to be looked for.
    fn before(&self, text: &mut String, end: usize) {
        let kept = &text[..end];
        let begun = self.values.iter().filter_map(|sought| {
            let longest = sought.value.len() * SPELLING_BYTES_MAX;
            let places = kept.char_indices().map(|(place, _)| place);
            let mut places = places.skip_while(|place| place + longest < end);
            let begin =
                places.find(|place| spelled(kept, *place, &sought.value, true) == Some(end))?;
            Some((begin, sought.mark.as_str()))
        });
        if let Some((begin, mark)) = begun.min_by_key(|(begin, _)| *begin) {
            text.replace_range(begin..end, mark);
        }
    }

    /// Replace the values in every text in `value`, keys included.
    pub(crate) fn json(&self, value: &mut Value) {
        if self.values.is_empty() {
            return;
        }
        match value {
            Value::String(text) => self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.json(item)),
            Value::Object(entries) => self.object(entries),
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

    /// Replace the values in every text in `entries`, keys included.
    pub(crate) fn object(&self, entries: &mut Map<String, Value>) {
        // How often each key occurred: two keys may become one.
        let mut times: BTreeMap<String, usize> = BTreeMap::new();
        for (mut key, mut value) in std::mem::take(entries) {
            self.json(&mut value);
            self.text(&mut key);
            let times = times.entry(key.clone()).or_default();
            *times += 1;
            while entries.contains_key(&key) {
                key = format!("{key} ({times})");
            }
            entries.insert(key, value);
        }
    }
}

/// Return where `value` ends if it stands in `text` at `place`; each letter may have its own spelling.
///
/// When the text was `cut`, a beginning of the value also counts if it is long enough and ends with the text.
fn spelled(text: &str, place: usize, value: &[char], cut: bool) -> Option<usize> {
    // At most places the first letter differs already.
    letter_ends(&text[place..], *value.first()?).next()?;
    let mut ends = vec![place];
    let mut bytes = 0;
    for letter in value {
        let next: BTreeSet<usize> = ends
            .iter()
            .flat_map(|end| letter_ends(&text[*end..], *letter).map(move |bytes| end + bytes))
            .collect();
        if next.is_empty() {
            let broken_off = ends.iter().any(|end| is_broken_off(&text[*end..]));
            return (cut && bytes >= REDACTED_BYTES_MIN && broken_off).then_some(text.len());
        }
        bytes += letter.len_utf8();
        ends = next.into_iter().collect();
    }
    ends.into_iter().max()
}

/// Return the length in bytes of each spelling of `letter` that `text` begins with.
fn letter_ends(text: &str, letter: char) -> impl Iterator<Item = usize> {
    let is_it = |found: &char| found.eq_ignore_ascii_case(&letter);
    let as_it_is = text.chars().next().filter(is_it).map(char::len_utf8);
    let in_json = unescaped(text).filter(|(found, _)| is_it(found));
    let in_address = percent_decoded(text, letter);
    [as_it_is, in_json.map(|(_, bytes)| bytes), in_address]
        .into_iter()
        .flatten()
}

/// Return the letter whose JSON escape `text` begins with, and the bytes of the escape.
fn unescaped(text: &str) -> Option<(char, usize)> {
    let escape = text.strip_prefix('\\')?;
    let letter = match escape.chars().next()? {
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'u' => {
            let units = [text.get(2..6), text.get(8..12)];
            let has_two = text.get(6..8) == Some("\\u");
            let unit = |digits: Option<&str>| u16::from_str_radix(digits?, 16).ok();
            let units = unit(units[0])
                .into_iter()
                .chain(unit(units[1]).filter(|_| has_two));
            let letter = char::decode_utf16(units).next()?.ok()?;
            return Some((letter, 6 * letter.len_utf16()));
        }
        plain @ ('"' | '\\' | '/') => plain,
        _ => return None,
    };
    Some((letter, 2))
}

/// Return the bytes of `letter` in percent-encoding, or in that of forms, if `text` begins with it.
fn percent_decoded(text: &str, letter: char) -> Option<usize> {
    if letter == ' ' && text.starts_with('+') {
        return Some(1);
    }
    let mut buffer = [0; 4];
    let bytes = letter.encode_utf8(&mut buffer).as_bytes();
    let mut triples = text.as_bytes().chunks_exact(3);
    let is_byte = |byte: &u8| {
        let triple = triples.next().and_then(|triple| triple.strip_prefix(b"%"));
        let digits = triple.and_then(|digits| std::str::from_utf8(digits).ok());
        let found = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        found.is_some_and(|found| found.eq_ignore_ascii_case(byte))
    };
    bytes.iter().all(is_byte).then_some(3 * bytes.len())
}

/// Whether `rest` is empty, or the part of an escape that a cut left.
fn is_broken_off(rest: &str) -> bool {
    let escapes = |letter: char| letter.is_ascii_hexdigit() || matches!(letter, '\\' | 'u' | '%');
    rest.is_empty()
        || (rest.len() < SPELLING_BYTES_MAX
            && rest.starts_with(['\\', '%'])
            && rest.chars().all(escapes))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::grants::Secret;

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
    fn a_key_of_many_lines_is_found_whole_and_by_its_long_lines() {
        let redaction = redaction(&[("key", "{\n  \"private\": \"MIIEvQIBADANBg\"\n}")]);
        let redacted = |text: &str| {
            let mut text = text.to_owned();
            redaction.text(&mut text);
            text
        };
        let whole = r#"{"k":"{\n  \"private\": \"MIIEvQIBADANBg\"\n}"}"#;
        assert_eq!(redacted(whole), r#"{"k":"[secret key]"}"#);
        assert_eq!(
            redacted("it is \"private\": \"MIIEvQIBADANBg\" {"),
            "it is [secret key] {"
        );
    }

    #[test]
    fn a_value_is_found_in_every_spelling() {
        let redaction = redaction(&[("db", "pä/ss <wörd>\"\\🔔+%")]);
        for spelling in [
            "pä/ss <wörd>\"\\🔔+%",
            "PäSS",
            r#"pä/ss <wörd>\"\\🔔+%"#,
            r#"p\u00e4\/ss \u003cw\u00F6rd\u003e\"\\\ud83d\udd14+%"#,
            "p%C3%A4%2Fss%20%3Cw%c3%b6rd%3E%22%5C%F0%9F%94%94%2B%25",
            "p%C3%A4/ss+<w%c3%b6rd>%22%5C%F0%9F%94%94%2B%25",
            "pä/SS <WörD>\"\\🔔+%",
        ] {
            let mut text = format!("a {spelling} b {spelling}");
            redaction.text(&mut text);
            let expected = match spelling {
                "PäSS" => "a PäSS b PäSS",
                _ => "a [secret db] b [secret db]",
            };
            assert_eq!(text, expected, "{spelling}");
        }
    }

    #[test]
    fn a_value_is_found_when_its_first_letter_is_escaped() {
        let redaction = redaction(&[("db", "\"quoted\"")]);
        for spelling in [r#"\"quoted\""#, r"\u0022quoted\u0022", "%22quoted%22"] {
            let mut text = format!("a {spelling} b");
            redaction.text(&mut text);
            assert_eq!(text, "a [secret db] b", "{spelling}");
        }
    }

    #[test]
    fn keys_that_become_one_keep_their_values() {
        let redaction = redaction(&[("db", "hunter2")]);
        let mut value = json!({"hunter2": 1, "Hunter2": 2, "HUNTER2": 3});
        redaction.json(&mut value);
        let keys: Vec<&String> = value.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["[secret db]", "[secret db] (2)", "[secret db] (3)"]);
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
        let json = "a hunter2\\u002dan\\u0";
        assert_eq!(
            cut(&format!("{json} [the rest was dropped]")),
            "a [secret db] [the rest was dropped]"
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
}
