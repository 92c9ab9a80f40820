//! Strict reading of TOML files and of the JSON descriptions of packages.
//!
//! Every key is known or reported, and every error names the file, the line, the column and the key.
//! A mistyped key that is ignored would be a limit that does not apply or a schedule that never fires.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use campanile_model::clock::Timestamp;
use campanile_model::text::{duration_within, nearest, size_within};

/// A mistake in a file, and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}")]
pub struct Error {
    /// The file's name as the caller of [`Document::parse`] gave it.
    pub file: String,
    /// Counted from 1.
    pub line: usize,
    /// Counted in characters from 1.
    pub column: usize,
    /// One sentence, with the key's path and what to write instead.
    pub message: String,
}

/// A parsed file. No value is accepted until a [`Section`] has read it.
#[derive(Default)]
pub struct Document<'t> {
    /// Empty for a JSON value, as is the text.
    file: &'t str,
    text: &'t str,
    is_toml: bool,
    root: Cow<'t, Map<String, Value>>,
    /// The byte offset of each value whose path has at most [`PATH_BYTES_MAX`], by its path.
    places: BTreeMap<String, usize>,
    /// The paths of TOML's own dates, which [`Document::root`] holds as text.
    dates: BTreeSet<String>,
}

impl<'t> Document<'t> {
    /// Parse the TOML in `text`; `file` is the name that errors show.
    ///
    /// # Errors
    /// When `text` is not TOML, or holds a number that JSON cannot express.
    pub fn parse(file: &'t str, text: &'t str) -> Result<Document<'t>, Error> {
        let mut document = Document {
            file,
            text,
            is_toml: true,
            ..Document::default()
        };
        let root = DeTable::parse(text).map_err(|error| {
            let hint = match error.message() {
                "duplicate key" => {
                    ", which this file also sets elsewhere, alone or within a table or list: write it there"
                }
                _ => "",
            };
            let offset = error.span().map_or(0, |span| span.start);
            document.error_at(offset, format!("this is not TOML: {}{hint}", error.message()))
        })?;
        document.root = Cow::Owned(document.convert_table("", root.get_ref())?);
        Ok(document)
    }

    /// Read the JSON object in `value`.
    ///
    /// # Errors
    /// When `value` is not an object.
    pub fn from_json(value: &'t Value) -> Result<Document<'t>, Error> {
        let mut document = Document::default();
        let Value::Object(root) = value else {
            return Err(document.error_at(0, "it is not a JSON object".to_owned()));
        };
        document.root = Cow::Borrowed(root);
        Ok(document)
    }

    /// Return the top of the file.
    pub fn section(&self) -> Section<'_> {
        self.section_at(String::new(), Some(&self.root))
    }

    fn section_at<'d>(
        &'d self,
        path: String,
        table: Option<&'d Map<String, Value>>,
    ) -> Section<'d> {
        Section {
            document: self,
            path,
            table,
            known: Vec::new(),
        }
    }

    fn convert_table(
        &mut self,
        path: &str,
        table: &DeTable<'_>,
    ) -> Result<Map<String, Value>, Error> {
        let mut map = Map::new();
        for (key, value) in table {
            let path = match path.len() + key.get_ref().len() > PATH_BYTES_MAX {
                // Errors name the nearest table around it.
                true => path.to_owned(),
                false => child_path(path, key.get_ref()),
            };
            let offset = match value.get_ref() {
                // A header `[a.b]` mentions `a`, too, but the header of `a` may stand elsewhere.
                DeValue::Table(_) => value.span().start,
                _ => key.span().start,
            };
            let converted = self.convert(&path, offset, value)?;
            map.insert(key.get_ref().to_string(), converted);
        }
        Ok(map)
    }

    fn convert(
        &mut self,
        path: &str,
        offset: usize,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<Value, Error> {
        self.places.entry(path.to_owned()).or_insert(offset);
        let unfit = |what: String| self.error_at(offset, format!("`{path}` holds {what}"));
        Ok(match value.get_ref() {
            DeValue::String(text) => Value::from(text.as_ref()),
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                .map(Value::from)
                .map_err(|_| unfit(format!("{number}, which does not fit in 64 bits")))?,
            DeValue::Float(number) => number
                .as_str()
                .parse()
                .ok()
                .and_then(Number::from_f64)
                .map(Value::Number)
                .ok_or_else(|| unfit(format!("{number}, which JSON cannot express")))?,
            DeValue::Boolean(truth) => Value::from(*truth),
            DeValue::Datetime(time) => {
                self.dates.insert(path.to_owned());
                Value::from(time.to_string())
            }
            DeValue::Array(list) => {
                let items = list.iter().enumerate();
                items
                    .map(|(index, item)| {
                        let path = match path.len() < PATH_BYTES_MAX {
                            true => format!("{path}[{index}]"),
                            false => path.to_owned(),
                        };
                        self.convert(&path, item.span().start, item)
                    })
                    .collect::<Result<_, _>>()?
            }
            DeValue::Table(table) => Value::Object(self.convert_table(path, table)?),
        })
    }

    /// Return the place of `path`, or of the nearest table around it.
    fn offset_of(&self, path: &str) -> usize {
        let mut around = path;
        loop {
            match (self.places.get(around), around.rfind(['.', '['])) {
                (Some(offset), _) => return *offset,
                (None, Some(end)) => around = &around[..end],
                (None, None) => return 0,
            }
        }
    }

    fn error_at(&self, offset: usize, message: String) -> Error {
        let before = &self.text[..self.text.floor_char_boundary(offset)];
        Error {
            file: self.file.to_owned(),
            line: 1 + before.matches('\n').count(),
            column: 1 + before.chars().rev().take_while(|c| *c != '\n').count(),
            message,
        }
    }

    /// Return the text of `value` at `path`; `None` for another type, also for a date of TOML.
    fn text_of<'v>(&self, path: &str, value: &'v Value) -> Option<&'v str> {
        value.as_str().filter(|_| !self.dates.contains(path))
    }

    fn type_name(&self, path: &str, value: &Value) -> &'static str {
        match value {
            Value::String(_) if self.dates.contains(path) => "a date",
            Value::String(_) => "a text",
            Value::Number(number) if number.is_f64() => "a fraction",
            Value::Number(_) => "a number",
            Value::Bool(_) => "true or false",
            Value::Array(_) => "a list",
            Value::Object(_) if self.is_toml => "a table",
            Value::Object(_) => "an object",
            Value::Null => "null",
        }
    }
}

