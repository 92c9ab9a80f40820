//! The pages of an operator: HTML of the same records that the API and the commands show.
//!
//! ```text
//! request ─▶ session (who) ─▶ page (GET) ─────────────▶ layout ─▶ HTML
//!                       └──▶ action (POST) ─▶ route of the API ─▶ another page
//! ```
//!
//! A page reads with the functions of the API, and a form does what a route of the API does, with its role. Each page works
//! without JavaScript, and has neither scripts nor styles of its own: the policy of its answer forbids them.

mod actions;
mod alerts;
mod backfills;
mod bodies;
mod calendar;
mod charts;
mod configuration;
mod context_form;
mod edit;
mod events;
mod form;
mod heat_map;
mod hosts;
mod launch;
mod launches;
mod layout;
mod links;
mod login;
mod multipart;
mod new_schedule;
mod now;
mod outbox;
mod package_diff;
mod packages;
mod parts;
mod plan;
mod run_with;
mod schedule;
mod schedules;
mod search;
mod section;
pub(crate) mod session;
mod statistics;
mod timeline;
mod tokens;
mod words;
mod zone;
mod zone_form;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::RawPathParams;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use axum::routing::{MethodFilter, get, on, post};
use futures_util::future::BoxFuture;
use maud::Markup;
use serde_json::Value;
use tokio::time::timeout;
use tracing::{Instrument as _, Span};
use url::form_urlencoded;

use self::actions::{Action, Step};
use self::form::Form;
use self::section::Section;
use crate::app::State;
use crate::call::{Call, Result};
use crate::peer::{Peer, actor};
use crate::problem::ApiProblem;
use crate::query::{Parameters, Query, none, parameters};
use crate::request::{
    BODY_BYTES_MAX, REQUEST_TIME, check_host, check_origin, memory_for_body, no_such_path,
    read_body, too_slow,
};
use crate::{auth, log_span, stream, upload};
use campanile_control::admin::token_admin::Principal;
use campanile_control::problem::Problem;
use campanile_control::questions::alerts::{ListAlerts, ListMessages};
use campanile_control::questions::hosts::{ListHosts, ListTokens};
use campanile_control::questions::packages::DiffPackage;
use campanile_control::questions::schedules::{GetCalendar, ListBackfills};
use campanile_control::reports::forecast::GetPlan;
use campanile_model::access::{Channel, Role};
use campanile_store::troubles::{self, Attention};
use configuration::ConfigurationQuery;
use events::EventsQuery;
use launch::LaunchQuery;
use launches::SearchLaunches;
use new_schedule::NewScheduleQuery;
use now::NowQuery;
use parts::Search;
use schedule::ScheduleQuery;
use schedules::ListQuery;
use search::SearchQuery;
use statistics::StatisticsQuery;
use words::Clock;

/// One visit of a page.
struct Visit {
    call: Call,
    /// The action that a form has just done.
    done: Option<&'static Action>,
    /// The answer to the form, if it is shown only now.
    answer: Option<Value>,
    /// What a form sent that was not done.
    typed: Form,
    /// Why the form was not done.
    problem: Option<Problem>,
    /// Whether a session can be ended.
    has_session: bool,
    /// What wants the attention of a person.
    attention: Attention,
}

impl Visit {
    /// Returns the clock of the page.
    fn clock(&self) -> Clock {
        Clock {
            now: self.call.now(),
            zone: zone::zone_of(&self.call.headers),
        }
    }
}

/// What a page shows.
struct View {
    title: String,
    /// In place of a heading that is the title.
    head: Option<Markup>,
    main: Markup,
}

impl View {
    fn new(title: impl Into<String>, main: Markup) -> Result<View> {
        Ok(View {
            title: title.into(),
            head: None,
            main,
        })
    }

    /// A page with a heading of its own, which is or has a `h1`.
    fn with_head(title: impl Into<String>, head: Markup, main: Markup) -> Result<View> {
        Ok(View {
            title: title.into(),
            head: Some(head),
            main,
        })
    }
}

/// Returns what a page shows.
type Show = for<'v> fn(&'v Visit) -> BoxFuture<'v, Result<View>>;

/// A page.
struct Page {
    path: &'static str,
    section: Section,
    query: Parameters,
    show: Show,
}

/// Declare the pages.
macro_rules! pages {
    ($($path:literal $section:ident $query:expr => $show:path;)*) => {
        static PAGES: &[Page] = &[$(Page {
            path: $path,
            section: Section::$section,
            query: $query,
            show: |visit| Box::pin($show(visit)),
        }),*];
    };
}

/// The most failing schedules that are counted for the bar.
const FAILING_COUNTED_MAX: i64 = 1_000;
/// How much of the rate limit of its principal a visit of a page takes, and one of the plan.
const PAGE_COST: u32 = 8;
const PLAN_COST: u32 = 50;
/// The methods of a page.
const METHODS: MethodFilter = MethodFilter::GET.or(MethodFilter::POST);

