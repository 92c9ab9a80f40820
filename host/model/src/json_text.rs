//! JSON as text. What operators write, and what tasks return and pass on, is checked once and kept as text: its numbers stay as they are
//! written, and parsed JSON takes up to 70 times the memory of its text.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::json::{JsonAsWritten, numbers_in};

/// A JSON value as text without spaces. Clones share the text. Two are equal when they're the same value: the order of keys makes no
/// difference, and how a number is written does.
#[derive(Clone, Debug)]
pub struct JsonText(Arc<str>);

/// The entries of a JSON object.
pub type JsonObject = BTreeMap<String, JsonText>;

impl JsonText {
    /// Returns the JSON value `null`.
    pub fn null() -> JsonText {
        JsonText("null".into())
    }

    /// Wraps `text`, which must be JSON without spaces.
    pub fn of_checked(text: String) -> JsonText {
        JsonText(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the parsed value, which may take 70 times the memory of the text.
    pub fn value(&self) -> Value {
        // The text was checked.
        serde_json::from_str(&self.0).unwrap_or_default()
    }

    /// Returns the text with the keys of every object in byte order.
    pub fn sorted(&self) -> String {
        // The text was checked.
        rewritten(&self.0, true).unwrap_or_default()
    }
}

impl PartialEq for JsonText {
    fn eq(&self, other: &JsonText) -> bool {
        // Another order of keys gives a text of the same length.
        self.0 == other.0 || (self.0.len() == other.0.len() && self.sorted() == other.sorted())
    }
}

impl Eq for JsonText {}

impl From<Value> for JsonText {
    fn from(value: Value) -> JsonText {
        JsonText(value.to_string().into())
    }
}

impl fmt::Display for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match JsonAsWritten::of(&self.0) {
            Some(json) => json.serialize(serializer),
            None => serializer.serialize_unit(),
        }
    }
}

/// Checks the text and strips spaces, keeping numbers as written. Every JSON reader accepts what passes here: a single JSON value, nesting
/// at most 128 deep.
impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<JsonText, D::Error> {
        let written = Box::<RawValue>::deserialize(deserializer)?;
        let text = rewritten(written.get(), false).map_err(D::Error::custom)?;
        Ok(JsonText(text.into()))
    }
}

/// Bytes charged for each key, besides its text and that of its value.
const KEY_BYTES: usize = 64;

/// Returns the size charged for an object: keys, values, and 64 bytes for each key.
pub fn object_bytes(object: &JsonObject) -> usize {
    let entries = object.iter();
    entries
        .map(|(key, value)| key.len() + value.as_str().len() + KEY_BYTES)
        .sum()
}

/// Returns the entries of a parsed object.
pub fn object_of(parsed: &Map<String, Value>) -> JsonObject {
    let entries = parsed.iter();
    entries
        .map(|(key, value)| (key.clone(), JsonText(value.to_string().into())))
        .collect()
}

/// Returns the text of the JSON object with these entries.
pub fn text_of(object: &JsonObject) -> String {
    let entries = object.iter();
    object_text(entries.map(|(key, value)| (key.as_str(), value.as_str())))
}

/// Returns the text of the JSON object with these entries, each a key and its value as JSON.
pub fn object_text<'e>(entries: impl IntoIterator<Item = (&'e str, &'e str)>) -> String {
    let mut text = String::from("{");
    for (key, value) in entries {
        if text.len() > 1 {
            text.push(',');
        }
        // No text can fail to become JSON.
        text.push_str(&serde_json::to_string(key).unwrap_or_default());
        text.push(':');
        text.push_str(value);
    }
    text.push('}');
    text
}

/// Returns `written` without spaces, sorting the keys if `is_sorted`.
fn rewritten(written: &str, is_sorted: bool) -> serde_json::Result<String> {
    let mut text = Vec::new();
    let mut numbers = numbers_in(written);
    let rewriter = Rewriter {
        text: &mut text,
        numbers: &mut numbers,
        prefix: b"",
        is_sorted,
    };
    let mut reader = serde_json::Deserializer::from_str(written);
    rewriter.deserialize(&mut reader)?;
    reader.end()?;
    String::from_utf8(text).map_err(Error::custom)
}

/// Appends one JSON value to a text while it is read, and keeps nothing else of it.
struct Rewriter<'t, 'n> {
    text: &'t mut Vec<u8>,
    /// The remaining numbers as written, since parsing would change some.
    numbers: &'t mut dyn Iterator<Item = &'n str>,
    /// Written before the value, if there is one.
    prefix: &'static [u8],
    is_sorted: bool,
}