/// One table of a file. Read each key that the table may have, then call [`Section::finish`].
///
/// A key whose JSON value is `null` counts as absent, because not every language can leave a field out.
pub struct Section<'d> {
    document: &'d Document<'d>,
    path: String,
    /// `None` for a table that the file does not have.
    table: Option<&'d Map<String, Value>>,
    known: Vec<&'static str>,
}

impl<'d> Section<'d> {
    /// Return the full path of `key`, such as `limits.timeout`.
    pub fn path_of(&self, key: &str) -> String {
        child_path(&self.path, key)
    }

    /// Make an error about `key` that reads "`path.to.key` `what`". Its place is the key, or the table when the key is absent.
    pub fn error(&self, key: &str, what: impl fmt::Display) -> Error {
        self.error_at_path(&self.path_of(key), what)
    }

    /// Make an error about the table itself, at its place.
    pub fn error_of_table(&self, what: impl fmt::Display) -> Error {
        match self.path.as_str() {
            "" => self.document.error_at(0, format!("the file {what}")),
            path => self.error_at_path(path, what),
        }
    }

    fn error_at_path(&self, path: &str, what: impl fmt::Display) -> Error {
        let offset = self.document.offset_of(path);
        self.document.error_at(offset, format!("`{path}` {what}"))
    }

    fn wrong_type(&self, path: &str, expected: &str, found: &Value) -> Error {
        let found = self.document.type_name(path, found);
        self.error_at_path(path, format_args!("must be {expected}, not {found}"))
    }

