//! The commit of a call: record that it succeeded, and let what it held back take effect, in one transaction.
//!
//! ```text
//! lock the buckets ─▶ recorded before? ─▶ compare, write, add messages ─▶ lock the run, record the call ─▶ commit
//! ```
//!
//! The lock on the run is the last, because the lease keeper's renewal waits while it is held. A commit whose answer was
//! lost is repeated. The repetition waits for the locks of the first, and then sees whether the call is recorded.

use crate::crash;
use crate::error::Result;
use crate::run::buckets::{BucketFault, LockedBuckets};
use crate::tell::outbox;
use campanile_model::clock::Timestamp;
use campanile_model::ids::RunId;
use campanile_package::quota::Namespaces;
use campanile_sandbox::Uncommitted;
use campanile_store::task_runs::{self, TaskRun};
use campanile_store::{Db, Tx, launch};

/// How the commit of a call ended.
#[derive(Debug, PartialEq, Eq)]
pub enum CallCommit {
    Done,
    /// The run belongs to another host. Nothing was recorded.
    Lost,
    /// What the call held back cannot take effect. Nothing was recorded. The text is a sentence.
    Refused(String),
}

/// A call that has succeeded, before that is recorded.
#[derive(Debug, Clone, Copy)]
pub struct SucceededCall<'c> {
    pub run: RunId,
    /// The fence of the run's claim.
    pub fence: i64,
    pub package: &'c str,
    pub call: &'c TaskRun,
    pub uncommitted: &'c Uncommitted,
    /// Until when its messages are delivered.
    pub give_up_at: Timestamp,
    /// What the packages of each namespace may use together.
    pub namespaces: &'c Namespaces,
}

/// Record that a call has succeeded, and let what it held back take effect.
///
/// # Errors
/// When the database fails. The commit may have happened, and can be repeated.
pub async fn commit(db: &Db, succeeded: SucceededCall<'_>) -> Result<CallCommit> {
    let SucceededCall {
        run,
        fence,
        call,
        uncommitted,
        namespaces,
        ..
    } = succeeded;
    let mut tx = db.write().await?;
    let buckets = LockedBuckets::lock(&mut tx, &uncommitted.sessions).await?;
    if task_runs::is_recorded(&mut tx, run.launch(), &call.task, call.attempt).await? {
        return Ok(CallCommit::Done);
    }
    match buckets.apply(&mut tx, namespaces).await {
        Ok(()) => {}
        Err(BucketFault::Refused(refusal)) => return Ok(CallCommit::Refused(refusal.to_string())),
        Err(BucketFault::Db(error)) => return Err(error.into()),
    }
    record_messages(&mut tx, succeeded).await?;
    if !launch::record_tasks(&mut tx, run, fence, std::slice::from_ref(call)).await? {
        return Ok(CallCommit::Lost);
    }
    crash::point("before_call_commit");
    tx.commit().await?;
    crash::point("after_call_commit");
    Ok(CallCommit::Done)
}

async fn record_messages(tx: &mut Tx, succeeded: SucceededCall<'_>) -> Result {
    let SucceededCall {
        package,
        call,
        uncommitted,
        give_up_at,
        ..
    } = succeeded;
    let of_call = (package, call.task.as_str());
    let times = (call.finished_at, give_up_at);
    outbox::record(
        tx,
        of_call,
        succeeded.run.launch(),
        &uncommitted.messages,
        times,
    )
    .await
}
