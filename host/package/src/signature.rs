//! Detached signatures of packages, in the format of minisign.
//!
//! `NAME.wasm.minisig` beside `NAME.wasm` holds an Ed25519 signature of the file's BLAKE2b hash. The program `minisign`
//! makes and verifies the same files.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minisign_verify::{Error, Signature};

use crate::files;

/// The end of the name of a signature file, after the name of the `.wasm` file.
pub const SIGNATURE_END: &str = ".minisig";
/// The largest signature or key file that is read.
pub const SIGNATURE_BYTES_MAX: u64 = 4 << 10;

/// The bytes of a key or a signature that hold the id of the key, in base64 that is decoded.
const KEY_ID: std::ops::Range<usize> = 2..10;

/// A public key that signatures are verified with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    /// In base64.
    text: String,
    id: String,
    key: minisign_verify::PublicKey,
}

impl FromStr for PublicKey {
    type Err = String;

    /// Reads a key in base64: the second line of a public key file. The error is a clause about the text.
    fn from_str(text: &str) -> Result<PublicKey, String> {
        let text = text.trim();
        let key = minisign_verify::PublicKey::from_base64(text).ok();
        match key.zip(key_id(text)) {
            Some((key, id)) => Ok(PublicKey {
                text: text.to_owned(),
                id,
                key,
            }),
            None => Err(
                "is no public key: write the second line of the file that `campanile package keygen` \
                 or `minisign -G` made, 56 characters that begin with `RW`"
                    .to_owned(),
            ),
        }
    }
}

/// In base64.
impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PublicKey {
    /// Read the public key file at `path`. Blocks.
    ///
    /// # Errors
    /// A sentence that names the file.
    pub fn read_file(path: &Path) -> Result<PublicKey, String> {
        let text = read_small(path)?;
        let line = text.lines().nth(1).unwrap_or_default();
        line.parse()
            .map_err(|why| format!("{} {why}", path.display()))
    }

    /// Returns the id of the key: 16 hexadecimal digits, as minisign prints them.
    pub fn id(&self) -> &str {
        &self.id
    }
}

/// Returns the path of the signature of the file at `path`.
pub fn signature_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(SIGNATURE_END);
    PathBuf::from(name)
}

/// Returns the id of the key that a signature names; `None` when the text is no signature.
pub fn signer(signature: &str) -> Option<String> {
    key_id(signature.lines().nth(1)?)
}

/// Verify that one of `trusted` made the signature of `bytes`. Return that key.
///
/// # Errors
/// A sentence that says why the signature does not count.
pub fn verify<'k>(
    bytes: &[u8],
    signature: &str,
    trusted: &'k [PublicKey],
) -> Result<&'k PublicKey, String> {
    let parsed = Signature::decode(signature).ok().zip(signer(signature));
    let Some((parsed, id)) = parsed else {
        return Err(
            "its signature is incomplete or no signature of minisign: sign the file again"
                .to_owned(),
        );
    };
    let mut why = format!(
        "it is signed by the key {id}, which is not trusted: add that public key to `policy.trusted_keys`, or sign the \
         file with a key that is there"
    );
    for key in trusted.iter().filter(|key| key.id == id) {
        why = match key.key.verify(bytes, &parsed, false) {
            Ok(()) => return Ok(key),
            Err(Error::UnexpectedAlgorithm) => {
                format!("its signature by the key {id} has an old form: sign the file again")
            }
            Err(_) => format!(
                "its signature by the key {id} is of other bytes or was changed: put the signed file back, or sign this \
                 one"
            ),
        };
    }
    Err(why)
}

/// Returns the text of a signature or key file. Blocks.
///
/// # Errors
/// A sentence that names the file.
pub fn read_small(path: &Path) -> Result<String, String> {
    let found = files::inspect(path).unwrap_or_else(|| Err("it does not exist".to_owned()));
    let no_key = |why| format!("{why}, so it is no signature or key");
    let stamp = found.and_then(|found| found.of_at_most(SIGNATURE_BYTES_MAX).map_err(no_key));
    let text = stamp.and_then(|stamp| files::read_text_with(path, stamp));
    text.map_err(|why| format!("{}: {why}", path.display()))
}

/// Returns the id in a key or a signature in base64.
fn key_id(base64: &str) -> Option<String> {
    let bytes = STANDARD.decode(base64.trim()).ok()?;
    let id = bytes.get(KEY_ID)?;
    // The id is a little-endian number.
    Some(id.iter().rev().map(|byte| format!("{byte:02X}")).collect())
}

#[cfg(test)]
mod tests;
