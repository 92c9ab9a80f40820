//! Orders concerning alerts and silences.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admin::alert_admin::{self, AlertDetail, TestReport, WantedSilence};
use crate::bounds::{AnySpan, Note};
use crate::order::{Desk, Endpoint, Order, Scope};
use crate::orders::{Nothing, id};
use crate::problem::{ErrorCode, Problem};
use crate::rules::alert_rule::Pattern;
use campanile_model::access::Role;
use campanile_store::Tx;
use campanile_store::alerts::Silence;

/// Resolve an alert whose rule no host has any more.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct ResolveAlert(Nothing);

impl Order for ResolveAlert {
    type Output = AlertDetail;

    const ENDPOINT: Endpoint = Endpoint::post(
        "resolve_alert",
        "/api/v1/alerts/{id}/resolve",
        (Role::Operator, Scope::Installation),
        "Resolve an alert whose rule no host has any more",
    );

    async fn run(&self, of: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        Ok(alert_admin::resolve(tx, id(of)?, desk.by, desk.now).await?)
    }
}

/// End a silence.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct EndSilence(Nothing);

impl Order for EndSilence {
    type Output = Silence;

    const ENDPOINT: Endpoint = Endpoint::post(
        "end_silence",
        "/api/v1/silences/{id}/end",
        (Role::Operator, Scope::Installation),
        "End a silence",
    );

    async fn run(&self, of: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        Ok(alert_admin::unsilence(tx, id(of)?, desk.by, desk.now).await?)
    }
}

/// Alerts about which no channel gets a message.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(skip))]
#[serde(deny_unknown_fields)]
pub struct NewSilence {
    /// Only alerts of schedules, hosts or packages with one of these names; `*` stands for any characters
    #[cfg_attr(feature = "clap", arg(value_name = "SUBJECT"))]
    #[serde(default)]
    pub subjects: Vec<Pattern>,
    /// Only alerts of rules with this name; `*` stands for any characters
    #[cfg_attr(feature = "clap", arg(long, value_name = "RULE"))]
    pub rule: Option<Pattern>,
    /// How long, such as 2h
    #[cfg_attr(feature = "clap", arg(long = "for", value_name = "SPAN"))]
    #[serde(rename = "for")]
    pub span: AnySpan,
    /// Why, for the record
    #[cfg_attr(feature = "clap", arg(long, value_name = "TEXT"))]
    pub note: Option<Note>,
}

/// Maximum number of subjects of one request.
pub const SUBJECTS_MAX: usize = 100;

impl Order for NewSilence {
    /// One for each subject.
    type Output = Vec<Silence>;

    const ENDPOINT: Endpoint = Endpoint::post(
        "add_silence",
        "/api/v1/silences",
        (Role::Operator, Scope::Installation),
        "Send no message about the alerts that match, until the time is over",
    )
    .created();

    async fn run(&self, _: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        if self.subjects.len() > SUBJECTS_MAX {
            let message = format!("`subjects` has more than {SUBJECTS_MAX}");
            return Err(Problem::new(ErrorCode::InvalidArgument, message)
                .hint("use a pattern with `*`, or do it in parts"));
        }
        let subjects = self.subjects.iter().map(|subject| Some(subject.as_str()));
        let subjects = Vec::from_iter(subjects);
        let mut silences = Vec::with_capacity(subjects.len());
        for subject in if subjects.is_empty() {
            vec![None]
        } else {
            subjects
        } {
            let wanted = WantedSilence {
                rule: self.rule.as_ref().map(Pattern::as_str),
                subject,
                rules: &desk.settings.alerts.rule_names(),
                note: self.note.as_deref(),
                span: self.span.0,
                by: desk.by,
            };
            silences.push(alert_admin::silence(tx, wanted, desk.now).await?);
        }
        Ok(silences)
    }
}

/// Send a message saying that a channel works.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct TestChannel(Nothing);

impl Order for TestChannel {
    type Output = TestReport;

    const ENDPOINT: Endpoint = Endpoint::post(
        "test_channel",
        "/api/v1/channels/{name}/test",
        (Role::Operator, Scope::Installation),
        "Send a message to a channel that says that the channel works",
    );

    async fn run(&self, name: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        let alerts = &desk.settings.alerts;
        if !alerts.channels.contains_key(name) {
            return Err(Problem::new(ErrorCode::NotFound, alerts.no_channel(name)));
        }
        Ok(alert_admin::test(tx, name, desk.settings.give_up_after, desk.now).await?)
    }
}
