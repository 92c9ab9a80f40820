//! Reading TOML strictly: every key is known or named in the error, and every error says where.
//!
//! A mistyped key that is ignored in silence is a limit that does not hold or a schedule that never
//! rings. Shared by the configuration file and the sidecars.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use campanile_model::clock::Timestamp;
use campanile_model::text::{duration_within, nearest, out_of_bounds, size, size_text};

/// What is wrong in a TOML file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The file's name as the reader gave it.
    pub file: String,
    /// Counted from 1.
    pub line: usize,
    /// One sentence, with the key's path and what to write instead.
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

impl std::error::Error for Error {}

/// A parsed file. Nothing of it is accepted before a [`Section`] has asked for it.
pub struct Document<'i> {
    source: Source<'i>,
    root: Spanned<DeTable<'i>>,
}

#[derive(Clone, Copy)]
struct Source<'i> {
    file: &'i str,
    text: &'i str,
}

impl Source<'_> {
    fn error(&self, offset: usize, message: String) -> Error {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        Error {
            file: self.file.to_owned(),
            line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
            message,
        }
    }
}

impl<'i> Document<'i> {
    /// Check the syntax of `text`; `file` is the name that errors show.
    pub fn parse(file: &'i str, text: &'i str) -> Result<Document<'i>, Error> {
        let source = Source { file, text };
        match DeTable::parse(text) {
            Ok(root) => Ok(Document { source, root }),
            Err(error) => {
                let offset = error.span().map_or(0, |span| span.start);
                let hint = match error.message() {
                    "duplicate key" => {
                        ", which stands elsewhere in this file, too, or is part of a table or list that does: write it there"
                    }
                    _ => "",
                };
                let message = format!("this is not TOML: {}{hint}", error.message());
                Err(source.error(offset, message))
            }
        }
    }

    /// The top of the file.
    pub fn section(&self) -> Section<'_> {
        Section {
            source: self.source,
            path: String::new(),
            offset: 0,
            table: Some(self.root.get_ref()),
            asked: Vec::new(),
        }
    }
}

/// One table of a file. Ask for each key that may be there, then [`Section::finish`].
pub struct Section<'d> {
    source: Source<'d>,
    path: String,
    offset: usize,
    /// None is a table that is not there.
    table: Option<&'d DeTable<'d>>,
    asked: Vec<&'static str>,
}

impl<'d> Section<'d> {
    fn take(&mut self, key: &'static str) -> Option<&'d Spanned<DeValue<'d>>> {
        self.asked.push(key);
        self.table?.get(key)
    }

    /// The full path of `key`, such as `limits.timeout`.
    pub fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// An error about `key` that reads "`path.to.key` `what`", at the key's line, or at the table's
    /// when the key is not there.
    pub fn error(&self, key: &str, what: impl fmt::Display) -> Error {
        let offset = self
            .table
            .and_then(|table| table.get(key))
            .map_or(self.offset, |value| value.span().start);
        let path = self.path_of(key);
        self.source.error(offset, format!("`{path}` {what}"))
    }

    /// An error about the table itself, at its line.
    pub fn error_of_table(&self, what: impl fmt::Display) -> Error {
        let message = match self.path.as_str() {
            "" => format!("the file {what}"),
            path => format!("`{path}` {what}"),
        };
        self.source.error(self.offset, message)
    }

    fn wrong_type(&self, key: &str, want: &str, found: &DeValue<'_>) -> Error {
        let found = type_name(found);
        self.error(key, format_args!("must be {want}, not {found}"))
    }

    /// One word of a closed set, which `read` knows; the set's default when the key is absent.
    pub fn word<T: Default>(
        &mut self,
        key: &'static str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, Error> {
        match self.text(key)? {
            None => Ok(T::default()),
            Some(text) => read(&text).map_err(|what| self.error(key, what)),
        }
    }

