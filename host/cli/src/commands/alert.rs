//! `campanile alert`: alerts, the messages about them, and silences.

use std::time::Duration;

use clap::Subcommand;

use super::schedule::By;
use crate::output::{self, ErrorCode, Failure, Record, Result};
use crate::{Common, Limit, watch};
use campanile_control::alert_admin::{self, AlertDetail, NewSilence, SILENCES_MAX, TestReport};
use campanile_control::orders::Nothing;
use campanile_control::orders::alerts::{EndSilence, ResolveAlert};
use campanile_model::ids::{AlertId, MessageId, SilenceId};
use campanile_model::text;
use campanile_server::bodies;
use campanile_store::alert_messages::{self, AlertMessageRow};
use campanile_store::alerts::{self, Silence};

#[derive(Subcommand)]
pub(crate) enum Alert {
    /// List the alerts that are not resolved, newest first
    #[command(arg = watch::arg())]
    List {
        /// List resolved ones too
        #[arg(long)]
        all: bool,
        /// List those after this one of another list
        #[arg(long, value_name = "ID")]
        after: Option<AlertId>,
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
        /// List only those to this channel
        #[arg(long, value_name = "NAME")]
        channel: Option<String>,
        /// List those after this one of another list
        #[arg(long, value_name = "ID")]
        after: Option<MessageId>,
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
        /// Only alerts of schedules, hosts or packages with this name; `*` stands for any characters
        #[arg(value_name = "SUBJECT")]
        subject: Option<String>,
        /// Only alerts of rules with this name; `*` stands for any characters
        #[arg(long, value_name = "RULE")]
        rule: Option<String>,
        /// How long, such as 2h
        #[arg(long = "for", value_name = "SPAN", value_parser = text::duration)]
        span: Duration,
        /// Why
        #[arg(long, value_name = "TEXT")]
        note: Option<String>,
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
}

impl Record for AlertMessageRow {
    const LIST: &'static str =
        "id channel rule kind status alerts attempts next_attempt_at answer error";
}

impl Record for Silence {
    const LIST: &'static str = "id subject rule until_at created_by note";
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
            Alert::List { all, after, limit } => {
                let rows = match common.client()? {
                    Some(client) => {
                        let call = client.get(&["alerts"]).flag("all", all);
                        call.query("after", after).page(limit.limit).await?.0
                    }
                    None => {
                        let mut tx = common.read().await?;
                        match all {
                            true => alerts::list(&mut tx, after, limit.limit).await?,
                            false => alerts::list_unresolved(&mut tx, after, limit.limit).await?,
                        }
                    }
                };
                common.print_page(&rows, limit.limit, |row: &alerts::Alert| row.id)
            }
            Alert::Show { id } => {
                if let Some(client) = common.client()? {
                    let call = client.get(&["alerts", &id.to_string()]);
                    return common.print(&call.send::<AlertDetail>().await?);
                }
                let mut tx = common.read().await?;
                common.print(&alert_admin::find(&mut tx, id).await?)
            }
            Alert::Resolve { id, by } => {
                let order = ResolveAlert::default();
                let resolved = common.order(&id.to_string(), &order, &by.by).await?;
                common.print_report(&resolved, &format!("resolved {id}"))
            }
            Alert::Deliveries {
                channel,
                after,
                limit,
            } => {
                let rows = match common.client()? {
                    Some(client) => {
                        let call = client.get(&["alert-messages"]).query("channel", channel);
                        call.query("after", after).page(limit.limit).await?.0
                    }
                    None => {
                        let mut tx = common.read().await?;
                        let channel = channel.as_deref();
                        alert_messages::list(&mut tx, after, channel, limit.limit).await?
                    }
                };
                common.print_page(&rows, limit.limit, |row: &AlertMessageRow| row.id)
            }
            Alert::Test { channel } => test(common, channel).await,
            Alert::Silence {
                subject,
                rule,
                span,
                note,
                by,
            } => {
                let silence: Silence = match common.client()? {
                    Some(client) => {
                        let span = text::duration_text(span);
                        let body = bodies::NewSilence {
                            subject,
                            rule,
                            span,
                            note,
                        };
                        client.post(&["silences"], &body)?.send().await?
                    }
                    None => {
                        let config = common.config()?;
                        let rules = config.alerts.rule_names();
                        let silence = async |tx: &mut _, now| {
                            let wanted = NewSilence {
                                rule: rule.as_deref(),
                                subject: subject.as_deref(),
                                rules: &rules,
                                note: note.as_deref(),
                                span,
                                by: &by.by,
                            };
                            alert_admin::silence(tx, wanted, now).await
                        };
                        common.change(silence).await?
                    }
                };
                let (id, until) = (silence.id, silence.until_at);
                let text =
                    format!("silenced until {until}; `campanile alert unsilence {id}` ends it");
                common.print_report(&silence, &text)
            }
            Alert::Unsilence { id, by } => {
                let order = EndSilence::default();
                let silence = common.order(&id.to_string(), &order, &by.by).await?;
                common.print_report(&silence, &format!("ended the silence {id}"))
            }
            Alert::Silences => {
                if let Some(client) = common.client()? {
                    let silences: Vec<Silence> = client.get(&["silences"]).send().await?;
                    return common.print_list(&silences);
                }
                let (mut tx, now) = common.read_with_time().await?;
                common.print_list(&alerts::silences(&mut tx, now, SILENCES_MAX).await?)
            }
        }
    }
}

async fn test(common: &Common, channel: String) -> Result {
    if let Some(client) = common.client()? {
        let path = ["channels", &channel, "test"];
        let call = client.post(&path, &Nothing {})?;
        return print_test(common, &channel, &call.send().await?);
    }
    let config = common.config()?;
    let Some(settings) = config.alerts.channels.get(&channel) else {
        let why = config.alerts.no_channel(&channel);
        return Err(Failure::refused(why).code(ErrorCode::NotFound));
    };
    let wrong = config.unreadable_secrets(settings.secrets()).await;
    if !wrong.is_empty() {
        return Err(Failure::misconfigured(wrong.join("; ")));
    }
    let give_up_after = config.outbox.give_up_after;
    let send = async |tx: &mut _, now| alert_admin::test(tx, &channel, give_up_after, now).await;
    print_test(common, &channel, &common.change(send).await?)
}

fn print_test(common: &Common, channel: &str, report: &TestReport) -> Result {
    let text = format!(
        "a host sends a message to `{channel}`; `campanile alert deliveries --channel {channel}` shows how that ends"
    );
    common.print_report(report, &text)
}