pages! {
    "/" Now parameters::<NowQuery> => now::show;
    "/schedules" Schedules parameters::<ListQuery> => schedules::show;
    "/schedules/{name}" Schedules parameters::<ScheduleQuery> => schedule::show;
    "/schedules/{name}/edit" Schedules none => edit::show;
    "/schedules/{name}/run" Schedules none => run_with::show;
    "/new-schedule" Schedules parameters::<NewScheduleQuery> => new_schedule::show;
    "/schedules/{name}/calendar" Schedules parameters::<GetCalendar> => calendar::show;
    "/backfills" Schedules parameters::<ListBackfills> => backfills::show;
    "/launches" Launches parameters::<SearchLaunches> => launches::show;
    "/launches/{id}" Launches parameters::<LaunchQuery> => launch::of_launch;
    "/runs/{id}" Launches parameters::<LaunchQuery> => launch::of_run;
    "/plan" Plan parameters::<GetPlan> => plan::show;
    "/packages" Packages parameters::<Search> => packages::list;
    "/packages/{name}" Packages none => packages::show;
    "/packages/{name}/diff" Packages parameters::<DiffPackage> => package_diff::show;
    "/hosts" Hosts parameters::<ListHosts> => hosts::show;
    "/events" Events parameters::<EventsQuery> => events::show;
    "/alerts" Alerts parameters::<ListAlerts> => alerts::show;
    "/search" Now parameters::<SearchQuery> => search::show;
    "/tokens" Tokens parameters::<ListTokens> => tokens::show;
    "/outbox" Outbox parameters::<ListMessages> => outbox::show;
    "/statistics" Statistics parameters::<StatisticsQuery> => statistics::show;
    "/configuration" Configuration parameters::<ConfigurationQuery> => configuration::show;
}

/// Add the pages, what they are made of, and their sessions.
pub(crate) fn add_routes(mut router: Router, state: &Arc<State>) -> Router {
    for page in PAGES {
        let state = Arc::clone(state);
        let answer = move |path: RawPathParams, request: Request<Body>| {
            let path = path.iter();
            let path = path.map(|(name, value)| (name.to_owned(), value.to_owned()));
            let path = path.collect();
            let state = Arc::clone(&state);
            async move {
                let answer = answer(state, page, path, request);
                let answer = timeout(REQUEST_TIME, answer).await;
                answer.unwrap_or_else(|_| layout::problem_page(None, &too_slow(), None))
            }
        };
        router = router.route(page.path, on(METHODS, answer));
    }
    let of_login = Arc::clone(state);
    let login = move |request: Request<Body>| {
        let state = Arc::clone(&of_login);
        async move {
            let answer = timeout(REQUEST_TIME, login::answer(&state, request)).await;
            answer.unwrap_or_else(|_| layout::problem_page(None, &too_slow(), None))
        }
    };
    let of_updates = Arc::clone(state);
    let updates = move |request: Request<Body>| updates(Arc::clone(&of_updates), request);
    let of_zone = Arc::clone(state);
    let zone = move |request: Request<Body>| {
        let state = Arc::clone(&of_zone);
        async move {
            let answer = timeout(REQUEST_TIME, zone_form::answer(&state, request)).await;
            answer.unwrap_or_else(|_| layout::problem_page(None, &too_slow(), None))
        }
    };
    router
        .route("/login", on(METHODS, login))
        .route("/zone", post(zone))
        .route("/updates", get(updates))
        .route("/assets/app.css", get(|| async { layout::style() }))
        .route("/assets/app.js", get(|| async { layout::script() }))
        .route("/assets/icon.svg", get(|| async { layout::icon(false) }))
        .route(
            "/assets/icon-failing.svg",
            get(|| async { layout::icon(true) }),
        )
}

/// Whether a request accepts one of these media types.
fn accepts(headers: &HeaderMap, kinds: &[&str]) -> bool {
    let accepted = headers.get_all(ACCEPT).into_iter();
    let mut accepted = accepted.filter_map(|value| value.to_str().ok());
    accepted.any(|value| kinds.iter().any(|kind| value.contains(kind)))
}

/// Whether a request to an unknown path is for a page, and not for the API.
pub(crate) fn is_for_page(headers: &HeaderMap, path: &str) -> bool {
    accepts(headers, &["text/html"]) && !path.starts_with("/api")
}

/// Say that there is no such page.
pub(crate) fn no_such_page() -> Response<Body> {
    let problem = ApiProblem::not_found("there is no such page");
    layout::problem_page(None, &problem.hint("start at the first page"), None)
}

