//! The schedules file: its definitions and the schedules in the database are kept equal, by name, in one transaction.
//!
//! | the file                | its schedules                                                                     |
//! |-------------------------|-----------------------------------------------------------------------------------|
//! | has valid definitions   | are added or revised; a schedule without a definition in the file is removed      |
//! | has a refused definition| are added or revised, but none is removed: the definition may be of that schedule |
//! | cannot be read          | stay as they are, which is reported                                               |
//! | is missing              | stay as they are; if there are any, that is reported                              |
//!
//! Schedules of other origins never change. Where several hosts have a file each, the last change of a file counts, or
//! the last start of a host. A second attempt at refused schedules undoes nothing that another host's file did.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use crate::ctx::{Ctx, SharedCtx};
use crate::error::Result;
use crate::packages::watch::{Mode, Watch};
use crate::service::{Next, Service, record_event};
use crate::tell::log_spans;
use campanile_control::admin::schedule_admin::{
    self, Reconciled, Refusal, ScheduleDefinition, ScheduleError,
};
use campanile_control::schedules::schedules_file::lock_and_compare;
use campanile_model::clock::Timestamp;
use campanile_model::ids::ArtifactDigest;
use campanile_model::text::printable_line;
use campanile_package::quota::check_group;
use campanile_package::schedule_reader;
use campanile_package::schedules_file::{FileChange, SchedulesFile};
use campanile_store::events::{self, EventKind};
use campanile_store::schedules;
use campanile_store::{Origin, Tx};

/// How long refused schedules wait for the next attempt: the package that they name may exist by then.
const REFUSED_PAUSE: Duration = Duration::from_secs(10);

/// The schedules file that a host follows, and what could not be applied of it.
pub struct FollowedFile {
    file: SchedulesFile,
    watch: Watch,
    left: Option<Left>,
    /// When to look at a file that has not changed.
    again_at: Option<Instant>,
}

/// What could not be applied of a file.
struct Left {
    /// The digest of the file.
    digest: ArtifactDigest,
    applied: Reconciled,
}

impl FollowedFile {
    /// Follows the file at `path`, which need not exist.
    pub fn new(path: PathBuf, mode: Mode, rescan: Duration) -> FollowedFile {
        let folder = path.parent().unwrap_or(Path::new(""));
        // One file is cheap to poll.
        let mode = match mode {
            Mode::Auto | Mode::Poll => Mode::Poll,
            Mode::Off => Mode::Off,
        };
        FollowedFile {
            watch: Watch::start(folder, mode, rescan),
            file: SchedulesFile::new(path),
            left: None,
            again_at: None,
        }
    }
}

impl Service for FollowedFile {
    const STEP: &'static str = "following the schedules file";
    const IS_INTERRUPTIBLE: bool = true;

    async fn tick(&mut self, ctx: &SharedCtx, now: Timestamp) -> Result<Next> {
        if self.again_at.is_some_and(|at| at <= Instant::now()) {
            self.again_at = None;
            self.file.forget();
        }
        follow_file(ctx, self, now).await?;
        let pause = |at: Instant| Next::After(at.saturating_duration_since(Instant::now()));
        Ok(self.again_at.map_or(Next::WhenWoken, pause))
    }

    /// Waits until the file should be looked at.
    async fn woken(&mut self, _: &Ctx) {
        self.watch.changed().await;
    }
}

/// Reads the schedules file, and makes the schedules follow what is new in it.
pub(crate) async fn follow_file(ctx: &Ctx, followed: &mut FollowedFile, now: Timestamp) -> Result {
    let Some(news) = followed.file.next_change().await else {
        return Ok(());
    };
    let done = follow_news(ctx, followed, news, now).await;
    if done.is_err() {
        // A change that could not be recorded does not wait for the file to change again.
        followed.file.forget();
    }
    done
}

