//! The span of the log lines about a request.

use axum::http::Request;
use campanile_control::admin::token_admin::Principal;
use tracing::field::{Empty, display};
use tracing::{Span, error_span};

/// The most bytes of a path in the log.
const PATH_BYTES_MAX: usize = 200;

/// Makes the span of a request, without its query, which may hold what a client searches for.
///
/// Like the spans of runs, it's at the level error, so that every filter but `off` keeps its fields on the lines within.
pub(crate) fn of<B>(request: &Request<B>) -> Span {
    let path = request.uri().path();
    let path = &path[..path.floor_char_boundary(PATH_BYTES_MAX)];
    error_span!(parent: None, "request", method = %request.method(), %path, principal = Empty)
}

/// Adds the principal, once it's proved, to the span of this request.
///
/// A filter by principal sees it when the span is entered again.
pub(crate) fn note_principal(principal: &Principal) {
    Span::current().record("principal", display(&principal.name));
}
