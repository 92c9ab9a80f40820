//! The delivery of a message: one HTTP request of the host, with the grants and the checks of a request of a task.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use campanile_model::clock::Timestamp;
use campanile_model::trace_context::TraceContext;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::header::{HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{HeaderMap, Request, Response};
use sha2::Sha256;
use tokio::task::JoinSet;
use tokio::time::timeout;
use wasmtime_wasi_http::{RequestOptions, WasiBody, WasiHttpHooks as _};

use crate::capability::http::gate::HttpGate;
use crate::capability::outbox::check::{Refusal, check};
use crate::capability::outbox::message::OutboxMessage;
use crate::capability::outbox::placeholders::fill;
use crate::capability::shared::{Call, Shared};
use crate::grants::{Grants, Secrets};
use crate::ledger::Ledger;
use crate::limits::Limits;
use crate::run::redaction::Redaction;
use crate::stop_signal::StopSignal;
use crate::world::RunFacts;

/// The most of an answer's body that is kept, to show it.
const ANSWER_BYTES_MAX: usize = 512;

/// How long the host waits for that beginning.
const ANSWER_TEXT_WAIT: Duration = Duration::from_secs(2);

const USER_AGENT: &str = concat!("campanile/", env!("CARGO_PKG_VERSION"));

/// The prefix of a secret of Standard Webhooks, whose rest is Base64.
const WEBHOOK_SECRET_PREFIX: &str = "whsec_";

/// What a delivery needs beside its message.
pub struct DeliveryCall {
    pub package: String,
    /// The grants that the package has now.
    pub grants: Arc<Grants>,
    /// The values of the secrets that [`delivery_secrets`] names.
    pub secrets: Secrets,
    /// Names of more secrets that sign the message, so that a receiver can change its secret.
    pub also_signing: Vec<String>,
    pub now: Timestamp,
    /// The longest time from the lookup of the name to the answer.
    pub wait_max: Duration,
    /// Stops the delivery: from then on, nothing is sent.
    pub stop: StopSignal,
    /// The span that the receiver gets as that of its caller, unless the message names one.
    pub traceparent: Option<TraceContext>,
}

/// How a delivery ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// The receiver answered with this status.
    Answered {
        status: u16,
        /// The beginning of the answer's body.
        text: String,
        /// How long the receiver asks to wait before the next delivery.
        retry_after: Option<Duration>,
    },
    /// There was no answer. The text is a clause.
    Failed(String),
}

/// Returns the names of the secrets that a delivery of `message` needs with `grants`.
pub fn delivery_secrets(message: &OutboxMessage, grants: &Grants) -> Vec<String> {
    let mut names = Vec::new();
    for (_, value) in &message.headers {
        // The message was checked when it was accepted.
        let _ = fill(value, |name| {
            names.push(name.to_owned());
            Ok(String::new())
        });
    }
    if let Ok(destination) = check(message, grants) {
        let signing = destination.signing_secret(&grants.http);
        names.extend(signing.map(str::to_owned));
    }
    names
}

/// Deliver `message` once.
pub async fn deliver(message: &OutboxMessage, call: DeliveryCall) -> Delivered {
    let request = match request(message, &call) {
        Ok(request) => request,
        Err(why) => return Delivered::Failed(why),
    };
    let redaction = Redaction::of(&call.secrets);
    let wait_max = call.wait_max;
    let shared = shared(call);
    let exchange = exchange(request, Arc::clone(&shared), &redaction);
    in_time(wait_max, exchange).await
}

/// Returns what the capabilities of a delivery share.
pub(super) fn shared(call: DeliveryCall) -> Arc<Shared> {
    let limits = Limits {
        http_wait: call.wait_max,
        http_response_bytes_max: u64::MAX,
        ..Limits::default()
    };
    let ungranted = Call::ungranted(limits, call.now);
    let sending = Call {
        package: call.package,
        grants: call.grants,
        stop: call.stop,
        facts: RunFacts {
            traceparent: call.traceparent,
            ..ungranted.facts
        },
        ..ungranted
    };
    Arc::new(Shared::new(
        sending,
        Arc::new(Ledger::unbounded()),
        call.now,
    ))
}

/// Wait for a delivery for up to `wait_max`.
pub(super) async fn in_time(
    wait_max: Duration,
    delivery: impl Future<Output = Delivered>,
) -> Delivered {
    let delivered = timeout(wait_max, delivery).await;
    delivered.unwrap_or_else(|_| {
        let seconds = wait_max.as_secs_f64().round();
        Delivered::Failed(format!("the receiver did not answer within {seconds} s"))
    })
}

async fn exchange(
    request: Request<WasiBody>,
    shared: Arc<Shared>,
    redaction: &Redaction,
) -> Delivered {
    let mut gate = HttpGate(Arc::clone(&shared));
    let options = Some(RequestOptions::default());
    let sent = gate.send_request(request, options, Box::new(async { Ok(()) }));
    let (response, driver) = match Pin::from(sent).await {
        Ok(exchanged) => exchanged,
        Err(error) => {
            // The refusal of an address names the address that the name leads to.
            let denied = shared.denied().map(str::to_owned);
            return Delivered::Failed(denied.unwrap_or_else(|| format!("no answer: {error}")));
        }
    };
    // It ends with this delivery, also when the delivery is dropped.
    let mut driving = JoinSet::new();
    driving.spawn(Pin::from(driver));
    answered(response, redaction).await
}

