//! Tables: records under a header. On a terminal they fit its width, and statuses have colours.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use terminal_size::{Width, terminal_size_of};

use super::style;
use super::{Record, Result, fitted, print_message, rounds, texts, write_line};
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::text::{distance, printable};

/// Between two columns.
const GAP: &str = "  ";
/// A column of this many characters is not shortened. A time in seconds has as many, an id fewer.
const WIDTH_KEPT: usize = 20;
/// The last column, which is often a text, may be shorter.
const LAST_WIDTH_KEPT: usize = 8;
/// No value.
const NONE: &str = "-";

/// Whether a terminal shows times as they're on record.
static HAS_EXACT_TIMES: AtomicBool = AtomicBool::new(false);

/// Shows times at a terminal as they're on record from now on, and not how far away they are.
pub(crate) fn show_exact_times() {
    HAS_EXACT_TIMES.store(true, Ordering::Relaxed);
}

/// Print records under a header, each column as wide as its widest cell.
pub(crate) fn print_table<'r, R: Record + 'r>(records: impl IntoIterator<Item = &'r R>) -> Result {
    let keys = Vec::from_iter(R::LIST.split_whitespace());
    debug_assert!(
        R::DECIDING
            .split_whitespace()
            .all(|key| keys.contains(&key)),
        "{} has not all of {}",
        R::LIST,
        R::DECIDING
    );
    let mut table = Table {
        keys,
        deciding: R::DECIDING,
        rows: Vec::new(),
    };
    let terminal = terminal_size_of(io::stdout());
    let is_relative = terminal.is_some() && !HAS_EXACT_TIMES.load(Ordering::Relaxed);
    let now = is_relative.then(|| Clock::system().now());
    for record in records {
        let texts = table.keys.iter().zip(texts(record, R::LIST)?);
        let cells = texts.map(|(key, (_, text))| match now {
            Some(now) => cell(&relative(key, text, now)),
            None => cell(&text),
        });
        let cells = cells.collect();
        table.rows.push(cells);
    }
    let omitted = match terminal {
        Some((Width(width), _)) => table.fit(usize::from(width)),
        None => Vec::new(),
    };
    let has_colours = !rounds::is_repeated() && style::has_colours(&io::stdout());
    table
        .lines(has_colours)
        .try_for_each(|line| write_line(&line))?;
    if !omitted.is_empty() && !rounds::is_repeated() {
        print_message(&format!(
            "note: this terminal is too narrow for {}; a wider one shows all columns, and --json all values",
            omitted.join(", ")
        ));
    }
    Ok(())
}

struct Table {
    keys: Vec<&'static str>,
    deciding: &'static str,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Make the table fit `width` characters. Return the keys of the columns with values that had to be left out.
    ///
    /// Columns without values are left out first, then those by which nobody decides, from the last one on. The widest columns are
    /// shortened, but not the first one: it has the names and ids that are copied.
    fn fit(&mut self, width: usize) -> Vec<&'static str> {
        let mut omitted = Vec::new();
        if total(&self.widths()) <= width {
            return omitted;
        }
        for column in (1..self.keys.len()).rev() {
            let is_empty = self.rows.iter().all(|row| row[column] == NONE);
            if is_empty && !self.rows.is_empty() {
                self.omit(column);
            }
        }
        while self.keys.len() > 2 && self.least_width() > width {
            let is_kept = |key: &str| self.deciding.split(' ').any(|deciding| deciding == key);
            let Some(column) = (1..self.keys.len())
                .rev()
                .find(|column| !is_kept(self.keys[*column]))
            else {
                break;
            };
            omitted.push(self.omit(column));
        }
        let widths = self.shortened(width);
        for row in &mut self.rows {
            for (cell, width) in row.iter_mut().zip(&widths) {
                *cell = fitted(cell, *width);
            }
        }
        omitted.reverse();
        omitted
    }

    fn omit(&mut self, column: usize) -> &'static str {
        for row in &mut self.rows {
            row.remove(column);
        }
        self.keys.remove(column)
    }

    /// Returns the width of each column.
    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.keys.iter().map(|key| key.len()).collect();
        widen(&mut widths, &self.rows);
        widths
    }

    /// Returns the width of the table when its columns are shortened as far as they may be.
    fn least_width(&self) -> usize {
        total(&self.shortened(0))
    }

    /// Returns the widths of the columns in a table of at most `width` characters, if shortening the widest suffices for that.
    fn shortened(&self, width: usize) -> Vec<usize> {
        let mut widths = self.widths();
        let last = widths.len() - 1;
        let kept = |column: usize| {
            if column == last && !is_instant(self.keys[column]) {
                LAST_WIDTH_KEPT
            } else {
                WIDTH_KEPT
            }
        };
        while total(&widths) > width {
            let can_be_shorter = (1..widths.len()).filter(|column| widths[*column] > kept(*column));
            // Of two columns with the same width, the last one.
            let Some(widest) = can_be_shorter.max_by_key(|column| widths[*column]) else {
                break;
            };
            widths[widest] -= 1;
        }
        widths
    }

    fn lines(&self, has_colours: bool) -> impl Iterator<Item = String> {
        let widths = self.widths();
        let headings = self.keys.iter();
        let headings = headings.map(|key| key.replace('_', " ").to_uppercase());
        let header = line(&headings.collect::<Vec<_>>(), &widths, |_, text| {
            text.to_owned()
        });
        let rows = self.rows.iter().map(move |row| {
            line(row, &widths, |column, text| {
                if has_colours {
                    style::cell(self.keys[column], text)
                } else {
                    text.to_owned()
                }
            })
        });
        std::iter::once(header).chain(rows)
    }
}

