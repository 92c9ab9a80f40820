//! Functions changing files, apart from `open-at` and streams. Each counts as an effect, respects quotas, and lets no link lead out of a
//! granted directory.

use wasmtime::StoreContextMut;
use wasmtime::component::LinkerInstance;
use wasmtime_wasi::filesystem::WasiFilesystemView as _;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    ErrorCode, Filesize, HostDescriptor as _, NewTimestamp, PathFlags,
};

use crate::capability::files::link_changes::LinkChanges;
use crate::capability::files::quota::{
    Admitted, admit_entry, admit_growth, admit_link, admit_move,
};
use crate::capability::files::quota_stream::size_after;
use crate::capability::files::slashes::{Wants, check, following};
use crate::capability::files::state::{Fd, HasFiles, file_behind};
use crate::capability::files::threads::thread_for;
use crate::capability::shared::as_wasi;
use crate::grants::AccessMode;

/// Waits for the quota's verdict on operations needing one.
macro_rules! admitted {
    () => {
        Ok(None)
    };
    ($admission:expr) => {
        $admission.await
    };
}

/// Runs the operation, replacing wasmtime's function if one is given.
macro_rules! operation {
    ($state:ident.$method:ident($first_fd:ident $(, $argument:ident)*)) => {
        $state.filesystem().$method($first_fd $(, $argument)*).await
    };
    ($changes:ident => $operation:expr, $state:ident.$method:ident($first_fd:ident $(, $argument:ident)*)) => {{
        let view = $state.files();
        let $changes = LinkChanges {
            granted: view.files.granted(),
            package: view.files.shared.call.package.clone(),
            directory: file_behind(view.table.get(&$first_fd)?),
            files: $state.filesystem(),
        };
        $operation.await
    }};
}

/// Wraps one function of `descriptor`, reporting its effect first.
///
/// * `first` rewrites an argument.
/// * `in` names each directory along with a path changed in it, recording paths not granted for writing.
/// * `keep` charges the bytes of an argument to the call.
/// * `admit` asks a quota.
/// * `check` may refuse a path.
/// * `by` runs instead of wasmtime's function.
macro_rules! report {
    (
        $functions:ident, $method:ident, $function:literal, ($first_fd:ident: Fd $(, $argument:ident: $type:ty)*),
        $(first $name:ident = $value:expr,)? $(in $directory:ident: $path:ident,)*
        $(keep $bytes:expr,)?
        $(admit |$view:ident| $admission:expr,)?
        $(check |$checked:ident| $check:expr,)? $(by |$changes:ident| $operation:expr,)?
        |$files:ident| $description:expr
    ) => {
        $functions.func_wrap_async(
            concat!("[method]descriptor.", $function),
            move |mut store: StoreContextMut<'_, T>, ($first_fd, $($argument,)*): (Fd, $($type,)*)| {
                Box::new(async move {
                    $(
                        let shared = &store.data_mut().files().files.shared;
                        let _kept = match shared.kept.keep_for_now($bytes) {
                            Ok(kept) => kept,
                            Err(why) => {
                                shared.exceed(why);
                                return Ok((Err(ErrorCode::InsufficientMemory),));
                            }
                        };
                    )?
                    let thread = thread_for(&mut store, &$first_fd).await?;
                    thread.during(async {
                    let state = store.data_mut();
                    $(let $name = $value;)?
                    $(state.files().note_denied(&$directory, &$path, AccessMode::Write)?;)*
                    $(
                        let mut $checked = state.filesystem();
                        if let Err(error) = $check.await {
                            return Ok((as_wasi(Err(error))?,));
                        }
                    )?
                    let admitted: Admitted = admitted!($({ let $view = state.files(); $admission })?);
                    let admitted = match admitted {
                        Ok(admitted) => admitted,
                        Err(code) => return Ok((Err(code),)),
                    };
                    let $files = state.files().files;
                    let effects = &$files.shared.effects;
                    let mut effect = effects.begin(|| format!("wasi:filesystem: {}", $description))?;
                    let done = operation!($($changes => $operation,)? state.$method($first_fd $(, $argument)*));
                    if let Some(admitted) = admitted {
                        admitted.end(done.is_ok()).await;
                    }
                    effect.end()?;
                    Ok((as_wasi(done)?,))
                    }).await
                })
            },
        )?;
    };
}

