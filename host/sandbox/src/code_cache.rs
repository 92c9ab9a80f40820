//! The directory of compiled code. It holds native code that this process executes, so no other user may write it.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::own_files::{NotPrivate, private_directory, temporary_directory, untrusted};

/// Where a sandbox keeps compiled code.
#[derive(Clone, Debug, PartialEq)]
pub enum CodeCache {
    None,
    /// In a new directory, which is deleted with the sandbox.
    Temporary,
    /// In this directory, made private (0700). Where others could have written it, a temporary one is used instead.
    Directory(PathBuf),
}

/// An open directory of compiled code.
pub(crate) struct CacheDir {
    path: PathBuf,
    /// Deletes the directory when the sandbox is dropped, if it is a temporary one.
    _temporary: Option<TempDir>,
}

impl CacheDir {
    pub(crate) fn open(cache: &CodeCache) -> Result<Option<CacheDir>, String> {
        match cache {
            CodeCache::None => Ok(None),
            CodeCache::Temporary => CacheDir::temporary().map(Some),
            CodeCache::Directory(dir) => CacheDir::private(dir).map(Some),
        }
    }

    /// Returns the path without links.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Open `dir`, which is created if it is missing, for this user only.
    ///
    /// Another user may have put code into a directory that this user does not own or that others can write. A temporary
    /// one is opened in its place, and `dir` is left as it is.
    fn private(dir: &Path) -> Result<CacheDir, String> {
        let shown = dir.display();
        match private_directory(dir) {
            Ok(path) => Ok(CacheDir {
                path,
                _temporary: None,
            }),
            Err(NotPrivate::Foreign(why)) => {
                tracing::warn!(
                    "others could have put compiled code into {shown}, so it is not used, and packages are compiled again at each start ({why}); delete that directory, or name another as `cache_dir` under `[sandbox]`"
                );
                CacheDir::temporary()
            }
            Err(NotPrivate::Failed(error)) => Err(format!(
                "the directory {shown} for compiled code cannot be made private: {error}; choose another directory"
            )),
        }
    }

    fn temporary() -> Result<CacheDir, String> {
        let failed = |why: String| {
            format!(
                "there is no private directory for compiled code: {why}; name one that only this user can write as `cache_dir` under `[sandbox]`, or as the variable TMPDIR"
            )
        };
        let made = temporary_directory();
        let made = made.and_then(|made| Ok((made.path().canonicalize()?, made)));
        let (path, made) = made.map_err(|error| failed(error.to_string()))?;
        match untrusted(&path) {
            Some(why) => Err(failed(why)),
            None => Ok(CacheDir {
                path,
                _temporary: Some(made),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, chown};

    use rustix::process::geteuid;

    use super::*;

    /// Returns the directory used when the settings name `dir`.
    fn open(dir: &Path) -> CacheDir {
        let opened = CacheDir::open(&CodeCache::Directory(dir.to_owned()));
        opened.unwrap().unwrap()
    }

    fn chmod(dir: &Path, mode: u32) {
        fs::set_permissions(dir, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn mode(dir: &Path) -> u32 {
        fs::metadata(dir).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_directory_is_closed_to_others() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("deep/cache");
        fs::create_dir_all(&dir).unwrap();
        chmod(&dir, 0o755);
        open(&dir);
        assert_eq!(mode(&dir), 0o700);
    }

    #[test]
    fn a_directory_that_others_can_write_or_replace_is_not_used() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let cache = root.join("shared/cache");
        fs::create_dir_all(&cache).unwrap();
        for (shared_mode, cache_mode, is_used) in [
            (0o755, 0o755, true),
            (0o1777, 0o755, true),
            (0o777, 0o700, false),
            (0o755, 0o777, false),
            (0o755, 0o1777, false),
        ] {
            chmod(&root.join("shared"), shared_mode);
            chmod(&cache, cache_mode);
            let used = open(&cache).path == cache;
            assert_eq!(used, is_used, "{shared_mode:o} {cache_mode:o}");
            assert!(is_used || mode(&cache) == cache_mode);
        }
    }

    #[test]
    fn a_directory_of_another_user_is_not_used() {
        if !geteuid().is_root() {
            // Only the administrator can give a directory away.
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let cache = root.path().canonicalize().unwrap().join("cache");
        fs::create_dir(&cache).unwrap();
        chown(&cache, Some(4242), None).unwrap();
        assert_ne!(open(&cache).path, cache);
        assert!(fs::read_dir(&cache).unwrap().next().is_none());
    }

    #[test]
    fn a_temporary_directory_is_private_and_is_deleted_after_use() {
        let root = tempfile::tempdir().unwrap();
        let shared = root.path().join("cache");
        fs::create_dir(&shared).unwrap();
        chmod(&shared, 0o777);
        let temporary = CacheDir::open(&CodeCache::Temporary).unwrap().unwrap();
        for cache in [open(&shared), temporary] {
            let path = cache.path.clone();
            assert_eq!(mode(&path), 0o700);
            drop(cache);
            assert!(!path.exists());
        }
    }
}
