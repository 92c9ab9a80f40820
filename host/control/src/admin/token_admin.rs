//! Tokens: the administrator's commands, and the check of the secret that a request brings.
//!
//! A secret is `cmp_` and 256 random bits. The database keeps its SHA-256, so a copy of the database gives no access.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;
use tokio::time::timeout;

use crate::admin::schedule_admin::{Result, ScheduleError};
use crate::lock::lock;
use campanile_model::access::Role;
use campanile_model::approval_key::ApprovalKey;
use campanile_model::clock::Timestamp;
use campanile_model::ids::TokenHash;
use campanile_model::namespace::Namespace;
use campanile_model::text::{self, duration_text};
use campanile_model::words;
use campanile_store::events::{self, EventKind};
use campanile_store::tokens::{self, NewToken, TokenRow};
use campanile_store::{Db, DbError, Tx, api_answers};

/// What every secret begins with, so that scanners of source code recognise it.
const PREFIX: &str = "cmp_";
/// The random bytes of a secret.
const SECRET_BYTES: usize = 32;
/// The length of a secret: the prefix, and the random bytes in base64 without padding.
const SECRET_LENGTH: usize = PREFIX.len() + (SECRET_BYTES * 4).div_ceil(3);
/// The longest name, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// How many tokens may exist besides revoked ones.
const TOKENS_MAX: i64 = 1_000;
/// The shortest and the longest life of a token that expires.
const EXPIRES_MIN: Duration = Duration::from_secs(60);
const EXPIRES_MAX: Duration = Duration::from_secs(3_650 * 86_400);
/// The least time between two records of the last use of a token.
const USE_INTERVAL: Duration = Duration::from_secs(60);
/// How long a request waits until it has recorded that.
const USE_WAIT: Duration = Duration::from_secs(1);
/// How long a token counts as valid without another look at the database. A revoked token is refused after that.
const CACHED_FOR: Duration = Duration::from_secs(5);
/// The most tokens that are remembered.
const CACHED_MAX: usize = 1_024;

words! {
    /// Whether a token is accepted.
    TokenState {
        /// It is accepted.
        Active => "active",
        /// Its time is over.
        Expired => "expired",
        /// An administrator revoked it.
        Revoked => "revoked",
    }
}

/// A token, without its secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TokenReport {
    pub state: TokenState,
    #[serde(flatten)]
    pub row: TokenRow,
}

impl TokenReport {
    fn of(row: TokenRow, now: Timestamp) -> TokenReport {
        let state = state(&row, now);
        TokenReport { state, row }
    }
}

/// A new token with its secret, which is nowhere else.
#[derive(Serialize, Deserialize, schemars::JsonSchema)]
pub struct CreatedToken {
    #[serde(flatten)]
    pub token: TokenReport,
    /// What a request brings as its bearer token. It is shown only once.
    pub secret: String,
}

/// A token to create.
#[derive(Debug, Clone, Copy)]
pub struct WantedToken<'a> {
    pub name: &'a str,
    pub role: Role,
    /// The only namespace that it sees; none for the whole installation.
    pub namespace: Option<&'a Namespace>,
    /// How long it is accepted; for ever without it.
    pub expires_in: Option<Duration>,
}

/// Who makes a request, as a token proves it, or as a proxy says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The name of the token, or of the user.
    pub name: String,
    pub role: Role,
    /// The only namespace that the principal sees; none for the whole installation.
    pub namespace: Option<Namespace>,
    /// The token; none for who needs none.
    pub token: Option<TokenHash>,
    /// Whether it is a user of whom a proxy says so. A token may have the same name.
    pub is_proxied: bool,
    /// The role on record of a token that isn't sealed with the key of this host, and is therefore only an editor.
    pub unsealed_role: Option<Role>,
}

