//! The first page before the first launch: three steps that lead to it.

use maud::{Markup, html};

use super::super::actions::{ACTION, ADD_HELLO, KEY, refusal};
use super::super::parts::{badge, idempotency_key};
use super::super::words::line;
use super::super::{Visit, links, new_schedule};
use crate::upload::HELLO;
use campanile_control::reports::health::Symptoms;
use campanile_store::packages::PackageRow;

/// Says that nothing has run yet.
pub(super) fn verdict(symptoms: &Symptoms) -> Markup {
    let serves = symptoms.signs.live_hosts > 0;
    html! {
        section.verdict.none role="status" aria-labelledby="verdict" {
            svg viewBox="0 0 28 28" aria-hidden="true" { circle cx="14" cy="14" r="14" {} path d="M9 14h10" {} }
            div {
                h1 #verdict { "Nothing has run yet" }
                p.far { @if serves { "A host serves and waits. Three steps lead to the first launch." } @else { "No host serves: start " code { "campanile serve" } "." } }
            }
        }
    }
}

/// Shows how the first launch comes about.
pub(super) fn steps(visit: &Visit, packages: &[PackageRow]) -> Markup {
    html! {
        div.grid {
            section.card.w4 aria-labelledby="drop" {
                header { h2 #drop { "1. Add a package" } }
                div.pad { (add_package(visit, packages)) }
            }
            section.card.w4 aria-labelledby="add" {
                header { h2 #add { "2. Give it a schedule" } }
                div.pad {
                    p { "A rule says when it runs. A package may bring a schedule, as " code { (HELLO) } " does." }
                    div.actions { a.button.go[!packages.is_empty()] href=(new_schedule::PATH) { "New schedule" } }
                    pre { "campanile schedule add nightly \\\n  --package backup --cron '0 2 * * *'" }
                }
            }
            section.card.w4 aria-labelledby="wait" {
                header { h2 #wait { "3. Don't wait for its slot" } }
                div.pad {
                    p { "Open the schedule and run it now, or write:" }
                    pre { "campanile schedule trigger nightly" }
                    div.actions { a.button href="/schedules" { "Schedules" } }
                }
            }
        }
    }
}

fn add_package(visit: &Visit, packages: &[PackageRow]) -> Markup {
    let state = &visit.call.state;
    let has_hello = packages.iter().any(|package| package.name == HELLO);
    let takes_hello = state.app.uploads.is_some() && !has_hello;
    let refused = refusal(&visit.call, ADD_HELLO).filter(|_| takes_hello);
    html! {
        @if takes_hello {
            p { "The package " code { (HELLO) } " comes with the program. It logs a greeting every ten seconds, and is granted nothing." }
        }
        div.actions {
            @if takes_hello && refused.is_none() {
                form method="post" action="/" {
                    input type="hidden" name=(KEY) value=(idempotency_key());
                    button.go name=(ACTION) value=(ADD_HELLO) { "Add the package hello" }
                }
            }
            @if state.takes_uploads() { a.button href="/packages#upload" { "Upload a .wasm" } }
        }
        @if let Some(refused) = refused { p.far { (line(&refused)) "." } }
        @if !state.takes_uploads() {
            p.far { "To upload files here, write " code { "upload = true" } " under " code { "[server]" } " in the configuration, and restart the host." }
        }
        p { "Or copy a WebAssembly file to the plugins folder. The host loads it within seconds:" }
        pre { "cp backup.wasm plugins/" }
        p { code { "campanile new backup" } " makes a task of your own." }
        @if packages.is_empty() { p.far { "The folder has no package yet." } }
        @else {
            p.far { "In the folder now:" }
            ul.plain { @for package in packages { li { (links::package(&package.name)) " " (badge(package.state().as_str())) } } }
        }
    }
}
