//! What all pages have: their frame, and the headers of their answers.

use axum::body::Body;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderValue, Response, StatusCode, Uri};
use chrono_tz::Tz;
use maud::{DOCTYPE, Markup, html};
use url::form_urlencoded;

use super::actions::{self, ACTION, Action, Asked, CONFIRM, KEY, PREVIEW, REVISION};
use super::bodies::{IDS, TICKED};
use super::form::Form;
use super::words::line;
use super::zone::zone_of;
use super::{Section, View, Visit};
use crate::call::Call;
use crate::problem::ApiProblem;
use campanile_control::admin::token_admin::Principal;
use campanile_control::problem::Problem;
use campanile_model::access::Role;
use campanile_store::troubles::Attention;

const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
    form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// The pages of the navigation: the path, the name, and the key after `g`.
const NAVIGATION: [(Section, &str, &str, &str); 8] = [
    (Section::Now, "/", "Now", "n"),
    (Section::Schedules, "/schedules", "Schedules", "s"),
    (Section::Launches, "/launches", "Launches", "l"),
    (Section::Plan, "/plan", "Plan", "f"),
    (Section::Packages, "/packages", "Packages", "p"),
    (Section::Hosts, "/hosts", "Hosts", "h"),
    (Section::Events, "/events", "Events", "e"),
    (Section::Alerts, "/alerts", "Alerts", "a"),
];

/// The pages of the menu beside the navigation, as in [`NAVIGATION`], each with the least role that may open it.
const MORE: [(Section, &str, &str, &str, Role); 5] = [
    (
        Section::Schedules,
        "/backfills",
        "Backfills",
        "b",
        Role::Viewer,
    ),
    (
        Section::Statistics,
        "/statistics",
        "Statistics",
        "m",
        Role::Viewer,
    ),
    (Section::Outbox, "/outbox", "Outbox", "o", Role::Viewer),
    (Section::Tokens, "/tokens", "Tokens", "t", Role::Admin),
    (
        Section::Configuration,
        "/configuration",
        "Configuration",
        "c",
        Role::Admin,
    ),
];

/// The fields that the question before an action does not list: they say nothing to a person.
const UNSHOWN: [&str; 4] = [KEY, REVISION, IDS, TICKED];

