//! A message of a call.

use campanile_model::ids::MessageId;
use serde::{Serialize, Serializer};

use crate::world::HttpRequest;

/// A message of a call, to be recorded with its success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct OutboxMessage {
    pub id: MessageId,
    pub method: String,
    pub url: String,
    pub headers: Vec<(String, String)>,
    /// As text. Bytes that are not UTF-8 are replaced.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "String")]
    pub body: Vec<u8>,
}

fn as_text<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&String::from_utf8_lossy(bytes))
}

impl OutboxMessage {
    /// Returns the request by which the message is delivered, before secrets are filled in.
    pub fn to_request(&self) -> HttpRequest {
        let key = ("idempotency-key".to_owned(), self.id.to_string());
        let headers = self.headers.iter().cloned();
        HttpRequest {
            method: self.method.clone(),
            url: self.url.clone(),
            headers: headers.chain([key]).collect(),
            body: self.body.clone(),
        }
    }

    /// Returns what the message takes of the limit `uncommitted`.
    pub(crate) fn bytes(&self) -> u64 {
        (self.head_bytes() + self.body.len()) as u64
    }

    pub(crate) fn head_bytes(&self) -> usize {
        let headers = self
            .headers
            .iter()
            .map(|(name, value)| name.len() + value.len());
        self.method.len() + self.url.len() + headers.sum::<usize>()
    }
}
