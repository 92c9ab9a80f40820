//! Leaves and hashes making up the chain of seals.

use std::time::Duration;

use uuid::Uuid;

use crate::rules::plan::PACKAGE_MISSING;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{ChainHash, LaunchId, sha256_half};
use campanile_store::events::Event;
use campanile_store::launch::FinishedLaunch;
use campanile_store::seals::Seal;

/// Delay between deciding and sealing a row, long enough for the writing transaction to have finished.
pub const DELAY: Duration = Duration::from_secs(60);
/// A clock trailing the end of the last seal by this much was set back.
const SET_BACK: Duration = Duration::from_secs(20);
/// How far sealing looks back for rows decided after setting the clock back. Rows sealed before are left out.
const LATE_MARGIN: Duration = Duration::from_secs(600);
/// Rows covering slots without a package keep growing for an hour, so they're considered settled after this long.
const EXTENDED_FOR: Duration = Duration::from_secs(2 * 3_600);
/// Size of a leaf: an id followed by half a SHA-256.
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
        // Can't fail, all keys being strings.
        let text = serde_json::to_string(event).unwrap_or_default();
        Leaf {
            id: event.id.0,
            hash: sha256_half(text.as_bytes()),
        }
    }

    /// Decodes the leaves stored in a seal, returning none for truncated bytes.
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

    /// Encodes leaves for storing in a seal.
    pub fn write_all(leaves: &[Leaf]) -> Vec<u8> {
        let parts = leaves
            .iter()
            .flat_map(|leaf| [*leaf.id.as_bytes(), leaf.hash]);
        parts.flatten().collect()
    }
}

/// Decodes the ids of launches still unfinished at sealing.
pub fn read_ids(bytes: &[u8]) -> Vec<LaunchId> {
    let ids = bytes.as_chunks::<16>().0.iter();
    ids.map(|id| LaunchId(Uuid::from_bytes(*id))).collect()
}

/// Hashes a seal, chaining it to the one before.
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

/// Whether nothing but retention will touch a launch again.
pub fn is_settled(launch: &FinishedLaunch, now: Timestamp) -> bool {
    let is_extended = launch.reason.as_deref() == Some(PACKAGE_MISSING)
        && now.since(launch.decided_at) < EXTENDED_FOR;
    launch.finished_at.is_some() && !is_extended
}

/// Pure: returns where to start looking for rows predating the end of the last seal, or none unless the clock was set back.
///
/// ```text
/// 11:00 ──── seals ────▶ 12:00   the clock is set back to 11:30
///             11:30 ── late ──▶ 12:00 ── seals ──▶
/// ```
pub fn late_from(last: &Seal, now: Timestamp) -> Option<Timestamp> {
    let until = now.minus(DELAY);
    match last.late_at {
        // Not set back again since.
        Some(late_at) if until >= late_at => Some(late_at),
        Some(_) => Some(until.minus(LATE_MARGIN)),
        None if now.minus(SET_BACK) < last.until_at => Some(until.minus(LATE_MARGIN)),
        None => None,
    }
}
