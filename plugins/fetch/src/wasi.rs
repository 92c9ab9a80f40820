//! The request, with the functions of `wasi:http`.

use std::time::Duration;

use wasip2::clocks::monotonic_clock;
use wasip2::http::outgoing_handler;
use wasip2::http::types::{
    ErrorCode, Fields, IncomingBody, IncomingResponse, OutgoingBody, OutgoingRequest, Scheme,
};
use wasip2::io::poll::{Pollable, poll};
use wasip2::io::streams::StreamError;

use crate::{Address, Failure, Response};

/// Request `url` and read at most `body_bytes_max` bytes of the body, all within `timeout`.
///
/// # Errors
///
/// Every [`Failure`]. A status such as 500 is not an error.
pub fn get(url: &str, timeout: Duration, body_bytes_max: usize) -> Result<Response, Failure> {
    let address: Address = url.parse()?;
    let deadline = Deadline::after(timeout, url);
    let response = request(&address, &deadline).map_err(|failure| failure.with_url(url))?;
    let status = response.status();
    let (body, truncated) =
        read(response, &deadline, body_bytes_max).map_err(|failure| failure.with_url(url))?;
    Ok(Response {
        status,
        body,
        truncated,
    })
}

impl Failure {
    /// Return the same failure with the URL before its message.
    fn with_url(self, url: &str) -> Failure {
        match self {
            Failure::Denied(message) => Failure::Denied(format!("{url}: {message}")),
            Failure::Failed(message) => Failure::Failed(format!("{url}: {message}")),
            // These messages contain the URL already.
            Failure::BadUrl(_) | Failure::TimedOut(_) => self,
        }
    }
}

fn request(address: &Address, deadline: &Deadline) -> Result<IncomingResponse, Failure> {
    let rejected = |part: &str| Failure::Failed(format!("the host does not accept the {part}"));
    let headers = Fields::new();
    headers
        .append("user-agent", b"campanile-fetch/0.1")
        .map_err(|_| rejected("user agent"))?;
    let request = OutgoingRequest::new(headers);
    let scheme = if address.secure {
        Scheme::Https
    } else {
        Scheme::Http
    };
    request
        .set_scheme(Some(&scheme))
        .map_err(|()| rejected("scheme"))?;
    request
        .set_authority(Some(&address.authority))
        .map_err(|()| rejected("host name"))?;
    request
        .set_path_with_query(Some(&address.path_and_query))
        .map_err(|()| rejected("path"))?;
    let body = request.body().map_err(|()| rejected("body"))?;
    let response = outgoing_handler::handle(request, None).map_err(classify)?;
    OutgoingBody::finish(body, None).map_err(classify)?;
    deadline.wait(&response.subscribe())?;
    match response.get() {
        Some(Ok(result)) => result.map_err(classify),
        Some(Err(())) | None => Err(Failure::Failed("the host lost the response".to_owned())),
    }
}

fn read(
    response: IncomingResponse,
    deadline: &Deadline,
    body_bytes_max: usize,
) -> Result<(Vec<u8>, bool), Failure> {
    let lost = || Failure::Failed("the host lost the body".to_owned());
    let incoming: IncomingBody = response.consume().map_err(|()| lost())?;
    let stream = incoming.stream().map_err(|()| lost())?;
    let ready = stream.subscribe();
    let mut body = Vec::new();
    // Read one byte more than the limit to detect a longer body.
    while body.len() <= body_bytes_max {
        deadline.wait(&ready)?;
        match stream.read(64 * 1024) {
            Ok(bytes) => body.extend(bytes),
            Err(StreamError::Closed) => break,
            Err(StreamError::LastOperationFailed(error)) => {
                let code = wasip2::http::types::http_error_code(&error);
                return Err(code.map_or_else(|| Failure::Failed(error.to_debug_string()), classify));
            }
        }
    }
    let truncated = body.len() > body_bytes_max;
    body.truncate(body_bytes_max);
    Ok((body, truncated))
}

fn classify(code: ErrorCode) -> Failure {
    match code {
        ErrorCode::HttpRequestDenied => Failure::Denied(
            "the host denied the request; grant it in the package's sidecar file".to_owned(),
        ),
        other => Failure::Failed(format!("{other:?}")),
    }
}

/// The deadline of a request.
struct Deadline {
    timer: Pollable,
    message: String,
}

impl Deadline {
    fn after(timeout: Duration, url: &str) -> Deadline {
        let nanoseconds = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        Deadline {
            timer: monotonic_clock::subscribe_duration(nanoseconds),
            message: format!(
                "{url}: no complete response within {} ms",
                timeout.as_millis()
            ),
        }
    }

    /// Wait until `ready` is ready, or fail at the deadline.
    fn wait(&self, ready: &Pollable) -> Result<(), Failure> {
        let woken = poll(&[ready, &self.timer]);
        if woken.contains(&0) {
            Ok(())
        } else {
            Err(Failure::TimedOut(self.message.clone()))
        }
    }
}