async fn answered(response: Response<WasiBody>, redaction: &Redaction) -> Delivered {
    let (head, body) = response.into_parts();
    let mut bytes = Vec::new();
    let mut is_whole = true;
    // The status is the answer. A body that is slow, or breaks, changes nothing.
    if !head.status.is_success() {
        let reading = timeout(ANSWER_TEXT_WAIT, read_beginning(body, &mut bytes));
        is_whole = matches!(reading.await, Ok(Ending::Whole));
    }
    // A receiver may repeat what it got.
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    let cut_at = (!is_whole).then_some(text.len());
    redaction.cut_text(&mut text, cut_at);
    Delivered::Answered {
        status: head.status.as_u16(),
        text,
        retry_after: retry_after(&head.headers),
    }
}

/// Whether a body was read to the end.
enum Ending {
    Whole,
    Cut,
}

/// Read at most [`ANSWER_BYTES_MAX`] bytes of `body`. What follows is not read: the connection is closed.
async fn read_beginning(mut body: WasiBody, bytes: &mut Vec<u8>) -> Ending {
    loop {
        let frame = match body.frame().await {
            None => return Ending::Whole,
            Some(Err(_)) => return Ending::Cut,
            Some(Ok(frame)) => frame,
        };
        bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        if bytes.len() > ANSWER_BYTES_MAX {
            bytes.truncate(ANSWER_BYTES_MAX);
            return Ending::Cut;
        }
    }
}

/// Returns the seconds of `Retry-After`. A date is not read: the receiver's clock may be wrong.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?;
    value.trim().parse().ok().map(Duration::from_secs)
}

fn request(message: &OutboxMessage, call: &DeliveryCall) -> Result<Request<WasiBody>, String> {
    let destination = check(message, &call.grants).map_err(|refusal| match refusal {
        Refusal::Denied(why) | Refusal::Invalid(why) => why,
    })?;
    let body = Full::new(Bytes::from(message.body.clone())).map_err(|never| match never {});
    let mut request = Request::builder()
        .method(message.method.as_str())
        .uri(message.url.as_str())
        .body(body.boxed_unsync())
        .map_err(|error| error.to_string())?;
    let mut add = |name: &str, value: &str| {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| error.to_string())?;
        let value = HeaderValue::from_str(value).map_err(|_| {
            format!("the value of the header {name} has characters that no header may have")
        })?;
        request.headers_mut().append(name, value);
        Ok::<_, String>(())
    };
    let secret = |name: &str| match call.secrets.get(name) {
        Some(secret) => Ok(secret.reveal()),
        None => Err(format!("the secret `{name}` is not there")),
    };
    for (name, value) in &message.headers {
        let filled = fill(value, |name| secret(name).map(str::to_owned));
        add(name, &filled?)?;
    }
    let id = message.id.to_string();
    add("host", &destination.authority())?;
    add("user-agent", USER_AGENT)?;
    add("content-length", &message.body.len().to_string())?;
    add("idempotency-key", &id)?;
    if let Some(name) = destination.signing_secret(&call.grants.http) {
        let timestamp = (call.now.micros() / 1_000_000).to_string();
        let names = [name].into_iter();
        let names = names.chain(call.also_signing.iter().map(String::as_str));
        let signatures = names.map(|name| sign(secret(name)?, &id, &timestamp, &message.body));
        let signature = signatures.collect::<Result<Vec<_>, _>>()?.join(" ");
        add("webhook-id", &id)?;
        add("webhook-timestamp", &timestamp)?;
        add("webhook-signature", &signature)?;
    }
    Ok(request)
}

/// Sign a message as Standard Webhooks does: `v1,` and the HMAC-SHA256 of `ID.TIMESTAMP.BODY` in Base64.
fn sign(secret: &str, id: &str, timestamp: &str, body: &[u8]) -> Result<String, String> {
    let key = match secret.strip_prefix(WEBHOOK_SECRET_PREFIX) {
        Some(encoded) => STANDARD.decode(encoded).map_err(|_| {
            format!("the secret that signs the message begins with `{WEBHOOK_SECRET_PREFIX}`, and its rest is not Base64")
        })?,
        None => secret.as_bytes().to_vec(),
    };
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).map_err(|error| error.to_string())?;
    mac.update(format!("{id}.{timestamp}.").as_bytes());
    mac.update(body);
    let signature = STANDARD.encode(mac.finalize().into_bytes());
    Ok(format!("v1,{signature}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_the_example_of_standard_webhooks() {
        let signature = sign(
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "1614265330",
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(
            signature.as_deref(),
            Ok("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
        );
        assert!(sign("whsec_%", "", "", b"").is_err());
        assert_ne!(sign("plain", "a", "1", b"x"), sign("plain", "a", "2", b"x"));
    }
}
