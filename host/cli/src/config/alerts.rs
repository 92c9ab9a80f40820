//! The rules for alerts and the channels: `[[alerts]]`, `[channels.NAME]` and `[heartbeat]`.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use campanile_engine::alerts::rule::{
    AlertSettings, Channel, ChannelTemplate, Condition, FAILURES_MAX, Heartbeat, Pattern, Rule,
    Target, Url,
};
use campanile_engine::secrets::Source;
use campanile_model::status::{AlertKind, Severity};
use campanile_model::text::{duration_text, nearest};
#[cfg(test)]
use campanile_package::reference::KeyHelp;
use campanile_package::toml_reader::{self, Error, Section};
use campanile_sandbox::grants_to;

use super::settings::YEAR;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const GROUP_WAIT: Duration = Duration::from_secs(10);
const HEARTBEAT: Duration = Duration::from_secs(60);

/// The keys of the tables.
#[cfg(test)]
const KEYS: &[&str] = &[
    "alerts[].kind | text | | | What the rule watches: `failed`, `late_start`, `too_long`, `too_short`, `no_success_for`, `expect_within`, `abandoned`, `unknown`, `host_silent`, `recovery_rate`, `record_full` or `package_rejected`.",
    "alerts[].name | text | the kind | | The name of the rule. Two rules have two names.",
    "alerts[].after | number | 1 | 1 to 50 | `failed`: so many launches failed, in a row, or with `within` in that time.",
    "alerts[].within | duration | | 1s to 366days | `failed`: the time in which launches are counted. `recovery_rate`: the same, by default 1h.",
    "alerts[].by | duration | | 1s to 366days | `late_start`: how late a launch may start.",
    "alerts[].than | duration | | 1s to 366days | `too_long`, `too_short` and `no_success_for`: the limit. `too_long` without it: three times the usual duration.",
    "alerts[].below | number | 0.9 | 0 to 1 | `recovery_rate`: the least share of recovered launches that succeed.",
    "alerts[].above | number | 0.9 | 0 to 1 | `record_full`: the greatest share of `retention.max_bytes` that is used.",
    "alerts[].subject | text | all | | Only schedules with such a name; for `host_silent` and `package_rejected` hosts or packages. `*` stands for any characters.",
    "alerts[].package | text | all | | Only schedules of packages with such a name.",
    "alerts[].severity | text | warning | | `info`, `warning` or `critical`.",
    "alerts[].channels | list of texts | [] | | The channels that are told. Without any, `campanile alert list` and `campanile health` show the alert.",
    "alerts[].for | duration | 0s | 0s to 366days | How long the condition must hold before the alert fires.",
    "alerts[].resolve_after | duration | 1m | 0s to 366days | How long the condition must not hold before the alert is resolved. A condition that comes back before is not told again.",
    "channels.NAME.template | text | webhook | | The form of the messages: `webhook`, `slack` or `ntfy`.",
    "channels.NAME.url | text | | | Where messages go.",
    "channels.NAME.url_secret | text | | | The name of the secret that holds the address, in place of `url`.",
    "channels.NAME.private | true or false | false | | Whether the address may be a private one.",
    "channels.NAME.secret | text | | | The name of the secret that signs messages by Standard Webhooks.",
    "channels.NAME.former_secret | text | | | The name of the secret before it. While it is set, both sign.",
    "channels.NAME.headers | table of texts | | | More headers. `{secret:NAME}` stands for a secret.",
    "channels.NAME.group_wait | duration | 10s | 0s to 1h | How long a message waits for more alerts of its rule.",
    "heartbeat.url | text | | | Where each host sends a request while it works. A monitor there misses it when the host does not.",
    "heartbeat.url_secret | text | | | The name of the secret that holds the address, in place of `url`.",
    "heartbeat.private | true or false | false | | Whether the address may be a private one.",
    "heartbeat.interval | duration | 1m | 10s to 1day | How often.",
];

pub(super) const DEFAULT_TEXT: &str = "
# Rules for alerts, the channels that they tell, and the monitor that misses a host when it does not work.
# [[alerts]]
# kind = \"failed\"
# name = \"failed\"
# after = 3
# severity = \"warning\"
# channels = [\"ops\"]
# for = \"0s\"
# resolve_after = \"1m\"
# [channels.ops]
# template = \"webhook\"
# url = \"https://hooks.example.com/campanile\"
# private = false
# secret = \"api_token\"
# group_wait = \"10s\"
# [heartbeat]
# url = \"https://monitor.example.com/campanile\"
# private = false
# interval = \"1m\"
";

