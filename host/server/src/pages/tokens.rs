//! The tokens: who has which role, when each was last used, and the secret of a new one.

use maud::{Markup, html};
use serde_json::Value;

use super::parts::{ActionForm, badge, badge_of, command, empty, field};
use super::words::{Clock, line, moment, shell};
use super::{View, Visit};
use crate::call::Result;
use campanile_control::admin::token_admin::{self, TokenReport, TokenState};
use campanile_control::question::Question as _;
use campanile_control::questions::hosts::ListTokens;
use campanile_model::access::Role;

/// The tokens that are shown.
const SHOWN_MAX: usize = 200;

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let call = &visit.call;
    call.require(ListTokens::ENDPOINT.role, "the page")?;
    let ListTokens { all, .. } = call.query.question()?;
    let clock = visit.clock();
    let mut tx = call.read().await?;
    let mut tokens = token_admin::list(&mut tx, all, SHOWN_MAX as i64 + 1, clock.now).await?;
    drop(tx);
    let is_cut = tokens.len() > SHOWN_MAX;
    tokens.truncate(SHOWN_MAX);
    let flag = if all { " --all" } else { "" };
    let head = html! {
        div.head {
            h1 { "Tokens" }
            nav.filters aria-label="Filters" {
                a href="/tokens" aria-current=[(!all).then_some("true")] { "Not revoked" }
                a href="/tokens?all=true" aria-current=[all.then_some("true")] { "Also revoked" }
            }
        }
    };
    let main = html! {
        @if let Some(created) = &visit.answer { (secret(created)) }
        div.grid {
            div.stack.w8 {
                @if tokens.is_empty() {
                    (empty("No token was created.", html! { "The host's own token is in the file that it names when it starts." }))
                } @else {
                    section.card {
                        (table(visit, &tokens, clock))
                        @if is_cut { p.more { "The first " (SHOWN_MAX) " by name." } }
                        div.more { (command(&format!("campanile token list{flag}"))) }
                    }
                }
            }
            section.card.w4 aria-labelledby="create" {
                header { h2 #create { "Create a token" } }
                div.pad { (form(visit)) }
            }
        }
    };
    View::with_head("Tokens", head, main)
}

/// Shows the secret of a token that was just created. It's on no other page, and in no address.
fn secret(created: &Value) -> Markup {
    let text = |key: &str| created[key].as_str().unwrap_or_default();
    html! {
        section.card.once data-once aria-labelledby="secret-title" {
            header { h2 #secret-title { "The secret of " (line(text("name"))) } (badge_of("warn", "shown only now")) }
            div.pad {
                p { "Give it to the person or program that is to be known as " strong { (line(text("name"))) } ". The record keeps only its hash: who loses the secret needs another token." }
                p.copy {
                    input #secret readonly value=(text("secret")) aria-label="Secret" size="50" autocomplete="off" spellcheck="false";
                    " " button type="button" data-copy="secret" hidden { "Copy" }
                }
                p.far { a href="/tokens" { "I have it" } }
            }
        }
    }
}

fn table(visit: &Visit, tokens: &[TokenReport], clock: Clock) -> Markup {
    html! {
        table.cards {
            thead {
                tr {
                    th scope="col" { "Token" }
                    th scope="col" { "Role" }
                    th scope="col" { "Namespace" }
                    th.number scope="col" { "Created" }
                    th.number scope="col" { "Last used" }
                    th.number scope="col" { "Expires" }
                    th.number scope="col" { "Actions" }
                }
            }
            tbody { @for token in tokens { (row(visit, token, clock)) } }
        }
    }
}

fn row(visit: &Visit, token: &TokenReport, clock: Clock) -> Markup {
    let row = &token.row;
    let principal = visit.call.principal.as_ref();
    let is_own = principal.is_some_and(|principal| principal.token.as_ref() == Some(&row.hash));
    html! {
        tr.looks[token.state == TokenState::Expired] {
            td {
                span.name { (line(&row.name)) }
                @if token.state != TokenState::Active { " " (badge(token.state.as_str())) }
                @if is_own { " " span.far { "this session's" } }
            }
            td { (row.role.as_str()) }
            td.rest { @if let Some(namespace) = &row.namespace { code { (line(&namespace.to_string())) } } @else { span.far { "all" } } }
            td.number.rest { (moment(row.created_at, clock)) }
            td.number { @if let Some(at) = row.last_used_at { (moment(at, clock)) } @else { "never" } }
            td.number.rest { @if let Some(at) = row.expires_at { (moment(at, clock)) } @else { span.far { "never" } } }
            td.number {
                @match row.revoked_at {
                    Some(at) => { "revoked " (moment(at, clock)) },
                    None => (revoke(visit, &row.name)),
                }
            }
        }
    }
}

fn revoke(visit: &Visit, name: &str) -> Markup {
    let form = ActionForm {
        action: "revoke_token",
        label: "Revoke",
        hidden: &[("name", name)],
        fields: html! { p { "Each host refuses it within 5 seconds, and its name is free again." } },
        command: format!("campanile token revoke {}", shell(name)),
    };
    html! {
        details.menu.small {
            summary { "Revoke" }
            div { (form.show(visit)) }
        }
    }
}

fn form(visit: &Visit) -> Markup {
    let chosen = visit.typed.given("role").unwrap_or(Role::Viewer.as_str());
    let form = ActionForm {
        action: "create_token",
        label: "Create",
        hidden: &[],
        fields: html! {
            p { "For a person or a program. Its secret is shown once, on the page that answers." }
            (field(visit, "name", "Name", "under which its changes are recorded"))
            label {
                "Role "
                select name="role" {
                    @for role in Role::WORDS { option value=(role) selected[*role == chosen] { (role) } }
                }
            }
            (field(visit, "namespace", "Only this namespace", "empty: the whole installation"))
            (field(visit, "expires", "Expires after", "90d, or empty for never"))
            p.far { "A viewer reads; an operator also triggers, pauses and retries; an editor changes schedules; an approver decides about versions; an admin creates tokens." }
        },
        command: "campanile token create NAME --role ROLE --namespace NAMESPACE --expires 90d"
            .to_owned(),
    };
    form.show(visit)
}
