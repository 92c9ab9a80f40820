//! The rules for alerts and the channels, as the configuration sets them.
//!
//! Each is serialized with the keys and values of its table there.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Serialize, Serializer};

use campanile_model::status::{AlertKind, Severity};
use campanile_model::text::{did_you_mean, duration_text};
use campanile_model::{as_text, words};

/// Subject of alerts concerning the record itself.
pub const RECORD: &str = "record";
/// The most launches in a row that a rule `failed` counts. A rule looks at this many of the newest slots at most.
pub const FAILURES_MAX: u32 = 50;
/// The least time after which a launch counts as too long by its usual duration.
pub const USUAL_LEAST: Duration = Duration::from_secs(60);
/// So many times its usual duration a launch may take.
pub const USUAL_TIMES: u32 = 3;

/// The rules, the channels and the heartbeat of a host.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct AlertSettings {
    #[serde(rename = "alerts", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
    /// The channels by their names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub channels: BTreeMap<String, Channel>,
    pub heartbeat: Option<Heartbeat>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pings: Vec<Ping>,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rule {
    #[serde(flatten)]
    pub condition: Condition,
    pub name: String,
    /// Only subjects whose name matches: schedules, or for some kinds hosts or packages.
    pub subject: Option<Pattern>,
    /// Only schedules of a package whose name matches.
    pub package: Option<Pattern>,
    pub severity: Severity,
    /// The names of the channels that get the messages.
    pub channels: Vec<String>,
    /// How long the condition must hold before the alert fires.
    #[serde(rename = "for", serialize_with = "duration")]
    pub pending_for: Duration,
    /// How long the condition must not hold before the alert is resolved.
    #[serde(serialize_with = "duration")]
    pub resolve_after: Duration,
}

/// What a rule watches, with its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Condition {
    /// The last `after` launches failed; with `within`, so many failed in this time, not necessarily in a row.
    Failed {
        after: u32,
        #[serde(serialize_with = "duration")]
        within: Option<Duration>,
    },
    LateStart {
        #[serde(serialize_with = "duration")]
        by: Duration,
    },
    /// Without `than`, longer than three times the usual duration.
    TooLong {
        #[serde(serialize_with = "duration")]
        than: Option<Duration>,
    },
    TooShort {
        #[serde(serialize_with = "duration")]
        than: Duration,
    },
    NoSuccessFor {
        #[serde(serialize_with = "duration")]
        than: Duration,
    },
    ExpectWithin,
    Abandoned,
    Unknown,
    HostSilent,
    /// A share from 0 to 1.
    RecoveryRate {
        below: f64,
        #[serde(serialize_with = "duration")]
        within: Duration,
    },
    /// A share of the greatest size, from 0 to 1.
    RecordFull {
        above: f64,
    },
    PackageRejected,
}

impl Condition {
    /// Returns the kind.
    pub fn kind(&self) -> AlertKind {
        match self {
            Condition::Failed { .. } => AlertKind::Failed,
            Condition::LateStart { .. } => AlertKind::LateStart,
            Condition::TooLong { .. } => AlertKind::TooLong,
            Condition::TooShort { .. } => AlertKind::TooShort,
            Condition::NoSuccessFor { .. } => AlertKind::NoSuccessFor,
            Condition::ExpectWithin => AlertKind::ExpectWithin,
            Condition::Abandoned => AlertKind::Abandoned,
            Condition::Unknown => AlertKind::Unknown,
            Condition::HostSilent => AlertKind::HostSilent,
            Condition::RecoveryRate { .. } => AlertKind::RecoveryRate,
            Condition::RecordFull { .. } => AlertKind::RecordFull,
            Condition::PackageRejected => AlertKind::PackageRejected,
        }
    }

    /// Whether the rule watches schedules. Other rules watch hosts, packages or the record.
    pub fn is_of_schedules(&self) -> bool {
        !matches!(
            self,
            Condition::HostSilent
                | Condition::RecoveryRate { .. }
                | Condition::RecordFull { .. }
                | Condition::PackageRejected
        )
    }
}

