//! The key that seals decisions about versions and tokens of approvers, which the host has and the database doesn't.
//!
//! Whoever writes the database can write a decision about a version, or a token, but can't seal it. Every field with authority is
//! sealed, so none can be changed, and a seal fits no other row.

use std::fmt;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::access::Role;
use crate::clock::Timestamp;
use crate::ids::{ArtifactDigest, TokenHash};
use crate::namespace::Namespace;
use crate::status::VersionDecision;

const KEY_BYTES: usize = 32;
/// The most bytes of a row's seals. Changing keys leaves two seals of 64 digits.
const SEALS_BYTES_MAX: usize = 4 * 65;
/// The block of SHA-256.
const BLOCK_BYTES: usize = 64;

/// A key that seals rows: a seal is an HMAC of the row.
#[derive(Clone, PartialEq, Eq)]
pub struct ApprovalKey([u8; KEY_BYTES]);

/// What a seal is made of.
pub trait Sealable {
    /// Returns the kind of the row, and all fields with authority. Another form needs another word for the kind.
    fn fields(&self) -> (&'static str, Vec<Option<String>>);
}

/// What a person decided about one version.
#[derive(Debug, Clone, Copy)]
pub struct DecisionText<'a> {
    pub package: &'a str,
    pub digest: &'a ArtifactDigest,
    pub decision: VersionDecision,
    pub decided_at: Timestamp,
    pub by: &'a str,
    pub note: Option<&'a str>,
}

/// A token, and what its owner may do.
#[derive(Debug, Clone, Copy)]
pub struct TokenText<'a> {
    pub hash: &'a TokenHash,
    pub name: &'a str,
    pub role: Role,
    pub namespace: Option<&'a Namespace>,
    pub expires_at: Option<Timestamp>,
}

impl Sealable for DecisionText<'_> {
    fn fields(&self) -> (&'static str, Vec<Option<String>>) {
        let fields = [
            Some(self.package.to_owned()),
            Some(self.digest.to_string()),
            Some(self.decision.to_string()),
            Some(self.decided_at.micros().to_string()),
            Some(self.by.to_owned()),
            self.note.map(str::to_owned),
        ];
        ("campanile version decision 1", fields.to_vec())
    }
}

impl Sealable for TokenText<'_> {
    fn fields(&self) -> (&'static str, Vec<Option<String>>) {
        let fields = [
            Some(self.hash.as_str().to_owned()),
            Some(self.name.to_owned()),
            Some(self.role.to_string()),
            self.namespace.map(Namespace::to_string),
            self.expires_at.map(|end| end.micros().to_string()),
        ];
        ("campanile token 1", fields.to_vec())
    }
}

impl ApprovalKey {
    /// Makes a random key.
    pub fn generate() -> ApprovalKey {
        ApprovalKey(rand::random())
    }

    /// Reads the text of a key file; none if it isn't one.
    pub fn from_text(text: &str) -> Option<ApprovalKey> {
        let mut bytes = [0; KEY_BYTES];
        hex::decode_to_slice(text.trim(), &mut bytes).ok()?;
        Some(ApprovalKey(bytes))
    }

    /// Returns the text of a key file.
    pub fn to_text(&self) -> String {
        format!("{}\n", hex::encode(self.0))
    }

    /// Seals a row.
    pub fn seal(&self, row: &impl Sealable) -> String {
        hex::encode(self.mac(row).finalize().into_bytes())
    }

    /// Whether this key made one of `seals` for exactly this row. They have a space between them.
    pub fn has_sealed(&self, row: &impl Sealable, seals: Option<&str>) -> bool {
        // Whoever writes the database may have written megabytes here.
        let Some(seals) = seals.filter(|seals| seals.len() <= SEALS_BYTES_MAX) else {
            return false;
        };
        let mac = self.mac(row);
        let is_seal = |seal: Vec<u8>| mac.clone().verify_slice(&seal).is_ok();
        let mut seals = seals.split(' ');
        seals.any(|seal| hex::decode(seal).is_ok_and(is_seal))
    }

