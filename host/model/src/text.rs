//! Text that people read and write: durations, sizes, the nearest word, and guests' text made safe to print.

use std::borrow::Cow;
use std::fmt::{Display, Write as _};
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::clock::Timestamp;
use bytesize::ByteSize;

/// The longest error text, in bytes. Errors may be quoting keys, names or imports of any length.
pub const ERROR_BYTES_MAX: usize = 2 << 10;

/// How many bytes to keep at the end when cutting an error: that's often where it says what to do.
const ERROR_END_BYTES: usize = 400;

/// The longest word, in bytes, for which [`nearest`] looks for another.
const WORD_BYTES_MAX: usize = 256;

/// Shortens an error text to [`ERROR_BYTES_MAX`] by cutting out its middle.
///
/// Used both when making errors from the text of files or guests and when recording them.
pub fn cut_error(text: impl Into<String>) -> String {
    // Enough for the mark left by cutting.
    const MARK_BYTES: usize = 64;
    let text = text.into();
    if text.len() <= ERROR_BYTES_MAX {
        return text;
    }
    let begin = text.floor_char_boundary(ERROR_BYTES_MAX - ERROR_END_BYTES - MARK_BYTES);
    let end = text.ceil_char_boundary(text.len() - ERROR_END_BYTES);
    let (cut, begin, end) = (end - begin, &text[..begin], &text[end..]);
    format!("{begin} [… {cut} bytes left out …] {end}")
}

/// The candidate most like `word`, if any is alike enough to be meant.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > WORD_BYTES_MAX {
        return None;
    }
    let best = most_alike(word, candidates)?;
    (strsim::jaro_winkler(word, best) > 0.75).then_some(best)
}

/// Returns the hint `; did you mean …?` with the candidate that [`nearest`] finds, or an empty text.
pub fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    let near = nearest(word, candidates);
    near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
}

/// Returns the candidate most like `word`, however little that may be, or the last of several equally alike.
pub fn most_alike<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let end = word.char_indices().nth(WORD_BYTES_MAX);
    let word = end.map_or(word, |(end, _)| &word[..end]);
    candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(word, candidate), candidate))
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, candidate)| candidate)
}

/// Whether `name` consists of 1 to `bytes_max` ASCII letters, digits, `.`, `_` or `-`, and works as a segment of a URL path.
///
/// `.` and `..` don't: browsers and proxies resolve them, leaving anything so named without an address.
pub fn is_plain_name(name: &str, bytes_max: usize) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_resolved = [".", ".."].contains(&name);
    (1..=bytes_max).contains(&name.len()) && name.bytes().all(is_plain) && !is_resolved
}

/// Returns a number of things, such as `1 launch` or `2 launches`. `one` is the word for one of them.
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, one: &str) -> String {
    if count == N::from(1) {
        return format!("{count} {one}");
    }
    let needs_e = ["s", "x", "ch", "sh"].iter().any(|end| one.ends_with(end));
    let plural = if needs_e { "es" } else { "s" };
    format!("{count} {one}{plural}")
}

/// Read a duration such as `30s`, or a bare `0`; the error says what is wrong and reads after the key's name.
pub fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text.trim()).map_err(|_| {
        format!(
            "is {text:?}, which is not a duration: write a number with a unit, such as \"30s\" or \"5m\""
        )
    })
}

/// Read a duration from `least` to `most`, as [`duration`] does.
pub fn duration_within(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    let duration = duration(text)?;
    if (least..=most).contains(&duration) {
        return Ok(duration);
    }
    let (least, most) = (duration_text(least), duration_text(most));
    Err(out_of_bounds(&least, &most, text))
}

fn out_of_bounds(least: &str, most: &str, text: &str) -> String {
    format!("must be from \"{least}\" to \"{most}\", not {text:?}")
}

