//! What every request is checked for, those of the API and those of the pages.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_LENGTH, HOST};
use axum::http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use crate::problem::ApiProblem;
use campanile_engine::problem::ErrorCode;

/// The most bytes of a body.
pub(crate) const BODY_BYTES_MAX: usize = 1 << 20;
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
    let declared = headers
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok());
    let declared = declared.and_then(|length| length.parse::<u64>().ok());
    if declared.is_some_and(|length| length > bytes_max as u64) {
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