    fn mac(&self, row: &impl Sealable) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new(&block(&self.0).into());
        // JSON keeps the fields apart, and a missing one from an empty one.
        mac.update(serde_json::json!(row.fields()).to_string().as_bytes());
        mac
    }
}

/// Seals a row with each of `keys`.
pub fn seal_with(row: &impl Sealable, keys: &[&ApprovalKey]) -> String {
    let seals = keys.iter().map(|key| key.seal(row));
    seals.collect::<Vec<_>>().join(" ")
}

/// The key as one block of the hash, padded with zeros, as HMAC pads it.
fn block(key: &[u8; KEY_BYTES]) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    block[..KEY_BYTES].copy_from_slice(key);
    block
}

impl fmt::Debug for ApprovalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApprovalKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_fits_one_decision_only() {
        let key = ApprovalKey::generate();
        let (digest, other) = (ArtifactDigest::of(b"1"), ArtifactDigest::of(b"2"));
        let sealed = DecisionText {
            package: "a",
            digest: &digest,
            decision: VersionDecision::Approved,
            decided_at: Timestamp::from_micros(7),
            by: "ada",
            note: None,
        };
        let seal = key.seal(&sealed);
        assert!(key.has_sealed(&sealed, Some(&seal)));
        let again = ApprovalKey::from_text(&key.to_text()).unwrap();
        let other_key = ApprovalKey::generate();
        assert!(again.has_sealed(&sealed, Some(&seal)));
        assert!(!other_key.has_sealed(&sealed, Some(&seal)));
        let both = seal_with(&sealed, &[&other_key, &key]);
        assert!(other_key.has_sealed(&sealed, Some(&both)));
        assert!(key.has_sealed(&sealed, Some(&both)));
        assert!(!key.has_sealed(&sealed, None));
        for garbage in [
            "",
            " ",
            "ab",
            &"a".repeat(1_000_000),
            &format!("{}{seal}", " ".repeat(1_000)),
        ] {
            assert!(!key.has_sealed(&sealed, Some(garbage)), "{}", garbage.len());
        }
        let changed = [
            DecisionText {
                package: "b",
                ..sealed
            },
            DecisionText {
                digest: &other,
                ..sealed
            },
            DecisionText {
                decision: VersionDecision::Rejected,
                ..sealed
            },
            DecisionText {
                decided_at: Timestamp::from_micros(8),
                ..sealed
            },
            DecisionText {
                by: "eve",
                ..sealed
            },
            DecisionText {
                note: Some(""),
                ..sealed
            },
            DecisionText {
                by: "ada\",\"",
                ..sealed
            },
        ];
        for changed in changed {
            assert!(!key.has_sealed(&changed, Some(&both)), "{changed:?}");
        }
        for wrong in ["", "00", &seal[1..], "zz"] {
            assert!(!key.has_sealed(&sealed, Some(wrong)));
        }
        assert_eq!(ApprovalKey::from_text("00"), None);
    }

    #[test]
    fn a_seal_fits_one_token_only() {
        let key = ApprovalKey::generate();
        let (hash, other) = (TokenHash::of(b"1"), TokenHash::of(b"2"));
        let team: Namespace = "team".parse().unwrap();
        let sealed = TokenText {
            hash: &hash,
            name: "ada",
            role: Role::Approver,
            namespace: Some(&team),
            expires_at: Some(Timestamp::from_micros(7)),
        };
        let seal = key.seal(&sealed);
        assert!(key.has_sealed(&sealed, Some(&seal)));
        for changed in [
            TokenText {
                hash: &other,
                ..sealed
            },
            TokenText {
                name: "eve",
                ..sealed
            },
            TokenText {
                role: Role::Admin,
                ..sealed
            },
            TokenText {
                namespace: None,
                ..sealed
            },
            TokenText {
                expires_at: None,
                ..sealed
            },
        ] {
            assert!(!key.has_sealed(&changed, Some(&seal)), "{changed:?}");
        }
    }
}
