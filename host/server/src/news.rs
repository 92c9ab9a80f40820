//! What happens while clients listen.

use std::sync::Arc;

use serde::Serialize;

use campanile_control::reports::overview::cause;
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
    schedule: String,
    /// What's the same in failures with the same cause.
    cause: String,
    /// Whether the launch of the schedule before it succeeded.
    is_new: bool,
    /// When it ended.
    #[serde(skip)]
    pub ended: Option<Timestamp>,
    /// What failed and why. Its hostile characters are written out.
    text: String,
}

impl FailureNews {
    /// The news of a launch whose schedule has failed `streak` times in a row.
    pub(crate) fn new(row: &LaunchRow, streak: i64) -> FailureNews {
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
            schedule,
            cause: cause(row.message.as_deref().unwrap_or_default()),
            is_new: streak <= 1,
        }
    }
}
