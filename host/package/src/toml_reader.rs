//! Strict reading of TOML files and of the JSON descriptions of packages.
//!
//! Every key is known or reported, and every error names the file, the line, the column and the key.
//! A mistyped key that is ignored would be a limit that does not apply or a schedule that never fires.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::names::is_plain;
use campanile_model::clock::Timestamp;
use campanile_model::text::{
    counted, cut_error, duration_within, most_alike, nearest, size_within,
};

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
    root: Cow<'t, Map<String, Value>>,
    /// The same with the place of each value; `None` for a JSON value.
    toml: Option<DeTable<'t>>,
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
            ..Document::default()
        };
        let toml = DeTable::parse(text).map_err(|error| {
            let hint = match error.message() {
                "duplicate key" => {
                    ", which this file also sets elsewhere, alone or within a table or list: write it there"
                }
                _ => "",
            };
            let offset = error.span().map_or(0, |span| span.start);
            document.error_at(offset, format!("this is not TOML: {}{hint}", error.message()))
        })?;
        let toml = toml.into_inner();
        document.root = Cow::Owned(document.table_as_json(&toml, &String::new)?);
        document.toml = Some(toml);
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

    /// Whether the file sets `key` in the table with this dotted name; empty for the top of the file.
    pub fn sets(&self, table: &str, key: &str) -> bool {
        let names = table.split('.').filter(|name| !name.is_empty());
        let mut found = Some(&*self.root);
        for name in names {
            found = found.and_then(|table| table.get(name)?.as_object());
        }
        found.is_some_and(|table| table.get(key).is_some_and(|value| !value.is_null()))
    }

    /// Returns the top of the file.
    pub fn section(&self) -> Section<'_> {
        self.section_at(String::new(), 0, Some(&self.root), self.toml.as_ref())
    }

    fn section_at<'d>(
        &'d self,
        path: String,
        offset: usize,
        table: Option<&'d Map<String, Value>>,
        toml: Option<&'d DeTable<'d>>,
    ) -> Section<'d> {
        Section {
            document: self,
            path,
            offset,
            table,
            toml,
            known: Vec::new(),
        }
    }

    /// Returns `table` as JSON. `path` returns its path, for an error.
    fn table_as_json(
        &self,
        table: &DeTable<'_>,
        path: &dyn Fn() -> String,
    ) -> Result<Map<String, Value>, Error> {
        let entries = table.iter().map(|(key, value)| {
            let path = || match path() {
                around if around.len() + key.get_ref().len() > PATH_BYTES_MAX => around,
                around => child_path(&around, key.get_ref()),
            };
            let json = self.as_json(value.get_ref(), offset_of(key, value), &path)?;
            Ok((key.get_ref().to_string(), json))
        });
        entries.collect()
    }

    /// Returns `value`, which is at `offset`, as JSON.
    fn as_json(
        &self,
        value: &DeValue<'_>,
        offset: usize,
        path: &dyn Fn() -> String,
    ) -> Result<Value, Error> {
        let unfit = |what: String| self.error_at(offset, format!("`{}` holds {what}", path()));
        Ok(match value {
            DeValue::String(text) => Value::from(text.as_ref()),
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                .map(Value::from)
                .map_err(|_| unfit(format!("{number}, which is not between -9223372036854775808 and 9223372036854775807; write it as text")))?,
            DeValue::Float(number) => number
                .as_str()
                .parse()
                .ok()
                .and_then(Number::from_f64)
                .map(Value::Number)
                .ok_or_else(|| unfit(format!("{number}, which JSON cannot express")))?,
            DeValue::Boolean(truth) => Value::from(*truth),
            DeValue::Datetime(time) => Value::from(time.to_string()),
            DeValue::Array(list) => {
                let items = list.iter().enumerate().map(|(index, item)| {
                    let path = || format!("{}[{index}]", path());
                    self.as_json(item.get_ref(), item.span().start, &path)
                });
                items.collect::<Result<_, _>>()?
            }
            DeValue::Table(table) => Value::Object(self.table_as_json(table, path)?),
        })
    }

    fn error_at(&self, offset: usize, message: String) -> Error {
        let before = &self.text[..self.text.floor_char_boundary(offset)];
        Error {
            file: self.file.to_owned(),
            line: 1 + before.matches('\n').count(),
            column: 1 + before.chars().rev().take_while(|c| *c != '\n').count(),
            message: cut_error(message),
        }
    }

    /// Returns the name of the type of `value`, which TOML may write as `toml`.
    fn type_name(&self, value: &Value, toml: Option<&DeValue<'_>>) -> &'static str {
        match value {
            Value::String(_) if is_date(toml) => "a date",
            Value::String(_) => "a text",
            Value::Number(number) if number.is_f64() => "a fraction",
            Value::Number(_) => "a number",
            Value::Bool(_) => "true or false",
            Value::Array(_) => "a list",
            Value::Object(_) if self.toml.is_some() => "a table",
            Value::Object(_) => "an object",
            Value::Null => "null",
        }
    }
}

