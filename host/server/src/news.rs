//! What happens while clients listen.

use std::sync::Arc;

use serde::Serialize;

use campanile_control::records::launch::next_step;
use campanile_model::clock::Timestamp;
use campanile_model::ids::LaunchId;
use campanile_model::text::printable_line;
use campanile_store::LaunchStatus;
use campanile_store::events::Event;
use campanile_store::launch::LaunchRow;

/// The most characters of a failure's message.
const MESSAGE_MAX: usize = 200;

/// What happened since the last read of the feed.
#[derive(Clone)]
pub(crate) enum News {
    Event(Arc<Event>),
    /// A launch failed. Its end records no event.
    Failure(Arc<FailureNews>),
}

/// A launch that failed, for the people who have a page open.
#[derive(Serialize)]
pub(crate) struct FailureNews {
    launch: LaunchId,
    /// When it ended.
    #[serde(skip)]
    pub ended: Option<Timestamp>,
    /// What failed and why. Its hostile characters are written out.
    text: String,
    /// What to do next.
    next: Option<&'static str>,
}

impl FailureNews {
    pub(crate) fn new(row: &LaunchRow) -> FailureNews {
        let schedule = printable_line(&row.schedule);
        let ended = match row.status {
            LaunchStatus::Failed => "failed".to_owned(),
            status => format!("is {status}"),
        };
        let failure = row.failure.map(|failure| failure.as_str());
        let message = row.message.as_deref().unwrap_or_default();
        let message: String = message.chars().take(MESSAGE_MAX).collect();
        let why = [row.reason.as_deref(), failure, Some(&*message)];
        let why = why.into_iter().flatten().filter(|part| !part.is_empty());
        let why = printable_line(&Vec::from_iter(why).join(": "));
        FailureNews {
            launch: row.id,
            ended: row.finished_at,
            text: format!("A launch of {schedule} {ended}: {why}"),
            next: next_step(row),
        }
    }
}
