//! The version that waits: what it asks for, the lines that grant it, and the forms that decide about it.

use maud::{Markup, html};

use super::super::actions::{ACTION, KEY, refusal};
use super::super::form::Form;
use super::super::parts::{badge_of, command, field, idempotency_key};
use super::super::words::{Clock, counted, line, moment, shell, short};
use super::super::{Visit, links};
use super::pending_version::{Pending, TICK, UNGRANTED};
use super::{TEXT_MAX, VERSION_MAX, versions};
use campanile_package::requests::{Request, list_requests, sidecar_lines};
use campanile_store::package_versions::VersionDecision;
use campanile_store::packages::PackageRow;

/// The most requests that are shown.
const REQUESTS_MAX: usize = 100;

impl Pending {
    /// Shows on top of the package's page what waits, and the forms that decide about it.
    pub(super) fn card(&self, visit: &Visit, row: &PackageRow, clock: Clock) -> Markup {
        let active = row.digest.as_ref();
        html! {
            section.card.w12 aria-labelledby="pending" {
                header {
                    h2 #pending {
                        "Version " @if let Some(version) = &self.version { (short(version, VERSION_MAX)) " " }
                        code { (self.digest.short()) }
                        @match row.pending_decision {
                            Some(VersionDecision::RolledBack) => " isn't active: somebody rolled back from it",
                            Some(VersionDecision::Rejected) => " was rejected",
                            _ => " waits for approval",
                        }
                    }
                    @if let Some(since) = row.pending_since { span.far { "since " (moment(since, clock)) } }
                }
                div.pad {
                    @if row.pending_decision == Some(VersionDecision::RolledBack) {
                        p { "Roll back to it below to make it active again." }
                    } @else {
                        (self.decision(visit, row))
                    }
                    @if let Some(active) = active {
                        p { a href=(versions::compare(&self.package, active, &self.digest)) { "Compare with the active version" } }
                    }
                }
            }
        }
    }

    /// Shows what the version asks for, what an approval would do, and the forms.
    pub(in super::super) fn decision(&self, visit: &Visit, row: &PackageRow) -> Markup {
        let missing = self.ungranted();
        let is_rejected = row.pending_decision == Some(VersionDecision::Rejected);
        html! {
            @if self.requests.is_empty() { p { "It asks for nothing outside its sandbox." } }
            @else {
                p { strong { "It asks for " (counted(self.requests.len() as u64, "thing")) "." } }
                ul.plain {
                    @for request in self.requests.iter().take(REQUESTS_MAX) {
                        li {
                            (line(request.kind.name)) " " code { (short(&request.what, TEXT_MAX)) } " "
                            @if request.is_granted { span.far { "granted" } } @else { (badge_of("warn", "not granted")) }
                            @if let Some(reason) = &request.reason { " " span.far { (short(reason, TEXT_MAX)) } }
                        }
                    }
                    @if self.requests.len() > REQUESTS_MAX { li { "The first " (REQUESTS_MAX) " are shown." } }
                }
            }
            @if !missing.is_empty() {
                p { "Add to " code { (line(&self.package)) ".toml" } " in the plugins folder:" }
                (lines(&missing))
                (self.effect(&missing))
            }
            div.forms {
                (self.form(visit, "approve", "Approve", html! {
                    @if !missing.is_empty() {
                        label { input type="checkbox" name=(UNGRANTED) value="yes" required; " " (TICK) }
                    }
                }))
                @if !is_rejected { (self.form(visit, "reject", "Reject", html! {})) }
            }
        }
    }

    /// Says what happens with an approval while grants are missing.
    fn effect(&self, missing: &[Request]) -> Markup {
        let of_use = missing.iter().filter(|request| {
            let is_same = |other: &&Request| other.key() == request.key();
            self.denying.iter().find(is_same).is_none()
        });
        let of_use = Vec::from_iter(of_use.cloned());
        html! {
            @if !self.denying.is_empty() {
                p.warning {
                    "With this approval, all calls of the package are denied until the sidecar grants "
                    (short(&list_requests(&self.denying), TEXT_MAX)) "."
                }
            }
            @if !of_use.is_empty() {
                p.warning {
                    "With this approval, calls that need " (short(&list_requests(&of_use), TEXT_MAX))
                    " are denied until the sidecar grants it."
                }
            }
        }
    }

    /// A form of the package's page, which the page of the comparison has too.
    fn form(&self, visit: &Visit, action: &str, label: &str, fields: Markup) -> Markup {
        let same = format!(
            "campanile package {action} {} --digest {} --note NOTE",
            shell(&self.package),
            self.digest.short()
        );
        let digest = [("digest".to_owned(), self.digest.as_str().to_owned())];
        let refusal = refusal(&visit.call, action);
        html! {
            @if let Some(refusal) = refusal {
                div.action { p { strong { (label) } ": " (line(&refusal)) "." } (command(&same)) }
            } @else {
                form.action method="post" action=(links::path(&["packages", &self.package])) {
                    input type="hidden" name=(KEY) value=(idempotency_key());
                    (Form::hidden(digest.iter()))
                    (fields)
                    (field(visit, "note", "Why", "for the record"))
                    button.go[action == "approve"] name=(ACTION) value=(action) { (label) }
                    (command(&same))
                }
            }
        }
    }
}

/// Shows the lines of a sidecar that grant requests.
pub(in super::super) fn lines<'r>(requests: impl IntoIterator<Item = &'r Request>) -> Markup {
    let lines = sidecar_lines(requests);
    html! { pre tabindex="0" { @for each in lines.lines() { (line(each)) "\n" } } }
}
