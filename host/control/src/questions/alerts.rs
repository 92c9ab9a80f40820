//! Questions about alerts, and messages of tasks and alerts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admin::alert_admin::{self, AlertDetail, SILENCES_MAX};
use crate::admin::message_admin;
use crate::bounds::{Limit, limit};
use crate::order::{Desk, Endpoint, Scope};
use crate::orders::id;
use crate::problem::Problem;
use crate::question::{Page, Question, Read, paged, plain};
use campanile_model::ids::{AlertId, MessageId};
use campanile_model::status::MessageStatus;
use campanile_store::Tx;
use campanile_store::alert_messages::{self, AlertMessageRow};
use campanile_store::alerts::{self, Alert, Silence};
use campanile_store::outbox::{self, MessageContent, MessageRow};

/// Alerts to list.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(skip))]
#[serde(deny_unknown_fields)]
pub struct ListAlerts {
    /// List those after this one of another list
    #[cfg_attr(feature = "clap", arg(long, value_name = "ID"))]
    pub after: Option<AlertId>,
    /// Maximum number of entries, 50 unless given
    #[cfg_attr(feature = "clap", arg(skip))]
    pub limit: Option<Limit>,
    /// List resolved ones too
    #[cfg_attr(feature = "clap", arg(long))]
    #[serde(default)]
    pub all: bool,
}

impl Question for ListAlerts {
    type Answer = Vec<Alert>;

    const ENDPOINT: Endpoint = Endpoint::get(
        "list_alerts",
        "/api/v1/alerts",
        Scope::Installation,
        "List the alerts that are not resolved, newest first",
    );

    async fn ask(&self, _: &str, _: &Desk<'_>, tx: &mut Tx) -> Result<Page<Self::Answer>, Problem> {
        let limit = limit(self.limit);
        let rows = if self.all {
            alerts::list(tx, self.after, limit).await?
        } else {
            alerts::list_unresolved(tx, self.after, limit).await?
        };
        Ok(Page::of(rows, limit, |row| row.id.to_string()))
    }
}

plain! {
    /// Show an alert.
    GetAlert;
    /// List the silences that apply.
    ListSilences;
    /// Show an outbox message.
    GetMessage;
}

impl Question for GetAlert {
    type Answer = AlertDetail;

    const ENDPOINT: Endpoint = Endpoint::get(
        "get_alert",
        "/api/v1/alerts/{id}",
        Scope::Installation,
        "Show one alert with the messages about it",
    )
    .cost(1);

    async fn ask(&self, of: &str, _: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        Ok(alert_admin::find(tx, id(of)?).await?.into())
    }
}

impl Question for ListSilences {
    type Answer = Vec<Silence>;

    const ENDPOINT: Endpoint = Endpoint::get(
        "list_silences",
        "/api/v1/silences",
        Scope::Installation,
        "List the silences that apply",
    )
    .cost(1);

    async fn ask(&self, _: &str, desk: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        Ok(alerts::silences(tx, desk.now, SILENCES_MAX).await?.into())
    }
}

/// Messages to channels to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(skip))]
#[serde(deny_unknown_fields)]
pub struct ListAlertMessages {
    /// List only those to this channel
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME"))]
    pub channel: Option<String>,
    /// List those after this one of another list
    #[cfg_attr(feature = "clap", arg(long, value_name = "ID"))]
    pub after: Option<MessageId>,
    /// Maximum number of entries, 50 unless given
    #[cfg_attr(feature = "clap", arg(skip))]
    pub limit: Option<Limit>,
}

impl Question for ListAlertMessages {
    type Answer = Vec<AlertMessageRow>;

    const ENDPOINT: Endpoint = Endpoint::get(
        "list_alert_messages",
        "/api/v1/alert-messages",
        Scope::Installation,
        "List the messages to channels with their deliveries, newest first",
    );

    async fn ask(&self, _: &str, _: &Desk<'_>, tx: &mut Tx) -> Result<Page<Self::Answer>, Problem> {
        let (channel, limit) = (self.channel.as_deref(), limit(self.limit));
        let rows = alert_messages::list(tx, self.after, channel, limit).await?;
        Ok(Page::of(rows, limit, |row| row.id.to_string()))
    }
}

/// Messages of tasks to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(skip))]
#[serde(deny_unknown_fields)]
pub struct ListMessages {
    /// List only those with this status: pending, delivered, dead or discarded
    #[cfg_attr(feature = "clap", arg(long, value_name = "STATUS", value_parser = MessageStatus::read))]
    pub status: Option<MessageStatus>,
    /// List only those of this package
    #[cfg_attr(feature = "clap", arg(long, value_name = "PACKAGE"))]
    pub package: Option<String>,
    /// List those after this one of another list
    #[cfg_attr(feature = "clap", arg(long, value_name = "ID"))]
    pub after: Option<MessageId>,
    /// Maximum number of entries, 50 unless given
    #[cfg_attr(feature = "clap", arg(skip))]
    pub limit: Option<Limit>,
}

impl Question for ListMessages {
    type Answer = Vec<MessageRow>;

    const ENDPOINT: Endpoint = Endpoint::get(
        "list_messages",
        "/api/v1/outbox",
        Scope::Chosen,
        "List the messages that tasks have sent, those of the newest launches first",
    );

    async fn ask(&self, _: &str, desk: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        let package = desk.given_in_namespace("package", self.package.as_deref())?;
        let limit = limit(self.limit);
        let rows = outbox::list(tx, self.after, self.status, package, limit).await?;
        Ok(Page::of(rows, limit, |row| row.id.to_string()))
    }
}

impl Question for GetMessage {
    type Answer = MessageContent;

    const ENDPOINT: Endpoint = Endpoint::get(
        "get_message",
        "/api/v1/outbox/{id}",
        Scope::Message,
        "Show one message with its content",
    )
    .cost(1);

    async fn ask(&self, of: &str, _: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        Ok(message_admin::find(tx, id(of)?).await?.into())
    }
}

paged!(ListAlerts ListAlertMessages ListMessages);
