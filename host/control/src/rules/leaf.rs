//! Leaves and hashes making up the chain of seals.

use std::collections::HashSet;
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

/// Which launches are sealed. Only those may be removed: their rollup has counted them.
#[derive(Debug)]
pub struct SealedLaunches {
    until: Timestamp,
    unfinished: HashSet<LaunchId>,
}

impl SealedLaunches {
    /// The launches sealed at `now`, or before it: none without a seal.
    pub fn new(last: Option<&Seal>, now: Timestamp) -> SealedLaunches {
        let Some(last) = last else {
            return SealedLaunches {
                until: Timestamp::FIRST,
                unfinished: HashSet::new(),
            };
        };
        let late_from = late_from(last, now);
        SealedLaunches {
            until: late_from.map_or(last.until_at, |from| from.min(last.until_at)),
            unfinished: read_ids(&last.unfinished).into_iter().collect(),
        }
    }

    pub fn have(&self, launch: LaunchId, decided_at: Timestamp) -> bool {
        decided_at < self.until && !self.unfinished.contains(&launch)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH.plus(Duration::from_secs(seconds))
    }

    #[test]
    fn a_launch_counts_as_sealed_only_before_the_end_of_the_last_seal() {
        let id = LaunchId(Uuid::from_u128(7));
        let mut seal = Seal {
            number: 1,
            until_at: at(10_000),
            late_at: None,
            sealed_at: at(10_060),
            launches: 0,
            events: 0,
            leaves: None,
            leaves_hash: ChainHash::of(&[]),
            unfinished: Vec::new(),
            hash: ChainHash::of(&[]),
        };
        let have = |seal: &Seal, decided, now| {
            SealedLaunches::new(Some(seal), at(now)).have(id, at(decided))
        };
        assert!(have(&seal, 9_999, 10_070));
        assert!(!have(&seal, 10_000, 10_070));
        assert!(!SealedLaunches::new(None, at(10_070)).have(id, at(1)));
        // The clock was set back by an hour: what was decided since isn't sealed, though its time is before the end.
        assert!(!have(&seal, 6_400, 6_460));
        seal.late_at = Some(at(6_500));
        assert!(have(&seal, 6_400, 6_600));
        assert!(!have(&seal, 6_500, 6_600));
        seal.unfinished = id.0.as_bytes().to_vec();
        assert!(!have(&seal, 6_400, 6_600));
    }
}
