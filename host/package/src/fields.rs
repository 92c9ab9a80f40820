//! Reading a JSON object field by field, with the place in every error and a note of what nobody asked for.

use std::fmt;

use serde_json::{Map, Value};

use campanile_model::text::nearest;

/// One object. A field that is `null` counts as absent: not every language can leave one out.
pub(super) struct Fields<'v> {
    path: String,
    map: &'v Map<String, Value>,
    asked: Vec<&'static str>,
}

impl<'v> Fields<'v> {
    /// The fields of `value`, which must be an object; `path` is where it was found.
    pub(super) fn new(path: &str, value: &'v Value) -> Result<Fields<'v>, String> {
        match value {
            Value::Object(map) => Ok(Fields {
                path: path.to_owned(),
                map,
                asked: Vec::new(),
            }),
            _ if path.is_empty() => Err("it is not a JSON object".to_owned()),
            _ => Err(format!("`{path}` must be an object")),
        }
    }

    fn path_of(&self, key: &str) -> String {
        match self.path.as_str() {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        }
    }

    /// A sentence about one field.
    pub(super) fn error(&self, key: &str, what: impl fmt::Display) -> String {
        format!("`{}` {what}", self.path_of(key))
    }

    /// A sentence about the object.
    pub(super) fn error_of_all(&self, what: impl fmt::Display) -> String {
        format!("`{}` {what}", self.path)
    }

    /// A field of any type.
    pub(super) fn any(&mut self, key: &'static str) -> Option<&'v Value> {
        self.asked.push(key);
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// A text field.
    pub(super) fn text(&mut self, key: &'static str) -> Result<Option<String>, String> {
        match self.any(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(self.error(key, "must be a text")),
        }
    }

    /// One word of a closed set, which `read` knows; the set's default when the field is absent.
    pub(super) fn word<T: Default>(
        &mut self,
        key: &'static str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, String> {
        match self.text(key)? {
            None => Ok(T::default()),
            Some(text) => read(&text).map_err(|what| self.error(key, what)),
        }
    }

    /// A whole number from `least` to `most`.
    pub(super) fn number(
        &mut self,
        key: &'static str,
        least: u64,
        most: u64,
    ) -> Result<Option<u64>, String> {
        match self.any(key) {
            None => Ok(None),
            Some(value) => match value.as_u64() {
                Some(number) if (least..=most).contains(&number) => Ok(Some(number)),
                _ => Err(self.error(
                    key,
                    format_args!("must be a whole number from {least} to {most}"),
                )),
            },
        }
    }

    /// A list of texts; empty when absent.
    pub(super) fn texts(&mut self, key: &'static str) -> Result<Vec<String>, String> {
        let wrong = "must be a list of texts";
        match self.any(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(list)) => list
                .iter()
                .map(|item| match item {
                    Value::String(text) if !text.is_empty() => Ok(text.clone()),
                    Value::String(_) => Err(self.error(key, "holds an empty text")),
                    _ => Err(self.error(key, wrong)),
                })
                .collect(),
            Some(_) => Err(self.error(key, wrong)),
        }
    }

    /// A list of objects; empty when absent.
    pub(super) fn list(&mut self, key: &'static str) -> Result<Vec<Fields<'v>>, String> {
        let path = self.path_of(key);
        match self.any(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(list)) => list
                .iter()
                .enumerate()
                .map(|(index, item)| Fields::new(&format!("{path}[{index}]"), item))
                .collect(),
            Some(_) => Err(self.error(key, "must be a list of objects")),
        }
    }

    /// An object whose fields are known.
    pub(super) fn object(&mut self, key: &'static str) -> Result<Option<Fields<'v>>, String> {
        let path = self.path_of(key);
        self.any(key)
            .map(|value| Fields::new(&path, value))
            .transpose()
    }

    /// An object whose fields are free; empty when absent.
    pub(super) fn map(&mut self, key: &'static str) -> Result<Map<String, Value>, String> {
        match self.any(key) {
            None => Ok(Map::new()),
            Some(Value::Object(map)) => Ok(map.clone()),
            Some(_) => Err(self.error(key, "must be an object")),
        }
    }

    /// Add one warning for each field that nobody asked for.
    pub(super) fn finish(self, warnings: &mut Vec<String>) {
        for key in self.map.keys() {
            if self.asked.contains(&key.as_str()) {
                continue;
            }
            let path = self.path_of(key);
            let hint = match nearest(key, self.asked.iter().copied()) {
                Some(near) => format!(": did the author mean `{near}`?"),
                None => String::new(),
            };
            warnings.push(format!("unknown key `{path}` is ignored{hint}"));
        }
    }
}
