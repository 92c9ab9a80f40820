//! `campanile alert`: alerts, the messages about them, and silences.

use clap::Subcommand;

use super::schedule::By;
use crate::output::{self, Failure, Record, Result};
use crate::{Common, Limit, watch};
use campanile_control::admin::alert_admin::AlertDetail;
use campanile_control::orders::alerts::{EndSilence, NewSilence, ResolveAlert, TestChannel};
use campanile_control::questions::alerts::{GetAlert, ListAlertMessages, ListAlerts, ListSilences};
use campanile_model::ids::{AlertId, SilenceId};
use campanile_store::alert_messages::AlertMessageRow;
use campanile_store::alerts::{self, Silence};

#[derive(Subcommand)]
pub(crate) enum Alert {
    /// List the alerts that are not resolved, newest first
    #[command(arg = watch::arg())]
    List {
        #[command(flatten)]
        question: ListAlerts,
        #[command(flatten)]
        limit: Limit,
    },
    /// Show one alert with the messages about it
    Show {
        /// The alert's id
        id: AlertId,
    },
    /// Resolve an alert whose rule no host has any more; no channel gets a message
    Resolve {
        /// The alert's id
        id: AlertId,
        #[command(flatten)]
        by: By,
    },
    /// List the messages to channels with their deliveries, newest first
    Deliveries {
        #[command(flatten)]
        question: ListAlertMessages,
        #[command(flatten)]
        limit: Limit,
    },
    /// Let a host send a message to a channel that says that the channel works
    Test {
        /// The channel's name
        channel: String,
    },
    /// Send no message about the alerts that match, until the time is over
    Silence {
        #[command(flatten)]
        order: NewSilence,
        #[command(flatten)]
        by: By,
    },
    /// End a silence
    Unsilence {
        /// The silence's id
        id: SilenceId,
        #[command(flatten)]
        by: By,
    },
    /// List the silences that apply
    Silences,
}

const ALERT_DETAIL: &str = "id rule kind severity status subject detail since_at fired_at notified_at clear_at resolved_at flaps";

impl Record for alerts::Alert {
    const LIST: &'static str = "id status severity rule subject fired_at detail";
    const DECIDING: &'static str = "status rule subject";
}

impl Record for AlertMessageRow {
    const LIST: &'static str =
        "id channel rule kind status alerts attempts next_attempt_at answer error";
    const DECIDING: &'static str = "channel status attempts error";
}

impl Record for Silence {
    const LIST: &'static str = "id subject rule until_at created_by note";
    const DECIDING: &'static str = "subject rule until_at";
}

impl Record for AlertDetail {
    const DETAIL: &'static str = ALERT_DETAIL;

    fn print(&self) -> Result {
        output::print_detail(self)?;
        if self.messages.is_empty() {
            return Ok(());
        }
        output::print_line("")?;
        output::print_table(&self.messages)
    }
}

impl Alert {
    pub async fn run(self, common: &Common) -> Result {
        match self {
            Alert::List { question, limit } => common.print_some(question, limit.limit).await,
            Alert::Show { id } => common.print_answer(&id.to_string(), &GetAlert {}).await,
            Alert::Resolve { id, by } => {
                let order = ResolveAlert::default();
                let resolved = common.order(&id.to_string(), &order, &*by.by).await?;
                common.print_report(&resolved, &format!("resolved {id}"))
            }
            Alert::Deliveries { question, limit } => common.print_some(question, limit.limit).await,
            Alert::Test { channel } => test(common, &channel).await,
            Alert::Silence { order, by } => {
                let silences = common.order("", &order, &*by.by).await?;
                let lines = silences.iter().map(|silence| {
                    let Silence { id, until_at, .. } = silence;
                    format!("silenced until {until_at}; `campanile alert unsilence {id}` ends it")
                });
                common.print_report(&silences, &Vec::from_iter(lines).join("\n"))
            }
            Alert::Unsilence { id, by } => {
                let order = EndSilence::default();
                let silence = common.order(&id.to_string(), &order, &*by.by).await?;
                common.print_report(&silence, &format!("ended the silence {id}"))
            }
            Alert::Silences => common.print_list(&common.ask("", &ListSilences {}).await?),
        }
    }
}

async fn test(common: &Common, channel: &str) -> Result {
    if common.client()?.is_none() {
        // A host would find out only when sending.
        let config = common.config()?;
        if let Some(settings) = config.alerts.channels.get(channel) {
            let wrong = config.unreadable_secrets(settings.secrets()).await;
            if !wrong.is_empty() {
                return Err(Failure::misconfigured(wrong.join("; ")));
            }
        }
    }
    let report = common.order(channel, &TestChannel::default(), "").await?;
    let text = format!(
        "a host sends a message to `{channel}`; `campanile alert deliveries --channel {channel}` shows how that ends"
    );
    common.print_report(&report, &text)
}