/// Read a number of bytes such as `64MiB`; the error reads as that of [`duration`] does.
pub fn size(text: &str) -> Result<u64, String> {
    let size = text.trim().parse().map(|ByteSize(bytes)| bytes);
    size.map_err(|_| {
        format!("is {text:?}, which is not a size: write a number with a unit, such as \"64MiB\"")
    })
}

/// Read a number of bytes from `least` to `most`, as [`size`] does.
pub fn size_within(text: &str, least: u64, most: u64) -> Result<u64, String> {
    match size(text)? {
        bytes if (least..=most).contains(&bytes) => Ok(bytes),
        _ if most >= i64::MAX as u64 => Err(format!(
            "must be at least \"{}\", not {text:?}",
            size_text(least)
        )),
        _ => Err(out_of_bounds(&size_text(least), &size_text(most), text)),
    }
}

/// A duration as [`duration`] reads it, such as `5m`.
pub fn duration_text(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

/// Returns a span such as `1 h 5 min`, in at most two units.
pub fn span(span: Duration) -> String {
    let (seconds, millis) = (span.as_secs(), span.as_millis());
    match seconds {
        0 => format!("{millis} ms"),
        1..10 => format!("{:.1} s", span.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// Returns a span in its larger unit alone, as far as that says enough: `42 s`, `5 min`, `1 h 5 min`, `2 d 3 h`.
pub fn rough(length: Duration) -> String {
    let seconds = length.as_secs();
    match seconds {
        0 => "1 s".to_owned(),
        1..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        _ => span(length),
    }
}

/// Returns how far a time is from `now`: `in 5 min`, or `2 h 3 min ago`.
pub fn distance(at: Timestamp, now: Timestamp) -> String {
    if at > now {
        format!("in {}", rough(at.since(now)))
    } else {
        format!("{} ago", rough(now.since(at)))
    }
}

/// A number of bytes in the greatest unit that gives a whole number, such as `64MiB`.
pub fn size_text(bytes: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    for (unit, shift) in UNITS {
        let whole = bytes >> shift;
        if whole > 0 && whole << shift == bytes {
            return format!("{whole}{unit}");
        }
    }
    format!("{bytes}B")
}

/// A number of bytes as people read it, such as `12.3 MiB`.
pub fn size_rounded(bytes: u64) -> String {
    ByteSize(bytes).display().iec().to_string()
}

/// `text` with every control character but newline and tab written out, as `\u{1b}`.
///
/// A task writes its log lines and failures; printed raw, they could clear the operator's terminal,
/// set its title or show one thing while meaning another. Characters that turn the direction of
/// writing, and invisible ones, are treated as controls for the same reason.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |character, safe| {
        // Writing to a String cannot fail.
        let _ = write!(safe, "{}", character.escape_unicode());
    })
}

/// The JSON text `json` with the characters that [`printable`] writes out as escapes of JSON, such as `\u009b`.
///
/// They can stand only in strings, and a reader of JSON gets them back.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    escaped(json, |character, safe| {
        for unit in character.encode_utf16(&mut [0; 2]) {
            // Writing to a String cannot fail.
            let _ = write!(safe, "\\u{unit:04x}");
        }
    })
}

/// `text` with every hostile character as `escape` writes it.
fn escaped(text: &str, escape: impl Fn(char, &mut String)) -> Cow<'_, str> {
    if !text.contains(hostile) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if hostile(character) {
            escape(character, &mut safe)
        } else {
            safe.push(character)
        }
    }
    Cow::Owned(safe)
}

/// [`printable`] on one line: a newline of a guest's must not begin a log line that seems to be the host's.
pub fn printable_line(text: &str) -> String {
    printable(text).replace('\n', "\\n")
}

/// Whether `text` is a single line of visible characters, which [`printable_line`] would leave unchanged.
pub fn is_printable_line(text: &str) -> bool {
    !text.contains(|character| hostile(character) || ['\n', '\t'].contains(&character))
}

