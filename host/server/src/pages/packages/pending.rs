//! The version that waits: what it asks for, the lines that grant it, and the forms that decide about it.

use maud::{Markup, html};

use super::super::actions::{ACTION, KEY, refusal};
use super::super::form::Form;
use super::super::parts::{badge_of, command, field, idempotency_key};
use super::super::words::{Clock, counted, line, moment, shell, short};
use super::super::{Visit, links};
use super::pending_version::Pending;
use super::{TEXT_MAX, VERSION_MAX, activation, versions};
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
            @if let (succeeded, failed @ 1..) = self.results {
                p.warning { "It ran before: " (counted(failed.unsigned_abs(), "launch")) " failed, and " (succeeded) " succeeded." }
            }
            (activation::missing(&self.package, &missing))
            div.forms {
                (self.form(visit, "approve", "Approve", activation::field(&missing)))
                @if !is_rejected { (self.form(visit, "reject", "Reject", html! {})) }
            }
        }
    }

    /// A form of the package's page, which the page of the comparison has too.
    fn form(&self, visit: &Visit, action: &str, label: &str, fields: Markup) -> Markup {
        let is_anyway = action == "approve" && !self.ungranted().is_empty();
        let same = format!(
            "campanile package {action} {} --digest {} --note NOTE{}",
            shell(&self.package),
            self.digest.short(),
            if is_anyway { " --anyway" } else { "" }
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