async fn follow_news(
    ctx: &Ctx,
    followed: &mut FollowedFile,
    news: FileChange,
    now: Timestamp,
) -> Result {
    let shown = followed.file.path().display().to_string();
    let read = match news {
        FileChange::Text(text) => read_definitions(ctx, &shown, &text),
        FileChange::Unusable(why) => Err(why),
        FileChange::Missing => {
            if !schedules::is_any_of_file(&mut ctx.db.read().await?).await? {
                return Ok(());
            }
            let why =
                "it is not there any more; put it back, or an empty one to remove its schedules";
            Err(why.to_owned())
        }
    };
    let (wanted, digest) = match read {
        Ok(read) => read,
        Err(why) => return reject_file(ctx, &shown, &why, now).await,
    };
    let before = followed.left.as_ref().filter(|left| left.digest == digest);
    // Two hosts collide when they apply the same file.
    let applied = campanile_store::retry(ScheduleError::is_collision, || async {
        let mut tx = ctx.db.write().await?;
        let applied = apply(&mut tx, &shown, &wanted, before, now).await?;
        tx.commit().await?;
        Ok(applied)
    })
    .await?;
    // Only after the commit: after an error, the file is applied again and compared with the former result.
    let before = followed.left.take();
    if let Some(what) = applied.text() {
        tracing::info!("applied {}: {what}", printable_line(&shown));
        ctx.wake.scheduler.notify_one();
    }
    let reported = before.map_or_else(Vec::new, |left| left.applied.refusals);
    let refusals = applied.refusals.iter();
    for Refusal { schedule, error } in refusals.filter(|new| !reported.contains(new)) {
        let why = printable_line(error);
        let span = log_spans::decision(Some(schedule), None);
        span.in_scope(|| tracing::warn!("the schedules file's schedule is refused: {why}"));
    }
    if !applied.refusals.is_empty() {
        followed.again_at = Some(Instant::now() + REFUSED_PAUSE);
        followed.left = Some(Left { digest, applied });
    }
    Ok(())
}

/// Returns the definitions in the text of a file, and the digest of the text.
///
/// # Errors
/// A sentence that says why the file is rejected.
fn read_definitions(
    ctx: &Ctx,
    shown: &str,
    text: &str,
) -> Result<(Vec<ScheduleDefinition>, ArtifactDigest), String> {
    let wanted = schedule_reader::read_file(shown, text);
    let wanted = wanted.map_err(|error| format!("line {}: {}", error.line, error.message))?;
    for ScheduleDefinition { name, policies, .. } in &wanted {
        let checked = check_group(policies, &ctx.settings.groups);
        checked.map_err(|why| format!("the schedule `{name}`: {why}"))?;
    }
    Ok((wanted, ArtifactDigest::of(text.as_bytes())))
}

/// Leaves the schedules as they are, and records why.
async fn reject_file(ctx: &Ctx, shown: &str, why: &str, now: Timestamp) -> Result {
    record_event(ctx, now, EventKind::SchedulesFileRejected, shown, why).await?;
    let (shown, why) = (printable_line(shown), printable_line(why));
    tracing::warn!("rejected {shown}, its schedules stay as they were: {why}");
    Ok(())
}

/// Follows the schedules file: its schedules become those wanted, apart from those refused `before`.
async fn apply(
    tx: &mut Tx,
    shown: &str,
    wanted: &[ScheduleDefinition],
    before: Option<&Left>,
    now: Timestamp,
) -> Result<Reconciled, ScheduleError> {
    let diff = lock_and_compare(tx, wanted).await?;
    let was_left = |name: &str| before.is_none_or(|left| left.applied.different.contains(name));
    if !diff.names().all(was_left) {
        // Another host's file was applied since.
        return Ok(Reconciled::default());
    }
    let applied = schedule_admin::reconcile(tx, &diff, Origin::File, now).await?;
    let reported = before.map_or(&[][..], |left| &left.applied.refusals);
    let refusals = applied.refusals.iter();
    for new in refusals.filter(|new| !reported.contains(new)) {
        let (name, why) = (&new.schedule, &new.error);
        events::record(tx, now, EventKind::ScheduleRefused, name, why).await?;
    }
    if let Some(what) = applied.text() {
        events::record(tx, now, EventKind::SchedulesFileApplied, shown, &what).await?;
    }
    Ok(applied)
}