impl Rule {
    /// Returns the rule for the policy `expect_within` that applies when the configuration has none. No channel gets a message.
    pub fn expect_within() -> Rule {
        Rule {
            name: AlertKind::ExpectWithin.to_string(),
            condition: Condition::ExpectWithin,
            subject: None,
            package: None,
            severity: Severity::default(),
            channels: Vec::new(),
            pending_for: Duration::ZERO,
            resolve_after: Duration::ZERO,
        }
    }

    /// Whether the rule watches this schedule of this package.
    pub fn watches(&self, schedule: &str, package: &str) -> bool {
        let is_matched = |pattern: &Option<Pattern>, name| {
            pattern.as_ref().is_none_or(|pattern| pattern.matches(name))
        };
        self.condition.is_of_schedules()
            && is_matched(&self.subject, schedule)
            && is_matched(&self.package, package)
    }
}

/// A name in which `*` stands for any characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

/// The longest pattern, in characters.
const PATTERN_CHARS_MAX: usize = 128;

as_text!(Pattern; "minLength": 1, "maxLength": PATTERN_CHARS_MAX);

impl Pattern {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `name` matches.
    pub fn matches(&self, name: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = name.strip_prefix(first) else {
            return false;
        };
        let parts: Vec<&str> = parts.collect();
        let Some((last, middle)) = parts.split_last() else {
            return rest.is_empty();
        };
        for part in middle {
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        rest.ends_with(last)
    }
}

impl FromStr for Pattern {
    type Err = String;

