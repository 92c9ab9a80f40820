//! Colours of words, where the output is a terminal.

use std::ffi::OsStr;
use std::io::IsTerminal;

use clap::builder::styling::{AnsiColor, Style};

use crate::environment;

/// The labels of messages. The first one is like that of clap, which prints the errors of arguments.
const LABELS: [(&str, Style); 4] = [
    ("error:", AnsiColor::Red.on_default().bold()),
    ("warning:", AnsiColor::Yellow.on_default().bold()),
    ("hint:", AnsiColor::Green.on_default()),
    ("note:", AnsiColor::Cyan.on_default()),
];

/// Whether a stream gets colours: it is a terminal, and `NO_COLOR` is not set.
pub(crate) fn has_colours(stream: &impl IsTerminal) -> bool {
    let no_color = std::env::var_os(environment::NO_COLOR);
    colours(stream.is_terminal(), no_color.as_deref())
}

fn colours(terminal: bool, no_color: Option<&OsStr>) -> bool {
    terminal && no_color.is_none_or(OsStr::is_empty)
}

/// Returns a message with its label in colour, if it begins with one.
pub(super) fn message(text: &str) -> String {
    let rest = text.trim_start_matches('\n');
    let space = &text[..text.len() - rest.len()];
    let labelled = LABELS
        .iter()
        .find_map(|(label, style)| Some((label, style, rest.strip_prefix(label)?)));
    match labelled {
        Some((label, style, rest)) => format!("{space}{style}{label}{style:#}{rest}"),
        None => text.to_owned(),
    }
}

/// Returns a cell of a table in the colour of its meaning. `key` is that of the column.
pub(super) fn cell(key: &str, text: &str) -> String {
    match colour(key, text) {
        Some(colour) => {
            let style = colour.on_default();
            format!("{style}{text}{style:#}")
        }
        None => text.to_owned(),
    }
}

fn colour(key: &str, word: &str) -> Option<AnsiColor> {
    if !matches!(key, "status" | "state") {
        return None;
    }
    match word {
        "succeeded" | "active" => Some(AnsiColor::Green),
        "failed" | "abandoned" | "unknown" | "lost" | "rejected" | "missing" => {
            Some(AnsiColor::Red)
        }
        "skipped" | "cancelled" | "waiting" | "paused" | "pending_approval" => {
            Some(AnsiColor::Yellow)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_need_a_terminal_and_no_color_unset() {
        assert!(colours(true, None));
        assert!(colours(true, Some(OsStr::new(""))));
        assert!(!colours(true, Some(OsStr::new("1"))));
        assert!(!colours(false, None));
    }

    #[test]
    fn only_a_label_at_the_beginning_has_a_colour() {
        assert_eq!(
            message("error: no error: x"),
            "\u{1b}[1m\u{1b}[31merror:\u{1b}[0m no error: x"
        );
        assert_eq!(message("\nhint: y"), "\n\u{1b}[32mhint:\u{1b}[0m y");
        assert_eq!(message("an error: z"), "an error: z");
    }

    #[test]
    fn only_words_of_a_status_have_a_colour() {
        assert_eq!(cell("status", "failed"), "\u{1b}[31mfailed\u{1b}[0m");
        assert_eq!(cell("message", "failed"), "failed");
        assert_eq!(cell("status", "open"), "open");
    }
}
