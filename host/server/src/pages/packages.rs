//! The packages, and one package with the version that waits, its versions over time, and what uses it.

pub(super) mod activation;
mod pending;
pub(super) mod pending_version;
mod versions;

use std::collections::HashMap;

use maud::{Markup, html};
use serde_json::Value;

use self::pending_version::Pending;
use super::actions::{ACTION, KEY, refusal};
use super::charts;
use super::parts::{Search, badge_of, choice, command, empty, filter, idempotency_key, next_page};
use super::words::{Clock, counted, line, moment, shell, short};
use super::{UPLOADS, View, Visit, links, new_schedule};
use crate::call::Result;
use crate::problem::ApiProblem;
use campanile_control::records::package::{self, PackageDetail};
use campanile_model::text::size_rounded;
use campanile_package::Manifest;
use campanile_store::packages::{self, PackageRow, PackageState};
use campanile_store::troubles::{self, PackageSummary, SUMMARY_SCHEDULES_MAX};
use campanile_store::{DbError, Tx, package_versions};

/// The packages of a page.
const SHOWN_MAX: usize = 50;
/// How many packages to read per statement.
const READ_AT_ONCE: i64 = 500;
/// The schedules, grants and versions of a package that are shown.
const PARTS_MAX: usize = 50;
/// The grants of a package in the list.
const GRANTS_MAX: usize = 3;
/// The most characters of one grant, of one reason in a list, and of a version.
const TEXT_MAX: usize = 200;
const VERSION_MAX: usize = 40;

/// A package of the list.
struct Listed {
    row: PackageRow,
    /// The version in the manifest of the active version.
    version: Option<String>,
    summary: Option<PackageSummary>,
}

pub(super) async fn list(visit: &Visit) -> Result<View> {
    let call = &visit.call;
    let Search { after, q, state } = call.query.question()?;
    let wanted = q.unwrap_or_default().trim().to_lowercase();
    let state = state.as_deref().map(PackageState::read).transpose();
    let state = state.map_err(|error| ApiProblem::invalid(format!("`state`: {error}")))?;
    let matches = |row: &PackageRow| {
        row.name.to_lowercase().contains(&wanted) && state.is_none_or(|state| row.state() == state)
    };
    let mut tx = call.read().await?;
    let (mut rows, mut after) = (Vec::new(), Some(after.unwrap_or_default()));
    while let Some(place) = after.filter(|_| rows.len() <= SHOWN_MAX) {
        let found = packages::list(&mut tx, None, Some(&place), READ_AT_ONCE).await?;
        let is_full = found.len() as i64 >= READ_AT_ONCE;
        after = found.last().filter(|_| is_full).map(|row| row.name.clone());
        rows.extend(found.into_iter().filter(matches));
    }
    let is_new = rows.is_empty() && packages::names(&mut tx, 1).await?.is_empty();
    let next = (rows.len() > SHOWN_MAX).then(|| {
        rows.truncate(SHOWN_MAX);
        rows.last().map(|last| last.name.clone())
    });
    let listed = listed(&mut tx, rows).await?;
    drop(tx);
    let clock = visit.clock();
    let head = html! {
        div.head {
            h1 { "Packages" }
            div.actions {
                form.filter method="get" action="/packages" role="search" aria-label="Filter of the packages" {
                    (filter(visit, "q", "Search", "name"))
                    (choice(visit, "state", "State", PackageState::WORDS))
                    button { "Show" }
                }
                @if call.state.takes_uploads() { a.button href="#upload" { "Upload" } }
            }
        }
    };
    let main = html! {
        div.stack {
            @if is_new {
                (empty("No host has seen a package yet.", html! { "Copy a WebAssembly file to the plugins folder of a host: " code { "cp backup.wasm plugins/" } "." }))
            } @else if listed.is_empty() {
                (empty("No package matches.", html! { a href="/packages" { "Show all packages" } "." }))
            } @else {
                section.card {
                    div.wide tabindex="0" role="region" aria-label="Packages" { (table(&listed, clock)) }
                    div.more { (command("campanile package list")) }
                }
            }
            (next_page(visit, next.flatten().as_deref()))
            @if call.state.takes_uploads() { (upload_form(visit)) }
        }
    };
    View::with_head("Packages", head, main)
}

