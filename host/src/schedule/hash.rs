//! Values chosen by hash: what `H` in a field stands for.
//!
//! The value of a field is SHA-256 of [`DOMAIN`], the 16 bytes of the key and the field's name,
//! of which the first 8 bytes, read as a big-endian number, are divided by the number of choices;
//! the remainder counts from the smallest choice. So it is the same after every restart and on
//! every host, and spreads evenly over schedules. It must never change: schedules would move.

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::ids::ScheduleId;

/// Sets these hashes apart from all others of the same id.
const DOMAIN: &[u8] = b"campanile/schedule/hashed-field/1";

/// What the hashed values of a rule depend on, besides the field: the identity of its schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashKey(Uuid);

impl HashKey {
    /// The key of an expression that belongs to no schedule.
    pub const NONE: HashKey = HashKey(Uuid::nil());

    /// The key of a schedule, which stays through renames and edits.
    pub fn of(schedule: ScheduleId) -> HashKey {
        HashKey(schedule.0)
    }

    /// A number for `field`, from all of `u64`.
    pub(super) fn number(self, field: &str) -> u64 {
        let digest = Sha256::new()
            .chain_update(DOMAIN)
            .chain_update(self.0.as_bytes())
            .chain_update(field)
            .finalize();
        digest
            .iter()
            .take(size_of::<u64>())
            .fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}
