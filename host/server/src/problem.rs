//! Problem details (RFC 9457): what a client gets when its request is not done.

use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Response, StatusCode};
use serde::Serialize;

use campanile_control::problem::{ErrorCode, Problem};

/// Where the documentation explains the codes.
const TYPE: &str = "https://campanile.dev/docs/reference/exit-codes.html";

/// Why a request is not done.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct ProblemDetails {
    /// The address of a page that explains the codes, with the code after `#`.
    #[serde(rename = "type")]
    kind: String,
    /// The status in words.
    title: &'static str,
    /// The status of the answer.
    status: u16,
    /// One sentence: what is wrong, where, and what to do next.
    detail: String,
    /// The kind of error, for programs.
    code: ErrorCode,
    /// What to do next. Null when the sentence says so already.
    hint: Option<String>,
    /// Further lines, such as the differences between two revisions.
    lines: Vec<String>,
    /// The present revision of a schedule that was to be changed at another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<i64>,
}

/// A [`Problem`] with its status.
#[derive(Debug)]
pub(crate) struct ApiProblem {
    pub status: StatusCode,
    pub problem: Problem,
    /// After how many seconds the client may try again, when it is more than one.
    retry_after: Option<u64>,
}

impl ApiProblem {
    pub(crate) fn new(
        status: StatusCode,
        code: ErrorCode,
        message: impl std::fmt::Display,
    ) -> ApiProblem {
        ApiProblem {
            status,
            problem: Problem::new(code, message),
            retry_after: None,
        }
    }

    /// Refuse a wrong argument.
    pub(crate) fn invalid(message: impl std::fmt::Display) -> ApiProblem {
        ApiProblem::new(StatusCode::BAD_REQUEST, ErrorCode::InvalidArgument, message)
    }

    pub(crate) fn unauthorized(message: impl std::fmt::Display) -> ApiProblem {
        let problem = ApiProblem::new(StatusCode::UNAUTHORIZED, ErrorCode::Refused, message);
        problem.hint("send the header `Authorization: Bearer TOKEN`; the host names the file of its token when it starts")
    }

    pub(crate) fn not_found(message: impl std::fmt::Display) -> ApiProblem {
        ApiProblem::new(StatusCode::NOT_FOUND, ErrorCode::NotFound, message)
    }

    pub(crate) fn forbidden(message: impl std::fmt::Display) -> ApiProblem {
        ApiProblem::new(StatusCode::FORBIDDEN, ErrorCode::Refused, message)
    }

    /// Say that the host cannot answer now.
    pub(crate) fn unavailable(message: impl std::fmt::Display) -> ApiProblem {
        ApiProblem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            ErrorCode::Unavailable,
            message,
        )
    }

    /// Say that `principal` has sent too many requests, and may send this one after `wait`.
    pub(crate) fn too_many(principal: &str, wait: Duration) -> ApiProblem {
        let seconds = wait.as_secs_f64().ceil().max(1.0);
        let message = format!(
            "{principal} has sent more requests than `server.rate_limit` of this host allows; send it again in {seconds} s"
        );
        let problem = ApiProblem::new(
            StatusCode::TOO_MANY_REQUESTS,
            ErrorCode::Unavailable,
            message,
        );
        ApiProblem {
            retry_after: Some(seconds as u64),
            ..problem.hint("`x-cost` of each route in `/openapi.json` is what a request costs")
        }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> ApiProblem {
        let problem = self.problem.hint(hint);
        ApiProblem { problem, ..self }
    }

    /// Returns the answer.
    pub(crate) fn response(self) -> Response<Body> {
        let ApiProblem {
            status,
            problem,
            retry_after,
        } = self;
        let mut lines = problem.message.lines();
        let detail = lines
            .next()
            .unwrap_or_default()
            .trim_end_matches(':')
            .to_owned();
        let code = serde_json::to_value(problem.code).unwrap_or_default();
        let details = ProblemDetails {
            kind: format!("{TYPE}#{}", code.as_str().unwrap_or_default()),
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            detail,
            code: problem.code,
            hint: problem.hint,
            lines: lines.map(|line| line.trim().to_owned()).collect(),
            revision: problem.revision,
        };
        let json = serde_json::to_string(&details).unwrap_or_default();
        let mut response = Response::new(Body::from(json));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        match status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                headers.insert(RETRY_AFTER, HeaderValue::from(retry_after.unwrap_or(1)));
            }
            _ => {}
        }
        response
    }
}

impl<E: Into<Problem>> From<E> for ApiProblem {
    fn from(error: E) -> ApiProblem {
        let problem = error.into();
        let status = match problem.code {
            ErrorCode::InvalidArgument => StatusCode::BAD_REQUEST,
            ErrorCode::NotFound => StatusCode::NOT_FOUND,
            _ if problem.revision.is_some() => StatusCode::PRECONDITION_FAILED,
            ErrorCode::Ambiguous | ErrorCode::Conflict | ErrorCode::NewerSchema => {
                StatusCode::CONFLICT
            }
            ErrorCode::Refused => StatusCode::FORBIDDEN,
            ErrorCode::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            ErrorCode::InvalidConfiguration | ErrorCode::Failed | ErrorCode::Internal => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        ApiProblem {
            status,
            problem,
            retry_after: None,
        }
    }
}
