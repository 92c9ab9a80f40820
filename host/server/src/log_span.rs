//! The span of the log lines about a request.

use axum::http::{Method, Request};
use campanile_control::admin::token_admin::Principal;
use tracing::field::{Empty, display};
use tracing::{Span, error_span};

/// The most bytes of a path in the log.
const PATH_BYTES_MAX: usize = 200;

/// The methods that routes have.
const METHODS: [Method; 6] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
];

/// Makes the span of a request, without its query, which may hold what a client searches for.
///
/// Like the spans of runs, it's at the level error, so that every filter with a level for all of Campanile keeps its
/// fields on the lines within.
pub(crate) fn of<B>(request: &Request<B>) -> Span {
    let path = request.uri().path();
    let path = &path[..path.floor_char_boundary(PATH_BYTES_MAX)];
    // A client may make up a long one.
    let method = Some(request.method()).filter(|method| METHODS.contains(method));
    let method = method.map_or("other", Method::as_str);
    error_span!(parent: None, "request", method = %method, %path, principal = Empty)
}

/// Adds the principal, once it's proved, to the span of this request.
///
/// A filter by principal sees it when the span is entered again.
pub(crate) fn note_principal(principal: &Principal) {
    Span::current().record("principal", display(&principal.name));
}
