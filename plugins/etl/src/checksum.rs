//! Data that notices when it was changed on its way.

use campanile_sdk::{Error, Result};
use serde::{Deserialize, Serialize};

/// A value and the checksum of its JSON.
#[derive(Serialize, Deserialize)]
pub struct Checked<T> {
    pub checksum: String,
    value: T,
}

impl<T: Serialize> Checked<T> {
    /// Put the checksum on.
    pub fn seal(value: T) -> Result<Checked<T>> {
        Ok(Checked {
            checksum: checksum_of(&value)?,
            value,
        })
    }

    /// The value, if it is what was sealed. `name` is the context key it came under.
    ///
    /// # Errors
    ///
    /// Permanent: the same context would come again.
    pub fn open(self, name: &str) -> Result<T> {
        let found = checksum_of(&self.value)?;
        if found == self.checksum {
            return Ok(self.value);
        }
        Err(Error::permanent(format!(
            "`{name}` was changed on its way: its checksum is {found}, and {} was passed with it",
            self.checksum
        )))
    }
}

/// 64-bit FNV-1a over the JSON text, in hexadecimal: against accidents, not against malice.
fn checksum_of(value: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string(value)?;
    Ok(format!("{:016x}", fnv1a(text.as_bytes())))
}

/// <http://www.isthe.com/chongo/tech/comp/fnv/>
pub fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
