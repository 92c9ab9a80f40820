//! From a request to the handler of its route.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::body::Body;
use axum::extract::RawPathParams;
use axum::extract::rejection::RawPathParamsRejection;
use axum::http::header::ALLOW;
use axum::http::{Request, Response, StatusCode};
use axum::routing::on;
use tokio::time::timeout;
use tracing::{Instrument as _, Span};

use crate::all_routes::routes;
use crate::app::{Access, App, State};
use crate::call::{Call, Reply};
use crate::dispatch::dispatch;
use crate::log_span;
use crate::peer::{Peer, actor};
use crate::problem::ApiProblem;
use crate::query::Query;
use crate::request::{
    BODY_BYTES_MAX, REQUEST_TIME, check_host, check_origin, discard, memory_for_body, no_such_path,
    read_body, too_slow,
};
use crate::routes::{self, Form, Method, Route};
use crate::{auth, openapi, pages, upload};
use campanile_control::admin::token_admin::Principal;
use campanile_control::problem::ErrorCode;

/// The values in a path, or why they cannot be read.
type Path = Result<RawPathParams, RawPathParamsRejection>;

/// Make the router of all routes and pages, and what its requests share.
pub(crate) fn router(app: App, access: Access) -> (Router, Arc<State>) {
    let state = Arc::new(State::new(app, access, openapi::document()));
    let mut router = Router::new();
    for route in routes() {
        let state = Arc::clone(&state);
        let answer = move |path: Path, request: Request<Body>| {
            answer(Arc::clone(&state), route, path, request)
        };
        router = router.route(route.path, on(routes::filter(route.method), answer));
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
    let peer = request.extensions().get::<Peer>().cloned();
    let principal = OnceLock::new();
    let called = call(Arc::clone(&state), route, path, request, &principal);
    let done = match timeout(REQUEST_TIME, called).await {
        Ok(done) => done,
        Err(_) => Err(too_slow()),
    };
    let answered = match done {
        Ok(reply) => {
            let principal = principal.get().map_or_else(String::new, Principal::key);
            reply.response(&state, &principal).await
        }
        Err(problem) => Err(problem),
    };
    answered.unwrap_or_else(|problem| {
        let client = (principal.get(), peer.as_ref(), route.channel());
        let request = format!("{} {}", route.method.as_str(), route.path);
        state.refusals.note(&problem, client, &request);
        problem.response()
    })
}

/// Answer a request. `known` gets who makes it, as soon as that is proved.
async fn call(
    state: Arc<State>,
    route: &'static Route,
    path: Path,
    request: Request<Body>,
    known: &OnceLock<Principal>,
) -> Result<Reply, ApiProblem> {
    let (parts, body) = request.into_parts();
    check_host(&parts.headers)?;
    let db = state.app.engine.db();
    let (principal, db) = match (route.role, parts.extensions.get::<Peer>()) {
        (None, _) => (None, db.clone()),
        (Some(role), Some(peer)) => {
            let principal = auth::principal(&state, &parts.headers, peer).await?;
            let principal = known.get_or_init(|| principal);
            log_span::note_principal(principal);
            // A browser proves to a proxy who its user is, also when another site lets it send the request.
            if principal.is_proxied && route.method != Method::Get {
                check_origin(&parts.headers)?;
            }
            auth::require(principal, role, "the request")?;
            let db = db.acting_as(actor(principal, peer, route.channel()));
            (Some(principal), db)
        }
        (Some(_), None) => return Err(ApiProblem::unauthorized("the request has no connection")),
    };
    if let Some(principal) = principal
        && route.form != Form::Mcp
    {
        state.charge(principal, route.cost)?;
    }
    let path = path.map_err(|error| ApiProblem::invalid(format!("the path: {error}")))?;
    let path =
        Vec::from_iter((path.iter()).map(|(name, value)| (name.to_owned(), value.to_owned())));
    let query = parts.uri.query().unwrap_or_default();
    let query = Query::read(query, (route.query)())?;
    if path.iter().any(|(_, value)| value.contains('\0')) || query.has_zero() {
        return Err(ApiProblem::invalid(
            "the path or the query has a zero character",
        ));
    }
    let shared = Arc::clone(&state);
    let upload_turn = match route.form {
        Form::Upload => match upload::turn(&shared) {
            Ok(turn) => Some(turn),
            Err(problem) => {
                discard(body, upload::BYTES_MAX).await;
                return Err(problem);
            }
        },
        _ => None,
    };
    let bytes_max = match route.body {
        _ if upload_turn.is_some() => upload::BYTES_MAX,
        Some(_) => BODY_BYTES_MAX,
        None => 0,
    };
    let _memory = match upload_turn {
        Some(_) => None,
        None => {
            let key = principal.map_or_else(String::new, Principal::key);
            memory_for_body(&shared, &key, &parts.headers, bytes_max).await?
        }
    };
    let body = read_body(&parts.headers, body, bytes_max).await?;
    let call = Call {
        state: Arc::clone(&state),
        principal: principal.cloned(),
        peer: parts.extensions.get::<Peer>().cloned(),
        db,
        method: route.method.as_str(),
        uri: parts.uri.path().to_owned(),
        path,
        query,
        headers: parts.headers,
        body,
    };
    // Entered again, so that a filter by principal applies.
    let dispatched = dispatch(call, route.target(), parts.uri.to_string());
    dispatched.instrument(Span::current()).await
}

async fn unknown(request: Request<Body>) -> Response<Body> {
    if pages::is_for_page(request.headers(), request.uri().path()) {
        pages::no_such_page()
    } else {
        no_such_path().response()
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
