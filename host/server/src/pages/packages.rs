//! The packages, and one package with its versions and the decisions about them.

use maud::{Markup, html};

use super::actions::{ACTION, KEY, refusal};
use super::parts::Search;
use super::parts::{ActionForm, badge, command, empty, field, filter, idempotency_key, next_page};
use super::words::{counted, line, moment, shell, short};
use super::{View, Visit, links};
use crate::call::Result;
use crate::problem::ApiProblem;
use campanile_control::records::package::{self, PackageDetail, VersionRecord};
use campanile_model::clock::Timestamp;
use campanile_model::ids::ArtifactDigest;
use campanile_model::text::size_rounded;
use campanile_store::packages::{self, PackageRow, PackageState};

/// The packages of a page.
const SHOWN_MAX: usize = 50;
/// How many packages to read per statement.
const READ_AT_ONCE: i64 = 500;
/// The schedules, grants and versions of a package that are shown.
const PARTS_MAX: usize = 50;
/// The most characters of one grant, and of one reason in a list.
const TEXT_MAX: usize = 200;

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
    drop(tx);
    let next = (rows.len() > SHOWN_MAX).then(|| {
        rows.truncate(SHOWN_MAX);
        rows.last().map(|last| last.name.clone())
    });
    let now = call.now();
    View::new(
        "Packages",
        html! {
            form.filter method="get" action="/packages" role="search" {
                (filter(visit, "q", "Search", "name"))
                (super::parts::choice(visit, "state", "State", PackageState::WORDS))
                button { "Show" }
                " " a href="/packages" { "All packages" }
            }
            @if is_new {
                (empty("No host has seen a package yet.", html! { "Copy a WebAssembly file to the plugins folder of a host: " code { "cp backup.wasm plugins/" } "." }))
            } @else if rows.is_empty() {
                (empty("No package matches.", html! { a href="/packages" { "Show all packages" } "." }))
            } @else {
                (table(&rows, now))
            }
            (next_page(visit, next.flatten().as_deref()))
            @if call.state.app.uploads.is_some() { (upload_form(visit)) }
            (command("campanile package list"))
        },
    )
}