/// Quotes `text` as a single-line TOML string, escaping everything [`printable_line`] escapes.
pub fn toml_string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        // Writing to a String can't fail.
        let _ = match character {
            '"' | '\\' => write!(quoted, "\\{character}"),
            '\n' => write!(quoted, "\\n"),
            '\t' => write!(quoted, "\\t"),
            other if hostile(other) => write!(quoted, "\\U{:08x}", u32::from(other)),
            other => write!(quoted, "{other}"),
        };
    }
    quoted.push('"');
    quoted
}

/// [`printable`] with every line but the first set off, so that none can pass for one of the host's.
pub fn printable_lines(text: &str) -> String {
    printable(text).trim_end().replace('\n', "\n    | ")
}

/// The invisible characters: Unicode's property `Default_Ignorable_Code_Point`,
/// with the marks of direction, and the marks of annotations.
///
/// The selectors of a symbol's or an emoji's form, U+FE00 to U+FE0F, are left out: they are common in harmless texts.
const INVISIBLE: [RangeInclusive<char>; 16] = [
    '\u{ad}'..='\u{ad}',
    '\u{34f}'..='\u{34f}',
    '\u{61c}'..='\u{61c}',
    '\u{115f}'..='\u{1160}',
    '\u{17b4}'..='\u{17b5}',
    '\u{180b}'..='\u{180f}',
    '\u{200b}'..='\u{200f}',
    // Characters that some programs read as ends of lines, then characters that change the direction of text.
    '\u{2028}'..='\u{202e}',
    '\u{2060}'..='\u{206f}',
    '\u{3164}'..='\u{3164}',
    '\u{feff}'..='\u{feff}',
    '\u{ffa0}'..='\u{ffa0}',
    '\u{fff0}'..='\u{fffb}',
    '\u{1bca0}'..='\u{1bca3}',
    '\u{1d173}'..='\u{1d17a}',
    '\u{e0000}'..='\u{e0fff}',
];

fn hostile(character: char) -> bool {
    match character {
        '\n' | '\t' | ' '..='~' => false,
        other => other.is_control() || INVISIBLE.iter().any(|range| range.contains(&other)),
    }
}