/// Return the keys of the tables, for the reference.
#[cfg(test)]
pub(super) fn reference() -> Vec<KeyHelp> {
    KEYS.iter().copied().map(KeyHelp::read).collect()
}

/// Read the tables. `secrets` are those of the configuration, `max_bytes` is `retention.max_bytes`.
pub(super) fn read(
    top: &mut Section<'_>,
    secrets: &BTreeMap<String, Source>,
    max_bytes: Option<u64>,
) -> Result<AlertSettings, Error> {
    let mut channels = BTreeMap::new();
    for (name, section) in top.named_tables("channels")? {
        if !is_name(&name) {
            let what = "its name may have 1 to 64 letters, digits, `.`, `_` or `-`";
            return Err(section.error_of_table(what));
        }
        channels.insert(name, channel(section, secrets)?);
    }
    let mut rules: Vec<Rule> = Vec::new();
    for mut section in top.tables("alerts")?.unwrap_or_default() {
        let rule = rule(&mut section, &channels, max_bytes)?;
        if rules.iter().any(|other| other.name == rule.name) {
            let name = &rule.name;
            let what =
                format_args!("is a second rule with the name `{name}`: give it another `name`");
            return Err(section.error_of_table(what));
        }
        section.finish()?;
        rules.push(rule);
    }
    let heartbeat = match top.table("heartbeat")? {
        None => None,
        Some(mut section) => {
            let day = Duration::from_secs(24 * 3_600);
            let interval = section.duration("interval", 10 * SECOND, day)?;
            let target = target(&mut section, secrets)?;
            section.finish()?;
            Some(Heartbeat {
                target,
                interval: interval.unwrap_or(HEARTBEAT),
            })
        }
    };
    Ok(AlertSettings {
        rules,
        channels,
        heartbeat,
    })
}

fn rule(
    section: &mut Section<'_>,
    channels: &BTreeMap<String, Channel>,
    max_bytes: Option<u64>,
) -> Result<Rule, Error> {
    let kind = section.parsed("kind", AlertKind::read)?;
    let missing = section.error_of_table("needs `kind`, what it watches, such as \"failed\"");
    let condition = condition(section, kind.ok_or(missing)?, max_bytes)?;
    let name = section.text("name")?;
    let name = name.unwrap_or_else(|| condition.kind().to_string());
    if !is_name(&name) {
        let what = "may have 1 to 64 letters, digits, `.`, `_` or `-`";
        return Err(section.error("name", what));
    }
    if name != condition.kind().as_str() && AlertKind::WORDS.contains(&name.as_str()) {
        let what = format_args!("is `{name}`, the name of another kind: choose another name");
        return Err(section.error("name", what));
    }
    let listed = section.texts("channels")?.unwrap_or_default();
    let listed = Vec::from_iter(BTreeSet::from_iter(listed));
    if let Some(unknown) = listed.iter().find(|name| !channels.contains_key(*name)) {
        let near = nearest(unknown, channels.keys().map(String::as_str));
        let hint = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        let what = format_args!(
            "names the channel `{unknown}`, and there is no table [channels.{unknown}]{hint}"
        );
        return Err(section.error("channels", what));
    }
    let of_schedules = condition.is_of_schedules();
    let named = of_schedules
        || matches!(
            condition,
            Condition::HostSilent | Condition::PackageRejected
        );
    // A key that a rule does not have is refused as unknown.
    let pattern = |section: &mut Section<'_>, key: &'static str, is_there| match is_there {
        true => section.parsed(key, |text: &str| text.parse::<Pattern>()),
        false => Ok(None),
    };
    Ok(Rule {
        name,
        condition,
        subject: pattern(section, "subject", named)?,
        package: pattern(section, "package", of_schedules)?,
        severity: section.word("severity", Severity::read)?,
        channels: listed,
        pending_for: section
            .duration("for", Duration::ZERO, YEAR)?
            .unwrap_or_default(),
        resolve_after: section
            .duration("resolve_after", Duration::ZERO, YEAR)?
            .unwrap_or(MINUTE),
    })
}