/// Whether a column has instants: half of one says nothing.
fn is_instant(key: &str) -> bool {
    key == "at"
        || ["_at", "_time", "slot"]
            .iter()
            .any(|end| key.ends_with(end))
}

/// Returns how far away an instant is; another text as it is.
fn relative(key: &str, text: String, now: Timestamp) -> String {
    match text.parse::<Timestamp>() {
        Ok(at) if is_instant(key) => distance(at, now),
        _ => text,
    }
}

/// Returns the width of a table.
fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1)
}

fn widen(widths: &mut [usize], rows: &[Vec<String>]) {
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
}

/// Returns a row as one line, its cells padded to the width of their columns. `shown` returns what stands for a cell, with
/// its column.
fn line(row: &[String], widths: &[usize], shown: impl Fn(usize, &str) -> String) -> String {
    let mut line = String::new();
    let mut padding = 0;
    for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
        line += &" ".repeat(padding);
        line += &shown(column, cell);
        padding = width.saturating_sub(cell.chars().count()) + GAP.len();
    }
    line
}

/// Returns each row as one line, its cells padded to the width of their columns.
pub(crate) fn columns(rows: &[Vec<String>]) -> impl Iterator<Item = String> {
    let mut widths = vec![0; rows.first().map_or(0, Vec::len)];
    widen(&mut widths, rows);
    rows.iter()
        .map(move |row| line(row, &widths, |_, text| text.to_owned()))
}

/// Returns a value as a cell of a table: one line.
fn cell(text: &str) -> String {
    match text {
        "" => NONE.to_owned(),
        text => printable(text).replace(['\n', '\t'], " "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_one_line_without_control_characters() {
        assert_eq!(cell(""), "-");
        assert_eq!(cell("a\nb\tc\u{1b}"), "a b c\\u{1b}");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["A", "B"], ["long", "é"]].map(|row| row.map(str::to_owned).to_vec());
        let lines: Vec<String> = columns(&rows).collect();
        assert_eq!(lines, ["A     B", "long  é"]);
    }

    fn table(keys: &'static str, rows: &[&[&str]]) -> Table {
        let rows = rows.iter();
        Table {
            keys: keys.split(' ').collect(),
            deciding: "state message",
            rows: rows
                .map(|row| row.iter().map(|cell| (*cell).to_owned()).collect())
                .collect(),
        }
    }

    fn lines(table: &Table) -> Vec<String> {
        table.lines(false).collect()
    }

    #[test]
    fn a_table_that_fits_stays_as_it_is() {
        let mut one = table("id note", &[&["1", "-"]]);
        assert!(one.fit(8).is_empty());
        assert_eq!(lines(&one), ["ID  NOTE", "1   -"]);
    }

    #[test]
    fn a_text_is_shortened_and_an_id_is_not() {
        let id = "01a1fd88-9872-8d5c-a000-0123456789ab";
        let mut one = table("id message", &[&[id, "a text that is far too long"]]);
        assert!(one.fit(48).is_empty());
        assert_eq!(lines(&one)[1], format!("{id}  a text th…"));
        // It does not become shorter than eight characters.
        let mut one = table("id message", &[&[id, "a text that is far too long"]]);
        assert!(one.fit(20).is_empty());
        assert_eq!(lines(&one)[1], format!("{id}  a text …"));
    }

    #[test]
    fn a_column_without_values_goes_first_and_then_those_that_decide_nothing() {
        let row: &[&str] = &["one", "-", "sixteen letters.", "2", "the cause of it"];
        let mut one = table("name reason kind attempts message", &[row]);
        assert!(one.fit(48).is_empty());
        assert_eq!(
            lines(&one)[1],
            "one   sixteen letters.  2         the cause of …"
        );
        let mut one = table("name reason kind attempts message", &[row]);
        assert_eq!(one.fit(31), ["kind", "attempts"]);
        assert_eq!(lines(&one), ["NAME  MESSAGE", "one   the cause of it"]);
        let row: &[&str] = &["one", "paused", "every 5s", "Europe/Amsterdam"];
        let mut one = table("name state rule timezone", &[row]);
        assert_eq!(one.fit(12), ["rule", "timezone"]);
        assert_eq!(lines(&one), ["NAME  STATE", "one   paused"]);
    }

    #[test]
    fn an_instant_is_not_cut_within_its_seconds() {
        let instant = "2026-11-24T14:31:10.123456Z";
        let mut one = table("name started_at", &[&["one", instant]]);
        assert!(one.fit(20).is_empty());
        assert_eq!(lines(&one)[1], "one   2026-11-24T14:31:10…");
    }

    #[test]
    fn colours_do_not_move_columns() {
        let one = table("id status message", &[&["1", "failed", "x"]]);
        let coloured: Vec<String> = one.lines(true).collect();
        assert_eq!(coloured[1], "1   \u{1b}[31mfailed\u{1b}[0m  x");
    }
}
