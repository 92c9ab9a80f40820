//! `campanile outbox`: the messages that tasks have sent, and their deliveries.

use clap::Subcommand;

use super::schedule::By;
use crate::output::{self, Record, Result, optional};
use crate::{Common, Limit, watch};
use campanile_control::message_admin;
use campanile_control::orders::Nothing;
use campanile_control::orders::messages::DiscardMessage;
use campanile_model::ids::MessageId;
use campanile_model::status::MessageStatus;
use campanile_model::text::printable;
use campanile_store::outbox::{self, MessageContent, MessageRow};

#[derive(Subcommand)]
pub(crate) enum Outbox {
    /// List the messages, those of the newest launches first
    #[command(arg = watch::arg())]
    List {
        /// List only those with this status: pending, delivered, dead or discarded
        #[arg(long, value_name = "STATUS", value_parser = MessageStatus::read)]
        status: Option<MessageStatus>,
        /// List only those of this package
        #[arg(long, value_name = "PACKAGE")]
        package: Option<String>,
        /// List those after this one of another list
        #[arg(long, value_name = "ID")]
        after: Option<MessageId>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Show one message with its content
    Show {
        /// The message's id
        id: MessageId,
    },
    /// Deliver a message again, from now on and for the configured time; also one that was given up or discarded
    Retry {
        /// The message's id
        id: MessageId,
        #[command(flatten)]
        by: By,
    },
    /// Never deliver a message again; it stays on record
    Discard {
        /// The message's id
        id: MessageId,
        #[command(flatten)]
        by: By,
    },
}

const MESSAGE_DETAIL: &str = "id status package task launch_id number method url attempts created_at next_attempt_at \
    give_up_at finished_at answer error";

impl Record for MessageRow {
    const LIST: &'static str = "id status package method url attempts next_attempt_at answer error";
    const DETAIL: &'static str = MESSAGE_DETAIL;
}

impl Record for MessageContent {
    const DETAIL: &'static str = MESSAGE_DETAIL;

    fn print(&self) -> Result {
        output::print_detail(self)?;
        let headers: Vec<(String, String)> =
            serde_json::from_str(&self.headers).unwrap_or_default();
        output::print_line("")?;
        for (name, value) in headers {
            output::print_line(&printable(&format!("{name}: {value}")))?;
        }
        output::print_line("")?;
        output::print_line(&printable(&String::from_utf8_lossy(&self.body)))
    }
}

impl Outbox {
    pub async fn run(self, common: &Common) -> Result {
        match self {
            Outbox::List {
                status,
                package,
                after,
                limit,
            } => {
                let rows = match common.client()? {
                    Some(client) => {
                        let call = client.get(&["outbox"]).query("after", after);
                        let call = call.query("status", status).query("package", package);
                        call.page(limit.limit).await?.0
                    }
                    None => {
                        let mut tx = common.read().await?;
                        let package = package.as_deref();
                        outbox::list(&mut tx, after, status, package, limit.limit).await?
                    }
                };
                common.print_page(&rows, limit.limit, |row: &MessageRow| row.id)
            }
            Outbox::Show { id } => {
                if let Some(client) = common.client()? {
                    let call = client.get(&["outbox", &id.to_string()]);
                    return common.print(&call.send::<MessageContent>().await?);
                }
                let mut tx = common.read().await?;
                common.print(&message_admin::find(&mut tx, id).await?)
            }
            Outbox::Retry { id, by } => {
                let message = match common.client()? {
                    Some(client) => {
                        let path = ["outbox", &id.to_string(), "retry"];
                        client.post(&path, &Nothing {})?.send().await?
                    }
                    None => {
                        let give_up_after = common.config()?.outbox.give_up_after;
                        let retry = async |tx: &mut _, now| {
                            message_admin::retry(tx, id, give_up_after, &by.by, now).await
                        };
                        common.change(retry).await?.row
                    }
                };
                let until = message.give_up_at;
                let text = format!("a host delivers {id} again, and tries until {until}");
                common.print_report(&message, &text)
            }
            Outbox::Discard { id, by } => {
                let order = DiscardMessage::default();
                let message = common.order(&id.to_string(), &order, &by.by).await?;
                let last = optional(&message.error);
                let text = match message.error {
                    Some(_) => format!("discarded {id}; its last delivery failed: {last}"),
                    None => format!("discarded {id}"),
                };
                common.print_report(&message, &text)
            }
        }
    }
}
