//! The keys of TOML files, for the reference in the documentation.

use serde::Serialize;

/// One key of a TOML file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct KeyHelp<T = String> {
    /// Its path, such as `grants.http[].host`.
    pub key: T,
    /// What to write, such as `duration` or `list of texts`.
    #[serde(rename = "type")]
    pub kind: T,
    /// As TOML writes it; `None` for a key without a default.
    pub default: Option<T>,
    /// The least and the greatest value.
    pub bounds: Option<T>,
    pub meaning: T,
}

impl KeyHelp<&'static str> {
    /// Describe a key without default and bounds.
    pub const fn new(
        key: &'static str,
        kind: &'static str,
        meaning: &'static str,
    ) -> KeyHelp<&'static str> {
        KeyHelp {
            key,
            kind,
            default: None,
            bounds: None,
            meaning,
        }
    }

    /// Add the default, as TOML writes it.
    pub const fn with_default(mut self, default: &'static str) -> KeyHelp<&'static str> {
        self.default = Some(default);
        self
    }

    /// Add the bounds.
    pub const fn within(mut self, bounds: &'static str) -> KeyHelp<&'static str> {
        self.bounds = Some(bounds);
        self
    }

    /// Return the same under the path `key`.
    pub fn at(self, key: String) -> KeyHelp {
        KeyHelp {
            key,
            kind: self.kind.to_owned(),
            default: self.default.map(str::to_owned),
            bounds: self.bounds.map(str::to_owned),
            meaning: self.meaning.to_owned(),
        }
    }
}
