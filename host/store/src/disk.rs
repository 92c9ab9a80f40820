//! The room on the disk of a SQLite database.

use std::io;
use std::path::Path;

use super::Db;
use super::partial::with_end;

/// Returns the bytes that may still be written to the file system of `path`, which exists. Blocks.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(path)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Measurements of a database's disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskSigns {
    /// None on Postgres, whose disk belongs to another machine, or if the file system doesn't say.
    pub free_bytes: Option<u64>,
    /// Size of SQLite's write-ahead log, the file ending in `-wal`; none on Postgres.
    pub wal_bytes: Option<u64>,
}

impl Db {
    /// Measures the database's disk.
    pub async fn disk_signs(&self) -> DiskSigns {
        let Some(path) = self.url.sqlite_path().map(Path::to_owned) else {
            return DiskSigns::default();
        };
        let wal = with_end(&path, "-wal");
        let wal = tokio::task::spawn_blocking(move || std::fs::metadata(wal).map(|it| it.len()));
        DiskSigns {
            free_bytes: self.free_bytes().await,
            wal_bytes: wal.await.ok().and_then(Result::ok),
        }
    }

    /// Returns the free bytes on the disk of the database; none on Postgres, whose disk is that of another machine, and
    /// when the file system does not say.
    pub async fn free_bytes(&self) -> Option<u64> {
        let path = self.url.sqlite_path()?.to_owned();
        let free = tokio::task::spawn_blocking(move || free_bytes(&path));
        free.await.ok()?.ok()
    }
}