/// Wraps the functions changing files, apart from `open-at` and streams.
pub(super) fn report_effects<T: HasFiles>(
    functions: &mut LinkerInstance<'_, T>,
) -> wasmtime::Result<()> {
    report!(functions, set_size, "set-size", (fd: Fd, size: Filesize), admit |view| admit_growth(view.growing(&fd), move |_| size), |files| {
        format!("cut {} to {size} bytes", files.path_of(&fd))
    });
    report!(functions, set_times, "set-times", (fd: Fd, accessed: NewTimestamp, modified: NewTimestamp), |files| {
        format!("set the times of {}", files.path_of(&fd))
    });
    report!(functions, write, "write", (fd: Fd, bytes: Vec<u8>, offset: Filesize), keep bytes.len() as u64, admit |view| admit_growth(view.growing(&fd), size_after(bytes.len(), Some(offset))), |files| {
        format!("write {} bytes at {offset} to {}", bytes.len(), files.path_of(&fd))
    });
    report!(functions, create_directory_at, "create-directory-at", (fd: Fd, path: String), in fd: path, admit |view| admit_entry(view.files.quota_of(&fd), 0), |files| {
        format!("create the directory {}", files.path_in(&fd, &path))
    });
    report!(functions, unlink_file_at, "unlink-file-at", (fd: Fd, path: String), in fd: path, check |files| check(&mut files, &fd, &path, Wants::Unlink), |files| {
        format!("remove {}", files.path_in(&fd, &path))
    });
    report!(functions, remove_directory_at, "remove-directory-at", (fd: Fd, path: String), first path = without_slashes(path), in fd: path, |files| {
        format!("remove the directory {}", files.path_in(&fd, &path))
    });
    report!(functions, symlink_at, "symlink-at", (fd: Fd, target: String, path: String), in fd: path, admit |view| admit_entry(view.files.quota_of(&fd), target.len()), by |links| links.symlink(fd, target, path), |files| {
        format!("link {} to {target}", files.path_in(&fd, &path))
    });
    report!(functions, rename_at, "rename-at", (fd: Fd, old: String, new_fd: Fd, new: String), in fd: old, in new_fd: new, admit |view| admit_move(view.files.quota_of(&fd), view.files.quota_of(&new_fd)), by |links| links.rename((fd, old), (new_fd, new)), |files| {
        format!("rename {} to {}", files.path_in(&fd, &old), files.path_in(&new_fd, &new))
    });
    report!(functions, link_at, "link-at", (fd: Fd, flags: PathFlags, old: String, new_fd: Fd, new: String), in new_fd: new, admit |view| admit_link(view.files.quota_of(&fd), view.files.quota_of(&new_fd)), by |links| links.link(flags, (fd, old), (new_fd, new)), |files| {
        format!("link {} to {}", files.path_in(&new_fd, &new), files.path_in(&fd, &old))
    });
    report!(functions, set_times_at, "set-times-at", (fd: Fd, flags: PathFlags, path: String, accessed: NewTimestamp, modified: NewTimestamp), first flags = following(flags, &path), in fd: path, check |files| check(&mut files, &fd, &path, Wants::Directory), |files| {
        format!("set the times of {}", files.path_in(&fd, &path))
    });
    Ok(())
}

/// Strips trailing slashes, which only say that the path is a directory. Given one, wasmtime would try to remove `.`, which no system
/// allows. A path made only of slashes stays as it is.
fn without_slashes(path: String) -> String {
    match path.trim_end_matches('/') {
        "" => path,
        name => name.to_owned(),
    }
}
