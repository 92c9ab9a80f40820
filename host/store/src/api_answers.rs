//! Answers of the API to requests with an idempotency key, so that the same request again changes nothing twice.

use sqlx::FromRow;

use super::sql::statements;
use super::types::storable;
use campanile_model::clock::Timestamp;

/// A request whose answer is kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KeyedRequest<'a> {
    /// Who makes it. Keys of different principals are independent.
    pub principal: &'a str,
    pub key: &'a str,
    /// SHA-256 of the method, the path and the body, as hexadecimal digits.
    pub hash: &'a str,
}

/// The answer to an earlier request with the same key.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct KeptAnswer {
    pub request_hash: String,
    pub status: i64,
    /// JSON.
    pub answer: String,
}

statements! {
    /// Take a key. False when an earlier request has it. Another transaction with this key waits for the end of this one.
    pub async fn begin(request: KeyedRequest<'_>, now: Timestamp) -> bool = changed
        "INSERT INTO api_answer (principal, key, request_hash, status, answer, created_at)
        VALUES ($1, $2, $3, 0, '', $4) ON CONFLICT (principal, key) DO NOTHING"
        => [request.principal, request.key, request.hash, now];

    /// Keep the answer to a request whose key this transaction has taken.
    pub async fn keep(request: KeyedRequest<'_>, status: i64, answer: &str) -> () = run
        "UPDATE api_answer SET status = $3, answer = $4 WHERE principal = $1 AND key = $2"
        => [request.principal, request.key, status, storable(answer)];

    /// Returns the kept answer of a key.
    pub async fn find(principal: &str, key: &str) -> Option<KeptAnswer> = row
        "SELECT request_hash, status, answer FROM api_answer WHERE principal = $1 AND key = $2";

    /// Remove the answers to a principal.
    pub async fn remove_of(principal: &str) -> () = run "DELETE FROM api_answer WHERE principal = $1";

    /// Remove up to `limit` answers from before `before`, the oldest first; return how many.
    pub async fn remove_old(before: Timestamp, limit: i64) -> u64 = execute
        "DELETE FROM api_answer WHERE (principal, key) IN
            (SELECT principal, key FROM api_answer WHERE created_at < $1 ORDER BY created_at LIMIT $2)";
}