impl Principal {
    /// Returns the key of the principal: all its requests have this key, and no requests of another principal.
    pub fn key(&self) -> String {
        match self.is_proxied {
            // No token has such a name.
            true => format!("proxy:{}", self.name),
            false => self.name.clone(),
        }
    }
}

/// Pure: return whether a token is accepted at `now`.
fn state(row: &TokenRow, now: Timestamp) -> TokenState {
    match (row.revoked_at, row.expires_at) {
        (Some(_), _) => TokenState::Revoked,
        (None, Some(end)) if end <= now => TokenState::Expired,
        (None, _) => TokenState::Active,
    }
}

/// Returns a new secret.
pub fn new_secret() -> String {
    let random: [u8; SECRET_BYTES] = rand::random();
    format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random))
}

/// Whether `text` has the form of a secret.
pub fn is_secret(text: &str) -> bool {
    text.len() == SECRET_LENGTH
        && text.starts_with(PREFIX)
        && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Create a token. With the role of an approver or administrator it needs the seal of a key.
///
/// # Errors
/// When the name is not allowed or taken, when the time is too short or too long, when the role is not one for a namespace, or
/// when there are too many tokens.
pub async fn create(
    tx: &mut Tx,
    wanted: WantedToken<'_>,
    key: Option<&ApprovalKey>,
    now: Timestamp,
) -> Result<CreatedToken> {
    let WantedToken {
        name,
        role,
        namespace,
        expires_in,
    } = wanted;
    let fault = name_fault(name).or_else(|| expiry_fault(expires_in));
    if let Some(fault) = fault.or_else(|| role_fault(role, namespace)) {
        return Err(ScheduleError::Invalid(fault));
    }
    let secret = new_secret();
    let token = NewToken {
        hash: TokenHash::of(secret.as_bytes()),
        name,
        role,
        namespace,
        expires_at: expires_in.map(|span| now.plus(span)),
    };
    let seal = key.map(|key| token.seal(key));
    if !tokens::insert(tx, &token, seal.as_deref(), now).await? {
        return Err(ScheduleError::Conflict(format!(
            "a token named `{name}` exists already; choose another name, or revoke it first with `campanile token revoke {name}`"
        )));
    }
    if tokens::count(tx).await? > TOKENS_MAX {
        return Err(ScheduleError::Conflict(format!(
            "{TOKENS_MAX} tokens exist, which is the limit; revoke those that no one uses: `campanile token list` shows the last use of each"
        )));
    }
    let mut detail = format!("with the role {role}");
    if let Some(namespace) = namespace {
        let _ = write!(detail, " in the namespace {namespace}");
    }
    if let Some(end) = token.expires_at {
        let _ = write!(detail, ", until {end}");
    }
    events::record(tx, now, EventKind::TokenCreated, name, &detail).await?;
    let token = TokenReport::of(find(tx, name).await?, now);
    Ok(CreatedToken { token, secret })
}

/// Returns up to `limit` tokens by name, and with `all` the revoked ones too.
pub async fn list(
    tx: &mut Tx,
    all: bool,
    limit: i64,
    now: Timestamp,
) -> Result<Vec<TokenReport>, DbError> {
    let rows = tokens::list(tx, all, limit).await?.into_iter();
    Ok(rows.map(|row| TokenReport::of(row, now)).collect())
}

/// Revoke the token of that name. Each host refuses it within 5 seconds.
///
/// # Errors
/// When there is no such token.
pub async fn revoke(tx: &mut Tx, name: &str, now: Timestamp) -> Result<TokenReport> {
    if !tokens::revoke(tx, name, now).await? {
        return Err(unknown(name));
    }
    events::record(
        tx,
        now,
        EventKind::TokenRevoked,
        name,
        "it is refused from now on",
    )
    .await?;
    // A new token of the name must not get answers to this one.
    api_answers::remove_of(tx, name).await?;
    let revoked = tokens::last_revoked(tx, name).await?;
    revoked
        .map(|row| TokenReport::of(row, now))
        .ok_or_else(|| unknown(name))
}

async fn find(tx: &mut Tx, name: &str) -> Result<TokenRow> {
    tokens::find(tx, name).await?.ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> ScheduleError {
    ScheduleError::NotFound(format!(
        "there is no token named {name:?}; `campanile token list` shows those there are"
    ))
}

/// Pure: return why `name` cannot name a token, if it cannot.
fn name_fault(name: &str) -> Option<String> {
    let is_plain = text::is_plain_name(name, NAME_BYTES_MAX);
    (!is_plain).then(|| {
        format!(
            "{name:?} cannot name a token: use 1 to {NAME_BYTES_MAX} letters, digits, `.`, `_` or `-`, but not `.` or `..` alone"
        )
    })
}

/// Pure: return why a token cannot expire after `expires_in`, if it cannot.
fn expiry_fault(expires_in: Option<Duration>) -> Option<String> {
    let span = expires_in.filter(|span| !(EXPIRES_MIN..=EXPIRES_MAX).contains(span))?;
    Some(format!(
        "a token cannot expire after {}: give a time from {} to 3650days, or none for a token that does not expire",
        duration_text(span),
        duration_text(EXPIRES_MIN)
    ))
}

/// Whether a token with this role can have versions run that nobody else approved. Who writes the database must not make one.
pub fn needs_seal(role: Role) -> bool {
    role.includes(Role::Approver)
}

/// Pure: return the role of a token, and the role on record if that doesn't count.
fn counted_role(row: &TokenRow, key: &ApprovalKey) -> (Role, Option<Role>) {
    if needs_seal(row.role) && !row.is_sealed_by(key) {
        (Role::Editor, Some(row.role))
    } else {
        (row.role, None)
    }
}

/// Pure: return why a token of a namespace cannot have the role, if it cannot.
fn role_fault(role: Role, namespace: Option<&Namespace>) -> Option<String> {
    let namespace = namespace.filter(|_| role.includes(Role::Admin))?;
    Some(format!(
        "a token of the namespace {namespace} cannot have the role {role}, because tokens are of the whole installation: give it at most {}",
        Role::Approver
    ))
}

/// The check of the secrets that requests bring.
pub struct Authenticator {
    db: Db,
    /// Seals the tokens of approvers and administrators.
    key: ApprovalKey,
    /// The tokens that were valid a short time ago. Secrets that were refused are not remembered, so they displace none.
    valid: Mutex<HashMap<TokenHash, Valid>>,
}

struct Valid {
    principal: Principal,
    expires_at: Option<Timestamp>,
    looked_at: Timestamp,
}

impl Valid {
    /// Whether the token is valid at `now` without another look.
    fn is_current(&self, now: Timestamp) -> bool {
        let is_recent = self.looked_at <= now && now.since(self.looked_at) < CACHED_FOR;
        is_recent && self.expires_at.is_none_or(|end| now < end)
    }
}

impl Authenticator {
    /// Check secrets by the tokens of `db`, and their seals by `key`.
    pub fn new(db: Db, key: ApprovalKey) -> Authenticator {
        Authenticator {
            db,
            key,
            valid: Mutex::default(),
        }
    }

    /// Returns who brings `secret`; none when no token accepted at `now` has it.
    ///
    /// # Errors
    /// When the database cannot be read. Then every request is refused.
    pub async fn authenticate(
        &self,
        secret: &str,
        now: Timestamp,
    ) -> Result<Option<Principal>, DbError> {
        if !is_secret(secret) {
            return Ok(None);
        }
        self.look_up(&TokenHash::of(secret.as_bytes()), now).await
    }

    /// Returns whose token it is; none when it is not accepted at `now`.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub async fn look_up(
        &self,
        hash: &TokenHash,
        now: Timestamp,
    ) -> Result<Option<Principal>, DbError> {
        if let Some(valid) = lock(&self.valid).get(hash)
            && valid.is_current(now)
        {
            return Ok(Some(valid.principal.clone()));
        }
        let row = tokens::with_hash(&mut self.db.read().await?, hash).await?;
        let is_same = |row: &TokenRow| {
            let (stored, brought) = (row.hash.as_str(), hash.as_str());
            bool::from(stored.as_bytes().ct_eq(brought.as_bytes()))
        };
        let accepted = row
            .filter(is_same)
            .filter(|row| state(row, now) == TokenState::Active);
        let Some(row) = accepted else {
            lock(&self.valid).remove(hash);
            return Ok(None);
        };
        let since = now.minus(USE_INTERVAL);
        if row.last_used_at.is_none_or(|used| used < since) {
            // A request that only reads must not wait for a writer. The next look at the database tries again.
            match timeout(USE_WAIT, self.note_use(&row.hash, now, since)).await {
                Ok(Ok(())) | Err(_) => {}
                Ok(Err(error)) => {
                    tracing::warn!(token = %row.name, "the use of a token could not be recorded: {error}");
                }
            }
        }
        let (role, unsealed_role) = counted_role(&row, &self.key);
        let principal = Principal {
            name: row.name,
            role,
            namespace: row.namespace,
            token: Some(hash.clone()),
            is_proxied: false,
            unsealed_role,
        };
        let mut known = lock(&self.valid);
        if known.len() >= CACHED_MAX {
            known.retain(|_, valid| valid.is_current(now));
        }
        if known.len() < CACHED_MAX {
            let valid = Valid {
                principal: principal.clone(),
                expires_at: row.expires_at,
                looked_at: now,
            };
            known.insert(hash.clone(), valid);
        }
        Ok(Some(principal))
    }

    async fn note_use(
        &self,
        hash: &TokenHash,
        now: Timestamp,
        since: Timestamp,
    ) -> Result<(), DbError> {
        let mut tx = self.db.write().await?;
        tokens::note_use(&mut tx, hash, now, since).await?;
        tx.commit().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_plain_and_a_life_has_bounds() {
        for name in ["ci", "grafana.read-only_2", &"a".repeat(64)] {
            assert_eq!(name_fault(name), None, "{name}");
        }
        for name in ["", "a b", "é", "a/b", "a\n", &"a".repeat(65)] {
            assert!(name_fault(name).is_some(), "{name}");
        }
        let days = |days: u64| Some(Duration::from_secs(days * 86_400));
        assert_eq!(expiry_fault(None), None);
        assert_eq!(expiry_fault(days(90)), None);
        assert_eq!(expiry_fault(days(3_650)), None);
        assert!(expiry_fault(days(3_651)).is_some());
        assert!(expiry_fault(Some(Duration::ZERO)).is_some());
    }

    #[test]
    fn a_secret_has_the_length_that_is_looked_up() {
        let encoded = URL_SAFE_NO_PAD.encode([0xff; SECRET_BYTES]);
        assert_eq!(PREFIX.len() + encoded.len(), SECRET_LENGTH);
    }

    #[test]
    fn a_remembered_token_is_looked_up_again_soon_and_never_outlives_its_end() {
        let at = |second: i64| Timestamp::from_micros(second * 1_000_000);
        let valid = |expires_at| Valid {
            principal: Principal {
                name: "ci".to_owned(),
                role: Role::Viewer,
                namespace: None,
                token: None,
                is_proxied: false,
                unsealed_role: None,
            },
            expires_at,
            looked_at: at(100),
        };
        let lasting = valid(None);
        assert!(lasting.is_current(at(100)) && lasting.is_current(at(104)));
        // The clock may go back.
        assert!(!lasting.is_current(at(105)) && !lasting.is_current(at(99)));
        let ending = valid(Some(at(102)));
        assert!(ending.is_current(at(101)) && !ending.is_current(at(102)));
    }
}
