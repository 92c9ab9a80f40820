//! The quota of a granted directory, for one call.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use campanile_model::text::size_text;
use rustix::io::Errno;
use tokio::sync::OwnedRwLockReadGuard;
use wasmtime_wasi::p2::bindings::filesystem::types::ErrorCode;
use wasmtime_wasi::runtime::spawn_blocking;

use crate::capability::files::directory_usage::DirectoryUsage;
use crate::capability::files::measure::{Amount, blocks};
use crate::capability::shared::Shared;
use crate::grants::{DirectoryGrant, DirectoryQuota};
use crate::limits::DirectoryShare;

/// The first growth in a call needs no walk if another call has measured the directory within this time.
const FRESH: Duration = Duration::from_secs(1);

/// The quota of a granted directory, for one call.
pub(crate) struct Quota {
    shared: Arc<Shared>,
    /// The path under which the guest sees the directory.
    guest: String,
    limits: DirectoryQuota,
    usage: Arc<DirectoryUsage>,
    /// Whether this call has asked for a measurement.
    has_measured: AtomicBool,
}

/// The quota is used up. The cause is recorded for the failure of the call.
#[derive(Debug, thiserror::Error)]
#[error("the quota of the directory is used up")]
pub(super) struct QuotaExceeded;

impl From<QuotaExceeded> for ErrorCode {
    fn from(_: QuotaExceeded) -> ErrorCode {
        ErrorCode::Quota
    }
}

/// A file that is written, and what it counted before.
type WrittenFile = (Arc<File>, u64);

/// An operation that a quota permits. What it adds is counted; [`Admission::end`] corrects that.
pub(super) struct Admission {
    usage: Arc<DirectoryUsage>,
    added: Amount,
    file: Option<WrittenFile>,
    _operation: OwnedRwLockReadGuard<()>,
}

impl Admission {
    /// The operation has ended. An operation that is dropped instead may still happen, and keeps what it added.
    pub(super) async fn end(self, has_succeeded: bool) {
        let grown = match &self.file {
            // An error may follow bytes that were written.
            Some((file, before)) => match size_of(file).await {
                Some(size) => Amount {
                    bytes: blocks(size).saturating_sub(*before),
                    files: 0,
                },
                None => self.added,
            },
            None if has_succeeded => self.added,
            None => Amount::NOTHING,
        };
        self.usage.correct(self.added, grown);
    }
}

impl Quota {
    /// Returns the quota of `grant`, which `directory` is; none when it has none. This may block for a moment.
    pub(super) fn of(
        shared: &Arc<Shared>,
        grant: &DirectoryGrant,
        directory: &Arc<File>,
    ) -> Result<Option<Arc<Quota>>, Errno> {
        if !grant.writable || !grant.quota.is_set() {
            return Ok(None);
        }
        Ok(Some(Arc::new(Quota {
            shared: Arc::clone(shared),
            guest: grant.guest.clone(),
            limits: grant.quota,
            usage: DirectoryUsage::of(directory)?,
            has_measured: AtomicBool::new(false),
        })))
    }

    /// Whether two descriptors count for the same directory, or both for none.
    ///
    /// A file that had a name in two directories could be made to grow in one through the other.
    pub(super) fn are_same(one: Option<&Arc<Quota>>, other: Option<&Arc<Quota>>) -> bool {
        let usage = |quota: Option<&Arc<Quota>>| quota.map(|quota| Arc::as_ptr(&quota.usage));
        usage(one) == usage(other)
    }

    /// Remember a file that was opened for writing: it counts until it is closed, even without a name.
    pub(super) fn remember(&self, file: &Arc<File>) {
        self.usage.remember(file);
    }

    /// Begin an operation that does not make the directory grow, but moves what is in it.
    pub(super) async fn admit_move(&self) -> Result<Admission, QuotaExceeded> {
        self.admit(|| std::future::ready((Amount::NOTHING, None)))
            .await
    }

    /// Begin an operation that adds an entry of `size` bytes, if there is room for it.
    pub(super) async fn admit_entry(&self, size: u64) -> Result<Admission, QuotaExceeded> {
        let more = Amount::entry(size);
        self.admit(|| std::future::ready((more, None))).await
    }

    /// Begin an operation after which `file` has the size that `new_size` returns for its present size, if there is room
    /// for it.
    pub(super) async fn admit_growth(
        &self,
        file: &Arc<File>,
        new_size: impl Fn(u64) -> u64 + Sync,
    ) -> Result<Admission, QuotaExceeded> {
        let new_size = &new_size;
        let growth = || async move {
            let size = size_of(file).await.unwrap_or(0);
            let before = blocks(size);
            let more = Amount {
                bytes: blocks(new_size(size)).saturating_sub(before),
                files: 0,
            };
            (more, Some((Arc::clone(file), before)))
        };
        self.admit(growth).await
    }

