//! What every request is checked for, those of the API and those of the pages.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_LENGTH, HOST, ORIGIN, TRANSFER_ENCODING};
use axum::http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use crate::app::{State, TURN_WAIT};
use crate::problem::ApiProblem;
use crate::shares::Share;
use campanile_control::problem::ErrorCode;

/// The most bytes of a body that isn't an upload.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// The header in which a browser says where a request comes from.
pub(crate) const FETCH_SITE: &str = "sec-fetch-site";
/// How long a request may take, its body included.
pub(crate) const REQUEST_TIME: Duration = Duration::from_secs(30);

/// Say that a request took too long.
pub(crate) fn too_slow() -> ApiProblem {
    ApiProblem::unavailable(format!(
        "the request took more than {} s",
        REQUEST_TIME.as_secs()
    ))
}

/// Say that no route has the path.
pub(crate) fn no_such_path() -> ApiProblem {
    let problem = ApiProblem::not_found("there is no such path");
    problem.hint("`/openapi.json` lists all paths")
}

/// Refuse a request with two hosts or none: a proxy and this server must not read it differently.
pub(crate) fn check_host(headers: &HeaderMap) -> Result<(), ApiProblem> {
    match headers.get_all(HOST).iter().count() {
        1 => Ok(()),
        _ => Err(ApiProblem::invalid(
            "the request must have one header `Host`",
        )),
    }
}

/// Read a body of up to `bytes_max` bytes, and forget it. A client that still sends when its connection is closed may lose
/// the answer.
pub(crate) async fn discard(mut body: Body, bytes_max: usize) {
    let mut bytes = 0;
    while let Some(Ok(frame)) = body.frame().await
        && bytes <= bytes_max
    {
        bytes += frame.data_ref().map_or(0, Bytes::len);
    }
}

/// Bodies declaring at most this length aren't charged.
const SMALL_BODY_BYTES: u64 = 16 << 10;

/// Charges `principal` for a body of up to `bytes_max` bytes before reading it. Returns none for a small one.
///
/// # Errors
///
/// Returns an error if other requests' bodies leave too little memory.
pub(crate) async fn memory_for_body(
    state: &State,
    principal: &str,
    headers: &HeaderMap,
    bytes_max: usize,
) -> Result<Option<Share>, ApiProblem> {
    let bytes = declared_bytes(headers).unwrap_or(bytes_max as u64);
    let bytes = bytes.min(bytes_max as u64);
    // Requests without a body declare none.
    let has_body = headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING);
    if !has_body || bytes <= SMALL_BODY_BYTES {
        return Ok(None);
    }
    let kib = usize::try_from(bytes >> 10).unwrap_or(usize::MAX);
    let taken = state.body_memory.take(principal, kib, TURN_WAIT).await;
    taken.map(Some).ok_or_else(|| {
        let problem = ApiProblem::unavailable("too many requests with large bodies are being read");
        problem.hint("send the request again later")
    })
}

fn declared_bytes(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Read a body of up to `bytes_max` bytes.
pub(crate) async fn read_body(
    headers: &HeaderMap,
    body: Body,
    bytes_max: usize,
) -> Result<Bytes, ApiProblem> {
    let too_large = || {
        let message = match bytes_max {
            0 => "this request takes no body".to_owned(),
            _ => format!("the body has more than {bytes_max} bytes"),
        };
        ApiProblem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            ErrorCode::InvalidArgument,
            message,
        )
    };
    if declared_bytes(headers).is_some_and(|length| length > bytes_max as u64) {
        return Err(too_large());
    }
    match Limited::new(body, bytes_max).collect().await {
        Ok(read) => Ok(read.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(error) => Err(ApiProblem::invalid(format!(
            "the body cannot be read: {error}"
        ))),
    }
}

/// Refuse a change that a page of another site asks for, with what a browser adds to each request. Clients that are no browsers
/// send neither header.
pub(crate) fn check_origin(headers: &HeaderMap) -> Result<(), ApiProblem> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let host = text(HOST.as_str()).unwrap_or_default();
    let is_own = match (text(FETCH_SITE), text(ORIGIN.as_str())) {
        (Some(site), _) => site == "same-origin",
        (None, Some(origin)) => origin
            .split_once("://")
            .is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(host)),
        (None, None) => true,
    };
    if is_own {
        Ok(())
    } else {
        let problem = ApiProblem::forbidden("the request was sent by a page of another site");
        Err(problem.hint("open the page here, and send its form"))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn a_form_of_another_site_is_refused() {
        for (site, origin, is_own) in [
            (None, None, true),
            (Some("same-origin"), None, true),
            (Some("none"), None, false),
            (Some("same-site"), None, false),
            (Some("cross-site"), Some("http://a:1"), false),
            (None, Some("http://a:1"), true),
            (None, Some("https://a:1"), true),
            (None, Some("http://a:2"), false),
            (None, Some("http://a"), false),
            (None, Some("null"), false),
        ] {
            let mut sent = vec![("host", "a:1")];
            sent.extend(site.map(|site| ("sec-fetch-site", site)));
            sent.extend(origin.map(|origin| ("origin", origin)));
            assert_eq!(check_origin(&headers(&sent)).is_ok(), is_own, "{sent:?}");
        }
    }
}
