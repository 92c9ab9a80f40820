//! The rules for alerts, the channels and the pings: `[[alerts]]`, `[channels.NAME]`, `[heartbeat]` and `[[pings]]`.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use campanile_control::rules::alert_rule::{
    AlertSettings, Channel, ChannelTemplate, Condition, FAILURES_MAX, Heartbeat, MailSettings,
    MailUser, Pattern, Ping, Rule, SCHEDULE_PLACEHOLDER, Target, Value, secrets_in,
};
use campanile_control::settings::SecretSource;
use campanile_model::status::{AlertKind, Severity};
use campanile_model::text::{self, did_you_mean};
#[cfg(test)]
use campanile_package::reference::KeyHelp;
use campanile_package::toml_reader::{Error, Section};
use campanile_sandbox::{Grants, check_mailbox, grants_to, grants_to_mail_server};

use super::settings::YEAR;

/// The secrets of the configuration, by their names.
type Secrets = BTreeMap<String, SecretSource>;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const GROUP_WAIT: Duration = Duration::from_secs(10);
/// The receivers of an e-mail.
const RECEIVERS_MAX: usize = 50;

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
    "alerts[].channels | list of texts | [] | | The channels that are notified. Without any, `campanile alert list` and `campanile health` show the alert.",
    "alerts[].for | duration | 0s | 0s to 366days | How long the condition must hold before the alert fires.",
    "alerts[].resolve_after | duration | 1m | 0s to 366days | How long the condition must not hold before the alert is resolved. A condition that comes back before then sends no new message.",
    "channels.NAME.template | text | webhook | | The form of the messages: `webhook`, `slack`, `ntfy` or `email`.",
    "channels.NAME.url | text | | | Where messages go. For `email`, the mail server: `smtps://HOST`, or `smtp://HOST` for STARTTLS.",
    "channels.NAME.url_secret | text | | | The name of the secret that holds the address, in place of `url`.",
    "channels.NAME.private | true or false | false | | Whether the address may be a private one.",
    "channels.NAME.secret | text | | | The name of the secret that signs messages by Standard Webhooks.",
    "channels.NAME.former_secret | text | | | The name of the secret before it. While it is set, both sign.",
    "channels.NAME.headers | table of texts | | | More headers. `{secret:NAME}` stands for a secret.",
    "channels.NAME.from | text | | | `email`: the sender, such as `Campanile <campanile@example.com>`.",
    "channels.NAME.to | list of texts | | 1 to 50 | `email`: the receivers.",
    "channels.NAME.user | text | | | `email`: the user of the mail server.",
    "channels.NAME.user_secret | text | | | `email`: the name of the secret that holds the user, in place of `user`.",
    "channels.NAME.password_secret | text | | | `email`: the name of the secret that holds the user's password.",
    "channels.NAME.group_wait | duration | 10s | 0s to 1h | How long a message waits for more alerts of its rule.",
    "heartbeat.url | text | | | Where each host sends a request while it works. A monitor there misses it when the host does not.",
    "heartbeat.url_secret | text | | | The name of the secret that holds the address, in place of `url`.",
    "heartbeat.private | true or false | false | | Whether the address may be a private one.",
    "heartbeat.interval | duration | 1m | 10s to 1day | How often.",
    "pings[].schedule | text | | | The schedules whose runs are reported to a monitor, as Healthchecks takes it. `*` stands for any characters.",
    "pings[].url | text | | | The address: the start of a run goes to `URL/start`, a success to `URL`, a failure to `URL/fail`, each with the run's id as `rid`. `{schedule}` stands for the schedule's name.",
    "pings[].url_secret | text | | | The name of the secret that holds the address, in place of `url`.",
    "pings[].private | true or false | false | | Whether the address may be a private one.",
];

/// Returns the keys of the tables, for the reference.
#[cfg(test)]
pub(super) fn reference() -> Vec<KeyHelp> {
    KEYS.iter().copied().map(KeyHelp::read).collect()
}