async fn listed(tx: &mut Tx, rows: Vec<PackageRow>) -> std::result::Result<Vec<Listed>, DbError> {
    let names = Vec::from_iter(rows.iter().map(|row| row.name.as_str()));
    let summaries = troubles::package_summaries(tx, &names).await?;
    let mut summaries: HashMap<String, PackageSummary> = summaries
        .into_iter()
        .map(|summary| (summary.name.clone(), summary))
        .collect();
    let mut listed = Vec::with_capacity(rows.len());
    for row in rows {
        // One manifest at a time: together they may be large.
        let manifest = match &row.digest {
            Some(digest) => package_versions::manifest(tx, &row.name, digest).await?,
            None => None,
        };
        let manifest = manifest.map(|stored| Manifest::from_stored(&row.name, &stored));
        listed.push(Listed {
            version: manifest.and_then(|manifest| manifest.version.clone()),
            summary: summaries.remove(&row.name),
            row,
        });
    }
    Ok(listed)
}

/// Show the form that puts a file into the plugins folder of this host.
fn upload_form(visit: &Visit) -> Markup {
    let same = "cp backup.wasm plugins/";
    html! {
        section.card aria-labelledby="upload" {
            header { h2 #upload { "Upload" } }
            div.pad {
                @if let Some(refusal) = refusal(&visit.call, "upload") {
                    p { (line(&refusal)) "." }
                } @else {
                    form.action method="post" action=(UPLOADS) enctype="multipart/form-data" {
                        input type="hidden" name=(KEY) value=(idempotency_key());
                        p { "Put a file into the plugins folder of this host. The package is called like the file. A file of this name is replaced: it is a new version, and the approval of versions applies." }
                        label { "WebAssembly file " input type="file" name="file" accept=".wasm,application/wasm" required; }
                        button name=(ACTION) value="upload" { "Upload" }
                    }
                }
                p.command { "On the machine of the host: " code { (same) } }
            }
        }
    }
}

fn table(listed: &[Listed], clock: Clock) -> Markup {
    html! {
        table.cards {
            thead {
                tr {
                    th scope="col" { "Package" }
                    th scope="col" { "Version" }
                    th scope="col" { "May do" }
                    th.number scope="col" { "Schedules" }
                    th.number scope="col" { "Size" }
                    th.number scope="col" { "Loaded" }
                }
            }
            tbody { @for one in listed { (list_row(one, clock)) } }
        }
    }
}

fn list_row(one: &Listed, clock: Clock) -> Markup {
    let row = &one.row;
    let state = row.state();
    let fails = state == PackageState::Rejected;
    let looks = !fails && state != PackageState::Active;
    html! {
        tr.fails[fails].looks[looks] {
            td {
                a.name href=(links::path(&["packages", &row.name])) { (line(&row.name)) }
                @if state != PackageState::Active { " " (badge_of_state(state)) }
                @if let Some(why) = &row.rejection { br; span.far { (short(why, TEXT_MAX)) } }
            }
            td.fit {
                @if let Some(version) = &one.version { strong { (short(version, VERSION_MAX)) } " " }
                @if let Some(digest) = &row.digest { code.far { (digest.short()) } } @else { "none" }
            }
            td.text.rest { @if let Some(summary) = &one.summary { (grants_in_short(summary)) } }
            td.number.rest {
                @if let Some(PackageSummary { schedules, .. }) = one.summary {
                    (schedules) @if schedules >= SUMMARY_SCHEDULES_MAX { "+" }
                }
            }
            td.number.rest { @if let Some(size) = row.size_bytes { (size_rounded(size.unsigned_abs())) } @else { "unknown" } }
            td.number.rest { @if let Some(at) = row.loaded_at { (moment(at, clock)) } @else { "never" } }
        }
    }
}

pub(super) fn badge_of_state(state: PackageState) -> Markup {
    badge_of(
        charts::class(state.as_str()),
        &state.as_str().replace('_', " "),
    )
}

/// Shows the first grants of a package in words.
fn grants_in_short(summary: &PackageSummary) -> Markup {
    let grants = summary.grants.lines().map(serde_json::from_str::<Value>);
    let grants = Vec::from_iter(grants.filter_map(std::result::Result::ok));
    let more = grants.len().saturating_sub(GRANTS_MAX);
    let words = grants.iter().take(GRANTS_MAX).map(in_words);
    html! {
        @if grants.is_empty() { span.far { "nothing outside its sandbox" } }
        @else { (Vec::from_iter(words).join(", ")) }
        @if more > 0 { span.far { ", and " (more) @if summary.is_cut { " or" } " more" } }
    }
}

/// Returns a recorded grant as people say it: `reads /source`, `https api.partner`.
fn in_words(grant: &Value) -> String {
    let Value::Array(parts) = grant else {
        return short(&grant.to_string(), TEXT_MAX);
    };
    let parts = parts.iter().map(|part| {
        part.as_str()
            .map_or_else(|| part.to_string(), str::to_owned)
    });
    let parts = Vec::from_iter(parts);
    let words = Vec::from_iter(parts.iter().map(String::as_str));
    let text = match words.as_slice() {
        ["directory", "read", guest, ..] => format!("reads {guest}"),
        ["directory", "write", guest, ..] => format!("writes {guest}"),
        ["http", scheme, host, _, port, methods] => {
            let port = if port.is_empty() {
                ""
            } else {
                &format!(":{port}")
            };
            let methods = match *methods {
                "" => String::new(),
                methods => format!(" ({})", methods.replace(',', ", ")),
            };
            format!("{scheme} {host}{port}{methods}")
        }
        ["keyvalue", "read", bucket, ..] => format!("reads the bucket {bucket}"),
        ["keyvalue", "write", bucket, ..] => format!("writes the bucket {bucket}"),
        ["secret_env", variable, secret] => format!("secret {secret} as {variable}"),
        ["socket", protocol, host, port, ..] => format!("{protocol} {host}:{port}"),
        words => {
            let given = words.iter().filter(|word| !word.is_empty());
            Vec::from_iter(given.copied()).join(" ")
        }
    };
    short(&text, TEXT_MAX)
}

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let call = &visit.call;
    let mut tx = call.read().await?;
    let row = package::find(&mut tx, call.name("name")).await?;
    let detail = PackageDetail::read(&mut tx, row).await?;
    let pending = Pending::read(&mut tx, &detail.package.row).await?;
    drop(tx);
    let clock = visit.clock();
    let row = &detail.package.row;
    let name = shell(&row.name);
    let main = html! {
        @if let Some(why) = &row.rejection {
            div.problem { p { strong { "The newest file cannot be used: " } (line(why)) } }
        }
        div.grid {
            @if let Some(pending) = &pending { (pending.card(visit, row, clock)) }
            (versions::lane(&detail, clock))
            section.card.w8 aria-labelledby="versions" {
                (versions::table(visit, &detail, clock))
                div.more {
                    (command(&format!("campanile package show {name}")))
                    (command(&format!("campanile package diff {name}")))
                }
            }
            div.stack.w4 {
                (schedules(&detail))
                (grants(&detail))
                @if call.state.takes_uploads() { (upload_form(visit)) }
            }
        }
    };
    View::with_head(format!("Package {}", row.name), head(&detail, clock), main)
}