    /// The text of `key`, which must be `expected`.
    fn quoted(&mut self, key: &'static str, expected: &str) -> Result<Option<&'d str>, Error> {
        match self.take(key).map(Spanned::get_ref) {
            None => Ok(None),
            Some(DeValue::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong_type(key, expected, other)),
        }
    }

    /// A text.
    pub fn text(&mut self, key: &'static str) -> Result<Option<String>, Error> {
        Ok(self.quoted(key, "a text in quotes")?.map(str::to_owned))
    }

    /// A path that a file can have; an error about an empty one ends with `instead`.
    pub fn path(&mut self, key: &'static str, instead: &str) -> Result<Option<PathBuf>, Error> {
        match self.quoted(key, "a path in quotes")? {
            None => Ok(None),
            Some("") => Err(self.error(key, format_args!("names no folder{instead}"))),
            Some(path) if path.contains('\0') => {
                Err(self.error(key, "holds a NUL character, which no path can have"))
            }
            Some(path) => Ok(Some(PathBuf::from(path))),
        }
    }

    /// `true` or `false`.
    pub fn boolean(&mut self, key: &'static str) -> Result<Option<bool>, Error> {
        match self.take(key).map(Spanned::get_ref) {
            None => Ok(None),
            Some(DeValue::Boolean(value)) => Ok(Some(*value)),
            Some(other) => Err(self.wrong_type(key, "true or false", other)),
        }
    }

    /// A whole number from `least` to `most`.
    pub fn number(
        &mut self,
        key: &'static str,
        least: u64,
        most: u64,
    ) -> Result<Option<u64>, Error> {
        match self.take(key).map(Spanned::get_ref) {
            None => Ok(None),
            Some(value @ DeValue::Integer(_)) => {
                match integer(value).and_then(|n| n.try_into().ok()) {
                    Some(number) if (least..=most).contains(&number) => Ok(Some(number)),
                    _ => Err(self.error(
                        key,
                        format_args!("must be a whole number from {least} to {most}"),
                    )),
                }
            }
            Some(other) => Err(self.wrong_type(key, "a whole number", other)),
        }
    }

    /// A span of time written as text, such as `"30s"` or `"1h 30m"`, from `least` to `most`.
    pub fn duration(
        &mut self,
        key: &'static str,
        least: Duration,
        most: Duration,
    ) -> Result<Option<Duration>, Error> {
        let expected = "a duration in quotes with a unit, such as \"30s\" or \"5m\"";
        let Some(text) = self.quoted(key, expected)? else {
            return Ok(None);
        };
        let duration = duration_within(text, least, most);
        duration.map(Some).map_err(|what| self.error(key, what))
    }

    /// A number of bytes written as text, such as `"64MiB"`, from `least` to `most`.
    pub fn size(&mut self, key: &'static str, least: u64, most: u64) -> Result<Option<u64>, Error> {
        let expected = "a size in quotes with a unit, such as \"64MiB\"";
        let Some(text) = self.quoted(key, expected)? else {
            return Ok(None);
        };
        let bytes = size(text).map_err(|what| self.error(key, what))?;
        if bytes < least || bytes > most {
            let (least, most) = (size_text(least), size_text(most));
            return Err(self.error(key, out_of_bounds(&least, &most, text)));
        }
        Ok(Some(bytes))
    }

    /// An instant, as text or as TOML's own date and time; it must name its offset from UTC.
    pub fn instant(&mut self, key: &'static str) -> Result<Option<Timestamp>, Error> {
        let text = match self.take(key).map(Spanned::get_ref) {
            None => return Ok(None),
            Some(DeValue::String(text)) => text.clone().into_owned(),
            Some(DeValue::Datetime(time)) => time.to_string(),
            Some(other) => {
                return Err(self.wrong_type(key, "a time such as 2026-11-21T08:00:00Z", other));
            }
        };
        match text.parse() {
            Ok(instant) => Ok(Some(instant)),
            Err(error) => Err(self.error(key, format_args!("is wrong: {error}"))),
        }
    }

    /// A list of texts.
    pub fn texts(&mut self, key: &'static str) -> Result<Option<Vec<String>>, Error> {
        let list = match self.take(key).map(Spanned::get_ref) {
            None => return Ok(None),
            Some(DeValue::Array(list)) => list,
            Some(other) => {
                return Err(self.wrong_type(key, "a list of texts, such as [\"A\", \"B\"]", other));
            }
        };
        let mut texts = Vec::with_capacity(list.len());
        for item in list.iter() {
            match item.get_ref() {
                DeValue::String(text) => texts.push(text.clone().into_owned()),
                other => {
                    let found = type_name(other);
                    return Err(self.error(
                        key,
                        format_args!("must hold texts only, and one is {found}"),
                    ));
                }
            }
        }
        Ok(Some(texts))
    }

    /// A table within this one.
    pub fn table(&mut self, key: &'static str) -> Result<Option<Section<'d>>, Error> {
        match self.take(key) {
            None => Ok(None),
            Some(value) => match value.get_ref() {
                DeValue::Table(table) => Ok(Some(Section {
                    source: self.source,
                    path: self.path_of(key),
                    offset: value.span().start,
                    table: Some(table),
                    asked: Vec::new(),
                })),
                other => {
                    let want = format!("a table, such as [{}]", self.path_of(key));
                    Err(self.wrong_type(key, &want, other))
                }
            },
        }
    }

    /// A table within this one, or an empty one in its place.
    pub fn table_or_empty(&mut self, key: &'static str) -> Result<Section<'d>, Error> {
        let absent = Section {
            source: self.source,
            path: self.path_of(key),
            offset: self.offset,
            table: None,
            asked: Vec::new(),
        };
        Ok(self.table(key)?.unwrap_or(absent))
    }

    /// The tables of a table whose keys are free, each with its key.
    pub fn named_tables(&mut self, key: &'static str) -> Result<Vec<(String, Section<'d>)>, Error> {
        let Some(outer) = self.table(key)? else {
            return Ok(Vec::new());
        };
        let mut sections = Vec::new();
        for (name, value) in outer.table.into_iter().flatten() {
            let name = name.get_ref().to_string();
            match value.get_ref() {
                DeValue::Table(table) => {
                    let section = Section {
                        source: outer.source,
                        path: outer.path_of(&name),
                        offset: value.span().start,
                        table: Some(table),
                        asked: Vec::new(),
                    };
                    sections.push((name, section));
                }
                other => {
                    let want = format!("a table, such as [{}]", outer.path_of(&name));
                    return Err(outer.wrong_type(&name, &want, other));
                }
            }
        }
        Ok(sections)
    }

    /// A list of tables within this one; none when the key is not there at all.
    pub fn tables(&mut self, key: &'static str) -> Result<Option<Vec<Section<'d>>>, Error> {
        let want = format!("a list of tables, such as [[{}]]", self.path_of(key));
        let list = match self.take(key).map(Spanned::get_ref) {
            None => return Ok(None),
            Some(DeValue::Array(list)) => list,
            Some(other) => return Err(self.wrong_type(key, &want, other)),
        };
        let mut sections = Vec::with_capacity(list.len());
        for (index, item) in list.iter().enumerate() {
            match item.get_ref() {
                DeValue::Table(table) => sections.push(Section {
                    source: self.source,
                    path: format!("{}[{index}]", self.path_of(key)),
                    offset: item.span().start,
                    table: Some(table),
                    asked: Vec::new(),
                }),
                other => return Err(self.wrong_type(key, &want, other)),
            }
        }
        Ok(Some(sections))
    }

    /// A table whose keys are free and whose values are texts.
    pub fn text_map(&mut self, key: &'static str) -> Result<BTreeMap<String, String>, Error> {
        let Some(section) = self.table(key)? else {
            return Ok(BTreeMap::new());
        };
        let mut map = BTreeMap::new();
        for (name, value) in section.table.into_iter().flatten() {
            match value.get_ref() {
                DeValue::String(text) => {
                    map.insert(name.get_ref().to_string(), text.clone().into_owned());
                }
                other => return Err(section.wrong_type(name.get_ref(), "a text in quotes", other)),
            }
        }
        Ok(map)
    }

    /// A table whose keys and values are free, as JSON. Dates become text.
    pub fn json(&mut self, key: &'static str) -> Result<Option<Map<String, Value>>, Error> {
        match self.take(key).map(Spanned::get_ref) {
            None => Ok(None),
            Some(DeValue::Table(table)) => json_map(table)
                .map(Some)
                .map_err(|what| self.error(key, what)),
            Some(other) => Err(self.wrong_type(key, "a table", other)),
        }
    }

    /// Refuse the keys that nobody asked for.
    pub fn finish(self) -> Result<(), Error> {
        let first_unknown = self
            .table
            .into_iter()
            .flat_map(DeTable::keys)
            .filter(|key| !self.asked.contains(&key.get_ref().as_ref()))
            .min_by_key(|key| key.span().start);
        let Some(key) = first_unknown else {
            return Ok(());
        };
        let path = self.path_of(key.get_ref());
        let hint = match nearest(key.get_ref(), self.asked.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the keys known here are {}", list_of(&self.asked)),
        };
        Err(self
            .source
            .error(key.span().start, format!("unknown key `{path}`: {hint}")))
    }
}

fn list_of(keys: &[&str]) -> String {
    let quoted: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
    quoted.join(", ")
}

fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

fn integer(value: &DeValue<'_>) -> Option<i64> {
    let integer = value.as_integer()?;
    i64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

fn json_map(table: &DeTable<'_>) -> Result<Map<String, Value>, String> {
    table
        .iter()
        .map(|(key, value)| Ok((key.get_ref().to_string(), json_value(value.get_ref())?)))
        .collect()
}

fn json_value(value: &DeValue<'_>) -> Result<Value, String> {
    Ok(match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Integer(number) => integer(value)
            .map(Value::from)
            .ok_or_else(|| format!("holds {number}, which does not fit in 64 bits"))?,
        DeValue::Float(number) => number
            .as_str()
            .parse::<f64>()
            .ok()
            .and_then(serde_json::Number::from_f64)
            .map(Value::Number)
            .ok_or_else(|| format!("holds {number}, which JSON cannot express"))?,
        DeValue::Boolean(truth) => Value::from(*truth),
        DeValue::Datetime(time) => Value::from(time.to_string()),
        DeValue::Array(list) => list
            .iter()
            .map(|item| json_value(item.get_ref()))
            .collect::<Result<_, _>>()?,
        DeValue::Table(table) => Value::Object(json_map(table)?),
    })
}

#[cfg(test)]
mod tests;
