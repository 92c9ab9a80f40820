//! Answering a request from a script.

use std::sync::Arc;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::{Request, Response};
use wasmtime_wasi_http::{Error, Result, WasiBody};

use crate::capability::http::exchange::{Driver, Exchanged};
use crate::capability::http::response::{limited, wait_max};
use crate::capability::shared::Shared;
use crate::world::{HttpReply, HttpRequest, Replies};

/// The longest request body that a script reads.
const SCRIPTED_BODY_BYTES_MAX: usize = 64 << 20;

/// Let `script` answer `request`.
pub(crate) async fn answer(
    script: Arc<dyn Replies>,
    request: Request<WasiBody>,
    shared: Arc<Shared>,
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
    let wait = wait_max(&shared.call.limits);
    let response = response
        .body(limited(body.boxed_unsync(), shared, wait))
        .map_err(|_| Error::HttpProtocolError)?;
    let driver: Driver = Box::new(std::future::ready(Ok(())));
    Ok((response, driver))
}