/// Whether a value is one of TOML's own dates, which are texts in JSON.
fn is_date(toml: Option<&DeValue<'_>>) -> bool {
    toml.is_some_and(DeValue::is_datetime)
}

/// Returns the byte offset of an entry of a table.
fn offset_of(key: &Spanned<DeString<'_>>, value: &Spanned<DeValue<'_>>) -> usize {
    match value.get_ref() {
        // A header `[a.b]` mentions `a`, too, but the header of `a` may stand elsewhere.
        DeValue::Table(_) => value.span().start,
        _ => key.span().start,
    }
}

/// One table of a file. Read each key that the table may have, then call [`Section::finish`].
///
/// A key whose JSON value is `null` counts as absent, because not every language can leave a field out.
pub struct Section<'d> {
    document: &'d Document<'d>,
    path: String,
    /// The byte offset of the table, or of the nearest table around one that the file does not have.
    offset: usize,
    /// `None` for a table that the file does not have.
    table: Option<&'d Map<String, Value>>,
    /// The same, if the file is TOML.
    toml: Option<&'d DeTable<'d>>,
    known: Vec<&'d str>,
}

impl<'d> Section<'d> {
    /// Returns the full path of `key`, such as `limits.timeout`.
    fn path_of(&self, key: &str) -> String {
        child_path(&self.path, key)
    }

    fn toml_of(&self, key: &str) -> Option<&'d DeValue<'d>> {
        Some(self.toml?.get(key)?.get_ref())
    }

    fn offset_of(&self, key: &str) -> usize {
        let entry = self.toml.and_then(|toml| toml.get_key_value(key));
        entry.map_or(self.offset, |(key, value)| offset_of(key, value))
    }

    /// Make an error about `key` that reads "`path.to.key` `what`". Its place is the key, or the table when the key is absent.
    pub fn error(&self, key: &str, what: impl fmt::Display) -> Error {
        let message = format!("`{}` {what}", self.path_of(key));
        self.document.error_at(self.offset_of(key), message)
    }

    /// Make an error about the table itself, at its place.
    pub fn error_of_table(&self, what: impl fmt::Display) -> Error {
        let message = match self.path.as_str() {
            "" => format!("the file {what}"),
            path => format!("`{path}` {what}"),
        };
        self.document.error_at(self.offset, message)
    }

    fn wrong_type(&self, key: &str, expected: &str, found: &Value) -> Error {
        let found = self.document.type_name(found, self.toml_of(key));
        self.error(key, format_args!("must be {expected}, not {found}"))
    }

