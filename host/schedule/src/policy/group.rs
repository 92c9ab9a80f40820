//! The names of concurrency groups.

use std::fmt;
use std::str::FromStr;

/// The longest name.
const LENGTH_MAX: usize = 64;

/// The name of a concurrency group: 1 to 64 lower-case letters, digits, `-` or `_`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName(String);

impl GroupName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for GroupName {
    /// A clause that continues the name of the key.
    type Err = String;

    fn from_str(name: &str) -> Result<GroupName, String> {
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
        if (1..=LENGTH_MAX).contains(&name.len()) && name.bytes().all(is_plain) {
            Ok(GroupName(name.to_owned()))
        } else {
            Err(format!(
                "is {name:?}, which cannot name a group: use 1 to {LENGTH_MAX} lower-case letters, digits, `-` or `_`"
            ))
        }
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