fn answer(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // With `no-referrer`, browsers would send `Origin: null` with the forms.
        (REFERRER_POLICY, "same-origin"),
        (CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn asset(kind: &'static str, text: &'static str) -> Response<Body> {
    let mut response = answer(StatusCode::OK, kind, text);
    let seldom = HeaderValue::from_static("public, max-age=300");
    response.headers_mut().insert(CACHE_CONTROL, seldom);
    response
}

/// Returns the style sheet.
pub(super) fn style() -> Response<Body> {
    asset("text/css; charset=utf-8", include_str!("app.css"))
}

/// Returns the script.
pub(super) fn script() -> Response<Body> {
    asset("text/javascript; charset=utf-8", include_str!("app.js"))
}

/// Returns the icon; another one while schedules fail.
pub(super) fn icon(is_failing: bool) -> Response<Body> {
    let icon = if is_failing {
        include_str!("icon-failing.svg")
    } else {
        include_str!("icon.svg")
    };
    asset("image/svg+xml", icon)
}

/// Send a browser to another page.
pub(super) fn redirect(to: &str) -> Response<Body> {
    let mut response = answer(StatusCode::SEE_OTHER, "text/plain; charset=utf-8", "");
    let to = HeaderValue::from_str(to).unwrap_or(HeaderValue::from_static("/"));
    response.headers_mut().insert(LOCATION, to);
    response
}

/// What the frame of a page shows besides its main part.
#[derive(Default)]
pub(super) struct Frame<'f> {
    pub section: Option<Section>,
    /// Who visits; none at the door.
    pub principal: Option<&'f Principal>,
    /// Whether the session can be ended.
    pub has_session: bool,
    /// What wants attention; none on a page that only says what is wrong.
    pub attention: Attention,
    /// The reader's zone.
    pub zone: Option<Tz>,
    /// The page to come back to from a form of the frame.
    pub uri: &'f str,
}

impl<'f> Frame<'f> {
    /// The frame of a page for a call.
    pub(super) fn of(call: &'f Call, section: Section, has_session: bool) -> Frame<'f> {
        Frame {
            section: Some(section),
            principal: call.principal.as_ref(),
            has_session,
            zone: Some(zone_of(&call.headers)),
            uri: &call.uri,
            attention: Attention::default(),
        }
    }

    /// Answers with a page in this frame. `head` stands for the heading, unless the title does.
    pub(super) fn page(
        &self,
        status: StatusCode,
        title: &str,
        head: Option<Markup>,
        main: Markup,
    ) -> Response<Body> {
        let Attention { failing, .. } = self.attention;
        let icon = if failing > 0 { "icon-failing" } else { "icon" };
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { @if failing > 0 { "(" (failing) ") " } (line(title)) " · Campanile" }
                    link #icon rel="icon" href={ "/assets/" (icon) ".svg" };
                    link rel="stylesheet" href="/assets/app.css";
                    script src="/assets/app.js" defer {}
                }
                body {
                    a.skip-link href="#main" { "Skip to the content" }
                    header { (self.bar()) }
                    main #main tabindex="-1" {
                        @match head {
                            Some(head) => (head),
                            None => div.head { h1 { (line(title)) } },
                        }
                        (main)
                    }
                    footer {
                        "Campanile " (env!("CARGO_PKG_VERSION"))
                        @if self.principal.is_some() {
                            span #said role="status" {}
                            details #keys {
                                summary { "Keys " kbd { "?" } }
                                (keys())
                            }
                        }
                    }
                }
            }
        };
        answer(status, "text/html; charset=utf-8", page.into_string())
    }

    fn bar(&self) -> Markup {
        html! {
            a.brand href="/" {
                svg viewBox="0 0 18 18" aria-hidden="true" { path d="M9 0 14 5v2h-1v11h-3v-5H8v5H5V7H4V5zM8 7v3h2V7z" {} }
                "Campanile"
            }
            @if let Some(principal) = self.principal {
                nav #pages aria-label="Pages" {
                    @for (of, path, name, key) in NAVIGATION {
                        a href=(path) data-key=(key) aria-current=[(self.section == Some(of)).then_some("page")] {
                            (name)
                            @if let Some((count, class, what)) = count(self.attention, of) {
                                " " span.count.(class) title=(what) { (count) }
                            }
                        }
                    }
                }
                details.menu.small.more-pages {
                    summary aria-label="More pages" { "More" }
                    div {
                        nav aria-label="More pages" {
                            @for (of, path, name, key, _) in MORE.iter().filter(|(.., role)| principal.role.includes(*role)) {
                                a href=(path) data-key=(key) aria-current=[(self.section == Some(*of) && self.uri == *path).then_some("page")] { (name) }
                            }
                        }
                    }
                }
                div.tools {
                    button #news type="button" hidden {}
                    form.search role="search" aria-label="Everything" action="/search" {
                        input #search type="search" name="q" placeholder="Search  /" aria-label="Search schedules, packages, hosts and ids" maxlength="200";
                    }
                    (self.zone_form())
                    button.live #live type="button" hidden aria-pressed="false" { "Live" }
                    form.who method="post" action="/login" {
                        span { (line(&principal.name)) " · " (principal.role.as_str()) }
                        @if self.has_session {
                            button name=(ACTION) value="sign_out" { "Sign out" }
                        }
                    }
                }
            }
        }
    }

    fn zone_form(&self) -> Markup {
        let zone = self.zone.unwrap_or(Tz::UTC).name();
        html! {
            details.menu.small.zone {
                summary { (zone) }
                div {
                    form.action method="post" action="/zone" {
                        input type="hidden" name="next" value=(self.uri);
                        label { "Show times in the zone " input #zone name="zone" value=(zone) placeholder="Europe/Berlin" maxlength="64" autocomplete="off"; }
                        span.actions {
                            button { "Set" }
                            button name="utc" value="yes" { "UTC" }
                            button #here type="button" hidden {}
                        }
                    }
                }
            }
        }
    }
}

/// Returns the number beside a part of the navigation, with its class and what it counts.
fn count(attention: Attention, section: Section) -> Option<(i64, &'static str, &'static str)> {
    let (count, class, what) = match section {
        Section::Now => (attention.failing, "bad", "schedules that fail"),
        Section::Packages => (
            attention.pending,
            "warn",
            "packages with a version to approve",
        ),
        Section::Alerts => (attention.firing, "bad", "alerts that fire"),
        _ => return None,
    };
    (count > 0).then_some((count, class, what))
}

/// The keys of the pages.
fn keys() -> Markup {
    html! {
        dl.keys {
            dt { kbd { "/" } } dd { "search" }
            dt { kbd { "g" } " and a letter" }
            dd {
                @for (place, (_, _, name, key)) in NAVIGATION.iter().enumerate() {
                    @if place > 0 { ", " }
                    kbd { (key) } " " (name)
                }
                @for (_, _, name, key, _) in &MORE { ", " kbd { (key) } " " (name) }
            }
            dt { kbd { "j" } " " kbd { "k" } } dd { "next row, previous row; " kbd { "Enter" } " opens it" }
            dt { kbd { "r" } } dd { "run now, run again" }
            dt { kbd { "l" } } dd { "to the log" }
            dt { kbd { "u" } } dd { "hold the updates, go on" }
            dt { kbd { "?" } } dd { "these keys" }
        }
    }
}

