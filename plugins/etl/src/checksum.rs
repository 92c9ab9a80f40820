//! Data with a checksum.

use campanile_sdk::{Error, Result};
use serde::{Deserialize, Serialize};

/// A value and the checksum of its JSON.
#[derive(Serialize, Deserialize)]
pub struct Checked<T> {
    pub checksum: String,
    value: T,
}

impl<T: Serialize> Checked<T> {
    /// Add the checksum of `value`.
    pub fn new(value: T) -> Result<Checked<T>> {
        Ok(Checked {
            checksum: checksum_of(&value)?,
            value,
        })
    }

    /// Return the value if its checksum matches. `name` is its context key.
    ///
    /// # Errors
    ///
    /// Permanent, because a retry gets the same context.
    pub fn verify(self, name: &str) -> Result<T> {
        let found = checksum_of(&self.value)?;
        if found == self.checksum {
            return Ok(self.value);
        }
        Err(Error::permanent(format!(
            "`{name}` was changed between the tasks: its checksum is {found}, but {} was passed with it",
            self.checksum
        )))
    }
}

/// Return the 64-bit FNV-1a hash of the JSON text, in hexadecimal. It does not protect from deliberate changes.
fn checksum_of(value: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string(value)?;
    Ok(format!("{:016x}", fnv1a(text.as_bytes())))
}

/// Return the 64-bit FNV-1a hash: <http://www.isthe.com/chongo/tech/comp/fnv/>.
pub fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
