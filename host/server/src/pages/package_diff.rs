//! Two versions of a package: what changes from one to the other, its capabilities first.

use maud::{Markup, html};

use super::packages::activation;
use super::packages::pending_version::Pending;
use super::parts::{badge_of, command, filter};
use super::words::{line, shell, short};
use super::{View, Visit, links};
use crate::call::Result;
use campanile_control::admin::approval::diff::Changes;
use campanile_control::admin::schedule_admin::Difference;
use campanile_control::questions::packages::DiffPackage;
use campanile_control::records::package;
use campanile_control::records::package_diff::{DiffReport, request_line};

/// The most differences of one kind that are shown.
const SHOWN_MAX: usize = 100;
/// The most characters of a value.
const VALUE_MAX: usize = 300;

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let report = visit.call.ask::<DiffPackage>().await?.answer;
    let DiffReport { package, diff, .. } = &report;
    let (from, to) = (diff.from.short(), diff.to.short());
    let mut waiting = None;
    if report.is_pending {
        let mut tx = visit.call.read().await?;
        let row = package::find(&mut tx, package).await?;
        waiting = Pending::read(&mut tx, &row).await?.map(|it| (it, row));
    }
    let head = html! {
        div.head {
            h1 { "Versions of " (line(package)) }
            @if report.is_pending { (badge_of("warn", "waits for approval")) }
            p.far { "from " code { (from) } " to " code { (to) } " · " a href=(links::path(&["packages", package])) { "the package" } }
            div.actions {
                form.filter method="get" action=(visit.call.uri) {
                    (filter(visit, "from", "From the version", from))
                    (filter(visit, "to", "To the version", to))
                    button { "Compare" }
                }
            }
        }
    };
    let main = html! {
        div.grid {
            div.stack.w8 {
                @if report.lines().is_empty() { p { "Only the bytes differ." } }
                @if let Some(why) = report.why_without_imports() { p { "Note: " (line(&why)) "." } }
                (requests(&report))
                (differences_part("about", "About the package", &diff.about))
                (changes("tasks", "Tasks", &diff.tasks))
                (changes("schedules", "Proposed schedules", &diff.schedules))
                (changes("imports", "Interfaces that the code imports", &diff.imports))
            }
            @if let Some((pending, row)) = &waiting {
                div.stack.w4 {
                    section.card aria-labelledby="decide" {
                        header { h2 #decide { "Approve " code { (to) } "?" } }
                        div.pad { (pending.decision(visit, row)) }
                    }
                }
            }
        }
        (command(&format!("campanile package diff {} {from} {to}", shell(package))))
    };
    View::with_head(format!("Versions of {package}"), head, main)
}

fn requests(report: &DiffReport) -> Markup {
    let all = &report.diff.requests;
    let missing = report.missing().count();
    html! {
        section.card aria-labelledby="requests" {
            header { h2 #requests { "What it asks for" } }
            div.pad {
                @if all.is_empty() {
                    p { "Neither version asks for anything outside its sandbox." }
                } @else {
                    ul { @for request in all.iter().take(SHOWN_MAX) { li { (short(&request_line(request), VALUE_MAX)) } } }
                    @if all.len() > SHOWN_MAX { p { "The first " (SHOWN_MAX) " of " (all.len()) "." } }
                }
                @if missing > 0 {
                    p.warning { "Requests that are not granted: " (missing) "." }
                    @if !report.is_pending {
                        p { "Add to " code { (line(&report.package)) ".toml" } " in the plugins folder:" }
                        (activation::lines(report.missing()))
                    }
                }
            }
        }
    }
}

fn changes(id: &str, title: &str, changes: &Changes) -> Markup {
    html! {
        @if !changes.is_empty() {
            section.card aria-labelledby=(id) {
                header { h2 id=(id) { (title) } }
                div.pad { ul {
                    @for name in changes.added.iter().take(SHOWN_MAX) { li { "Added: " (line(name)) } }
                    @for name in changes.removed.iter().take(SHOWN_MAX) { li { "Removed: " (line(name)) } }
                    @for changed in changes.changed.iter().take(SHOWN_MAX) { li { "Changed: " (line(&changed.name)) (table(&changed.differences)) } }
                } }
            }
        }
    }
}

fn differences_part(id: &str, title: &str, differences: &[Difference]) -> Markup {
    html! {
        @if !differences.is_empty() {
            section.card aria-labelledby=(id) { header { h2 id=(id) { (title) } } (table(differences)) }
        }
    }
}

fn table(differences: &[Difference]) -> Markup {
    let value = |text: &Option<String>| match text {
        Some(text) => short(text, VALUE_MAX),
        None => "none".to_owned(),
    };
    html! {
        div.wide tabindex="0" {
            table {
                thead { tr { th scope="col" { "Part" } th scope="col" { "Before" } th scope="col" { "After" } } }
                tbody { @for one in differences.iter().take(SHOWN_MAX) { tr { th scope="row" { (one.key) } td { (value(&one.before)) } td { (value(&one.after)) } } } }
            }
        }
    }
}
