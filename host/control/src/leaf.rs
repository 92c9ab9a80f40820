//! The leaves and hashes of the chain of seals.

use std::time::Duration;

use uuid::Uuid;

use crate::plan::PACKAGE_MISSING;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{ChainHash, LaunchId, sha256_half};
use campanile_store::events::Event;
use campanile_store::seals::{FinishedLaunch, Seal};

/// How long after their decision rows are sealed. By then, the transaction that wrote them has ended.
pub const DELAY: Duration = Duration::from_secs(60);
/// A clock that shows so much before the end of the last seal was set back. The rows of the last seal are older than that.
const SET_BACK: Duration = Duration::from_secs(20);
/// Seals look back so far for rows that were decided since the clock was set back. Rows that are sealed already are left out.
const LATE_MARGIN: Duration = Duration::from_secs(600);
/// A row of slots that had no package is extended for an hour, and settled after this time.
const EXTENDED_FOR: Duration = Duration::from_secs(2 * 3_600);
/// The bytes of one leaf: an id, and half a SHA-256.
const LEAF_BYTES: usize = 32;

/// A sealed row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaf {
    pub id: Uuid,
    pub hash: [u8; 16],
}

impl Leaf {
    pub fn of_launch(launch: &FinishedLaunch) -> Leaf {
        Leaf {
            id: launch.id.0,
            hash: sha256_half(launch.canonical().as_bytes()),
        }
    }

    pub fn of_event(event: &Event) -> Leaf {
        // The keys are texts, so this cannot fail.
        let text = serde_json::to_string(event).unwrap_or_default();
        Leaf {
            id: event.id.0,
            hash: sha256_half(text.as_bytes()),
        }
    }

    /// Read leaves as a seal holds them. None if their bytes were cut.
    pub fn read_all(bytes: &[u8]) -> Option<Vec<Leaf>> {
        let leaves = bytes.chunks(LEAF_BYTES).map(|bytes| {
            let (id, hash) = bytes.split_first_chunk::<16>()?;
            Some(Leaf {
                id: Uuid::from_bytes(*id),
                hash: hash.try_into().ok()?,
            })
        });
        leaves.collect()
    }

    /// Write leaves as a seal holds them.
    pub fn write_all(leaves: &[Leaf]) -> Vec<u8> {
        let parts = leaves
            .iter()
            .flat_map(|leaf| [*leaf.id.as_bytes(), leaf.hash]);
        parts.flatten().collect()
    }
}

/// Read the ids of launches that were not finished when a seal was made.
pub fn read_ids(bytes: &[u8]) -> Vec<LaunchId> {
    let ids = bytes.as_chunks::<16>().0.iter();
    ids.map(|id| LaunchId(Uuid::from_bytes(*id))).collect()
}

/// Return the hash of a seal, by that of the one before.
pub fn hash_of(before: Option<&ChainHash>, seal: &Seal) -> ChainHash {
    let Seal {
        number,
        until_at,
        launches,
        events,
        leaves_hash,
        ..
    } = seal;
    let mut text = format!("{number} {until_at} {launches} {events} {leaves_hash}");
    if let Some(late_at) = seal.late_at {
        text += &format!(" {late_at}");
    }
    ChainHash::after(before, &text)
}

/// Whether a launch does not change any more, unless retention removes it.
pub fn is_settled(launch: &FinishedLaunch, now: Timestamp) -> bool {
    let is_extended = launch.reason.as_deref() == Some(PACKAGE_MISSING)
        && now.since(launch.decided_at) < EXTENDED_FOR;
    launch.finished_at.is_some() && !is_extended
}

/// Pure: return from when on a seal looks for rows whose times are before the end of the last seal; none while the clock goes
/// on as usual.
///
/// ```text
/// 11:00 ──── seals ────▶ 12:00   the clock is set back to 11:30
///             11:30 ── late ──▶ 12:00 ── seals ──▶
/// ```
pub fn late_from(last: &Seal, now: Timestamp) -> Option<Timestamp> {
    let until = now.minus(DELAY);
    match last.late_at {
        // The clock was not set back again.
        Some(late_at) if until >= late_at => Some(late_at),
        Some(_) => Some(until.minus(LATE_MARGIN)),
        None if now.minus(SET_BACK) < last.until_at => Some(until.minus(LATE_MARGIN)),
        None => None,
    }
}
