//! `campanile outbox`: the messages that tasks have sent, and their deliveries.

use clap::Subcommand;

use super::schedule::By;
use crate::output::{self, Record, Result, optional};
use crate::{Common, Limit, watch};
use campanile_control::orders::messages::{DiscardMessage, RetryMessage};
use campanile_control::questions::alerts::{GetMessage, ListMessages};
use campanile_model::ids::MessageId;
use campanile_model::text::printable;
use campanile_store::outbox::{MessageContent, MessageRow};

#[derive(Subcommand)]
pub(crate) enum Outbox {
    /// List the messages, those of the newest launches first
    #[command(arg = watch::arg())]
    List {
        #[command(flatten)]
        question: ListMessages,
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
    const DECIDING: &'static str = "status package url error";
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
            Outbox::List { question, limit } => common.print_some(question, limit.limit).await,
            Outbox::Show { id } => common.print_answer(&id.to_string(), &GetMessage {}).await,
            Outbox::Retry { id, by } => {
                let order = RetryMessage::default();
                let message = common.order(&id.to_string(), &order, &*by.by).await?;
                let until = message.give_up_at;
                let text = format!("a host delivers {id} again, and tries until {until}");
                common.print_report(&message, &text)
            }
            Outbox::Discard { id, by } => {
                let order = DiscardMessage::default();
                let message = common.order(&id.to_string(), &order, &*by.by).await?;
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
