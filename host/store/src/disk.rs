//! The room on the disk of a SQLite database.

use std::io;
use std::path::Path;

use super::Db;

/// Return the bytes that may still be written to the file system of `path`, which exists. Blocks.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(path)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

impl Db {
    /// Return the free bytes on the disk of the database; none on Postgres, whose disk is that of another machine, and
    /// when the file system does not say.
    pub async fn free_bytes(&self) -> Option<u64> {
        let path = self.url.sqlite_path()?.to_owned();
        let free = tokio::task::spawn_blocking(move || free_bytes(&path));
        free.await.ok()?.ok()
    }
}
