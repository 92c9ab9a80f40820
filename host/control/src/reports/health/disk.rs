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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_short_below_its_reserve_or_when_full() {
        for (free, reserve, is_short) in [
            (100 << 20, 100 << 20, false),
            ((100 << 20) - 1, 100 << 20, true),
            (ROOM_MIN_BYTES, 0, false),
            (ROOM_MIN_BYTES - 1, 0, true),
        ] {
            let found = short_disk(free, reserve);
            assert_eq!(found.is_some(), is_short, "{free} {reserve}");
        }
        assert_eq!(grown_wal(WAL_BYTES_MAX), None);
        assert!(grown_wal(WAL_BYTES_MAX + 1).is_some());
    }
}
