//! The host of a native test: it returns the answers that the test has set, and keeps the task's logs and progress.

mod bucket;
mod build;

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::bucket::Fault;
use crate::outbox::{Message, Refused};
use crate::run::Level;
use crate::time::Timestamp;

pub(crate) use bucket::OpenBucket;
pub use build::FakeRun;

/// A line that a task logged to a fake run.
///
/// ```
/// use campanile_sdk::{Level, LogLine, Run};
///
/// let run = Run::fake().build();
/// run.info("copied 3 files");
/// let line = LogLine { level: Level::Info, message: "copied 3 files".to_owned() };
/// assert_eq!(run.logs(), [line]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// The severity.
    pub level: Level,
    /// The logged text.
    pub message: String,
}

/// A progress report that a task made to a fake run.
///
/// ```
/// use campanile_sdk::{Progress, Run};
///
/// let run = Run::fake().build();
/// run.progress(50, "half of the files");
/// let report = Progress { percent: Some(50), message: "half of the files".to_owned() };
/// assert_eq!(run.progress_reports(), [report]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// 0 to 100, or `None` if the task did not know.
    pub percent: Option<u8>,
    /// The short message.
    pub message: String,
}

/// A fake host: the answers that a test has set, and the calls that the task has made.
pub(crate) struct Host {
    execution_id: String,
    run_id: String,
    attempt: u32,
    is_recovery: bool,
    scheduled_for: Timestamp,
    original_scheduled_time: Timestamp,
    deadline: Option<Timestamp>,
    cancel_requested: bool,
    config: BTreeMap<String, String>,
    buckets: bucket::Buckets,
    denies_messages: bool,
    /// Messages of a call that has not ended.
    held_back: RefCell<Vec<Message>>,
    messages: RefCell<Vec<Message>>,
    logs: RefCell<Vec<LogLine>>,
    progress: RefCell<Vec<Progress>>,
}

impl Host {
    pub fn execution_id(&self) -> String {
        self.execution_id.clone()
    }

    pub fn run_id(&self) -> String {
        self.run_id.clone()
    }

    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    pub fn is_recovery(&self) -> bool {
        self.is_recovery
    }

    pub fn scheduled_for(&self) -> Timestamp {
        self.scheduled_for
    }

    pub fn original_scheduled_time(&self) -> Timestamp {
        self.original_scheduled_time
    }

    pub fn deadline(&self) -> Option<Timestamp> {
        self.deadline
    }

    pub fn cancel_requested(&self) -> bool {
        self.cancel_requested
    }

    pub fn report_progress(&self, percent: Option<u8>, message: &str) {
        self.progress.borrow_mut().push(Progress {
            percent,
            message: message.to_owned(),
        });
    }

    pub fn log(&self, level: Level, message: &str) {
        self.logs.borrow_mut().push(LogLine {
            level,
            message: message.to_owned(),
        });
    }

    pub fn config(&self, key: &str) -> Result<Option<String>, String> {
        Ok(self.config.get(key).cloned())
    }

    pub fn open_bucket(&self, name: &str) -> Result<OpenBucket, Fault> {
        self.buckets.open(name)
    }

    pub fn send(&self, message: &Message) -> Result<String, Refused> {
        if self.denies_messages {
            return Err(Refused::AccessDenied);
        }
        if !message.url().starts_with("https://") && !message.url().starts_with("http://") {
            return Err(Refused::Other(
                "the address of the message is not one such as \"https://example.com/hook\""
                    .to_owned(),
            ));
        }
        let mut held_back = self.held_back.borrow_mut();
        held_back.push(message.clone());
        Ok(format!("{}-{}", self.execution_id, held_back.len()))
    }

    pub fn open_session_bucket(&self, name: &str) -> Result<OpenBucket, Fault> {
        self.buckets.open_in_session(name)
    }

    // End a call of a task. After a success its session writes and its messages are kept; otherwise they are dropped.
    pub fn end_call(&self, succeeded: bool) {
        self.buckets.end_session(succeeded);
        let sent = self.held_back.take();
        if succeeded {
            self.messages.borrow_mut().extend(sent);
        }
    }
}