/// The page with the form for uploads.
const UPLOADS: &str = "/packages";

/// Whether a form has a file.
fn has_file(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| multipart::boundary(kind).is_some())
}

/// Who visits a page.
struct Visitor {
    principal: Principal,
    has_session: bool,
}

/// Returns who makes a request; none when it has no session.
async fn visitor(
    state: &State,
    headers: &HeaderMap,
    peer: Option<&Peer>,
) -> Result<Option<Visitor>> {
    let Some(peer) = peer else {
        return Err(ApiProblem::unauthorized("the request has no connection"));
    };
    let of_proxy = state.proxies.principal(headers, peer)?;
    let of_connection = match (of_proxy, peer) {
        (None, Peer::Unix { .. }) => Some(auth::principal(state, headers, peer).await?),
        (of_proxy, _) => of_proxy,
    };
    if let Some(principal) = of_connection {
        let has_session = false;
        return Ok(Some(Visitor {
            principal,
            has_session,
        }));
    }
    let now = state.app.engine.clock().now();
    let Some(id) = session::cookie(headers) else {
        return Ok(None);
    };
    let Some(session) = state.sessions.find(id, now) else {
        return Ok(None);
    };
    let found = auth::of_secret(state, &session.secret, peer).await?;
    let found = found.filter(|principal| principal.name == session.principal);
    if found.is_none() {
        state.sessions.end(id);
    }
    Ok(found.map(|principal| Visitor {
        principal,
        has_session: true,
    }))
}

/// Refuse a principal that sees only a namespace. The pages show the whole installation.
pub(super) fn refuse_namespace(principal: &Principal) -> Result<()> {
    let Some(namespace) = &principal.namespace else {
        return Ok(());
    };
    let problem = ApiProblem::forbidden(format!(
        "the pages show the whole installation, and the token sees only the namespace {namespace}"
    ));
    Err(problem.hint("use the API or `campanile --server` with it"))
}

/// Returns the parameters of a page, without blank ones, and what a form has just done.
fn visited(uri: &Uri, page: &Page) -> Result<(Query, Option<&'static Action>)> {
    let mut done = None;
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
        match &*name {
            "done" => done = actions::named(&value),
            _ if value.trim().is_empty() => {}
            "limit" => {
                let problem = ApiProblem::invalid("a page has no query parameter `limit`");
                return Err(
                    problem.hint("a page shows up to 50 entries; the API has the parameter")
                );
            }
            _ => _ = query.append_pair(&name, &value),
        }
    }
    let query = Query::read(&query.finish(), (page.query)())?;
    if query.has_zero() {
        Err(ApiProblem::invalid("the query has a zero character"))
    } else {
        Ok((query, done))
    }
}

/// Answer one request to a page.
async fn answer(
    state: Arc<State>,
    page: &'static Page,
    path: Vec<(String, String)>,
    request: Request<Body>,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    if !accepts(&parts.headers, &["text/html", "*/*"]) {
        return no_such_path().response();
    }
    let peer = parts.extensions.get::<Peer>();
    let is_post = parts.method == Method::POST;
    let entered = async {
        check_host(&parts.headers)?;
        if is_post {
            check_origin(&parts.headers)?;
        }
        visitor(&state, &parts.headers, peer).await
    };
    let visitor = match entered.await {
        Ok(Some(visitor)) => visitor,
        Ok(None) if is_post => return login::keep(&state, &parts, body).await,
        Ok(None) => return login::send_there(&parts.uri),
        Err(problem) => {
            state
                .refusals
                .note(&problem, (None, peer, Channel::Page), page.path);
            return layout::problem_page(None, &problem, None);
        }
    };
    log_span::note_principal(&visitor.principal);
    // Entered again, so that a filter by principal applies.
    let answered = answer_visitor(state, page, path, (parts, body), visitor);
    answered.instrument(Span::current()).await
}

