//! A script in place of the network, for tests of tasks.

use std::sync::Arc;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::{Request, Response};
use wasmtime_wasi_http::{Error, Result, WasiBody};

use super::http::{Driver, Exchanged};
use super::response::{Bounds, bounded};

/// Of the body of a request that a script answers.
const SCRIPTED_BODY_BYTES_MAX: usize = 64 << 20;

/// Answers the requests of a call in place of the network.
pub trait Replies: Send + Sync {
    /// The answer to `request`. Called on the guests' threads, and must not block.
    fn reply(&self, request: HttpRequest) -> HttpReply;
}

/// A request of a guest, as it would go out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// As the guest wrote it; its case counts.
    pub method: String,
    /// With scheme, host, path and query.
    pub url: String,
    /// Names in lower case; values that are no UTF-8 have replacement characters.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// What a script answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpReply {
    Response {
        status: u16,
        headers: Vec<(String, String)>,
        body: Vec<u8>,
    },
    /// Nobody listens there.
    Refused,
}

/// The answer of a script.
pub(super) async fn ask(
    script: Arc<dyn Replies>,
    request: Request<WasiBody>,
    bounds: Bounds,
) -> Result<Exchanged> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, SCRIPTED_BODY_BYTES_MAX);
    let body = body
        .collect()
        .await
        .map_err(|_| Error::HttpRequestBodySize(None))?;
    let headers = head.headers.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (name.as_str().to_owned(), value)
    });
    let reply = script.reply(HttpRequest {
        method: head.method.as_str().to_owned(),
        url: head.uri.to_string(),
        headers: headers.collect(),
        body: body.to_bytes().to_vec(),
    });
    let HttpReply::Response {
        status,
        headers,
        body,
    } = reply
    else {
        return Err(Error::ConnectionRefused);
    };
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(name, value);
    }
    let body = Full::new(Bytes::from(body)).map_err(|never| match never {});
    let wait = bounds.wait_max;
    let response = response
        .body(bounded(body.boxed_unsync(), bounds, wait))
        .map_err(|_| Error::HttpProtocolError)?;
    let driver: Driver = Box::new(std::future::ready(Ok(())));
    Ok((response, driver))
}
