//! A POST through `wasi:http`. The host opens the connection if the address is granted.

use wasip2::http::outgoing_handler;
use wasip2::http::types::{ErrorCode, Fields, Method, OutgoingBody, OutgoingRequest, Scheme};

/// The reason why a request failed.
pub enum Error {
    BadUrl(String),
    /// The sidecar does not grant this request.
    Denied(String),
    /// There was no response, or an error. A retry may help.
    Failed(String),
}

pub fn post(url: &str, body: &str, idempotency_key: &str) -> Result<(), Error> {
    let request = request(url, idempotency_key)
        .ok_or_else(|| Error::BadUrl(format!("{url} cannot be requested")))?;
    let status = send(request, body.as_bytes()).map_err(|code| match code {
        ErrorCode::HttpRequestDenied => {
            Error::Denied(format!("{url}: the host denied the request"))
        }
        code => Error::Failed(format!("{url}: {code:?}")),
    })?;
    match status {
        200..300 => Ok(()),
        status => Err(Error::Failed(format!("{url} responded with {status}"))),
    }
}

/// Create the request, or return `None` if the URL is invalid.
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
    let lost = || ErrorCode::InternalError(Some("the host lost the response".to_owned()));
    let body = request.body().map_err(|()| lost())?;
    let response = outgoing_handler::handle(request, None)?;
    let stream = body.write().map_err(|()| lost())?;
    // If the receiver stops reading the body, its response says why.
    let sent = stream.blocking_write_and_flush(bytes);
    // Drop the stream before finishing the body.
    drop(stream);
    if sent.is_ok() {
        OutgoingBody::finish(body, None)?;
    }
    response.subscribe().block();
    let response = response.get().and_then(Result::ok).ok_or_else(lost)??;
    Ok(response.status())
}
