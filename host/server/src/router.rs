//! From a request to the handler of its route.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::RawPathParams;
use axum::extract::rejection::RawPathParamsRejection;
use axum::http::header::ALLOW;
use axum::http::{Request, Response, StatusCode};
use axum::routing::on;
use tokio::time::timeout;

use crate::app::{App, State};
use crate::auth::{self, Peer};
use crate::call::{Call, Reply};
use crate::openapi;
use crate::pages;
use crate::problem::ApiProblem;
use crate::query::Query;
use crate::request::{BODY_BYTES_MAX, REQUEST_TIME, check_host, no_such_path, read_body, too_slow};
use crate::routes::{Route, routes};
use campanile_engine::problem::ErrorCode;
use campanile_model::access::Channel;

/// The values in a path, or why they cannot be read.
type Path = Result<RawPathParams, RawPathParamsRejection>;

/// Make the router of all routes and pages, and what its requests share.
pub(crate) fn router(app: App, token: Option<String>, is_encrypted: bool) -> (Router, Arc<State>) {
    let state = Arc::new(State::new(app, token, is_encrypted, openapi::document()));
    let mut router = Router::new();
    for route in routes() {
        let state = Arc::clone(&state);
        let answer = move |path: Path, request: Request<Body>| {
            answer(Arc::clone(&state), route, path, request)
        };
        router = router.route(route.path, on(route.method.filter(), answer));
    }
    let router = pages::add_routes(router, &state)
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
        Err(_) => Err(too_slow()),
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
            let db = db.acting_as(auth::actor(&principal, peer, Channel::Api));
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

async fn unknown(request: Request<Body>) -> Response<Body> {
    match pages::is_for_page(request.headers(), request.uri().path()) {
        true => pages::no_such_page(),
        false => no_such_path().response(),
    }
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