fn condition(
    section: &mut Section<'_>,
    kind: AlertKind,
    max_bytes: Option<u64>,
) -> Result<Condition, Error> {
    let needed = |section: &mut Section<'_>, key: &'static str, what: &str| {
        let value = section.duration(key, SECOND, YEAR)?;
        value.ok_or_else(|| section.error_of_table(format_args!("needs `{key}`, {what}")))
    };
    Ok(match kind {
        AlertKind::Failed => Condition::Failed {
            after: section
                .number("after", 1, FAILURES_MAX.into())?
                .unwrap_or(1),
            within: section.duration("within", SECOND, YEAR)?,
        },
        AlertKind::LateStart => Condition::LateStart {
            by: needed(section, "by", "how late a launch may start, such as \"5m\"")?,
        },
        AlertKind::TooLong => Condition::TooLong {
            than: section.duration("than", SECOND, YEAR)?,
        },
        AlertKind::TooShort => Condition::TooShort {
            than: needed(section, "than", "the least duration, such as \"10s\"")?,
        },
        AlertKind::NoSuccessFor => Condition::NoSuccessFor {
            than: needed(
                section,
                "than",
                "the longest time without a success, such as \"25h\"",
            )?,
        },
        AlertKind::ExpectWithin => Condition::ExpectWithin,
        AlertKind::Abandoned => Condition::Abandoned,
        AlertKind::Unknown => Condition::Unknown,
        AlertKind::HostSilent => Condition::HostSilent,
        AlertKind::RecoveryRate => Condition::RecoveryRate {
            below: share(section, "below")?,
            within: section
                .duration("within", SECOND, YEAR)?
                .unwrap_or(60 * MINUTE),
        },
        AlertKind::RecordFull => {
            if max_bytes.is_none() {
                let what = "can never fire: the record has no greatest size; set `retention.max_bytes`, or remove the rule";
                return Err(section.error_of_table(what));
            }
            Condition::RecordFull {
                above: share(section, "above")?,
            }
        }
        AlertKind::PackageRejected => Condition::PackageRejected,
    })
}

/// Read a share above 0 and up to 1. A rule for another one would never fire, or always.
fn share(section: &mut Section<'_>, key: &'static str) -> Result<f64, Error> {
    let share = section.decimal(key)?.and_then(serde_json::Number::as_f64);
    let share = share.unwrap_or(0.9);
    match share > 0.0 && share <= 1.0 {
        true => Ok(share),
        false => Err(section.error(key, "must be a number above 0 and up to 1, such as 0.9")),
    }
}

fn channel(mut section: Section<'_>, secrets: &BTreeMap<String, Source>) -> Result<Channel, Error> {
    let target = target(&mut section, secrets)?;
    let mut signing_secrets = Vec::new();
    for key in ["secret", "former_secret"] {
        let name = secret(&mut section, key, secrets)?;
        if name.is_some() && key == "former_secret" && signing_secrets.is_empty() {
            let what = "is there without `secret`: the former secret signs only beside the one that follows it";
            return Err(section.error(key, what));
        }
        signing_secrets.extend(name);
    }
    let headers = section.text_map("headers")?;
    for value in headers.values() {
        let names = value.split("{secret:").skip(1);
        let names = names.map(|rest| rest.split_once('}').map_or(rest, |(name, _)| name));
        for name in names {
            known(&section, "headers", name, secrets)?;
        }
    }
    let group_wait = section.duration("group_wait", Duration::ZERO, 60 * MINUTE)?;
    let channel = Channel {
        template: section.word("template", ChannelTemplate::read)?,
        target,
        signing_secrets,
        headers,
        group_wait: group_wait.unwrap_or(GROUP_WAIT),
    };
    section.finish()?;
    Ok(channel)
}

fn target(section: &mut Section<'_>, secrets: &BTreeMap<String, Source>) -> Result<Target, Error> {
    let private = section.boolean("private")?.unwrap_or_default();
    let url = section.text("url")?;
    let url = match (url, secret(section, "url_secret", secrets)?) {
        (Some(url), None) => {
            let checked = grants_to(&url, private);
            checked.map_err(|what| section.error("url", what))?;
            Url::Plain(url)
        }
        (None, Some(name)) => Url::Secret(name),
        _ => {
            let what = "needs exactly one of `url` and `url_secret`";
            return Err(section.error_of_table(what));
        }
    };
    Ok(Target { url, private })
}

/// Read the name of a secret.
fn secret(
    section: &mut Section<'_>,
    key: &'static str,
    secrets: &BTreeMap<String, Source>,
) -> Result<Option<String>, Error> {
    let name = section.text(key)?;
    if let Some(name) = &name {
        known(section, key, name, secrets)?;
    }
    Ok(name)
}

fn known(
    section: &Section<'_>,
    key: &str,
    name: &str,
    secrets: &BTreeMap<String, Source>,
) -> Result<(), Error> {
    match secrets.contains_key(name) {
        true => Ok(()),
        false => Err(section.error(
            key,
            format_args!("names the secret `{name}`, and there is no table [secrets.{name}]"),
        )),
    }
}

