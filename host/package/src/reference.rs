//! The keys of TOML files, for the reference in the documentation.

use serde::Serialize;

/// One key of a TOML file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyHelp {
    /// Its path, such as `grants.http[].host`.
    pub key: String,
    /// What to write, such as `duration` or `list of texts`.
    #[serde(rename = "type")]
    pub kind: String,
    /// As TOML writes it; `None` for a key without a default.
    pub default: Option<String>,
    /// The least and the greatest value.
    pub bounds: Option<String>,
    pub meaning: String,
}

impl KeyHelp {
    /// Read one row of a table of keys: `key | type | default | bounds | meaning`. An empty cell is `None`.
    pub fn read(row: &str) -> KeyHelp {
        let mut cells = row.splitn(5, '|').map(|cell| cell.trim().to_owned());
        let mut next = || cells.next().filter(|cell| !cell.is_empty());
        KeyHelp {
            key: next().unwrap_or_default(),
            kind: next().unwrap_or_default(),
            default: next(),
            bounds: next(),
            meaning: next().unwrap_or_default(),
        }
    }
}
