//! JSON of others, kept as text.
//!
//! Most readers of JSON turn a number into 64 bits: of `12345678901234567890123` or `0.1234567890123456789` the rest would be lost. What
//! a task or an operator wrote is therefore passed on as text, and its numbers are written as they were read.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, Deserializer as _, MapAccess, SeqAccess, Visitor};
use serde::ser::{Error as _, SerializeMap as _, SerializeSeq as _};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// The deepest value that is written part by part. Readers of JSON refuse deeper ones.
const DEPTH_MAX: usize = 128;

/// A JSON value that is serialized from its text.
pub struct JsonAsWritten<'t> {
    text: &'t str,
    depth: usize,
}

impl<'t> JsonAsWritten<'t> {
    /// Returns `text` as a value; none when it's no JSON.
    pub fn of(text: &'t str) -> Option<JsonAsWritten<'t>> {
        let value: &RawValue = serde_json::from_str(text).ok()?;
        let text = value.get();
        Some(JsonAsWritten { text, depth: 0 })
    }

    fn inner(&self, value: &'t RawValue) -> JsonAsWritten<'t> {
        JsonAsWritten {
            text: value.get(),
            depth: self.depth + 1,
        }
    }
}

impl Serialize for JsonAsWritten<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.depth == DEPTH_MAX {
            return raw(self.text, serializer);
        }
        match JsonParts::of(self.text).map_err(S::Error::custom)? {
            JsonParts::Object(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(&key, &self.inner(value))?;
                }
                map.end()
            }
            JsonParts::List(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for value in items {
                    list.serialize_element(&self.inner(value))?;
                }
                list.end()
            }
            JsonParts::String(text) => serializer.serialize_str(&text),
            JsonParts::Number(text) => number(text, serializer),
            JsonParts::Word("true") => serializer.serialize_bool(true),
            JsonParts::Word("false") => serializer.serialize_bool(false),
            JsonParts::Word(_) => serializer.serialize_unit(),
        }
    }
}

/// Writes a number. Only one that a reader would change is written as text: not every format can hold that.
fn number<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    let read: Result<serde_json::Number, _> = serde_json::from_str(text);
    match read {
        Ok(number) if number.to_string() == text => number.serialize(serializer),
        _ => raw(text, serializer),
    }
}

fn raw<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    let raw: &RawValue = serde_json::from_str(text).map_err(S::Error::custom)?;
    raw.serialize(serializer)
}

/// The parts of a JSON value, each as text.
pub enum JsonParts<'t> {
    Object(Vec<(String, &'t RawValue)>),
    List(Vec<&'t RawValue>),
    String(String),
    Number(&'t str),
    /// `true`, `false` or `null`.
    Word(&'t str),
}

impl<'t> JsonParts<'t> {
    /// Reads one value.
    ///
    /// # Errors
    /// When `text` is no JSON.
    pub fn of(text: &'t str) -> serde_json::Result<JsonParts<'t>> {
        let mut reader = serde_json::Deserializer::from_str(text);
        Ok(match text.as_bytes().first() {
            Some(b'{') => JsonParts::Object(reader.deserialize_map(Parts::entries())?),
            Some(b'[') => JsonParts::List(reader.deserialize_seq(Parts::items())?),
            Some(b'"') => JsonParts::String(serde_json::from_str(text)?),
            Some(b't' | b'f' | b'n') => JsonParts::Word(text),
            _ => JsonParts::Number(text),
        })
    }
}

/// Reads the parts of one value, each as text.
struct Parts<T>(PhantomData<T>);

impl Parts<(String, &RawValue)> {
    fn entries() -> Self {
        Parts(PhantomData)
    }
}

impl Parts<&RawValue> {
    fn items() -> Self {
        Parts(PhantomData)
    }
}

impl<'t> Visitor<'t> for Parts<(String, &'t RawValue)> {
    type Value = Vec<(String, &'t RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries: Self::Value = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(entries)
    }
}

impl<'t> Visitor<'t> for Parts<&'t RawValue> {
    type Value = Vec<&'t RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON list")
    }

    fn visit_seq<A: SeqAccess<'t>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(value) = list.next_element()? {
            items.push(value);
        }
        Ok(items)
    }
}

/// Reads a struct of a part of a JSON object's keys.
///
/// # Errors
/// When a key is missing or wrong.
pub fn part<T: DeserializeOwned, E: serde::de::Error>(text: &str) -> Result<T, E> {
    serde_json::from_str(text).map_err(E::custom)
}

/// Implements `Deserialize` for a struct with flattened parts: each is read from the whole text. Serde's own way keeps what it has
/// read until it knows the part it belongs to, and turns its numbers into 64 bits.
///
/// The flattened fields come first, and then the others with their types.
#[macro_export]
macro_rules! read_by_parts {
    ($of:ident { $($part:ident),+ $(,)? } $({ $($own:ident: $type:ty),* $(,)? })?) => {
        impl<'de> ::serde::Deserialize<'de> for $of {
            fn deserialize<D: ::serde::Deserializer<'de>>(from: D) -> Result<$of, D::Error> {
                #[derive(::serde::Deserialize)]
                struct Own {
                    $($($own: $type),*)?
                }
                let text: Box<::serde_json::value::RawValue> = ::serde::Deserialize::deserialize(from)?;
                let Own { $($($own),*)? } = $crate::json::part(text.get())?;
                Ok($of {
                    $($part: $crate::json::part(text.get())?,)+
                    $($($own,)*)?
                })
            }
        }
    };
}

