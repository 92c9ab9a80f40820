//! Trailing slashes as in POSIX: the path must be a directory, and a link before the slash is followed.

use wasmtime::component::Resource;
use wasmtime_wasi::filesystem::WasiFilesystemCtxView;
use wasmtime_wasi::p2::FsResult;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorStat, DescriptorType, ErrorCode, HostDescriptor as _, PathFlags,
};

use crate::capability::files::state::Fd;

/// Returns `flags`, following a final link if `path` ends in a slash.
pub(super) fn following(flags: PathFlags, path: &str) -> PathFlags {
    if path.ends_with('/') {
        flags | PathFlags::SYMLINK_FOLLOW
    } else {
        flags
    }
}

/// Like `stat-at`, but a path ending in a slash must be a directory.
///
/// # Errors
/// As for `stat-at`.
pub(super) async fn stat_at(
    files: &mut WasiFilesystemCtxView<'_>,
    fd: &Fd,
    flags: PathFlags,
    path: &str,
) -> FsResult<DescriptorStat> {
    let fd = Resource::new_borrow(fd.rep());
    let flags = following(flags, path);
    let found = files.stat_at(fd, flags, path.to_owned()).await?;
    if path.ends_with('/') && found.type_ != DescriptorType::Directory {
        Err(ErrorCode::NotDirectory.into())
    } else {
        Ok(found)
    }
}

/// What an operation wants from a path ending in a slash.
#[derive(Clone, Copy)]
pub(super) enum Wants {
    /// The directory itself.
    Directory,
    /// Reading a link. With the slash it's a directory, so there's none to read.
    ReadLink,
    /// Removing a file's name.
    Unlink,
    /// Giving a directory a second name, which no system allows.
    Link,
    /// A new name for something other than a directory.
    NewName,
}

/// Refuses an operation on a path ending in a slash just as POSIX systems do. Other paths pass.
///
/// # Errors
/// Returns the refusal, or why the path couldn't be resolved.
pub(super) async fn check(
    files: &mut WasiFilesystemCtxView<'_>,
    fd: &Fd,
    path: &str,
    wants: Wants,
) -> FsResult<()> {
    let name = path.trim_end_matches('/');
    if name.len() == path.len() || name.is_empty() {
        return Ok(());
    }
    let refusal = match wants {
        Wants::Unlink => {
            // Look at the link itself, as unlinking would remove it.
            let fd = Resource::new_borrow(fd.rep());
            let found = files
                .stat_at(fd, PathFlags::empty(), name.to_owned())
                .await?;
            match found.type_ {
                DescriptorType::Directory => ErrorCode::IsDirectory,
                _ => ErrorCode::NotDirectory,
            }
        }
        Wants::NewName => {
            let fd = Resource::new_borrow(fd.rep());
            match files.stat_at(fd, PathFlags::empty(), name.to_owned()).await {
                Ok(_) => ErrorCode::Exist,
                Err(_) => ErrorCode::NoEntry,
            }
        }
        Wants::Directory | Wants::ReadLink | Wants::Link => {
            stat_at(files, fd, PathFlags::empty(), path).await?;
            match wants {
                Wants::ReadLink => ErrorCode::Invalid,
                Wants::Link => ErrorCode::NotPermitted,
                _ => return Ok(()),
            }
        }
    };
    Err(refusal.into())
}
