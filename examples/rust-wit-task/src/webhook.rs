//! A POST through `wasi:http`. The host opens the connection if the address is granted.

use wasip2::http::outgoing_handler;
use wasip2::http::types::{ErrorCode, Fields, Method, OutgoingBody, OutgoingRequest, Scheme};

/// Why the result did not arrive.
pub enum Trouble {
    BadUrl(String),
    /// The sidecar does not grant this request.
    Denied(String),
    /// No answer, or an error. A retry may help.
    Failed(String),
}

pub fn post(url: &str, body: &str, idempotency_key: &str) -> Result<(), Trouble> {
    let request = request(url, idempotency_key)
        .ok_or_else(|| Trouble::BadUrl(format!("{url} is not an address that can be requested")))?;
    let status = send(request, body.as_bytes()).map_err(|code| match code {
        ErrorCode::HttpRequestDenied => {
            Trouble::Denied(format!("{url}: the host refused the request"))
        }
        code => Trouble::Failed(format!("{url}: {code:?}")),
    })?;
    match status {
        200..300 => Ok(()),
        status => Err(Trouble::Failed(format!("{url} answered {status}"))),
    }
}

/// None when the host refuses a part of the URL.
fn request(url: &str, idempotency_key: &str) -> Option<OutgoingRequest> {
    let (scheme, rest) = match url.split_once("://")? {
        ("http", rest) => (Scheme::Http, rest),
        ("https", rest) => (Scheme::Https, rest),
        _ => return None,
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let headers = Fields::new();
    headers.append("content-type", b"application/json").ok()?;
    headers
        .append("idempotency-key", idempotency_key.as_bytes())
        .ok()?;
    let request = OutgoingRequest::new(headers);
    request.set_method(&Method::Post).ok()?;
    request.set_scheme(Some(&scheme)).ok()?;
    request.set_authority(Some(authority)).ok()?;
    request
        .set_path_with_query(Some(if path.is_empty() { "/" } else { path }))
        .ok()?;
    Some(request)
}

fn send(request: OutgoingRequest, bytes: &[u8]) -> Result<u16, ErrorCode> {
    let lost = || ErrorCode::InternalError(Some("the host lost the answer".to_owned()));
    let body = request.body().map_err(|()| lost())?;
    let answer = outgoing_handler::handle(request, None)?;
    let stream = body.write().map_err(|()| lost())?;
    // When the receiver stops reading the body, its answer says why.
    let sent = stream.blocking_write_and_flush(bytes);
    // Drop the stream before finishing the body.
    drop(stream);
    if sent.is_ok() {
        OutgoingBody::finish(body, None)?;
    }
    answer.subscribe().block();
    let response = answer.get().and_then(Result::ok).ok_or_else(lost)??;
    Ok(response.status())
}