/// Show the form that puts a file into the plugins folder of this host.
fn upload_form(visit: &Visit) -> Markup {
    let same = "cp backup.wasm plugins/";
    html! {
        section aria-labelledby="upload" {
            h2 #upload { "Upload" }
            @if let Some(refusal) = refusal(&visit.call, "upload") {
                p { (line(&refusal)) "." }
            } @else {
                form.action method="post" action=(visit.call.uri) enctype="multipart/form-data" {
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

fn table(rows: &[PackageRow], now: Timestamp) -> Markup {
    html! {
        div.wide tabindex="0" {
            table {
                thead { tr { th scope="col" { "Package" } th scope="col" { "State" } th scope="col" { "Version" } th scope="col" { "Size" } th scope="col" { "Loaded" } } }
                tbody {
                    @for row in rows {
                        tr {
                            td { (links::package(&row.name)) }
                            td {
                                (badge(row.state().as_str()))
                                @if let Some(why) = &row.rejection { br; span.far { (short(why, TEXT_MAX)) } }
                            }
                            td { @if let Some(digest) = &row.digest { code { (digest.short()) } } @else { "none" } }
                            td { @if let Some(size) = row.size_bytes { (size_rounded(size.unsigned_abs())) } @else { "unknown" } }
                            td { @if let Some(at) = row.loaded_at { (moment(at, now)) } @else { "never" } }
                        }
                    }
                }
            }
        }
    }
}

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let call = &visit.call;
    let mut tx = call.read().await?;
    let row = package::find(&mut tx, call.name("name")).await?;
    let detail = PackageDetail::read(&mut tx, row).await?;
    drop(tx);
    let now = call.now();
    let row = &detail.package.row;
    let name = shell(&row.name);
    View::new(
        format!("Package {}", row.name),
        html! {
            p {
                (badge(detail.package.state.as_str()))
                @if let Some(digest) = &row.digest { " The active version is " code { (digest.short()) } "." }
                @if let Some(digest) = &row.pending_digest {
                    " The version " code { (digest.short()) } " of the file is not active"
                    @if let Some(since) = row.pending_since { ", since " (moment(since, now)) }
                    "."
                }
                @if let Some(since) = row.missing_since { " No live host has it since " (moment(since, now)) "." }
            }
            @if let Some(why) = &row.rejection {
                div.problem { p { strong { "The newest file cannot be used: " } (line(why)) } }
            }
            (schedules(&detail))
            (grants(&detail))
            (versions(visit, &detail, now))
            (command(&format!("campanile package show {name}")))
            (command(&format!("campanile package diff {name}")))
        },
    )
}

fn schedules(detail: &PackageDetail) -> Markup {
    let names = &detail.schedules;
    html! {
        section aria-labelledby="schedules" {
            h2 #schedules { (counted(names.len() as u64, "schedule")) " launch it" }
            @if !detail.unused_proposals.is_empty() {
                p { "Not used of what it proposes:" }
                ul { @for unused in detail.unused_proposals.iter().take(PARTS_MAX) { li { (line(&unused.why)) } } }
            }
            @if names.is_empty() {
                (empty("No schedule launches it.", html! { "Add one: " code { "campanile schedule add NAME --package " (line(&shell(&detail.package.row.name))) " --cron '0 2 * * *'" } "." }))
            } @else {
                ul.inline { @for name in names.iter().take(PARTS_MAX) { li { (links::schedule(name)) } } }
                @if names.len() > PARTS_MAX { p { "The first " (PARTS_MAX) " by name. " a href={ "/schedules" (links::query(&[("q", detail.package.row.name.as_str())])) } { "Search for all" } } }
            }
        }
    }
}

fn grants(detail: &PackageDetail) -> Markup {
    let text = |grant: &serde_json::Value| {
        let text = match grant {
            serde_json::Value::Array(words) => {
                let words = words.iter().map(|word| {
                    word.as_str()
                        .map_or_else(|| word.to_string(), str::to_owned)
                });
                Vec::from_iter(words).join(" ")
            }
            other => other.to_string(),
        };
        short(&text, TEXT_MAX)
    };
    html! {
        section aria-labelledby="grants" {
            h2 #grants { "What its sidecar grants" }
            @if detail.grants.is_empty() {
                p { "Nothing: it has no access to files, the network, or secrets." }
            } @else {
                ul { @for grant in detail.grants.iter().take(PARTS_MAX) { li { code { (text(grant)) } } } }
                @if detail.grants.len() > PARTS_MAX { p { "The first " (PARTS_MAX) " of " (detail.grants.len()) " grants." } }
            }
        }
    }
}

fn versions(visit: &Visit, detail: &PackageDetail, now: Timestamp) -> Markup {
    html! {
        section aria-labelledby="versions" {
            h2 #versions { "Versions" }
            p { (counted(detail.versions.len() as u64, "version")) " on record, " (size_rounded(detail.bytes_kept)) " in the database." }
            @for version in detail.versions.iter().take(PARTS_MAX) { (version_part(visit, detail, version, now)) }
            @if detail.versions.len() > PARTS_MAX { p { "The first " (PARTS_MAX) " are shown." } }
        }
    }
}

fn version_part(
    visit: &Visit,
    detail: &PackageDetail,
    record: &VersionRecord,
    now: Timestamp,
) -> Markup {
    let version = &record.version;
    html! {
        article.version {
            h3 { code { (version.digest.short()) } " " (badge(&record.state)) }
            p {
                @if let Some(name) = &record.name { (line(name)) " " }
                @if let Some(number) = &record.manifest_version { (line(number)) ", " }
                (size_rounded(version.size_bytes.unsigned_abs())) ", first seen " (moment(version.first_seen_at, now))
                @if let Some(at) = version.activated_at { ", last activated " (moment(at, now)) }
                @if let Some(signer) = &record.signed_by { ", signed by the key " code { (line(signer)) } }
                "."
            }
            @if let (Some(decision), Some(at)) = (version.decision, version.decided_at) {
                p {
                    (decision.as_str()) " by " (line(version.decided_by.as_deref().unwrap_or("unknown"))) " " (moment(at, now))
                    @if let Some(note) = &version.note { ": " (line(note)) }
                }
            }
            @if let Some(active) = detail.package.row.digest.as_ref().filter(|active| **active != version.digest) {
                p { a href=(compare(&detail.package.row.name, active, &version.digest)) { "Compare with the active version" } }
            }
            (decisions(visit, detail, record))
        }
    }
}

/// Link to what changes from the active version to another.
fn compare(name: &str, active: &ArtifactDigest, other: &ArtifactDigest) -> String {
    let query = links::query(&[("from", active.short()), ("to", other.short())]);
    format!("{}/diff{query}", links::path(&["packages", name]))
}

/// Show the forms of the decisions that the state of a version allows.
fn decisions(visit: &Visit, detail: &PackageDetail, record: &VersionRecord) -> Markup {
    let actions: &[(&str, &str, &str, &str)] = match &*record.state {
        "pending_approval" => &[
            ("approve", "Approve", "approve", "digest"),
            ("reject", "Reject", "reject", "digest"),
        ],
        "rejected" => &[("approve", "Approve", "approve", "digest")],
        "former" | "rolled_back" => &[("roll_back", "Roll back to this version", "rollback", "to")],
        _ => &[],
    };
    let digest = record.version.digest.as_str();
    let form = |(action, label, word, flag): &(&str, &str, &str, &str)| {
        let form = ActionForm {
            action,
            label,
            hidden: &[("digest", digest)],
            fields: field(visit, "note", "Why", "for the record"),
            command: format!(
                "campanile package {word} {} --{flag} {} --note NOTE",
                shell(&detail.package.row.name),
                record.version.digest.short()
            ),
        };
        form.show(visit)
    };
    html! {
        @if !actions.is_empty() {
            details open[record.state == "pending_approval"] {
                summary { "Decide" }
                div.forms { @for action in actions { (form(action)) } }
            }
        }
    }
}
