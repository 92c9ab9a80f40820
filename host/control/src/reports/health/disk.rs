//! What health says about the database's disk.

use campanile_model::text::size_rounded;

/// Free bytes needed for leaving the full-disk state, even without a configured reserve.
pub const ROOM_MIN_BYTES: u64 = 1 << 20;
/// SQLite normally merges its write-ahead log into the database at a quarter of this size. Growing beyond means something is
/// preventing that.
const WAL_BYTES_MAX: u64 = 128 << 20;

/// Pure: describes an oversized write-ahead log, if it's oversized.
pub fn grown_wal(bytes: u64) -> Option<String> {
    (bytes > WAL_BYTES_MAX).then(|| {
        format!(
            "the log of the database, its file that ends in `-wal`, has grown to {}: a program reads the database in one long transaction, so that SQLite can't merge the log; end that program (`fuser -v` on the file lists those that have it open)",
            size_rounded(bytes)
        )
    })
}

/// Explains a disk running out of space. None while there's enough.
pub fn unhealthy(free: u64, reserve: u64) -> Option<String> {
    let stopped = "hosts decide and claim nothing; free some space on it";
    if free < reserve {
        return Some(format!("{}: {stopped}", short_of(free, reserve)));
    }
    // Without a reserve, hosts keep going until a write fails.
    (free < ROOM_MIN_BYTES).then(|| {
        let free = size_rounded(free);
        format!("the disk of the database is full, with {free} free: {stopped}")
    })
}

/// Says that free space is below the reserve.
pub fn short_of(free: u64, reserve: u64) -> String {
    format!(
        "the disk of the database has {} free, less than the `disk_reserve` of {}",
        size_rounded(free),
        size_rounded(reserve)
    )
}
