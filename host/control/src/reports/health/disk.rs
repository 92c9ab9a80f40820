//! What health says about the database's disk.

use crate::reports::symptom::Symptom;

/// Free bytes needed for leaving the full-disk state, even without a configured reserve.
pub const ROOM_MIN_BYTES: u64 = 1 << 20;
/// SQLite normally merges its write-ahead log into the database at a quarter of this size. Growing beyond means something is
/// preventing that.
const WAL_BYTES_MAX: u64 = 128 << 20;

/// Pure: whether a write-ahead log is oversized.
pub fn grown_wal(bytes: u64) -> Option<Symptom> {
    (bytes > WAL_BYTES_MAX).then_some(Symptom::WalGrown { bytes })
}

/// Pure: whether a disk is running out of space. Without a reserve, hosts keep going until a write fails.
pub fn short_disk(free: u64, reserve: u64) -> Option<Symptom> {
    (free < reserve.max(ROOM_MIN_BYTES)).then_some(Symptom::DiskFull { free, reserve })
}
