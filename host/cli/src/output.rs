//! Everything that commands print: data on stdout, messages on stderr.
//!
//! A [`Record`] is described once. Lists, detail views and `--json` are made from that description.

mod failure;
mod rounds;
mod style;
mod table;

use std::io::{self, Write as _};

use serde::Serialize;
use serde_json::Number;
use serde_json::value::RawValue;

use crate::progress;
use campanile_model::json::JsonParts;
use campanile_model::text::{printable, printable_json};
use campanile_package::requests::{Request, sidecar_lines};
pub(crate) use failure::{ErrorCode, Exit, Failure};
pub(crate) use rounds::Rounds;
pub(crate) use style::has_colours;
pub(crate) use table::{columns, print_table, show_exact_times};

/// The result of a command, or of a part of it.
pub(crate) type Result<T = (), E = Failure> = std::result::Result<T, E>;

/// Returns exit code 1 as a failure, unless the thing that the command has done and printed succeeded.
pub(crate) fn check(is_success: bool) -> Result {
    if is_success {
        Ok(())
    } else {
        Err(Failure::failed(""))
    }
}

/// The functions of the same names, with formatted text.
mod macros {
    /// Print formatted text on stdout, as `print_line` does.
    macro_rules! print_line {
        ($($text:tt)*) => { $crate::output::print_line(&format!($($text)*)) };
    }

    /// Print a formatted message on stderr, as `print_message` does.
    macro_rules! print_message {
        ($($text:tt)*) => { $crate::output::print_message(&format!($($text)*)) };
    }

    /// Make a `Failure::refused` with formatted text.
    macro_rules! refused {
        ($($text:tt)*) => { $crate::output::Failure::refused(format!($($text)*)) };
    }

    /// Make a `Failure::failed` with formatted text.
    macro_rules! failed {
        ($($text:tt)*) => { $crate::output::Failure::failed(format!($($text)*)) };
    }
    pub(crate) use {failed, print_line, print_message, refused};
}
pub(crate) use macros::{failed, print_line, print_message, refused};

/// Something that commands list or show. Its `Serialize` implementation is its JSON.
pub(crate) trait Record: Serialize {
    /// The keys that a list shows, separated by spaces.
    const LIST: &'static str = "";
    /// The keys of the list that stay on a narrow terminal, beside the first one: a reader decides by them.
    const DECIDING: &'static str = "";
    /// The keys that a detail view shows, separated by spaces; without any, it shows all keys of the JSON.
    const DETAIL: &'static str = "";

    /// Returns what people see under `key`, where that is not the JSON value; empty for no value.
    fn text(&self, _key: &str) -> Option<String> {
        None
    }

    /// Print the record for people: the keys of the detail view, one on a line. Keys without a value are left out.
    fn print(&self) -> Result
    where
        Self: Sized,
    {
        print_detail(self)
    }
}

/// Returns the text of each of `keys`, or of all keys of the JSON when there are none.
fn texts<R: Record>(record: &R, keys: &'static str) -> Result<Vec<(String, String)>> {
    let json = serde_json::to_string(record).map_err(not_json)?;
    let JsonParts::Object(json) = JsonParts::of(&json).map_err(not_json)? else {
        return Ok(Vec::new());
    };
    let keys: Vec<&str> = match keys {
        "" => json.iter().map(|(key, _)| key.as_str()).collect(),
        _ => keys.split_whitespace().collect(),
    };
    let text = |key: &str| {
        let value = json.iter().find(|(found, _)| found == key);
        let value = value.map_or("null", |(_, value)| value.get());
        match JsonParts::of(value) {
            Ok(JsonParts::Object(spans)) if key.ends_with("_ms") => spans_text(&spans),
            _ => plain(value),
        }
    };
    let texts = keys.into_iter().map(|key| {
        let text = record.text(key).unwrap_or_else(|| text(key));
        (key.replace('_', " "), text)
    });
    Ok(texts.collect())
}

/// Returns named times in milliseconds as people read them.
fn spans_text(spans: &[(String, &RawValue)]) -> String {
    let spans = spans.iter().map(|(name, ms)| {
        let ms: f64 = ms.get().parse().unwrap_or_default();
        format!("{name} {ms:.1}")
    });
    spans.collect::<Vec<_>>().join(", ")
}

/// Returns a JSON value as people read it.
fn plain(value: &str) -> String {
    match JsonParts::of(value) {
        Ok(JsonParts::Word("null")) => String::new(),
        Ok(JsonParts::Word("true")) => "yes".to_owned(),
        Ok(JsonParts::Word("false")) => "no".to_owned(),
        Ok(JsonParts::String(text)) => text,
        Ok(JsonParts::List(items)) => {
            let items = items.iter().map(|item| plain(item.get()));
            items.collect::<Vec<_>>().join(", ")
        }
        Ok(JsonParts::Number(text)) => match text.parse::<Number>() {
            // The host writes numbers in this way. Another one is a task's, and stays as it is.
            Ok(number) if number.is_f64() && number.to_string() == text => {
                format!("{:.2}", number.as_f64().unwrap_or_default())
            }
            _ => text.to_owned(),
        },
        _ => value.to_owned(),
    }
}