/// Quotes a word for a shell, if needed. Names in proposed commands may come from a hostile file or database row.
pub fn shell(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/:+=@%".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_two_units_at_most() {
        for (millis, expected) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_500, "1.5 s"),
            (59_000, "59 s"),
            (61_000, "1 min 1 s"),
            (3_660_000, "1 h 1 min"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(span(Duration::from_millis(millis)), expected);
        }
    }

    #[test]
    fn one_thing_has_no_plural() {
        for (count, one, text) in [
            (0, "slot", "0 slots"),
            (1, "launch", "1 launch"),
            (2, "launch", "2 launches"),
            (1_000, "more schedule", "1000 more schedules"),
        ] {
            assert_eq!(counted(count, one), text);
        }
    }

    #[test]
    fn a_plain_name_is_a_segment_of_a_path() {
        for name in ["a", "nightly.v2", "...", ".a", "-", "a..b"] {
            assert!(is_plain_name(name, 64), "{name}");
        }
        for name in ["", ".", "..", "a b", "a/b", "é", "a\n", "%2e", "abcde"] {
            assert!(!is_plain_name(name, 4), "{name}");
        }
    }

    #[test]
    fn a_long_error_keeps_its_begin_and_its_end() {
        for length in [0, 1, ERROR_BYTES_MAX] {
            assert_eq!(cut_error("x".repeat(length)), "x".repeat(length));
        }
        for middle in ["x", "é", "日", "🔔"] {
            let long = format!("begin {} end", middle.repeat(1 << 20));
            let cut = cut_error(long.clone());
            assert!(cut.len() <= ERROR_BYTES_MAX && cut.capacity() <= 2 * ERROR_BYTES_MAX);
            assert!(cut.starts_with("begin ") && cut.ends_with(" end"), "{cut}");
            let (before, rest) = cut.split_once(" [… ").unwrap();
            let (number, after) = rest.split_once(" bytes left out …] ").unwrap();
            let number: usize = number.parse().unwrap();
            assert_eq!(before.len() + number + after.len(), long.len());
            assert_eq!(cut_error(cut.clone()), cut);
        }
    }

    #[test]
    fn no_word_is_like_one_of_a_million_letters() {
        assert_eq!(nearest("timout", ["timeout"]), Some("timeout"));
        assert_eq!(nearest(&"timeout".repeat(1 << 20), ["timeout"]), None);
    }

    #[test]
    fn guest_text_cannot_reach_the_terminal_with_control_characters() {
        assert_eq!(printable("plain\n\ttext é 🔔"), "plain\n\ttext é 🔔");
        assert!(matches!(printable("plain"), Cow::Borrowed(_)));
        assert_eq!(
            printable("\u{1b}[2Jgone\r\u{9b}31m\u{7}\0"),
            "\\u{1b}[2Jgone\\u{d}\\u{9b}31m\\u{7}\\u{0}"
        );
        assert_eq!(printable("a\u{202e}b"), "a\\u{202e}b");
        for invisible in [
            '\u{7f}',
            '\u{85}',
            '\u{9b}',
            '\u{ad}',
            '\u{61c}',
            '\u{180e}',
            '\u{200b}',
            '\u{200d}',
            '\u{200f}',
            '\u{2028}',
            '\u{202a}',
            '\u{2060}',
            '\u{2069}',
            '\u{3164}',
            '\u{feff}',
            '\u{fffb}',
            '\u{1d173}',
            '\u{e0041}',
        ] {
            let expected = format!("a{}b", invisible.escape_unicode());
            assert_eq!(printable(&format!("a{invisible}b")), expected);
        }
        assert_eq!(
            printable("✔\u{fe0f} ä 日本 שלום 👍🏽"),
            "✔\u{fe0f} ä 日本 שלום 👍🏽"
        );
        assert_eq!(printable_line("a\nb\r"), "a\\nb\\u{d}");
        assert_eq!(
            printable_lines("a\n2026-11-21T02:00:00Z error b\r\u{2028}c\n"),
            "a\n    | 2026-11-21T02:00:00Z error b\\u{d}\\u{2028}c"
        );
    }

    #[test]
    fn a_string_of_toml_is_one_line() {
        let quoted = toml_string("a\"\\\n\t\r\u{202e}é{}");
        assert_eq!(quoted, r#""a\"\\\n\t\U0000000d\U0000202eé{}""#);
        assert!(is_printable_line(&quoted));
        for text in [
            "a\nb",
            "a\tb",
            "a\rb",
            "a\u{85}b",
            "a\u{2028}b",
            "a\u{202e}b",
        ] {
            assert!(!is_printable_line(text), "{text:?}");
        }
        assert!(is_printable_line("é 日本"));
    }

    #[test]
    fn json_is_printed_with_escapes_that_mean_the_same() {
        let text = "a\u{1b}\u{7f}\u{9b}2J\u{202e}\u{feff}\u{e0041}\n\té🔔\"\\";
        let json = serde_json::to_string_pretty(&[text]).unwrap();
        let shown = printable_json(&json);
        assert_eq!(
            shown,
            "[\n  \"a\\u001b\\u007f\\u009b2J\\u202e\\ufeff\\udb40\\udc41\\n\\té🔔\\\"\\\\\"\n]"
        );
        assert_eq!(serde_json::from_str::<Vec<String>>(&shown).unwrap(), [text]);
        assert!(matches!(printable_json("[\n  1\n]"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_word_for_a_shell_is_quoted() {
        assert_eq!(shell("nightly"), "nightly");
        assert_eq!(shell("it's; rm"), r"'it'\''s; rm'");
        assert_eq!(shell(""), "''");
    }
}