    /// The error is a clause.
    fn from_str(text: &str) -> Result<Pattern, String> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/*@".contains(&byte);
        if (1..=PATTERN_CHARS_MAX).contains(&text.len()) && text.bytes().all(is_plain) {
            Ok(Pattern(text.to_owned()))
        } else {
            Err(format!(
                "is {text:?}, which matches no name: use 1 to {PATTERN_CHARS_MAX} letters, digits, `.`, `_` or `-`, and `*` for any characters"
            ))
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

words! {
    /// The form of the messages of a channel.
    #[derive(Default)]
    ChannelTemplate {
        /// JSON, as the guide describes it.
        #[default]
        Webhook => "webhook",
        /// A message of Slack's incoming webhooks. Mattermost and others take it too.
        Slack => "slack",
        /// A message of ntfy.
        Ntfy => "ntfy",
        /// An e-mail.
        Email => "email",
    }
}

/// Where messages about alerts go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Channel {
    pub template: ChannelTemplate,
    #[serde(flatten)]
    pub target: Target,
    /// The name of the secret that signs messages, and of the former one during a change.
    #[serde(flatten, serialize_with = "signing_secrets")]
    pub signing_secrets: Vec<String>,
    /// Headers. `{secret:NAME}` in a value stands for a secret.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The addresses and the login of a channel that gets e-mails; none for one that gets requests.
    #[serde(flatten)]
    pub mail: Option<MailSettings>,
    /// How long messages wait for others of their rule.
    #[serde(serialize_with = "duration")]
    pub group_wait: Duration,
}

/// The sender and the recipients of the e-mails of a channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MailSettings {
    pub from: String,
    pub to: Vec<String>,
    #[serde(flatten)]
    pub login: Option<MailUser>,
}

/// How a host proves to a mail server who it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MailUser {
    #[serde(flatten, serialize_with = "user")]
    pub user: Value,
    /// The name of the secret that holds the password.
    pub password_secret: String,
}

/// An address outside of this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Target {
    #[serde(flatten)]
    pub url: Value,
    /// Whether the address may be a private one.
    pub private: bool,
}

/// A text of the configuration, or the name of the secret that holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Value {
    #[serde(rename = "url")]
    Plain(String),
    #[serde(rename = "url_secret")]
    Secret(String),
}

impl Value {
    /// Returns the name of the secret, if it is one.
    pub fn secret(&self) -> Option<&str> {
        match self {
            Value::Plain(_) => None,
            Value::Secret(name) => Some(name),
        }
    }
}

/// A ping of this host while it works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Heartbeat {
    #[serde(flatten)]
    pub target: Target,
    #[serde(serialize_with = "duration")]
    pub interval: Duration,
}

/// What the address of a [`Ping`] has in place of the name of a schedule.
pub const SCHEDULE_PLACEHOLDER: &str = "{schedule}";

/// The address of a monitor that gets a request when a run of a schedule starts, and one when the run ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ping {
    /// The schedules. With more than one, the address has [`SCHEDULE_PLACEHOLDER`].
    pub schedule: Pattern,
    #[serde(flatten)]
    pub target: Target,
}

impl Channel {
    /// Returns the names of the secrets that the channel needs, some perhaps twice.
    pub fn secrets(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.signing_secrets.iter().map(String::as_str).collect();
        names.extend(self.target.url.secret());
        names.extend(self.headers.values().flat_map(|value| secrets_in(value)));
        let login = self.mail.as_ref().and_then(|mail| mail.login.as_ref());
        if let Some(MailUser {
            user,
            password_secret,
        }) = login
        {
            names.extend(user.secret());
            names.push(password_secret);
        }
        names
    }
}

/// Returns the names in the placeholders `{secret:NAME}` of the value of a header.
pub fn secrets_in(value: &str) -> impl Iterator<Item = &str> {
    let rests = value.split("{secret:").skip(1);
    rests.map(|rest| rest.split_once('}').map_or(rest, |(name, _)| name))
}

impl AlertSettings {
    /// Returns the names of the rules, with that of the rule that applies when there is no other for `expect_within`.
    pub fn rule_names(&self) -> Vec<&str> {
        let names = self.rules.iter().map(|rule| rule.name.as_str());
        names.chain([AlertKind::ExpectWithin.as_str()]).collect()
    }

    /// Say that there is no channel `name`, and which one is alike.
    pub fn no_channel(&self, name: &str) -> String {
        let near = did_you_mean(name, self.channels.keys().map(String::as_str));
        format!("the configuration has no table [channels.{name}]{near}")
    }

    /// Returns the names of all secrets that the channels, the heartbeat and the pings need, some perhaps twice.
    pub fn secrets(&self) -> Vec<&str> {
        let heartbeat = self.heartbeat.iter().map(|heartbeat| &heartbeat.target);
        let targets = heartbeat.chain(self.pings.iter().map(|ping| &ping.target));
        let of_targets = targets.filter_map(|target| target.url.secret());
        let of_channels = self.channels.values().flat_map(Channel::secrets);
        of_channels.chain(of_targets).collect()
    }
}

fn duration<S: Serializer>(
    duration: &(impl Copy + Into<Option<Duration>>),
    serializer: S,
) -> Result<S::Ok, S::Error> {
    (*duration).into().map(duration_text).serialize(serializer)
}

fn signing_secrets<S: Serializer>(names: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(["secret", "former_secret"].into_iter().zip(names))
}

fn user<S: Serializer>(user: &Value, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map([match user {
        Value::Plain(user) => ("user", user),
        Value::Secret(name) => ("user_secret", name),
    }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_in_a_pattern_stands_for_any_characters() {
        for (pattern, name, expected) in [
            ("nightly", "nightly", true),
            ("nightly", "nightly-2", false),
            ("nightly*", "nightly-2", true),
            ("nightly*", "nightly", true),
            ("*", "", true),
            ("*-backup", "db-backup", true),
            ("*-backup", "db-backups", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("a*a", "a", false),
            ("*ab*ab", "ab-ab", true),
            ("*ab*ab", "ab", false),
        ] {
            let read: Pattern = pattern.parse().unwrap();
            assert_eq!(read.matches(name), expected, "{pattern} {name}");
        }
        for wrong in ["", "a b", "é"] {
            assert!(Pattern::from_str(wrong).is_err(), "{wrong}");
        }
    }
}
