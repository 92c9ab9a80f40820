//! Two versions of a package: what changes from one to the other, its capabilities first.

use maud::{Markup, html};

use super::parts::{command, filter};
use super::words::{line, shell};
use super::{View, Visit, links};
use crate::call::Result;
use campanile_control::admin::approval::diff::Changes;
use campanile_control::admin::schedule_admin::Difference;
use campanile_control::questions::packages::DiffPackage;
use campanile_control::records::package_diff::{DiffReport, request_line};

/// The most differences of one kind that are shown.
const SHOWN_MAX: usize = 100;
/// The most characters of a value.
const VALUE_MAX: usize = 300;

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let report = visit.call.ask::<DiffPackage>().await?.answer;
    let DiffReport { package, diff, .. } = &report;
    let (from, to) = (diff.from.short(), diff.to.short());
    View::new(
        format!("Versions of {package}"),
        html! {
            p {
                "The package " (links::package(package)) ": from the version " code { (from) } " to " code { (to) } "."
                @if report.is_pending { " The second one waits for approval." }
            }
            form.filter method="get" action=(visit.call.uri) {
                (filter(visit, "from", "From the version", from))
                (filter(visit, "to", "To the version", to))
                button { "Compare" }
            }
            @if report.lines().is_empty() { p { "Only the bytes differ." } }
            @if let Some(why) = report.why_without_imports() { p { "Note: " (line(&why)) "." } }
            (requests(&report))
            (differences_part("about", "About the package", &diff.about))
            (changes("tasks", "Tasks", &diff.tasks))
            (changes("schedules", "Proposed schedules", &diff.schedules))
            (changes("imports", "Interfaces that the code imports", &diff.imports))
            (command(&format!("campanile package diff {} {from} {to}", shell(package))))
        },
    )
}

fn requests(report: &DiffReport) -> Markup {
    let all = &report.diff.requests;
    let missing = report.missing().count();
    html! {
        section aria-labelledby="requests" {
            h2 #requests { "What it asks for" }
            @if all.is_empty() {
                p { "Neither version asks for anything outside its sandbox." }
            } @else {
                ul { @for request in all.iter().take(SHOWN_MAX) { li { (super::words::short(&request_line(request), VALUE_MAX)) } } }
                @if all.len() > SHOWN_MAX { p { "The first " (SHOWN_MAX) " of " (all.len()) "." } }
            }
            @if missing > 0 {
                p.warning { "Requests that are not granted: " (missing) ". The sidecar of the package grants them; the command below prints the lines." }
            }
        }
    }
}

fn changes(id: &str, title: &str, changes: &Changes) -> Markup {
    html! {
        @if !changes.is_empty() {
            section aria-labelledby=(id) {
                h2 id=(id) { (title) }
                ul {
                    @for name in changes.added.iter().take(SHOWN_MAX) { li { "Added: " (line(name)) } }
                    @for name in changes.removed.iter().take(SHOWN_MAX) { li { "Removed: " (line(name)) } }
                    @for changed in changes.changed.iter().take(SHOWN_MAX) { li { "Changed: " (line(&changed.name)) (table(&changed.differences)) } }
                }
            }
        }
    }
}

fn differences_part(id: &str, title: &str, differences: &[Difference]) -> Markup {
    html! {
        @if !differences.is_empty() {
            section aria-labelledby=(id) { h2 id=(id) { (title) } (table(differences)) }
        }
    }
}

fn table(differences: &[Difference]) -> Markup {
    let value = |text: &Option<String>| match text {
        Some(text) => super::words::short(text, VALUE_MAX),
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
