//! Sharing the threads for blocking file operations between packages.
//!
//! Nothing can stop an operation on a file system that isn't responding, or free the thread waiting for it. Limiting each package to part
//! of the threads leaves some for the others.

use std::fs::File;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use wasmtime::StoreContextMut;
use wasmtime::component::LinkerInstance;
use wasmtime_wasi::filesystem::WasiFilesystemView as _;
use wasmtime_wasi::p2::bindings::filesystem::types::{Advice, Filesize, HostDescriptor as _};

use crate::capability::files::directories::is_empty_root;
use crate::capability::files::state::{Fd, HasFiles, file_behind};
use crate::capability::shared::{Shared, as_wasi};
use crate::ledger::fair_shares::FairShare;

/// How often to check whether the operation of a dropped call has finished.
const LOOKED_AFTER: Duration = Duration::from_millis(100);

/// The thread of one file operation.
pub(super) struct FileThread {
    /// None once the operation has finished.
    share: Option<FairShare>,
    /// The file or directory operated on. Its thread holds a pointer too.
    file: Weak<File>,
}

impl FileThread {
    /// Waits for a thread for an operation on `file`, within the share of the call's package.
    pub(super) async fn wait(shared: &Shared, file: &Arc<File>) -> FileThread {
        let threads = &shared.ledger.file_threads;
        FileThread {
            share: threads.acquire(&shared.call.package, 1, u64::MAX).await,
            file: Arc::downgrade(file),
        }
    }

    /// Runs an operation, then frees the thread.
    ///
    /// # Errors
    ///
    /// Returns the operation's error.
    pub(super) async fn during<T>(
        self,
        operation: impl Future<Output = wasmtime::Result<T>>,
    ) -> wasmtime::Result<T> {
        let done = operation.await;
        self.end();
        done
    }

    /// Frees the thread after its operation has finished.
    pub(super) fn end(mut self) {
        self.share = None;
    }
}

/// Waits for a thread for an operation on `fd`. Anything served by the host itself needs none.
pub(super) async fn thread_for<T: HasFiles>(
    store: &mut StoreContextMut<'_, T>,
    fd: &Fd,
) -> wasmtime::Result<FileThread> {
    let view = store.data_mut().files();
    let descriptor = view.table.get(fd)?;
    if is_empty_root(descriptor) || view.files.served(fd).is_some() {
        return Ok(FileThread {
            share: None,
            file: Weak::new(),
        });
    }
    let (file, shared) = (file_behind(descriptor), Arc::clone(&view.files.shared));
    Ok(FileThread::wait(&shared, &file).await)
}

/// Makes one function of `descriptor` wait for a thread.
macro_rules! in_thread {
    ($functions:ident, $method:ident, $function:literal, ($fd:ident: Fd $(, $argument:ident: $type:ty)*)) => {
        $functions.func_wrap_async(
            concat!("[method]descriptor.", $function),
            move |mut store: StoreContextMut<'_, T>, ($fd, $($argument,)*): (Fd, $($type,)*)| {
                Box::new(async move {
                    let thread = thread_for(&mut store, &$fd).await?;
                    let operation = async {
                        let mut files = store.data_mut().filesystem();
                        Ok((as_wasi(files.$method($fd $(, $argument)*).await)?,))
                    };
                    thread.during(operation).await
                })
            },
        )?;
    };
}

/// Makes all functions without another guard wait for a thread.
pub(super) fn guard_waits<T: HasFiles>(
    functions: &mut LinkerInstance<'_, T>,
) -> wasmtime::Result<()> {
    in_thread!(functions, advise, "advise", (fd: Fd, offset: Filesize, length: Filesize, advice: Advice));
    in_thread!(functions, sync_data, "sync-data", (fd: Fd));
    in_thread!(functions, get_flags, "get-flags", (fd: Fd));
    in_thread!(functions, get_type, "get-type", (fd: Fd));
    in_thread!(functions, sync, "sync", (fd: Fd));
    in_thread!(functions, stat, "stat", (fd: Fd));
    in_thread!(functions, metadata_hash, "metadata-hash", (fd: Fd));
    functions.func_wrap_async(
        "[method]descriptor.is-same-object",
        move |mut store: StoreContextMut<'_, T>, (fd, other): (Fd, Fd)| {
            Box::new(async move {
                let thread = thread_for(&mut store, &fd).await?;
                let mut files = store.data_mut().filesystem();
                let comparing = async { Ok((files.is_same_object(fd, other).await?,)) };
                thread.during(comparing).await
            })
        },
    )
}

impl Drop for FileThread {
    /// Keeps counting the thread of a dropped call until it lets go of the file, since the operation may still be running.
    fn drop(&mut self) {
        let Some(share) = self.share.take() else {
            return;
        };
        let file = std::mem::take(&mut self.file);
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                while file.strong_count() > 0 {
                    tokio::time::sleep(LOOKED_AFTER).await;
                }
                drop(share);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use campanile_model::clock::Clock;

    use super::*;
    use crate::capability::shared::Call;
    use crate::ledger::Ledger;
    use crate::limits::Limits;

    fn shared(ledger: &Arc<Ledger>, package: &str) -> Shared {
        let now = Clock::system().now();
        let call = Call {
            package: package.to_owned(),
            ..Call::ungranted(Limits::default(), now)
        };
        Shared::new(call, Arc::clone(ledger), now)
    }

    /// Returns a thread if one can be had without waiting.
    fn now(shared: &Shared, file: &Arc<File>) -> Option<FileThread> {
        let waits = pin!(FileThread::wait(shared, file));
        match waits.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(thread) => Some(thread),
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn a_package_that_waits_for_many_files_leaves_threads_to_others() {
        let ledger = Arc::new(Ledger::new(1 << 30, 1_000, 1_000));
        let file = Arc::new(tempfile::tempfile().unwrap());
        let (hog, honest) = (shared(&ledger, "hog"), shared(&ledger, "honest"));
        let mut held = Vec::from_iter(std::iter::from_fn(|| now(&hog, &file)));
        assert_eq!(held.len(), 12);
        {
            let mut waits = pin!(FileThread::wait(&hog, &file));
            let mut poll = || waits.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(poll().is_pending());
            FileThread::wait(&honest, &file).await.end();
            held.pop().unwrap().end();
            assert!(poll().is_ready());
        }
        held.drain(..).for_each(FileThread::end);
        assert_eq!(ledger.file_threads.held("honest"), 0);
    }

    #[tokio::test]
    async fn an_operation_of_a_dropped_call_counts_until_its_thread_ends() {
        let ledger = Arc::new(Ledger::new(1 << 30, 1_000, 1_000));
        let file = Arc::new(tempfile::tempfile().unwrap());
        let of_thread = Arc::clone(&file);
        drop(now(&shared(&ledger, "a"), &file).unwrap());
        drop(file);
        tokio::time::sleep(2 * LOOKED_AFTER).await;
        assert_eq!(ledger.file_threads.held("a"), 1);
        drop(of_thread);
        while ledger.file_threads.held("a") > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
