//! The page on which a browser shows a token and gets a session.

use axum::body::Body;
use axum::http::header::{CONTENT_LENGTH, REFERRER_POLICY, SET_COOKIE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use maud::{Markup, html};
use url::form_urlencoded;

use super::actions::ACTION;
use super::form::Form;
use super::session::{self, Session};
use super::words::{line, shell};
use super::{layout, links};
use crate::app::State;
use crate::auth::{self, WRONG_TOKEN};
use crate::call::Result;
use crate::peer::Peer;
use crate::problem::ApiProblem;
use crate::request::{
    BODY_BYTES_MAX, check_host, check_origin, discard, memory_for_body, read_body,
};
use crate::sign_in::{LinkFault, ONCE};
use crate::upload;
use campanile_control::problem::{ErrorCode, Problem};
use campanile_model::access::Channel;

/// The parameter with the page to open afterwards.
const NEXT: &str = "next";

/// The field with a form that came without a session.
const KEPT: &str = "kept";
/// The most bytes of a form that is kept.
const KEPT_BYTES_MAX: usize = 48 << 10;

/// Send a visitor without a session to the login.
pub(super) fn send_there(uri: &Uri) -> Response<Body> {
    let wanted = uri.path_and_query().map_or("/", |wanted| wanted.as_str());
    layout::redirect(&format!("/login{}", links::query(&[(NEXT, wanted)])))
}

/// Answer a form that came without a session: its session may have ended while it was filled in. The login keeps it.
pub(super) async fn keep(state: &State, parts: &Parts, body: Body) -> Response<Body> {
    let length = parts.headers.get(CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let form = if length.is_some_and(|length| length <= KEPT_BYTES_MAX) {
        let read = read_body(&parts.headers, body, KEPT_BYTES_MAX).await;
        read.and_then(|body| Form::read(&parts.headers, &body)).ok()
    } else {
        discard(body, upload::BYTES_MAX).await;
        None
    };
    let (kept, problem) = match &form {
        Some(form) if form.file.is_none() => (
            form.encoded(),
            "your session has ended, and nothing was done; sign in, and then send the form that you have filled in: it is kept",
        ),
        _ => (
            String::new(),
            "your session has ended, nothing was done, and what you sent was not kept: it has a file, or is too long; sign in, and send it again",
        ),
    };
    let problem = Problem::new(ErrorCode::Refused, problem);
    let next = own_path(parts.uri.path());
    shown(
        state,
        StatusCode::UNAUTHORIZED,
        (next, &kept),
        Some(&problem),
    )
}

/// Pure: return the path of this server to open; the first page for anything else.
pub(super) fn own_path(wanted: &str) -> &str {
    let is_plain = wanted
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let is_own =
        wanted.starts_with('/') && !wanted.starts_with("//") && !wanted.starts_with("/login");
    if is_plain && is_own { wanted } else { "/" }
}

/// Answer one request.
pub(super) async fn answer(state: &State, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let query = parts.uri.query().unwrap_or_default();
    let given = |wanted: &str| {
        let mut given = form_urlencoded::parse(query.as_bytes());
        let given = given.find(|(name, _)| name == wanted);
        given.map_or_else(String::new, |(_, value)| value.into_owned())
    };
    let (given, once) = (given(NEXT), given(ONCE));
    let peer = parts.extensions.get::<Peer>();
    if let Some(Peer::Unix { .. }) = peer {
        return layout::redirect(own_path(&given));
    }
    if parts.method != Method::POST {
        return match once.is_empty() {
            true => shown(state, StatusCode::OK, (own_path(&given), ""), None),
            false => link_opened(&once),
        };
    }
    let read = async {
        check_host(&parts.headers)?;
        check_origin(&parts.headers)?;
        let peer = peer.ok_or_else(|| ApiProblem::unauthorized("the request has no connection"))?;
        let key = auth::unknown_at(peer);
        let _memory = memory_for_body(state, &key, &parts.headers, BODY_BYTES_MAX).await?;
        let body = read_body(&parts.headers, body, BODY_BYTES_MAX).await?;
        Ok::<_, ApiProblem>((Form::read(&parts.headers, &body)?, peer))
    };
    let (form, peer) = match read.await {
        Ok(read) => read,
        Err(problem) => return layout::problem_page(None, &problem, None),
    };
    if form.get(ACTION) == "sign_out" {
        if let Some(id) = session::cookie(&parts.headers) {
            state.sessions.end(id);
        }
        return with_cookie(state, layout::redirect("/login"), None);
    }
    let (next, kept) = (own_path(form.get(NEXT)), form.get(KEPT));
    let begun = match form.given(ONCE) {
        Some(once) => begin_by_link(state, once, peer).await,
        None => begin(state, form.get("token").trim(), peer).await,
    };
    let answer = match begun {
        Ok(id) if kept.is_empty() => (layout::redirect(next), id),
        Ok(id) => (kept_form(next, kept), id),
        Err(error) => {
            let client = (None, Some(peer), Channel::Page);
            state.refusals.note(&error, client, "/login");
            return shown(state, error.status, (next, kept), Some(&error.problem));
        }
    };
    with_cookie(state, answer.0, Some(&answer.1))
}

/// Offer to send the form that was kept.
fn kept_form(next: &str, kept: &str) -> Response<Body> {
    match Form::parse(kept.as_bytes()) {
        Ok(form) => {
            let main = layout::kept_form(next, &form);
            layout::Frame::default().page(StatusCode::OK, "Signed in", None, main)
        }
        Err(problem) => layout::problem_page(None, &problem, None),
    }
}

/// Answers a link that `serve` printed with a form of one button.
///
/// To open a link uses nothing up: previews of messages, virus scanners and browsers that load ahead send a GET, and none sends a form.
fn link_opened(once: &str) -> Response<Body> {
    let main = html! {
        p { "This link signs this browser in with the local token of the host, as an administrator. It works once." }
        form.action method="post" action="/login" {
            (Form::hidden([(ONCE.to_owned(), once.to_owned())].iter()))
            button.go autofocus { "Sign in" }
        }
        p { a href="/login" { "Sign in with a token instead" } "." }
    };
    let frame = layout::Frame::default();
    let mut response = frame.page(StatusCode::OK, "Sign in", None, main);
    // The address has the secret: the requests of this page, whose forms need their `Origin`, say just where they come from.
    let origin_alone = HeaderValue::from_static("strict-origin");
    response.headers_mut().insert(REFERRER_POLICY, origin_alone);
    response
}

/// Begins a session of the local token with a link. Returns its id.
async fn begin_by_link(state: &State, once: &str, peer: &Peer) -> Result<String> {
    // As with a token that isn't known yet, the attempts of one address wait for each other.
    let turn = state.turn_of(&auth::unknown_at(peer), false).await?;
    let redeemed = state.sign_in.redeem(once, state.app.engine.clock().now());
    drop(turn);
    let why = match redeemed {
        Ok(()) => {
            tracing::info!("a browser was signed in with the link of this host's start");
            return begin(state, state.token.as_deref().unwrap_or_default(), peer).await;
        }
        Err(LinkFault::Used) => "this link has been used, and it works once",
        Err(LinkFault::Expired) => "this link has expired: it works for five minutes",
        Err(LinkFault::Unknown) => {
            "this link isn't the one that this host printed at its last start"
        }
    };
    let problem = ApiProblem::new(StatusCode::UNAUTHORIZED, ErrorCode::Refused, why);
    Err(problem.hint(format!(
        "sign in with the local token, which `cat {}` prints in the folder of its file, or restart the host at a terminal for another link",
        shell(&state.token_file)
    )))
}

/// Begin a session with a token. Return its id.
async fn begin(state: &State, secret: &str, peer: &Peer) -> Result<String> {
    let found = auth::of_secret(state, secret, peer).await?;
    let Some(principal) = found else {
        let problem = ApiProblem::new(StatusCode::UNAUTHORIZED, ErrorCode::Refused, WRONG_TOKEN);
        return Err(problem
            .hint("an administrator creates one with `campanile token create NAME --role ROLE`"));
    };
    Ok(state.sessions.begin(Session {
        secret: secret.to_owned(),
        principal: principal.name,
        since: state.app.engine.clock().now(),
    }))
}

fn with_cookie(state: &State, mut response: Response<Body>, id: Option<&str>) -> Response<Body> {
    let cookie = session::set_cookie(id, state.is_encrypted);
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}

/// Shows the page with the form for a token, which leads to `next`, with the form `kept`.
fn shown(
    state: &State,
    status: StatusCode,
    (next, kept): (&str, &str),
    problem: Option<&Problem>,
) -> Response<Body> {
    let frame = layout::Frame::default();
    let main = main(&state.token_file, (next, kept), problem);
    frame.page(status, "Sign in", None, main)
}

fn main(token_file: &str, (next, kept): (&str, &str), problem: Option<&Problem>) -> Markup {
    html! {
        @if let Some(problem) = problem { (layout::problem_part(problem)) }
        form.action method="post" action="/login" {
            input type="hidden" name=(NEXT) value=(next);
            @if !kept.is_empty() { input type="hidden" name=(KEPT) value=(kept); }
            label {
                "Token "
                input type="password" name="token" required autocomplete="current-password" maxlength="200" autofocus;
            }
            button { "Sign in" }
        }
        p {
            "On the machine of the host, " code { "cat " (line(&shell(token_file))) } " prints its local token; the host names the folder when it starts. "
            "An administrator creates a token for each person with "
            code { "campanile token create NAME --role operator" } "."
        }
        @if next != "/" && kept.is_empty() {
            p {
                "A link from another site opens this page, also for a browser with a session. "
                a href=(next) { "Open the page with my session" } "."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_after_the_login_is_one_of_this_server() {
        for wanted in ["/", "/schedules?q=a&state=paused", "/launches/01a1"] {
            assert_eq!(own_path(wanted), wanted);
        }
        for wanted in ["", "//a", "/\\a", "https://a", "a", "/login?next=/", "/a b"] {
            assert_eq!(own_path(wanted), "/", "{wanted}");
        }
    }
}