/// Shows the name, the active version, and what isn't as usual.
fn head(detail: &PackageDetail, clock: Clock) -> Markup {
    let row = &detail.package.row;
    let active = detail
        .versions
        .iter()
        .find(|record| Some(&record.version.digest) == row.digest.as_ref());
    let version = active.and_then(|record| record.manifest_version.as_deref());
    html! {
        div.head {
            h1 { "Package " (line(&row.name)) }
            @if detail.package.state != PackageState::Active { (badge_of_state(detail.package.state)) }
            p.far {
                @match &row.digest {
                    Some(digest) => {
                        "active: " @if let Some(version) = version { strong { (short(version, VERSION_MAX)) } " " }
                        code { (digest.short()) }
                        @if let Some(at) = row.loaded_at { ", loaded " (moment(at, clock)) }
                    },
                    None => "no version is active",
                }
                @if let Some(since) = row.missing_since { " · no live host has it since " (moment(since, clock)) }
            }
            @if row.digest.is_some() { div.actions { a.button href=(new_schedule::address(&row.name)) { "New schedule" } } }
        }
    }
}

fn schedules(detail: &PackageDetail) -> Markup {
    let names = &detail.schedules;
    html! {
        section.card aria-labelledby="schedules" {
            header { h2 #schedules { (counted(names.len() as u64, "schedule")) @if names.len() == 1 { " launches it" } @else { " launch it" } } }
            div.pad {
                @if !detail.unused_proposals.is_empty() {
                    p { "Not used of what it proposes:" }
                    ul { @for unused in detail.unused_proposals.iter().take(PARTS_MAX) { li { (line(&unused.why)) } } }
                }
                @if names.is_empty() {
                    p { "No schedule launches it. Add one: " code { "campanile schedule add NAME --package " (line(&shell(&detail.package.row.name))) " --cron '0 2 * * *'" } "." }
                } @else {
                    ul.inline { @for name in names.iter().take(PARTS_MAX) { li { (links::schedule(name)) } } }
                    @if names.len() > PARTS_MAX { p { "The first " (PARTS_MAX) " by name. " a href={ "/schedules" (links::query(&[("q", detail.package.row.name.as_str())])) } { "Search for all" } } }
                }
            }
        }
    }
}

fn grants(detail: &PackageDetail) -> Markup {
    html! {
        section.card aria-labelledby="grants" {
            header { h2 #grants { "What its sidecar grants" } }
            div.pad {
                @if detail.grants.is_empty() {
                    p { "Nothing: it has no access to files, the network, or secrets." }
                } @else {
                    ul.plain { @for grant in detail.grants.iter().take(PARTS_MAX) { li { (in_words(grant)) } } }
                    @if detail.grants.len() > PARTS_MAX { p.far { "The first " (PARTS_MAX) " of " (detail.grants.len()) " grants." } }
                    details {
                        summary.far { "As they are recorded" }
                        @for grant in detail.grants.iter().take(PARTS_MAX) { code { (short(&grant.to_string(), TEXT_MAX)) } br; }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_grant_is_said_in_words() {
        for (grant, words) in [
            (
                json!(["directory", "read", "/source", "/srv"]),
                "reads /source",
            ),
            (
                json!(["directory", "write", "/out", "/srv", "max_files=1"]),
                "writes /out",
            ),
            (
                json!(["http", "https", "api.partner", "", "", ""]),
                "https api.partner",
            ),
            (
                json!(["http", "https", "a.test", "", "8443", "GET,HEAD"]),
                "https a.test:8443 (GET, HEAD)",
            ),
            (
                json!(["secret_env", "PGPASSWORD", "db"]),
                "secret db as PGPASSWORD",
            ),
            (
                json!(["socket", "tcp", "db", "5432", "private"]),
                "tcp db:5432",
            ),
            (json!(["env", "TOKEN"]), "env TOKEN"),
            (
                json!(["unheard_of", "", "\u{202e}"]),
                "unheard_of \\u{202e}",
            ),
            (json!(7), "7"),
        ] {
            assert_eq!(in_words(&grant), words);
        }
    }
}
