//! Requests that may be sent twice: their answers are kept with the change that they made.

use axum::http::{HeaderMap, StatusCode};
use sha2::{Digest as _, Sha256};

use crate::call::{Call, Reply, Result};
use crate::problem::ApiProblem;
use campanile_control::problem::ErrorCode;
use campanile_model::clock::Timestamp;
use campanile_store::Tx;
use campanile_store::api_answers::{self, KeyedRequest};

/// The header with the key.
pub(crate) const HEADER: &str = "idempotency-key";
/// The most characters of a key.
const KEY_LEN_MAX: usize = 255;

/// The key of a request, and the hash of what it asks for.
pub(crate) struct Keyed {
    principal: String,
    key: String,
    hash: String,
}

/// Returns the key of a request; none when it has none.
pub(crate) fn keyed(call: &Call) -> Result<Option<Keyed>> {
    let Some(key) = key(&call.headers)? else {
        return Ok(None);
    };
    let mut hash = Sha256::new();
    for part in [call.method.as_bytes(), call.uri.as_bytes(), &call.body] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let hash = hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let principal = call.principal_key();
    Ok(Some(Keyed {
        principal,
        key,
        hash,
    }))
}

fn key(headers: &HeaderMap) -> Result<Option<String>> {
    let Some(key) = headers.get(HEADER) else {
        return Ok(None);
    };
    let key = key.to_str().unwrap_or_default();
    let is_plain = key.bytes().all(|byte| byte.is_ascii_graphic());
    if is_plain && (1..=KEY_LEN_MAX).contains(&key.len()) {
        Ok(Some(key.to_owned()))
    } else {
        Err(ApiProblem::invalid(format!(
            "`Idempotency-Key` must have 1 to {KEY_LEN_MAX} visible ASCII characters"
        )))
    }
}

impl Keyed {
    fn request(&self) -> KeyedRequest<'_> {
        KeyedRequest {
            principal: &self.principal,
            key: &self.key,
            hash: &self.hash,
        }
    }

    /// Take the key, or return the answer to the earlier request that had it.
    pub(crate) async fn begin(&self, tx: &mut Tx, now: Timestamp) -> Result<Option<Reply>> {
        let request = self.request();
        if api_answers::begin(tx, request, now).await? {
            return Ok(None);
        }
        let kept = api_answers::find(tx, request.principal, request.key).await?;
        let Some(kept) = kept else {
            return Err(ApiProblem::unavailable(
                "the answer to this key has just been removed; send the request again",
            ));
        };
        if kept.request_hash != self.hash {
            let message = format!(
                "the idempotency key `{}` was used for another request; choose a new key",
                self.key
            );
            return Err(ApiProblem::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                ErrorCode::Conflict,
                message,
            ));
        }
        let status = u16::try_from(kept.status).ok();
        let status = status
            .and_then(|status| StatusCode::from_u16(status).ok())
            .unwrap_or(StatusCode::OK);
        Ok(Some(Reply::text(status, kept.answer).replayed()))
    }

    /// Keep the answer, in the transaction of the change.
    pub(crate) async fn keep(&self, tx: &mut Tx, status: StatusCode, answer: &str) -> Result<()> {
        Ok(api_answers::keep(tx, self.request(), status.as_u16().into(), answer).await?)
    }
}
