//! Counting the files, directories and sockets that a call has open.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::capability::shared::Shared;
use crate::limits::Resource;

/// One open file. It counts until its last clone is dropped: a handle, or a stream that outlives the handle.
#[derive(Clone)]
pub(crate) struct OpenFile(
    #[expect(dead_code, reason = "dropping it is what counts")] Arc<CountedFile>,
);

struct CountedFile(Arc<Shared>);

impl Drop for CountedFile {
    fn drop(&mut self) {
        self.0.open_files.fetch_sub(1, Ordering::Relaxed);
    }
}

impl OpenFile {
    /// Whether one more file may be opened. If not, the refusal is recorded.
    pub(crate) fn may_open(shared: &Shared) -> bool {
        let most = shared.budgets.open_files.limit;
        if shared.open_files.load(Ordering::Relaxed) < most {
            return true;
        }
        shared.exceed(format!(
            "the task has {most} files and directories open, its limit; close some, or {}",
            Resource::OpenFiles.raise()
        ));
        false
    }

    /// Count one more open file.
    pub(crate) fn open(shared: &Arc<Shared>) -> OpenFile {
        let now = shared.open_files.fetch_add(1, Ordering::Relaxed) + 1;
        shared.budgets.open_files.record_peak(now);
        OpenFile(Arc::new(CountedFile(Arc::clone(shared))))
    }
}
