//! The check of a message before it is accepted.

use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, Request, Uri};

use crate::capability::http::destination::Destination;
use crate::capability::outbox::message::OutboxMessage;
use crate::capability::outbox::placeholders::fill;
use crate::grants::{Grants, Secrets};
use crate::run::redaction::Redaction;

/// The most bytes of the address, and of the names and values of all headers together.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Headers that the host sets, or that belong to a connection.
const OWN_HEADERS: [&str; 12] = [
    "connection",
    "content-length",
    "host",
    "idempotency-key",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "expect",
    "user-agent",
];

/// The headers of Standard Webhooks begin with this.
const WEBHOOK_PREFIX: &str = "webhook-";

/// Why a message is not accepted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The sentence names the grant that is missing.
    Denied(String),
    /// A sentence.
    Invalid(String),
}

/// Returns where `message` goes, if it is a request that may be delivered with `grants`.
pub(crate) fn check(message: &OutboxMessage, grants: &Grants) -> Result<Destination, Refusal> {
    let bytes = message.head_bytes();
    if bytes > HEAD_BYTES_MAX {
        return invalid(format!(
            "the address and the headers of the message have {bytes} bytes, and may have {HEAD_BYTES_MAX}"
        ));
    }
    let destination = destination(message).map_err(Refusal::Invalid)?;
    for (name, value) in &message.headers {
        check_header(name, value, grants).map_err(Refusal::Invalid)?;
    }
    let Some(reach) = destination.reach(&grants.http) else {
        return Err(Refusal::Denied(destination.refusal()));
    };
    match destination.ip() {
        Some(address) if !reach.includes(address) => Err(Refusal::Denied(
            destination.refusal_of_address(address, grants.source),
        )),
        _ => Ok(destination),
    }
}

fn invalid<T>(what: String) -> Result<T, Refusal> {
    Err(Refusal::Invalid(what))
}

fn destination(message: &OutboxMessage) -> Result<Destination, String> {
    let method = Method::from_bytes(message.method.as_bytes())
        .ok()
        .filter(|method| *method != Method::CONNECT)
        .ok_or_else(|| {
            format!(
                "the method of the message is {:?}, which is not one such as \"POST\"",
                message.method
            )
        })?;
    let uri: Option<Uri> = message.url.parse().ok();
    let uri = uri.filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")));
    let mut request = Request::new(());
    *request.method_mut() = method;
    let destination = uri.and_then(|uri| {
        *request.uri_mut() = uri;
        Destination::of(&request)
    });
    destination.ok_or_else(|| {
        format!(
            "the address of the message is {:?}, which is not one such as \"https://example.com/hook\"",
            message.url
        )
    })
}

fn check_header(name: &str, value: &str, grants: &Grants) -> Result<(), String> {
    let lower = name.to_ascii_lowercase();
    if HeaderName::from_bytes(name.as_bytes()).is_err() {
        return Err(format!("{name:?} is not the name of a header"));
    }
    if OWN_HEADERS.contains(&lower.as_str()) || lower.starts_with(WEBHOOK_PREFIX) {
        return Err(format!(
            "the host sets the header {name:?} of a message: leave it out"
        ));
    }
    let granted = |secret: &str| {
        if grants.secrets.contains(secret) {
            Ok(String::new())
        } else {
            Err(format!(
                "names the secret {secret:?}, which the package's sidecar file does not grant in `grants.secrets`"
            ))
        }
    };
    let filled = fill(value, granted).map_err(|what| format!("the header {name:?} {what}"))?;
    match HeaderValue::from_str(&filled) {
        Ok(_) => Ok(()),
        Err(_) => Err(format!(
            "the value of the header {name:?} has characters that no header may have"
        )),
    }
}

/// Refuse a message that holds the value of a secret, which the record would keep.
pub(crate) fn refuse_secrets(message: &OutboxMessage, secrets: &Secrets) -> Result<(), String> {
    let redaction = Redaction::of(secrets);
    let holds = |text: &str| {
        let mut redacted = text.to_owned();
        redaction.text(&mut redacted);
        redacted != text
    };
    let mut headers = message.headers.iter();
    let is_held = holds(&message.url)
        || headers.any(|(name, value)| holds(name) || holds(value))
        || holds(&String::from_utf8_lossy(&message.body));
    if is_held {
        Err(
            "the message holds the value of a secret, and the host would record it: write `{secret:NAME}` in a header instead, or let the host sign the message"
                .to_owned(),
        )
    } else {
        Ok(())
    }
}
