//! Tokens. The database has the hash of each secret, never the secret.

use serde::{Deserialize, Serialize};
use sqlx::FromRow;

use super::sql::statements;
use super::{Result, Tx};
use campanile_model::access::Role;
use campanile_model::approval_key::{self, ApprovalKey, TokenText};
use campanile_model::clock::Timestamp;
use campanile_model::ids::TokenHash;
use campanile_model::namespace::Namespace;

/// A token to add.
#[derive(Debug, Clone)]
pub struct NewToken<'a> {
    pub hash: TokenHash,
    pub name: &'a str,
    pub role: Role,
    /// The only namespace that it sees; none for the whole installation.
    pub namespace: Option<&'a Namespace>,
    /// From when it is refused.
    pub expires_at: Option<Timestamp>,
}

impl NewToken<'_> {
    /// Seals the token.
    pub fn seal(&self, key: &ApprovalKey) -> String {
        key.seal(&TokenText {
            hash: &self.hash,
            name: self.name,
            role: self.role,
            namespace: self.namespace,
            expires_at: self.expires_at,
        })
    }
}

/// A token on record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, FromRow, schemars::JsonSchema)]
pub struct TokenRow {
    /// The SHA-256 of the secret.
    #[serde(skip, default = "no_hash")]
    pub hash: TokenHash,
    pub name: String,
    pub role: Role,
    /// The only namespace that it sees. Null for the whole installation.
    pub namespace: Option<Namespace>,
    pub created_at: Timestamp,
    /// From when it is refused. Null when it does not expire.
    pub expires_at: Option<Timestamp>,
    /// When it was last used, to the minute.
    pub last_used_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// Seals by different keys, with a space between them; none if nobody sealed it.
    #[serde(skip)]
    pub seal: Option<String>,
}

impl TokenRow {
    /// Whether this key sealed the token.
    pub fn is_sealed_by(&self, key: &ApprovalKey) -> bool {
        key.has_sealed(&self.text(), self.seal.as_deref())
    }

    fn text(&self) -> TokenText<'_> {
        TokenText {
            hash: &self.hash,
            name: &self.name,
            role: self.role,
            namespace: self.namespace.as_ref(),
            expires_at: self.expires_at,
        }
    }
}

/// Seals tokens with each of `keys`, in place of the seals they have.
pub async fn seal_again(tx: &mut Tx, tokens: &[TokenRow], keys: &[&ApprovalKey]) -> Result {
    for token in tokens {
        set_seal(
            tx,
            &token.hash,
            &approval_key::seal_with(&token.text(), keys),
        )
        .await?;
    }
    Ok(())
}

/// Returns a placeholder for the hash of a token read from JSON.
fn no_hash() -> TokenHash {
    TokenHash::of(b"")
}

/// The columns of a [`TokenRow`].
macro_rules! token_columns {
    () => {
        "hash, name, role, namespace, created_at, expires_at, last_used_at, revoked_at, seal"
    };
}

statements! {
    /// Add a token with its seal. False when another token has the name.
    pub async fn insert(token: &NewToken<'_>, seal: Option<&str>, now: Timestamp) -> bool = changed
        "INSERT INTO token (hash, name, role, namespace, created_at, expires_at, seal) VALUES ($1, $2, $3, $4, $5, $6, $7)
        ON CONFLICT (name) WHERE revoked_at IS NULL DO NOTHING"
        => [&token.hash, token.name, token.role, token.namespace, now, token.expires_at, seal];

    pub(super) async fn set_seal(hash: &TokenHash, seal: &str) -> () = run
        "UPDATE token SET seal = $2 WHERE hash = $1";

    /// Count the tokens that are not revoked.
    pub async fn count() -> i64 = one_value "SELECT count(*) FROM token WHERE revoked_at IS NULL";

    /// Returns the token whose secret has this hash.
    pub async fn with_hash(hash: &TokenHash) -> Option<TokenRow> = row
        concat!("SELECT ", token_columns!(), " FROM token WHERE hash = $1");

    /// Returns the token of that name, unless it is revoked.
    pub async fn find(name: &str) -> Option<TokenRow> = row
        concat!("SELECT ", token_columns!(), " FROM token WHERE name = $1 AND revoked_at IS NULL");

    /// Returns up to `limit` tokens by name, including revoked ones with `all`.
    pub async fn list(all: bool, limit: i64) -> Vec<TokenRow> = rows
        concat!("SELECT ", token_columns!(), " FROM token WHERE $1 OR revoked_at IS NULL ORDER BY name, created_at LIMIT $2");

    /// Returns the most recently revoked token of this name.
    pub async fn last_revoked(name: &str) -> Option<TokenRow> = row
        concat!("SELECT ", token_columns!(), " FROM token WHERE name = $1 AND revoked_at IS NOT NULL ORDER BY revoked_at DESC, created_at DESC LIMIT 1");

    /// Revoke the token of that name. False when there is none.
    pub async fn revoke(name: &str, now: Timestamp) -> bool = changed
        "UPDATE token SET revoked_at = $2 WHERE name = $1 AND revoked_at IS NULL";

    /// Record that a token was used at `now`, unless it was used since `since`.
    pub async fn note_use(hash: &TokenHash, now: Timestamp, since: Timestamp) -> bool = changed
        "UPDATE token SET last_used_at = $2 WHERE hash = $1 AND (last_used_at IS NULL OR last_used_at < $3)";
}