    /// Begin an operation that grows the directory by what `growth` returns, if there is room for it.
    async fn admit<G: Future<Output = (Amount, Option<WrittenFile>)>>(
        &self,
        growth: impl Fn() -> G,
    ) -> Result<Admission, QuotaExceeded> {
        let asked = Instant::now();
        loop {
            let operation = self.usage.begin().await;
            let (more, file) = growth().await;
            let added = match self.has_measured.load(Ordering::Relaxed) {
                _ if more == Amount::NOTHING => Some(Ok(())),
                true => Some(self.add(more)),
                false => None,
            };
            let newest = match added {
                Some(Ok(())) => {
                    return Ok(Admission {
                        usage: Arc::clone(&self.usage),
                        added: more,
                        file,
                        _operation: operation,
                    });
                }
                Some(Err(refusal)) if self.usage.is_measured_since(asked) => {
                    self.shared.exceed(format!("{} {refusal}", self.guest));
                    return Err(QuotaExceeded);
                }
                // Something may have been removed.
                Some(Err(_)) => asked,
                None => asked.checked_sub(FRESH).unwrap_or(asked),
            };
            drop(operation);
            self.usage.measure(newest).await;
            self.has_measured.store(true, Ordering::Relaxed);
        }
    }

    /// Add `more` to what the directory holds, if the quota allows the sum. An error says why not, as a clause about the
    /// directory.
    fn add(&self, more: Amount) -> Result<(), String> {
        let place = format!(
            "where the package's sidecar file has `[[grants.directories]]` with `guest = {:?}`",
            self.guest
        );
        self.usage.add(more, |sum| {
            let held = sum.minus(more);
            let exceeds = |most: &u64, more, sum| more > 0 && sum > *most;
            let bytes = self.limits.max_bytes;
            if let Some(most) = bytes.filter(|most| exceeds(most, more.bytes, sum.bytes)) {
                return Err(format!(
                    "is full: it holds {} of the {} that its quota allows, and the task wants to add {}; remove files, or raise `max_bytes` {place}",
                    size_text(held.bytes),
                    size_text(most),
                    size_text(more.bytes),
                ));
            }
            let files = self.limits.max_files;
            if let Some(most) = files.filter(|most| exceeds(most, more.files, sum.files)) {
                return Err(format!(
                    "is full: it has {} of the {most} files, directories and links that its quota allows; remove some, or raise `max_files` {place}",
                    held.files,
                ));
            }
            Ok(())
        })
    }

    /// Returns what the directory holds and may hold, if this call made it grow or tried to.
    pub(crate) fn share(&self) -> Option<DirectoryShare> {
        let has_measured = self.has_measured.load(Ordering::Relaxed);
        let used = has_measured.then(|| self.usage.used())??;
        Some(DirectoryShare {
            guest: self.guest.clone(),
            bytes: used.bytes,
            max_bytes: self.limits.max_bytes,
            files: used.files,
            max_files: self.limits.max_files,
        })
    }
}

/// Returns the size of `file`. A file system that does not answer may block one of the threads for that.
async fn size_of(file: &Arc<File>) -> Option<u64> {
    let file = Arc::clone(file);
    let size = spawn_blocking(move || file.metadata().map(|found| found.len()));
    size.await.ok()
}

/// A quota's verdict on an operation, or none if no quota applies.
pub(super) type Admitted = Result<Option<Admission>, ErrorCode>;

/// Asks the directory's quota whether an entry of `size` bytes may be added.
pub(super) async fn admit_entry(quota: Option<Arc<Quota>>, size: usize) -> Admitted {
    match quota {
        Some(quota) => Ok(Some(quota.admit_entry(size as u64).await?)),
        None => Ok(None),
    }
}

/// Asks the quota whether a file may change its size, with `new_size` computing the new size from the current one.
pub(super) async fn admit_growth(
    target: Option<(Arc<Quota>, Arc<File>)>,
    new_size: impl Fn(u64) -> u64 + Send + Sync,
) -> Admitted {
    match target {
        Some((quota, file)) => Ok(Some(quota.admit_growth(&file, new_size).await?)),
        None => Ok(None),
    }
}

/// Refuses giving a file from one quota a name in another's directory, where it could then grow. Systems with quotas do the same; programs
/// react by copying the file.
pub(super) async fn admit_move(one: Option<Arc<Quota>>, other: Option<Arc<Quota>>) -> Admitted {
    if !Quota::are_same(one.as_ref(), other.as_ref()) {
        return Err(ErrorCode::CrossDevice);
    }
    match other {
        Some(quota) => Ok(Some(quota.admit_move().await?)),
        None => Ok(None),
    }
}

/// Refuses like [`admit_move`], then asks whether another name may be added.
pub(super) async fn admit_link(one: Option<Arc<Quota>>, other: Option<Arc<Quota>>) -> Admitted {
    if Quota::are_same(one.as_ref(), other.as_ref()) {
        admit_entry(other, 0).await
    } else {
        Err(ErrorCode::CrossDevice)
    }
}