/// Answers a visit.
pub(super) fn visited(
    status: StatusCode,
    section: Section,
    visit: &Visit,
    view: View,
) -> Response<Body> {
    let main = html! {
        @if let Some(problem) = &visit.problem { (problem_part(problem)) }
        @if let Some(action) = visit.done { p.done role="status" { (action.done) } }
        (view.main)
    };
    let frame = Frame {
        attention: visit.attention,
        ..Frame::of(&visit.call, section, visit.has_session)
    };
    frame.page(status, &view.title, view.head, main)
}

/// Show why something was not done, and what to do next.
pub(super) fn problem_part(problem: &Problem) -> Markup {
    let mut lines = problem.message.lines();
    let first = lines.next().unwrap_or_default().trim_end_matches(':');
    html! {
        div.problem role="alert" {
            p { strong { (line(first)) "." } }
            @for more in lines { p { code { (line(more.trim())) } } }
            @if let Some(hint) = &problem.hint { p { "Next: " (line(hint)) "." } }
        }
    }
}

/// Answer with a page that says what is wrong. `visitor` is who visits, and whether the session can be ended. What `wrong`
/// has as its query can be corrected.
pub(super) fn problem_page(
    visitor: Option<(&Principal, bool)>,
    problem: &ApiProblem,
    wrong: Option<&Uri>,
) -> Response<Body> {
    let title = problem.status.canonical_reason().unwrap_or("Error");
    let wrong = wrong.filter(|_| problem.status == StatusCode::BAD_REQUEST);
    let main = html! {
        (problem_part(&problem.problem))
        @if let Some(wrong) = wrong { (correction(wrong)) }
        p { a href="/" { "Go to the first page" } }
    };
    let frame = Frame {
        principal: visitor.map(|(principal, _)| principal),
        has_session: visitor.is_some_and(|(_, has_session)| has_session),
        ..Frame::default()
    };
    frame.page(problem.status, title, None, main)
}

/// Show what a query has, so that it can be corrected.
fn correction(wrong: &Uri) -> Markup {
    /// The most parameters that are shown.
    const SHOWN_MAX: usize = 16;
    let given = form_urlencoded::parse(wrong.query().unwrap_or_default().as_bytes());
    let given = Vec::from_iter(given.filter(|(_, value)| !value.is_empty()).take(SHOWN_MAX));
    html! {
        @if !given.is_empty() {
            form.filter method="get" action=(wrong.path()) {
                @for (name, value) in &given {
                    label { (line(name)) " " input name=(line(name)) value=(line(value)) maxlength="500"; }
                }
                button { "Send it again" }
                " " a href=(wrong.path()) { "Leave all of it out" }
            }
        }
    }
}

/// Asks the operator to confirm an action. `address` is the page of the form.
pub(super) fn question(address: &str, action: &Action, asked: &Asked, form: &Form) -> Markup {
    let hidden = form.fields().iter();
    let hidden = hidden.filter(|(name, _)| name != ACTION && name != CONFIRM);
    let hidden = Vec::from_iter(hidden);
    html! {
        p { strong { (line(&asked.text)) } }
        (fields(&hidden))
        form.action method="post" action=(address) data-once {
            (Form::hidden(hidden.iter().copied()))
            (asked.more)
            input type="hidden" name=(CONFIRM) value="yes";
            button name=(ACTION) value=(action.name) { "Yes, do it" }
            " " a href=(address) { "No, go back" }
        }
    }
}

/// Show the fields of a form and their values.
fn fields(fields: &[&(String, String)]) -> Markup {
    let shown = fields
        .iter()
        .filter(|(name, value)| !UNSHOWN.contains(&name.as_str()) && !value.is_empty());
    html! {
        dl.facts {
            @for (name, value) in shown {
                dt { (line(name)) }
                dd { @for text in value.lines() { (line(text)) br; } }
            }
        }
    }
}

/// Offers to send a form that came without a session. One that has a page of its own can be filled in further, too.
pub(super) fn kept_form(uri: &str, form: &Form) -> Markup {
    let kept = form.fields().iter().filter(|(name, _)| name != ACTION);
    let kept = Vec::from_iter(kept);
    let wanted = form.get(ACTION);
    let is_preview = wanted == PREVIEW;
    html! {
        p { "You are signed in. The form that you sent before was kept, and nothing of it was done yet." }
        (fields(&kept))
        form.action method="post" action=(uri) {
            (Form::hidden(kept.iter().copied()))
            p.actions {
                @if !is_preview {
                    button name=(ACTION) value=(line(wanted)) {
                        "Send it now" @if let Some(action) = actions::named(wanted) { ": " (action.name.replace('_', " ")) }
                    }
                }
                @if is_preview || actions::has_own_page(wanted) {
                    button name=(ACTION) value=(PREVIEW) { "Back to the form" }
                }
                a href=(uri) { "Leave it, and open the page" }
            }
        }
    }
}