impl<'n> Rewriter<'_, 'n> {
    fn next(&mut self, prefix: &'static [u8]) -> Rewriter<'_, 'n> {
        Rewriter {
            text: self.text,
            numbers: self.numbers,
            prefix,
            is_sorted: self.is_sorted,
        }
    }

    fn write<E: Error>(self, value: &impl Serialize) -> Result<(), E> {
        serde_json::to_writer(self.text, value).map_err(E::custom)
    }

    fn write_number<E: Error>(self) -> Result<(), E> {
        let number = self.numbers.next();
        let number = number.ok_or_else(|| E::custom("a number is missing"))?;
        self.text.extend_from_slice(number.as_bytes());
        Ok(())
    }

    fn sorted_map<'de, A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut entries = BTreeMap::new();
        while let Some(key) = map.next_key::<String>()? {
            let mut text = Vec::new();
            map.next_value_seed(Rewriter {
                text: &mut text,
                numbers: self.numbers,
                prefix: b"",
                is_sorted: true,
            })?;
            entries.insert(key, String::from_utf8(text).map_err(Error::custom)?);
        }
        let entries = entries.iter();
        let entries = entries.map(|(key, value)| (key.as_str(), value.as_str()));
        self.text.extend(object_text(entries).into_bytes());
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Rewriter<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        self.text.extend(self.prefix);
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Rewriter<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.write(&())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.write(&value)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.write_number()
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.write_number()
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.write_number()
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.write(&value)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        self.text.push(b'[');
        let mut prefix: &[u8] = b"";
        while items.next_element_seed(self.next(prefix))?.is_some() {
            prefix = b",";
        }
        self.text.push(b']');
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        if self.is_sorted {
            return self.sorted_map(map);
        }
        self.text.push(b'{');
        let mut prefix: &[u8] = b"";
        while map.next_key_seed(self.next(prefix))?.is_some() {
            map.next_value_seed(self.next(b":"))?;
            prefix = b",";
        }
        self.text.push(b'}');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_loses_its_spaces_and_nothing_else() {
        let value =
            json!({"b": [1, -2, 1.5, 1e300, true, null, []], "a": {"é\n\"": "x y", "": {}}});
        let spaced = serde_json::to_string_pretty(&value).unwrap();
        let text: JsonText = serde_json::from_str(&spaced).unwrap();
        assert_eq!(text.as_str(), value.to_string());
        assert_eq!(text.value(), value);
        assert_eq!(text, JsonText::from(value.clone()));
    }

    #[test]
    fn numbers_stay_as_they_are_written() {
        let written = r#"{"b":[12345678901234567890123,0.1234567890123456789,12345e7],"a":[-0,1.0,1E+2,"1e5"]}"#;
        let text: JsonText = serde_json::from_str(&format!(" {written}\n")).unwrap();
        assert_eq!(text.as_str(), written);
        assert_eq!(serde_json::to_string(&text).unwrap(), written);
        let object: JsonObject = serde_json::from_str(written).unwrap();
        assert_eq!(object["a"].as_str(), r#"[-0,1.0,1E+2,"1e5"]"#);
        let sorted = text.sorted();
        assert!(sorted.starts_with(r#"{"a":[-0,1.0,1E+2"#), "{sorted}");
    }

    #[test]
    fn what_other_readers_refuse_is_refused() {
        let deep = "[".repeat(200) + &"]".repeat(200);
        for text in ["", "{", "1 2", "\"\\ud800\"", "1e400", "nul", deep.as_str()] {
            assert!(serde_json::from_str::<JsonText>(text).is_err(), "{text:?}");
            assert!(serde_json::from_str::<Value>(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_order_of_keys_makes_no_difference_and_a_value_does() {
        let of = |text: &str| serde_json::from_str::<JsonText>(text).unwrap();
        let one = of(r#"{"a": 1, "b": [{"c": 2, "d": 3}]}"#);
        assert_eq!(one, of(r#"{"b": [{"d": 3, "c": 2}], "a": 1}"#));
        for other in [r#"{"b": [{"d": 2, "c": 3}], "a": 1}"#, r#"{"a": 1}"#] {
            assert_ne!(one, of(other));
        }
        assert_ne!(of("1.10"), of("1.1"));
    }

    #[test]
    fn entries_make_an_object_again() {
        let object = json!({"a": 1, "q\"": {"x": null}});
        let entries = object_of(object.as_object().unwrap());
        assert_eq!(text_of(&entries), object.to_string());
        assert_eq!(object_text([]), "{}");
    }
}