    /// Return the value of `key`, of any type.
    pub fn any(&mut self, key: &'static str) -> Option<&'d Value> {
        self.known.push(key);
        self.table?.get(key).filter(|value| !value.is_null())
    }

    /// Return the value of `key` as `pick` reads it.
    fn typed<T>(
        &mut self,
        key: &'static str,
        expected: &str,
        pick: impl FnOnce(&'d Value) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.any(key) else {
            return Ok(None);
        };
        let picked = pick(value).map(Some);
        picked.ok_or_else(|| self.wrong_type(&self.path_of(key), expected, value))
    }

    /// Read a text with `read`, whose error is a clause about the key. Another type is an error that names `expected`.
    fn quoted<T>(
        &mut self,
        key: &'static str,
        expected: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Error> {
        let (document, path) = (self.document, self.path_of(key));
        let text = self.typed(key, expected, |value| document.text_of(&path, value))?;
        let read = text.map(read).transpose();
        read.map_err(|what| self.error(key, what))
    }

    /// Read a text.
    pub fn text(&mut self, key: &'static str) -> Result<Option<String>, Error> {
        self.parsed(key, |text| Ok(text.to_owned()))
    }

    /// Read a text that must be there; the error says that the table needs `key`, and then `what`.
    pub fn required(&mut self, key: &'static str, what: &str) -> Result<String, Error> {
        let text = self.text(key)?;
        text.ok_or_else(|| self.error_of_table(format_args!("needs `{key}`, {what}")))
    }

    /// Read a text with `read`, whose error is a clause about the key.
    pub fn parsed<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Error> {
        self.quoted(key, "a text in quotes", read)
    }

    /// Read one word of a closed set; the set's default when the key is absent.
    pub fn word<T: Default>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, Error> {
        Ok(self.parsed(key, read)?.unwrap_or_default())
    }

    /// Read a path that a file can have.
    pub fn path(&mut self, key: &'static str) -> Result<Option<PathBuf>, Error> {
        self.quoted(key, "a path in quotes", |path| match path {
            "" => Err("is empty: write a path, or leave the key out".to_owned()),
            path if path.contains('\0') => {
                Err("holds a NUL character, which no path can have".to_owned())
            }
            path => Ok(PathBuf::from(path)),
        })
    }

    /// Read `true` or `false`.
    pub fn boolean(&mut self, key: &'static str) -> Result<Option<bool>, Error> {
        self.typed(key, "true or false", Value::as_bool)
    }

    /// Read a whole number from `least` to `most`, which must fit the type.
    pub fn number<N: TryFrom<u64>>(
        &mut self,
        key: &'static str,
        least: u64,
        most: u64,
    ) -> Result<Option<N>, Error> {
        let whole = |value: &'d Value| value.as_number().filter(|number| !number.is_f64());
        let Some(number) = self.typed(key, "a whole number", whole)? else {
            return Ok(None);
        };
        let within = number.as_u64().filter(|n| (least..=most).contains(n));
        let within = within.and_then(|n| N::try_from(n).ok());
        let wrong = format_args!("must be a whole number from {least} to {most}");
        within.map(Some).ok_or_else(|| self.error(key, wrong))
    }

    /// Read a duration such as `"30s"` or `"1h 30m"`, from `least` to `most`.
    pub fn duration(
        &mut self,
        key: &'static str,
        least: Duration,
        most: Duration,
    ) -> Result<Option<Duration>, Error> {
        let expected = "a duration in quotes with a unit, such as \"30s\" or \"5m\"";
        self.quoted(key, expected, |text| duration_within(text, least, most))
    }

    /// Read a duration as [`Section::duration`] does, or `word`, which gives `None` inside.
    pub fn duration_or(
        &mut self,
        key: &'static str,
        word: &str,
        least: Duration,
        most: Duration,
    ) -> Result<Option<Option<Duration>>, Error> {
        let expected =
            format!("a duration in quotes with a unit, such as \"30days\", or \"{word}\"");
        self.quoted(key, &expected, |text| match text == word {
            true => Ok(None),
            false => duration_within(text, least, most)
                .map(Some)
                .map_err(|what| format!("{what}; or write \"{word}\"")),
        })
    }

    /// Read a number of bytes such as `"64MiB"`, from `least` to `most`.
    pub fn size(&mut self, key: &'static str, least: u64, most: u64) -> Result<Option<u64>, Error> {
        let expected = "a size in quotes with a unit, such as \"64MiB\"";
        self.quoted(key, expected, |text| size_within(text, least, most))
    }

    /// Read an instant, as text or as TOML's own date and time. It must name its offset from UTC.
    pub fn instant(&mut self, key: &'static str) -> Result<Option<Timestamp>, Error> {
        let text = self.typed(key, "a time such as 2026-11-21T08:00:00Z", Value::as_str)?;
        text.map(str::parse)
            .transpose()
            .map_err(|error| self.error(key, format_args!("is wrong: {error}")))
    }

    /// Read a list of texts.
    pub fn texts(&mut self, key: &'static str) -> Result<Option<Vec<String>>, Error> {
        let expected = "a list of texts, such as [\"A\", \"B\"]";
        let Some(list) = self.typed(key, expected, Value::as_array)? else {
            return Ok(None);
        };
        let texts = list.iter().zip(1..).map(|(item, number)| {
            let path = format!("{}[{}]", self.path_of(key), number - 1);
            let text = self.document.text_of(&path, item).map(str::to_owned);
            text.ok_or_else(|| {
                let found = self.document.type_name(&path, item);
                let what = format_args!("must hold only texts, and item {number} is {found}");
                self.error(key, what)
            })
        });
        texts.collect::<Result<_, _>>().map(Some)
    }

    fn expected_table(&self, path: &str) -> String {
        match self.document.is_toml {
            true => format!("a table, such as [{path}]"),
            false => "an object".to_owned(),
        }
    }

    /// Return a table within this one.
    pub fn table(&mut self, key: &'static str) -> Result<Option<Section<'d>>, Error> {
        let path = self.path_of(key);
        let table = self.typed(key, &self.expected_table(&path), Value::as_object)?;
        Ok(table.map(|table| self.document.section_at(path, Some(table))))
    }

    /// Return a table within this one, or an empty table in its place.
    pub fn table_or_empty(&mut self, key: &'static str) -> Result<Section<'d>, Error> {
        let absent = self.document.section_at(self.path_of(key), None);
        Ok(self.table(key)?.unwrap_or(absent))
    }

    /// Return the tables of a table whose keys are free, each with its key.
    pub fn named_tables(&mut self, key: &'static str) -> Result<Vec<(String, Section<'d>)>, Error> {
        let outer = self.table_or_empty(key)?;
        let tables = outer.table.into_iter().flatten().map(|(name, value)| {
            let path = outer.path_of(name);
            match value.as_object() {
                Some(table) => Ok((name.clone(), self.document.section_at(path, Some(table)))),
                None => Err(outer.wrong_type(&path, &outer.expected_table(&path), value)),
            }
        });
        tables.collect()
    }

    /// Return the tables of a list; none when the key is absent.
    pub fn tables(&mut self, key: &'static str) -> Result<Option<Vec<Section<'d>>>, Error> {
        let path = self.path_of(key);
        let expected = match self.document.is_toml {
            true => format!("a list of tables, such as [[{path}]]"),
            false => "a list of objects".to_owned(),
        };
        let Some(list) = self.typed(key, &expected, Value::as_array)? else {
            return Ok(None);
        };
        let sections = list.iter().enumerate().map(|(index, item)| {
            let table = item.as_object();
            let table = table.ok_or_else(|| self.wrong_type(&path, &expected, item))?;
            let path = format!("{path}[{index}]");
            Ok(self.document.section_at(path, Some(table)))
        });
        sections.collect::<Result<_, _>>().map(Some)
    }

    /// Return a table whose keys are free and whose values are texts.
    pub fn text_map(&mut self, key: &'static str) -> Result<BTreeMap<String, String>, Error> {
        let section = self.table_or_empty(key)?;
        let entries = section.table.into_iter().flatten().map(|(name, value)| {
            let path = section.path_of(name);
            match self.document.text_of(&path, value) {
                Some(text) => Ok((name.clone(), text.to_owned())),
                None => Err(section.wrong_type(&path, "a text in quotes", value)),
            }
        });
        entries.collect()
    }

    /// Return a table whose keys and values are free; empty when the key is absent. Dates are texts.
    pub fn json(&mut self, key: &'static str) -> Result<Map<String, Value>, Error> {
        let expected = self.expected_table(&self.path_of(key));
        let table = self.typed(key, &expected, Value::as_object)?;
        Ok(table.cloned().unwrap_or_default())
    }

    fn unknown_keys(&self) -> impl Iterator<Item = &'d String> {
        let keys = self.table.into_iter().flat_map(Map::keys);
        keys.filter(|key| !self.known.contains(&key.as_str()))
    }

    fn nearest_known(&self, key: &str) -> Option<&'static str> {
        nearest(key, self.known.iter().copied())
    }

    /// Refuse the keys that were not read.
    pub fn finish(self) -> Result<(), Error> {
        let offset_of = |key: &String| self.document.offset_of(&self.path_of(key));
        let Some(key) = self.unknown_keys().min_by_key(|key| offset_of(key)) else {
            return Ok(());
        };
        let hint = match self.nearest_known(key) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the keys known here are `{}`", self.known.join("`, `")),
        };
        let message = format!("unknown key `{}`: {hint}", self.path_of(key));
        Err(self.document.error_at(offset_of(key), message))
    }

    /// Add a warning for each key that was not read: a newer SDK may write keys that this host does not know.
    pub fn finish_with_warnings(self, warnings: &mut Vec<String>) {
        warnings.extend(self.unknown_keys().map(|key| {
            let path = self.path_of(key);
            let hint = self.nearest_known(key);
            let hint = hint.map_or_else(String::new, |near| {
                format!(": did the author mean `{near}`?")
            });
            format!("unknown key `{path}` is ignored{hint}")
        }));
    }
}

/// The longest path that is remembered with its place. Without a bound, one long key would be repeated for each entry
/// below it.
const PATH_BYTES_MAX: usize = 1024;

fn child_path(path: &str, key: &str) -> String {
    match path {
        "" => toml_key(key),
        path => format!("{path}.{}", toml_key(key)),
    }
}

/// Return `name` as TOML writes a key.
pub fn toml_key(name: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    match !name.is_empty() && name.bytes().all(is_bare) {
        true => name.to_owned(),
        false => toml::Value::from(name).to_string(),
    }
}

#[cfg(test)]
mod tests;
