//! Text as both databases can store it, and stored JSON.

use std::borrow::Cow;

use campanile_model::json::JsonAsWritten;
use campanile_model::json_text::JsonText;
use campanile_model::text::cut_error;
use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

/// A text as both databases can keep it: Postgres refuses a zero byte, and what a task
/// prints must not make its end impossible to record.
pub(super) fn storable(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        Cow::Owned(text.replace('\0', "\u{FFFD}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// Returns an error's or event's text as recorded: storable and not too long, whoever wrote it.
pub(super) fn recorded(text: &str) -> String {
    cut_error(storable(text))
}

/// Serializes stored JSON as JSON, keeping numbers as written; any text other than JSON becomes a string.
pub(super) fn json_text<S: Serializer>(
    text: &(impl Clone + Into<Option<String>>),
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let text: Option<String> = text.clone().into();
    match text {
        None => serializer.serialize_none(),
        Some(text) => match JsonAsWritten::of(&text) {
            Some(json) => json.serialize(serializer),
            None => serializer.serialize_str(&text),
        },
    }
}

/// Deserializes JSON as the text that is stored, with its numbers as they are written. A struct that flattens one with such a field
/// needs [`read_by_parts`](campanile_model::read_by_parts).
pub(super) fn stored_json<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    JsonText::deserialize(from).map(|json| json.to_string())
}

/// Deserialize JSON as the text that is stored; null as none.
pub(super) fn optional_stored_json<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<String>, D::Error> {
    let json = Option::<JsonText>::deserialize(from)?;
    Ok(json.map(|json| json.to_string()))
}