fn not_json(error: serde_json::Error) -> Failure {
    failed!("the answer cannot be written as JSON: {error}")
}

/// Print `value` as JSON on stdout, with escapes for all that [`print_line`] escapes.
pub(crate) fn print_json(value: &(impl Serialize + ?Sized)) -> Result {
    let json = if rounds::is_repeated() {
        serde_json::to_string(value)
    } else {
        serde_json::to_string_pretty(value)
    };
    let json = json.map_err(not_json)?;
    write_line(&printable_json(&json))
}

/// Print text on stdout; control characters, which a guest may have written, are escaped.
pub(crate) fn print_line(text: &str) -> Result {
    write_line(&printable(text))
}

/// Print one line of an endless output, escaped as by [`print_line`]. Return false when the reader of stdout has closed it.
pub(crate) fn print_next_line(text: &str) -> Result<bool> {
    try_write_line(&printable(text))
}

/// Print `value` as JSON on one line of an endless output. Return false when the reader of stdout has closed it.
pub(crate) fn print_next_json(value: &impl Serialize) -> Result<bool> {
    let json = serde_json::to_string(value).map_err(not_json)?;
    try_write_line(&printable_json(&json))
}

fn write_line(text: &str) -> Result {
    // `head` in `campanile launch list | head` closes the pipe after ten lines.
    try_write_line(text).map(|_| ())
}

/// Write a line to stdout, or to the round of a command that is repeated. False when the reader has closed it.
fn try_write_line(text: &str) -> Result<bool> {
    if rounds::collect_line(text) {
        Ok(true)
    } else {
        write_stdout(&format!("{text}\n"))
    }
}

/// Write to stdout at once. False when its reader has closed it.
fn write_stdout(text: &str) -> Result<bool> {
    let written = progress::suspend(|| {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()
    });
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(failed!("stdout: {error}")),
        Ok(()) => Ok(true),
    }
}

/// Print the lines to add to the sidecar of `package` that grant all of `missing`.
pub(crate) fn print_sidecar_lines<'r>(
    package: &str,
    missing: impl IntoIterator<Item = &'r Request>,
) -> Result {
    let lines = sidecar_lines(missing);
    if lines.is_empty() {
        return Ok(());
    }
    print_line!("\nto grant what is missing, add to {package}.toml:\n{lines}")
}

/// Print one message on stderr. A closed stderr does not change the exit code.
pub(crate) fn print_message(text: &str) {
    let text = printable(text);
    if !rounds::collect_message(&text) {
        let text = if has_colours(&io::stderr()) {
            style::message(&text).into()
        } else {
            text
        };
        let _ = progress::suspend(|| writeln!(io::stderr().lock(), "{text}"));
    }
}

/// Print the keys of a record, one on a line. Those without a value are left out.
pub(crate) fn print_detail<R: Record>(record: &R) -> Result {
    let mut texts = texts(record, R::DETAIL)?;
    texts.retain(|(_, text)| !text.is_empty());
    let width = texts.iter().map(|(heading, _)| heading.len()).max();
    let width = width.unwrap_or_default();
    for (heading, text) in texts {
        // Text of a guest must not begin a line that looks like a key.
        let text = text.trim_end().replace('\n', &format!("\n{:width$} ", ""));
        print_line!("{heading:width$} {text}")?;
    }
    Ok(())
}

/// Returns `text` with at most `width` characters. A longer text is cut, and ends with `…`.
fn fitted(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept = text.chars().take(width.saturating_sub(1));
    kept.chain(['…']).collect()
}

/// Returns the text of an optional value, empty if absent.
pub(crate) fn optional(value: &Option<impl ToString>) -> String {
    value.as_ref().map_or_else(String::new, ToString::to_string)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_shown_without_json_syntax() {
        for (value, text) in [
            (json!(null), ""),
            (json!("a b"), "a b"),
            (json!(true), "yes"),
            (json!(false), "no"),
            (json!(7), "7"),
            (json!(0.5), "0.50"),
            (json!(["a", "b"]), "a, b"),
            (json!({"a": 1}), "{\"a\":1}"),
        ] {
            assert_eq!(plain(&value.to_string()), text);
        }
        // A number that only a task writes so stays as it is.
        for number in ["1.10", "12345678901234567890123", "1E+2"] {
            assert_eq!(plain(number), number);
        }
    }

    #[test]
    fn a_key_without_its_own_text_shows_its_json() {
        #[derive(Serialize)]
        struct Sample {
            first_name: &'static str,
            size: u32,
        }
        impl Record for Sample {
            fn text(&self, key: &str) -> Option<String> {
                (key == "size").then(|| format!("{} bytes", self.size))
            }
        }
        let sample = Sample {
            first_name: "Ada",
            size: 3,
        };
        let shown = |keys| texts(&sample, keys).unwrap();
        let pair = |heading: &str, text: &str| (heading.to_owned(), text.to_owned());
        let [name, size] = [pair("first name", "Ada"), pair("size", "3 bytes")];
        assert_eq!(shown(""), [name.clone(), size.clone()]);
        assert_eq!(
            shown("size first_name missing"),
            [size, name, pair("missing", "")]
        );
    }
}