/// Read the tables. `secrets` are those of the configuration, `max_bytes` is `retention.max_bytes`.
pub(super) fn read(
    top: &mut Section<'_>,
    secrets: &Secrets,
    max_bytes: Option<u64>,
) -> Result<AlertSettings, Error> {
    let mut channels = BTreeMap::new();
    for (name, section) in top.named_tables("channels")? {
        check_name(&name)
            .map_err(|what| section.error_of_table(format_args!("its name {what}")))?;
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
    let heartbeat = top.table("heartbeat")?;
    let heartbeat = heartbeat.map(|section| self::heartbeat(section, secrets));
    let pings = top.tables("pings")?.unwrap_or_default().into_iter();
    let pings = pings.map(|section| ping(section, secrets));
    Ok(AlertSettings {
        rules,
        channels,
        heartbeat: heartbeat.transpose()?,
        pings: pings.collect::<Result<_, _>>()?,
    })
}

fn heartbeat(mut section: Section<'_>, secrets: &Secrets) -> Result<Heartbeat, Error> {
    let interval = section.duration("interval", 10 * SECOND, 24 * 60 * MINUTE)?;
    let target = target(&mut section, secrets, grants_to)?;
    section.finish()?;
    Ok(Heartbeat {
        target,
        interval: interval.unwrap_or(MINUTE),
    })
}

fn ping(mut section: Section<'_>, secrets: &Secrets) -> Result<Ping, Error> {
    let schedule = section.parsed("schedule", |text: &str| text.parse::<Pattern>())?;
    let missing = "needs `schedule`, the name of a schedule, such as \"nightly\"";
    let schedule = schedule.ok_or_else(|| section.error_of_table(missing))?;
    let checked = |url: &str, private| grants_to(&url.replace(SCHEDULE_PLACEHOLDER, "x"), private);
    let target = target(&mut section, secrets, checked)?;
    let is_several = schedule.to_string().contains('*');
    if let Value::Plain(url) = &target.url
        && is_several
        && !url.contains(SCHEDULE_PLACEHOLDER)
    {
        let what = format_args!(
            "would get the runs of all schedules `{schedule}` as those of one: write `{SCHEDULE_PLACEHOLDER}` where it has the name of the schedule"
        );
        return Err(section.error("url", what));
    }
    section.finish()?;
    Ok(Ping { schedule, target })
}

fn rule(
    section: &mut Section<'_>,
    channels: &BTreeMap<String, Channel>,
    max_bytes: Option<u64>,
) -> Result<Rule, Error> {
    let kind = section.parsed("kind", AlertKind::read)?;
    let missing = section.error_of_table("needs `kind`, what it watches, such as \"failed\"");
    let kind = kind.ok_or(missing)?;
    let condition = condition(section, kind, max_bytes)?;
    let name = section.text("name")?;
    let name = name.unwrap_or_else(|| kind.to_string());
    check_name(&name).map_err(|what| section.error("name", what))?;
    if name != kind.as_str() && AlertKind::WORDS.contains(&name.as_str()) {
        let what = format_args!("is `{name}`, the name of another kind: choose another name");
        return Err(section.error("name", what));
    }
    let listed = section.texts("channels")?.unwrap_or_default();
    let listed = Vec::from_iter(BTreeSet::from_iter(listed));
    if let Some(unknown) = listed.iter().find(|name| !channels.contains_key(*name)) {
        let hint = did_you_mean(unknown, channels.keys().map(String::as_str));
        let what = format_args!(
            "names the channel `{unknown}`, and there is no table [channels.{unknown}]{hint}"
        );
        return Err(section.error("channels", what));
    }
    let of_schedules = condition.is_of_schedules();
    let named = of_schedules || matches!(kind, AlertKind::HostSilent | AlertKind::PackageRejected);
    // A key that a rule does not have is refused as unknown.
    let mut pattern = |key, is_there: bool| -> Result<Option<Pattern>, Error> {
        let read = is_there.then(|| section.parsed(key, str::parse));
        Ok(read.transpose()?.flatten())
    };
    let subject = pattern("subject", named)?;
    let package = pattern("package", of_schedules)?;
    Ok(Rule {
        name,
        condition,
        subject,
        package,
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
    if share > 0.0 && share <= 1.0 {
        return Ok(share);
    }
    Err(section.error(key, "must be a number above 0 and up to 1, such as 0.9"))
}

fn channel(mut section: Section<'_>, secrets: &Secrets) -> Result<Channel, Error> {
    let template = section.word("template", ChannelTemplate::read)?;
    let group_wait = section.duration("group_wait", Duration::ZERO, 60 * MINUTE)?;
    let mut channel = Channel {
        template,
        target: match template {
            ChannelTemplate::Email => target(&mut section, secrets, grants_to_mail_server)?,
            _ => target(&mut section, secrets, grants_to)?,
        },
        signing_secrets: Vec::new(),
        headers: BTreeMap::new(),
        group_wait: group_wait.unwrap_or(GROUP_WAIT),
        mail: None,
    };
    // A key that a channel does not have is refused as unknown.
    match template {
        ChannelTemplate::Email => channel.mail = Some(mail(&mut section, secrets)?),
        _ => {
            channel.signing_secrets = signing_secrets(&mut section, secrets)?;
            channel.headers = section.text_map("headers", |_, value| {
                secrets_in(value).try_for_each(|name| known(name, secrets).map(drop))?;
                Ok(value.to_owned())
            })?;
        }
    }
    section.finish()?;
    Ok(channel)
}

fn signing_secrets(section: &mut Section<'_>, secrets: &Secrets) -> Result<Vec<String>, Error> {
    let newest = secret(section, "secret", secrets)?;
    let former = secret(section, "former_secret", secrets)?;
    if newest.is_none() && former.is_some() {
        let what = "is there without `secret`: the former secret signs only beside the one that follows it";
        return Err(section.error("former_secret", what));
    }
    Ok(newest.into_iter().chain(former).collect())
}

fn mail(section: &mut Section<'_>, secrets: &Secrets) -> Result<MailSettings, Error> {
    let from = section.required("from", "such as \"campanile@example.com\"")?;
    check_mailbox(&from).map_err(|what| section.error("from", what))?;
    let to = section.list("to", |receiver| {
        check_mailbox(receiver).map(|()| receiver.to_owned())
    })?;
    let to = to.unwrap_or_default();
    if !(1..=RECEIVERS_MAX).contains(&to.len()) {
        let what = format_args!(
            "needs `to`, 1 to {RECEIVERS_MAX} receivers, such as [\"ops@example.com\"]"
        );
        return Err(section.error_of_table(what));
    }
    let user = section.text("user")?.map(Value::Plain);
    let user_secret = secret(section, "user_secret", secrets)?.map(Value::Secret);
    let password_secret = secret(section, "password_secret", secrets)?;
    let login = match (user, user_secret, password_secret) {
        (None, None, None) => None,
        (Some(user), None, Some(password_secret)) | (None, Some(user), Some(password_secret)) => {
            Some(MailUser {
                user,
                password_secret,
            })
        }
        _ => {
            let what = "needs `password_secret` with exactly one of `user` and `user_secret`, or none of the three";
            return Err(section.error_of_table(what));
        }
    };
    Ok(MailSettings { from, to, login })
}

/// Read the URL of a channel, a heartbeat or a ping, or the secret that has the URL. `checked` returns why a URL cannot be
/// used.
fn target(
    section: &mut Section<'_>,
    secrets: &Secrets,
    checked: impl Fn(&str, bool) -> Result<Grants, String>,
) -> Result<Target, Error> {
    let private = section.boolean("private")?.unwrap_or_default();
    let url = section.text("url")?;
    let url = match (url, secret(section, "url_secret", secrets)?) {
        (Some(url), None) => {
            let checked = checked(&url, private);
            checked.map_err(|what| section.error("url", what))?;
            Value::Plain(url)
        }
        (None, Some(name)) => Value::Secret(name),
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
    secrets: &Secrets,
) -> Result<Option<String>, Error> {
    section.parsed(key, |name| known(name, secrets))
}

/// Returns the name of a secret that there is. The error is a clause.
fn known(name: &str, secrets: &Secrets) -> Result<String, String> {
    let known = secrets.contains_key(name).then(|| name.to_owned());
    known
        .ok_or_else(|| format!("names the secret `{name}`, and there is no table [secrets.{name}]"))
}

/// Refuses a name that no rule or channel may have: it can be the value of a header. The error is a clause.
fn check_name(name: &str) -> Result<(), &'static str> {
    let what = "may have 1 to 64 letters, digits, `.`, `_` or `-`, but not `.` or `..` alone";
    text::is_plain_name(name, 64).then_some(()).ok_or(what)
}

/// Returns a sentence without an end for each of the secrets `names` whose file is not there, or can be read by others, or
/// whose variable is not set. Blocks.
pub(super) fn wrong_sources(names: Vec<&str>, secrets: &Secrets) -> Vec<String> {
    let wrong = BTreeSet::from_iter(names).into_iter().filter_map(|name| {
        let what = match secrets.get(name)? {
            SecretSource::File(path) => of_file(path)?,
            SecretSource::Env {
                variable,
                value: None,
            } => {
                format!("the variable {variable} is not set; set it and start again")
            }
            SecretSource::Env { .. } | SecretSource::Command(_) => return None,
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
