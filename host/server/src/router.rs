//! From a request to the handler of its route.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::RawPathParams;
use axum::extract::rejection::RawPathParamsRejection;
use axum::http::header::{ALLOW, CONTENT_LENGTH, HOST};
use axum::http::{HeaderMap, Request, Response, StatusCode};
use axum::routing::on;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::time::timeout;

use crate::app::{App, State};
use crate::auth::{self, Peer};
use crate::call::{Call, Reply};
use crate::openapi;
use crate::problem::ApiProblem;
use crate::query::Query;
use crate::routes::{Route, routes};
use campanile_engine::problem::ErrorCode;

/// The most bytes of a body.
const BODY_BYTES_MAX: usize = 1 << 20;
/// How long a request may take, its body included.
const REQUEST_TIME: Duration = Duration::from_secs(30);

/// The values in a path, or why they cannot be read.
type Path = Result<RawPathParams, RawPathParamsRejection>;

/// Make the router of all routes, and what its requests share.
pub(crate) fn router(app: App, token: Option<String>) -> (Router, Arc<State>) {
    let state = Arc::new(State::new(app, token, openapi::document()));
    let mut router = Router::new();
    for route in routes() {
        let state = Arc::clone(&state);
        let answer = move |path: Path, request: Request<Body>| {
            answer(Arc::clone(&state), route, path, request)
        };
        router = router.route(route.path, on(route.method.filter(), answer));
    }
    let router = router
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method);
    (router, state)
}

async fn answer(
    state: Arc<State>,
    route: &'static Route,
    path: Path,
    request: Request<Body>,
) -> Response<Body> {
    let called = call(Arc::clone(&state), route, path, request);
    let done = match timeout(REQUEST_TIME, called).await {
        Ok(done) => done,
        Err(_) => Err(ApiProblem::unavailable(format!(
            "the request took more than {} s",
            REQUEST_TIME.as_secs()
        ))),
    };
    let answered = done.and_then(|reply| reply.response(&state));
    answered.unwrap_or_else(ApiProblem::response)
}

async fn call(
    state: Arc<State>,
    route: &'static Route,
    path: Path,
    request: Request<Body>,
) -> Result<Reply, ApiProblem> {
    let (parts, body) = request.into_parts();
    check_host(&parts.headers)?;
    let db = state.app.engine.db();
    let (principal, db) = match (route.role, parts.extensions.get::<Peer>()) {
        (None, _) => (None, db.clone()),
        (Some(role), Some(peer)) => {
            let principal = auth::principal(&state, &parts.headers, peer).await?;
            auth::require(&principal, role, "the request")?;
            let db = db.acting_as(auth::actor(&principal, peer));
            (Some(principal), db)
        }
        (Some(_), None) => return Err(ApiProblem::unauthorized("the request has no connection")),
    };
    let path = path.map_err(|error| ApiProblem::invalid(format!("the path: {error}")))?;
    let path =
        Vec::from_iter((path.iter()).map(|(name, value)| (name.to_owned(), value.to_owned())));
    let query = parts.uri.query().unwrap_or_default();
    let query = Query::read(query, route.query, route.repeated)?;
    if path.iter().any(|(_, value)| value.contains('\0')) || query.has_zero() {
        return Err(ApiProblem::invalid(
            "the path or the query has a zero character",
        ));
    }
    let bytes_max = if route.body.is_some() {
        BODY_BYTES_MAX
    } else {
        0
    };
    let body = read_body(&parts.headers, body, bytes_max).await?;
    let shared = Arc::clone(&state);
    let _turn = match &principal {
        Some(principal) => Some(shared.turn(&principal.name).await?),
        None => None,
    };
    let call = Call {
        state,
        principal,
        db,
        method: route.method.as_str(),
        uri: parts.uri.path().to_owned(),
        path,
        query,
        headers: parts.headers,
        body,
    };
    (route.handler)(call).await
}

/// Refuse a request with two hosts or none: a proxy and this server must not read it differently.
fn check_host(headers: &HeaderMap) -> Result<(), ApiProblem> {
    match headers.get_all(HOST).iter().count() {
        1 => Ok(()),
        _ => Err(ApiProblem::invalid(
            "the request must have one header `Host`",
        )),
    }
}

/// Read a body of up to `bytes_max` bytes.
async fn read_body(headers: &HeaderMap, body: Body, bytes_max: usize) -> Result<Bytes, ApiProblem> {
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

async fn unknown() -> Response<Body> {
    let problem = ApiProblem::not_found("there is no such path");
    problem.hint("`/openapi.json` lists all paths").response()
}

async fn wrong_method() -> Response<Body> {
    let message = "the path does not have this method";
    let problem = ApiProblem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        ErrorCode::InvalidArgument,
        message,
    );
    let hint = format!("the header `{ALLOW}` of this answer lists its methods");
    problem.hint(hint).response()
}
