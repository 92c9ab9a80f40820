//! The configuration of this host: what is set and where, then every other key with its default.

use std::collections::BTreeMap;

use maud::{Markup, html};
use schemars::JsonSchema;
use serde::Deserialize;

use super::parts::{badge_of, command, empty, filter};
use super::words::{counted, line, short};
use super::{View, Visit};
use crate::call::Result;
use campanile_control::settings::{ConfigKey, ConfigOrigin};
use campanile_model::access::Role;

/// Who may see it: it names files and addresses of the machine.
const ROLE: Role = Role::Admin;
/// The keys that are shown, and the most characters of a value and of a meaning.
const SHOWN_MAX: usize = 500;
const VALUE_MAX: usize = 300;
const MEANING_MAX: usize = 400;

/// Which keys to show.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ConfigurationQuery {
    /// Only those whose name or meaning has this text.
    pub q: Option<String>,
}

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let call = &visit.call;
    call.require(ROLE, "the page")?;
    let ConfigurationQuery { q } = call.query.question()?;
    let wanted = q.unwrap_or_default().trim().to_lowercase();
    let all = &call.state.app.configuration;
    let found = all.iter().filter(|key| matches(key, &wanted));
    let (set, unset): (Vec<&ConfigKey>, Vec<&ConfigKey>) = found
        .take(SHOWN_MAX)
        .partition(|key| key.origin != ConfigOrigin::Default);
    let mut tables: BTreeMap<&str, Vec<&ConfigKey>> = BTreeMap::new();
    for key in &unset {
        tables.entry(&key.table).or_default().push(key);
    }
    let head = html! {
        div.head {
            h1 { "Configuration" }
            p.far { "of this host, as it was read when the host started" }
            div.actions {
                form.filter method="get" action="/configuration" role="search" aria-label="Filter of the keys" {
                    (filter(visit, "q", "Search", "retention"))
                    button { "Show" }
                }
            }
        }
    };
    let main = html! {
        @if set.is_empty() && unset.is_empty() {
            (empty("No key matches.", html! { a href="/configuration" { "Show all keys" } "." }))
        }
        div.stack {
            @if !set.is_empty() {
                section.card aria-labelledby="set" {
                    header { h2 #set { "Set here" } (badge_of("plain", &counted(set.len() as u64, "key"))) span.far { "everything else has its default" } }
                    (table(&set, true))
                }
            }
            @if !tables.is_empty() {
                section.card aria-labelledby="defaults" {
                    header { h2 #defaults { "Left at their defaults" } (badge_of("plain", &counted(unset.len() as u64, "key"))) }
                    @for (name, keys) in &tables {
                        div.more {
                            details open[!wanted.is_empty()] {
                                summary { strong { (title(name)) } " " (counted(keys.len() as u64, "key")) }
                                (table(keys, false))
                            }
                        }
                    }
                }
            }
        }
        p.far { "The rules and channels of alerts are on " a href="/alerts#rules" { "Alerts" } ". A secret is shown nowhere; its source is." }
        (command("campanile config check"))
    };
    View::with_head("Configuration", head, main)
}

/// Whether a key has the text in its name or its meaning.
fn matches(key: &ConfigKey, wanted: &str) -> bool {
    name(key).to_lowercase().contains(wanted) || key.meaning.to_lowercase().contains(wanted)
}

/// Returns the name of a key with its table.
fn name(key: &ConfigKey) -> String {
    match key.table.as_str() {
        "" => key.key.clone(),
        table => format!("{table}.{}", key.key),
    }
}

fn title(table: &str) -> String {
    match table {
        "" => "Top of the file".to_owned(),
        table => format!("[{}]", line(table)),
    }
}

/// Shows keys with their values and, if they are set, with their defaults and where they are set.
fn table(keys: &[&ConfigKey], are_set: bool) -> Markup {
    html! {
        table.cards {
            thead { tr {
                th scope="col" { "Key" }
                th scope="col" { "Value" }
                @if are_set { th scope="col" { "Set by" } th scope="col" { "Default" } }
                th scope="col" { "Meaning" }
            } }
            tbody {
                @for key in keys {
                    tr {
                        td { code { @if are_set { (line(&name(key))) } @else { (line(&key.key)) } } }
                        td { @if let Some(value) = &key.value { code { (short(value, VALUE_MAX)) } } @else { span.far { "not set" } } }
                        @if are_set {
                            td { (key.origin.as_str()) }
                            td.rest { @if let Some(default) = &key.default { code { (short(default, VALUE_MAX)) } } @else { span.far { "none" } } }
                        }
                        td.text.far { (short(&key.meaning, MEANING_MAX)) }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_by_its_table_its_name_and_its_meaning() {
        let key = ConfigKey {
            table: "retention".to_owned(),
            key: "logs".to_owned(),
            value: Some("\"14days\"".to_owned()),
            default: Some("\"14days\"".to_owned()),
            origin: ConfigOrigin::Default,
            meaning: "The age at which outputs are removed.".to_owned(),
        };
        for wanted in ["", "retention", "retention.logs", "outputs", "logs"] {
            assert!(matches(&key, wanted), "{wanted}");
        }
        assert!(!matches(&key, "quota"));
        let hostile = ConfigKey {
            value: Some("<script>\u{202e}".to_owned()),
            ..key
        };
        let shown = table(&[&hostile], true).into_string();
        assert!(shown.contains("&lt;script&gt;\\u{202e}"), "{shown}");
    }
}