/// Answer a visitor's request to a page.
async fn answer_visitor(
    state: Arc<State>,
    page: &'static Page,
    path: Vec<(String, String)>,
    (parts, body): (Parts, Body),
    Visitor {
        principal,
        has_session,
    }: Visitor,
) -> Response<Body> {
    let peer = parts.extensions.get::<Peer>();
    let is_post = parts.method == Method::POST;
    let refused = |problem: &ApiProblem| {
        let client = (Some(&principal), peer, Channel::Page);
        state.refusals.note(problem, client, page.path);
    };
    let failed = |problem: &ApiProblem| {
        refused(problem);
        let wrong = Some(&parts.uri).filter(|_| !is_post);
        layout::problem_page(Some((&principal, has_session)), problem, wrong)
    };
    let Some(peer) = peer else {
        return failed(&ApiProblem::unauthorized("the request has no connection"));
    };
    let db = state.app.engine.db();
    let db = db.acting_as(actor(&principal, peer, Channel::Page));
    let cost = match page.section {
        Section::Plan => PLAN_COST,
        _ => PAGE_COST,
    };
    let read = async {
        auth::require(&principal, Role::Viewer, "the page")?;
        refuse_namespace(&principal)?;
        state.charge(&principal, cost)?;
        let (query, done) = visited(&parts.uri, page)?;
        if path.iter().any(|(_, value)| value.contains('\0')) {
            return Err(ApiProblem::invalid("the path has a zero character"));
        }
        let (mut bytes_max, mut upload_turn) = (BODY_BYTES_MAX, None);
        if is_post && page.path == UPLOADS && has_file(&parts.headers) {
            auth::require(&principal, Role::Approver, "an upload")?;
            upload_turn = Some(upload::turn(&state)?);
            bytes_max = upload::BYTES_MAX + BODY_BYTES_MAX;
        }
        let _memory = match upload_turn {
            Some(_) => None,
            None => {
                let key = principal.key();
                memory_for_body(&state, &key, &parts.headers, bytes_max).await?
            }
        };
        let typed = if is_post {
            Form::read(
                &parts.headers,
                &read_body(&parts.headers, body, bytes_max).await?,
            )?
        } else {
            Form::default()
        };
        Ok((query, done, typed, upload_turn))
    };
    let (query, done, typed, _upload_turn) = match read.await {
        Ok(read) => read,
        Err(problem) => return failed(&problem),
    };
    let _turn = match state.turn(&principal, cost).await {
        Ok(turn) => turn,
        Err(problem) => return failed(&problem),
    };
    let call = |query: Query| Call {
        state: Arc::clone(&state),
        principal: Some(principal.clone()),
        peer: Some(peer.clone()),
        db: db.clone(),
        method: "GET",
        uri: parts.uri.path().to_owned(),
        path: path.clone(),
        query,
        headers: parts.headers.clone(),
        body: Default::default(),
    };
    let (mut problem, mut told) = (None, None);
    if is_post {
        let performed = actions::perform(call(query.clone()), page.section, &typed).await;
        match performed {
            Ok(Step::Go(to)) => return layout::redirect(&to),
            Ok(Step::Show) => {}
            Ok(Step::Tell(action, answer)) => told = Some((action, answer)),
            Ok(Step::Ask(action, asked)) => {
                let call = call(query);
                let main = layout::question(&links::here(&call), action, &asked, &typed);
                let frame = layout::Frame::of(&call, page.section, has_session);
                return frame.page(StatusCode::OK, "Confirm", None, main);
            }
            Err(error) => {
                refused(&error);
                problem = Some(error);
            }
        }
    }
    let status = problem
        .as_ref()
        .map_or(StatusCode::OK, |error| error.status);
    let attention = async {
        let mut tx = db.read().await?;
        Ok::<_, ApiProblem>(troubles::attention(&mut tx, FAILING_COUNTED_MAX).await?)
    };
    let attention = match attention.await {
        Ok(attention) => attention,
        Err(error) => return failed(&error),
    };
    let (done, answer) = match told {
        Some((action, answer)) => (Some(action), Some(answer)),
        None => (done.filter(|_| !is_post), None),
    };
    let visit = Visit {
        call: call(query),
        attention,
        done,
        // What was done is not typed any more.
        typed: if answer.is_some() {
            Form::default()
        } else {
            typed
        },
        answer,
        problem: problem.map(|error| error.problem),
        has_session,
    };
    match (page.show)(&visit).await {
        Ok(view) => layout::visited(status, page.section, &visit, view),
        Err(error) => failed(&error),
    }
}

/// Stream events and failures to a page.
async fn updates(state: Arc<State>, request: Request<Body>) -> Response<Body> {
    let (parts, _) = request.into_parts();
    let peer = parts.extensions.get::<Peer>();
    let opened = async {
        check_host(&parts.headers)?;
        let visitor = visitor(&state, &parts.headers, peer).await?;
        let visitor = visitor.ok_or_else(|| ApiProblem::unauthorized("the session has ended"))?;
        refuse_namespace(&visitor.principal)?;
        let call = Call {
            principal: Some(visitor.principal),
            peer: peer.cloned(),
            db: state.app.engine.db().clone(),
            method: "GET",
            uri: parts.uri.path().to_owned(),
            path: Vec::new(),
            query: Query::default(),
            headers: parts.headers.clone(),
            body: Default::default(),
            state: Arc::clone(&state),
        };
        let key = call.principal_key();
        stream::updates(call).await?.response(&state, &key).await
    };
    opened.await.unwrap_or_else(|problem| {
        let client = (None, peer, Channel::Page);
        state.refusals.note(&problem, client, "/updates");
        problem.response()
    })
}