/// Returns the numbers in a JSON text, in order, each as it's written.
pub fn numbers_in(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let at = rest.find(['"', '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'])?;
            rest = &rest[at..];
            if let Some(inside) = rest.strip_prefix('"') {
                rest = &inside[end_of_string(inside)..];
                continue;
            }
            let is_part = |letter: char| letter.is_ascii_digit() || "+-.eE".contains(letter);
            let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
            let (number, behind) = rest.split_at(end);
            rest = behind;
            return Some(number);
        }
    })
}

/// Returns where a string ends, behind its last quote.
fn end_of_string(inside: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in inside.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    inside.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json_text::{JsonObject, JsonText};

    #[derive(Debug, PartialEq, Serialize)]
    struct Whole {
        #[serde(flatten)]
        inner: Inner,
        c: JsonText,
    }

    #[derive(Debug, PartialEq, Serialize, serde::Deserialize)]
    struct Inner {
        a: JsonObject,
        b: Option<JsonText>,
    }

    read_by_parts!(Whole { inner } { c: JsonText });

    #[test]
    fn flattened_parts_keep_their_numbers() {
        let text = r#"{"a":{"n":12345678901234567890123,"x":1.10},"b":[1E+2],"c":-0}"#;
        let whole: Whole = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&whole).unwrap(), text);
        let list: Vec<Whole> = serde_json::from_str(&format!("[{text}]")).unwrap();
        assert_eq!(list, [whole]);
        let error = serde_json::from_str::<Whole>(r#"{"b":1,"c":2}"#).unwrap_err();
        assert!(error.to_string().contains("missing field `a`"), "{error}");
    }

    #[test]
    fn numbers_are_written_as_they_were_read() {
        let text = r#"{"a":[12345678901234567890123,0.1234567890123456789,12345e7,-0,1.0,1E+2],"b":{"n":-7,"s":"1e5"},"c":[true,null]}"#;
        let value = JsonAsWritten::of(text).unwrap();
        assert_eq!(serde_json::to_string(&value).unwrap(), text);
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        assert!(
            pretty.contains("\n    12345678901234567890123,\n"),
            "{pretty}"
        );
        // As a value it is what a reader makes of it.
        let read: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_value(&value).unwrap(), read);
        assert!(JsonAsWritten::of("{").is_none());
        assert!(JsonAsWritten::of("text").is_none());
    }

    #[test]
    fn numbers_are_found_outside_of_strings() {
        let text = r#" {"1": ["2\"3", -4.5e+6, 7], "\\": 8, "é9": 10e-2}"#;
        let numbers: Vec<&str> = numbers_in(text).collect();
        assert_eq!(numbers, ["-4.5e+6", "7", "8", "10e-2"]);
    }
}
