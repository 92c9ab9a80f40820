//! A slash at the end of a path, as in POSIX: it says that the path is a directory, and a link before it is followed.

use wasmtime::component::Resource;
use wasmtime_wasi::filesystem::WasiFilesystemCtxView;
use wasmtime_wasi::p2::FsResult;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorStat, DescriptorType, ErrorCode, HostDescriptor as _, PathFlags,
};

use crate::capability::files::state::Fd;

/// Returns how the links of `path` are followed.
pub(super) fn following(flags: PathFlags, path: &str) -> PathFlags {
    match path.ends_with('/') {
        true => flags | PathFlags::SYMLINK_FOLLOW,
        false => flags,
    }
}

/// Describes what is at `path`, which must be a directory if it ends with a slash.
///
/// # Errors
/// As `stat-at`.
pub(super) async fn stat_at(
    files: &mut WasiFilesystemCtxView<'_>,
    fd: &Fd,
    flags: PathFlags,
    path: &str,
) -> FsResult<DescriptorStat> {
    let fd = Resource::new_borrow(fd.rep());
    let flags = following(flags, path);
    let found = files.stat_at(fd, flags, path.to_owned()).await?;
    match path.ends_with('/') && found.type_ != DescriptorType::Directory {
        true => Err(ErrorCode::NotDirectory.into()),
        false => Ok(found),
    }
}

/// What an operation does with a path that ends with a slash.
#[derive(Clone, Copy)]
pub(super) enum Wants {
    /// The directory itself.
    Directory,
    /// To read a link, which a directory isn't.
    ReadLink,
    /// To remove the name of a file.
    Unlink,
    /// To give a directory another name, which no system does.
    Link,
    /// A new name for something that's no directory.
    NewName,
}

/// Refuses an operation on a path that ends with a slash as a POSIX system does. A path without one passes.
///
/// # Errors
/// The refusal, or why the path isn't found.
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
            // The link itself would be removed.
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