    /// Returns the value of `key`, of any type.
    pub fn any(&mut self, key: &'d str) -> Option<&'d Value> {
        self.known.push(key);
        self.table?.get(key).filter(|value| !value.is_null())
    }

    /// Returns the value of `key` as `pick` reads it.
    fn typed<T>(
        &mut self,
        key: &'d str,
        expected: &str,
        pick: impl FnOnce(&'d Value) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.any(key) else {
            return Ok(None);
        };
        let picked = pick(value).map(Some);
        picked.ok_or_else(|| self.wrong_type(key, expected, value))
    }

    /// Read a text with `read`, whose error is a clause about the key. Another type is an error that names `expected`.
    fn quoted<T>(
        &mut self,
        key: &'d str,
        expected: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Error> {
        let is_date = is_date(self.toml_of(key));
        let text = self.typed(key, expected, |value| value.as_str().filter(|_| !is_date))?;
        let read = text.map(read).transpose();
        read.map_err(|what| self.error(key, what))
    }

    /// Read a text.
    pub fn text(&mut self, key: &'d str) -> Result<Option<String>, Error> {
        self.parsed(key, |text| Ok(text.to_owned()))
    }

    /// Read a text that must be there; the error says that the table needs `key`, and then `what`.
    pub fn required(&mut self, key: &'d str, what: &str) -> Result<String, Error> {
        let text = self.text(key)?;
        text.ok_or_else(|| self.error_of_table(format_args!("needs `{key}`, {what}")))
    }

    /// Read a text with `read`, whose error is a clause about the key.
    pub fn parsed<T>(
        &mut self,
        key: &'d str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Error> {
        self.quoted(key, "a text in quotes", read)
    }

    /// Read one word of a closed set; the set's default when the key is absent.
    pub fn word<T: Default>(
        &mut self,
        key: &'d str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, Error> {
        Ok(self.parsed(key, read)?.unwrap_or_default())
    }

    /// Read a path that a file can have.
    pub fn path(&mut self, key: &'d str) -> Result<Option<PathBuf>, Error> {
        self.quoted(key, "a path in quotes", |path| match path {
            "" => Err("is empty: write a path, or leave the key out".to_owned()),
            path if path.contains('\0') => {
                Err("holds a NUL character, which no path can have".to_owned())
            }
            path => Ok(PathBuf::from(path)),
        })
    }

    /// Read `true` or `false`.
    pub fn boolean(&mut self, key: &'d str) -> Result<Option<bool>, Error> {
        self.typed(key, "true or false", Value::as_bool)
    }

    /// Read a number, whole or with decimals.
    pub fn decimal(&mut self, key: &'d str) -> Result<Option<&'d Number>, Error> {
        self.typed(key, "a number", Value::as_number)
    }

    /// Read a whole number from `least` to `most`, which must fit the type.
    pub fn number<N: TryFrom<u64>>(
        &mut self,
        key: &'d str,
        least: u64,
        most: u64,
    ) -> Result<Option<N>, Error> {
        let whole = |value: &'d Value| value.as_number().filter(|number| !number.is_f64());
        let Some(number) = self.typed(key, "a whole number", whole)? else {
            return Ok(None);
        };
        let within = number.as_u64().filter(|n| (least..=most).contains(n));
        let within = within.and_then(|n| N::try_from(n).ok());
        let wrong = format_args!("must be a whole number from {least} to {most}, not {number}");
        within.map(Some).ok_or_else(|| self.error(key, wrong))
    }

    /// Read a duration such as `"30s"` or `"1h 30m"`, from `least` to `most`.
    pub fn duration(
        &mut self,
        key: &'d str,
        least: Duration,
        most: Duration,
    ) -> Result<Option<Duration>, Error> {
        let expected = "a duration in quotes with a unit, such as \"30s\" or \"5m\"";
        self.quoted(key, expected, |text| duration_within(text, least, most))
    }

    /// Read a duration as [`Section::duration`] does, or `word`, which gives `None` inside.
    pub fn duration_or(
        &mut self,
        key: &'d str,
        word: &str,
        least: Duration,
        most: Duration,
    ) -> Result<Option<Option<Duration>>, Error> {
        let expected =
            format!("a duration in quotes with a unit, such as \"30days\", or \"{word}\"");
        self.quoted(key, &expected, |text| {
            let age = (text != word).then(|| duration_within(text, least, most));
            age.transpose()
                .map_err(|what| format!("{what}; or write \"{word}\""))
        })
    }

    /// Read a number of bytes such as `"64MiB"`, from `least` to `most`.
    pub fn size(&mut self, key: &'d str, least: u64, most: u64) -> Result<Option<u64>, Error> {
        let expected = "a size in quotes with a unit, such as \"64MiB\"";
        self.quoted(key, expected, |text| size_within(text, least, most))
    }

    /// Read an instant, as text or as TOML's own date and time. It must name its offset from UTC.
    pub fn instant(&mut self, key: &'d str) -> Result<Option<Timestamp>, Error> {
        let text = self.typed(key, "a time such as 2026-11-21T08:00:00Z", Value::as_str)?;
        text.map(str::parse)
            .transpose()
            .map_err(|error| self.error(key, format_args!("is wrong: {error}")))
    }

    /// Read a list of texts, each with `read`, whose error is a clause about the key.
    pub fn list<T>(
        &mut self,
        key: &'d str,
        mut read: impl FnMut(&str) -> Result<T, String>,
    ) -> Result<Option<Vec<T>>, Error> {
        let texts = self.texts(key)?;
        let read = texts.map(|texts| texts.iter().map(|text| read(text)).collect());
        read.transpose()
            .map_err(|what: String| self.error(key, what))
    }

    /// Read a list of texts.
    pub fn texts(&mut self, key: &'d str) -> Result<Option<Vec<String>>, Error> {
        let expected = "a list of texts, such as [\"A\", \"B\"]";
        let Some(list) = self.typed(key, expected, Value::as_array)? else {
            return Ok(None);
        };
        let toml = self.toml_of(key).and_then(DeValue::as_array);
        let texts = list.iter().enumerate().map(|(index, item)| {
            let toml = toml.map(|toml| toml[index].get_ref());
            let text = item.as_str().filter(|_| !is_date(toml));
            text.map(str::to_owned).ok_or_else(|| {
                let (number, found) = (index + 1, self.document.type_name(item, toml));
                let what = format_args!("must hold only texts, and item {number} is {found}");
                self.error(key, what)
            })
        });
        texts.collect::<Result<_, _>>().map(Some)
    }

    fn object(&mut self, key: &'d str) -> Result<Option<&'d Map<String, Value>>, Error> {
        let path = self.path_of(key);
        let toml = self.document.toml.as_ref();
        let expected = toml.map(|_| format!("a table, such as [{path}]"));
        let expected = expected.as_deref().unwrap_or("an object");
        self.typed(key, expected, Value::as_object)
    }

    /// Returns a table within this one.
    pub fn table(&mut self, key: &'d str) -> Result<Option<Section<'d>>, Error> {
        let table = self.object(key)?;
        Ok(table.map(|table| self.inner(key, Some(table))))
    }

    /// Returns a table within this one; none when the value is a text or absent.
    pub fn table_unless_text(&mut self, key: &'d str) -> Result<Option<Section<'d>>, Error> {
        let value = self.table.and_then(|table| table.get(key));
        let is_table = value.is_some_and(Value::is_object);
        let table = is_table.then(|| self.table(key));
        Ok(table.transpose()?.flatten())
    }

    /// Returns a table within this one, or an empty table in its place.
    pub fn table_or_empty(&mut self, key: &'d str) -> Result<Section<'d>, Error> {
        let table = self.table(key)?;
        Ok(table.unwrap_or_else(|| self.inner(key, None)))
    }

    fn inner(&self, key: &str, table: Option<&'d Map<String, Value>>) -> Section<'d> {
        let toml = self.toml_of(key).and_then(DeValue::as_table);
        let (path, offset) = (self.path_of(key), self.offset_of(key));
        self.document.section_at(path, offset, table, toml)
    }

    /// Returns the tables of a table whose keys are free, each with its key.
    pub fn named_tables(&mut self, key: &'d str) -> Result<Vec<(String, Section<'d>)>, Error> {
        self.entries(key, Section::table)
    }

    /// Returns the entries of a table whose keys are free, each as `read` reads it.
    fn entries<T>(
        &mut self,
        key: &'d str,
        read: impl Fn(&mut Section<'d>, &'d str) -> Result<Option<T>, Error>,
    ) -> Result<Vec<(String, T)>, Error> {
        let mut section = self.table_or_empty(key)?;
        let mut entries = Vec::new();
        for name in section.keys() {
            let entry = read(&mut section, name)?;
            entries.extend(entry.map(|entry| (name.clone(), entry)));
        }
        Ok(entries)
    }

    /// Returns the tables of a list; none when the key is absent.
    pub fn tables(&mut self, key: &'d str) -> Result<Option<Vec<Section<'d>>>, Error> {
        let path = self.path_of(key);
        let toml = self.document.toml.as_ref();
        let expected = toml.map(|_| format!("a list of tables, such as [[{path}]]"));
        let expected = expected.as_deref().unwrap_or("a list of objects");
        let Some(list) = self.typed(key, expected, Value::as_array)? else {
            return Ok(None);
        };
        let toml = self.toml_of(key).and_then(DeValue::as_array);
        let sections = list.iter().enumerate().map(|(index, item)| {
            let toml = toml.map(|toml| &toml[index]);
            let offset = toml.map_or(self.offset, |toml| toml.span().start);
            let toml = toml.and_then(|toml| toml.get_ref().as_table());
            let table = item.as_object();
            let table = table.ok_or_else(|| self.wrong_type(key, expected, item))?;
            let path = format!("{path}[{index}]");
            Ok(self.document.section_at(path, offset, Some(table), toml))
        });
        sections.collect::<Result<_, _>>().map(Some)
    }

    /// Read a table whose keys are free and whose values are texts, each pair with `read`, whose error is a clause about `key`.
    pub fn text_map<T>(
        &mut self,
        key: &'d str,
        read: impl Fn(&str, &str) -> Result<T, String>,
    ) -> Result<BTreeMap<String, T>, Error> {
        let entries = self.entries(key, Section::text)?.into_iter();
        let read = entries.map(|(name, text)| Ok((name.clone(), read(&name, &text)?)));
        let read: Result<_, String> = read.collect();
        read.map_err(|what| self.error(key, what))
    }

    /// Returns a table whose keys and values are free; empty when the key is absent. Dates are texts.
    pub fn json(&mut self, key: &'d str) -> Result<Map<String, Value>, Error> {
        Ok(self.object(key)?.cloned().unwrap_or_default())
    }

    /// Returns the keys of the file's table.
    fn keys(&self) -> impl Iterator<Item = &'d String> + use<'d> {
        self.table.into_iter().flat_map(Map::keys)
    }

    fn unknown_keys(&self) -> impl Iterator<Item = &'d String> {
        self.keys()
            .filter(|key| !self.known.contains(&key.as_str()))
    }

    fn nearest_known(&self, key: &str) -> Option<&'d str> {
        nearest(key, self.known.iter().copied())
    }

    /// Refuse the keys that were not read.
    pub fn finish(self) -> Result<(), Error> {
        self.unknown_key().map_or(Ok(()), Err)
    }

    /// Returns an error for the first unread key.
    pub fn unknown_key(&self) -> Option<Error> {
        let first = self.unknown_keys();
        let key = first.min_by_key(|key| self.offset_of(key))?;
        let hint = match self.nearest_known(key) {
            Some(near) => format!("did you mean `{near}`?"),
            None if self.known.len() > KEYS_LISTED => {
                match most_alike(key, self.known.iter().copied()) {
                    Some(near) => format!("the nearest known key is `{near}`"),
                    None => "remove it".to_owned(),
                }
            }
            None => format!("the keys known here are `{}`", self.known.join("`, `")),
        };
        let message = format!("unknown key `{}`: {hint}", self.path_of(key));
        Some(self.document.error_at(self.offset_of(key), message))
    }

    /// Warns about unread keys, which a newer SDK may have written.
    pub fn finish_with_warnings(self, warnings: &mut Vec<String>) {
        if warnings.len() > WARNINGS_MAX {
            return;
        }
        let left = WARNINGS_MAX - warnings.len();
        let more = self.unknown_keys().skip(left).count();
        warnings.extend(self.unknown_keys().take(left).map(|key| {
            let path = self.path_of(key);
            let hint = self.nearest_known(key);
            let hint = hint.map_or_else(String::new, |near| {
                format!(": did the author mean `{near}`?")
            });
            cut_error(format!("unknown key `{path}` is ignored{hint}"))
        }));
        if more > 0 {
            let more = counted(more, "more unknown key");
            warnings.push(format!("{more} or other tables with such keys are ignored"));
        }
    }
}

/// The most keys listed in an error about an unknown one.
const KEYS_LISTED: usize = 16;

/// The most warnings about unknown keys kept for one file.
const WARNINGS_MAX: usize = 16;

/// The longest path in an error about a value that JSON cannot express. Beyond it, the error names the nearest table
/// around the value.
const PATH_BYTES_MAX: usize = 1024;

fn child_path(path: &str, key: &str) -> String {
    match path {
        "" => toml_key(key),
        path => format!("{path}.{}", toml_key(key)),
    }
}

/// Returns `name` as TOML writes a key.
pub fn toml_key(name: &str) -> String {
    if is_plain(name) {
        return name.to_owned();
    }
    toml::Value::from(name).to_string()
}

#[cfg(test)]
mod tests;