/// Whether a rule or a channel may have this name. It can be the value of a header.
fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(is_plain)
}

/// Return a sentence without an end for each file of a secret of `settings` that is not there, or that others can read.
/// Blocks.
pub(super) fn secret_files(
    settings: &AlertSettings,
    secrets: &BTreeMap<String, Source>,
) -> Vec<String> {
    let names: BTreeSet<&str> = settings.secrets().into_iter().collect();
    let wrong = names.into_iter().filter_map(|name| {
        let what = match secrets.get(name)? {
            Source::File(path) => of_file(path)?,
            Source::Env {
                variable,
                value: None,
            } => {
                format!("the variable {variable} is not set; set it and start again")
            }
            Source::Env { .. } | Source::Command(_) => return None,
        };
        Some(format!(
            "the secret `{name}` of a channel cannot be used: {what}"
        ))
    });
    wrong.collect()
}

fn of_file(path: &Path) -> Option<String> {
    let shown = path.display();
    match std::fs::metadata(path) {
        Err(error) => Some(format!("{shown}: {error}; create it, or correct the path")),
        Ok(about) if !about.is_file() => Some(format!("{shown} is not a regular file")),
        Ok(about) if about.permissions().mode() & 0o077 != 0 => Some(format!(
            "other users of this machine can read {shown}; use `chmod 600 {shown}`"
        )),
        Ok(_) => None,
    }
}

/// Return the tables as TOML.
pub(super) fn text(settings: &AlertSettings) -> String {
    let mut text = String::new();
    for rule in &settings.rules {
        text += &format!("\n[[alerts]]\n{}", of_rule(rule));
    }
    for (name, channel) in &settings.channels {
        let name = toml_reader::toml_key(name);
        text += &format!("\n[channels.{name}]\n{}", of_channel(channel));
    }
    if let Some(heartbeat) = &settings.heartbeat {
        text += "\n[heartbeat]\n";
        text += &of_target(&heartbeat.target);
        text += &line("interval", duration_text(heartbeat.interval));
    }
    text
}

fn line(key: &str, value: impl Into<toml::Value>) -> String {
    format!("{key} = {}\n", value.into())
}

fn of_rule(rule: &Rule) -> String {
    let mut text = line("kind", rule.condition.kind().as_str());
    text += &line("name", rule.name.as_str());
    let mut duration = |key, value: Option<Duration>| {
        text.extend(value.map(|value| line(key, duration_text(value))));
    };
    match rule.condition {
        Condition::Failed { within, .. } => duration("within", within),
        Condition::LateStart { by } => duration("by", Some(by)),
        Condition::TooLong { than } => duration("than", than),
        Condition::TooShort { than } | Condition::NoSuccessFor { than } => {
            duration("than", Some(than));
        }
        Condition::RecoveryRate { within, .. } => duration("within", Some(within)),
        _ => {}
    }
    match rule.condition {
        Condition::Failed { after, .. } => text += &line("after", i64::from(after)),
        Condition::RecoveryRate { below, .. } => text += &line("below", below),
        Condition::RecordFull { above } => text += &line("above", above),
        _ => {}
    }
    for (key, pattern) in [("subject", &rule.subject), ("package", &rule.package)] {
        text.extend(pattern.iter().map(|pattern| line(key, pattern.to_string())));
    }
    text += &line("severity", rule.severity.as_str());
    text += &line("channels", rule.channels.clone());
    text += &line("for", duration_text(rule.pending_for));
    text + &line("resolve_after", duration_text(rule.resolve_after))
}

fn of_channel(channel: &Channel) -> String {
    let mut text = line("template", channel.template.as_str());
    text += &of_target(&channel.target);
    for (key, name) in ["secret", "former_secret"]
        .iter()
        .zip(&channel.signing_secrets)
    {
        text += &line(key, name.as_str());
    }
    if !channel.headers.is_empty() {
        let headers = channel.headers.iter();
        let headers =
            headers.map(|(name, value)| (name.clone(), toml::Value::from(value.as_str())));
        text += &line("headers", toml::Value::Table(headers.collect()));
    }
    text + &line("group_wait", duration_text(channel.group_wait))
}

fn of_target(target: &Target) -> String {
    let url = match &target.url {
        Url::Plain(url) => line("url", url.as_str()),
        Url::Secret(name) => line("url_secret", name.as_str()),
    };
    url + &line("private", target.private)
}
