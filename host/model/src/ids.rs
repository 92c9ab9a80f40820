//! Newtypes for identities: a schedule's id cannot be handed where a run's is wanted.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU16, Ordering};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::words;

macro_rules! uuid_newtype {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
        #[serde(transparent)]
        pub struct $name(#[schemars(with = "String")] pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, uuid::Error> {
                Uuid::parse_str(text).map($name)
            }
        }
    };
}

uuid_newtype! {
    /// A schedule. Stays through renames and edits.
    ScheduleId
}
uuid_newtype! {
    /// A launch: the same on every host and after every crash. See [`LaunchId::of`].
    LaunchId
}
uuid_newtype! {
    /// One attempt to carry out a launch; later runs sort after earlier ones.
    RunId
}
uuid_newtype! {
    /// A request to launch the slots of a time that is past.
    BackfillId
}
uuid_newtype! {
    /// One life of one `campanile serve` process: a restart is a new incarnation.
    HostId
}

impl ScheduleId {
    /// A new, random id.
    pub fn new() -> ScheduleId {
        ScheduleId(Uuid::new_v4())
    }
}

impl Default for ScheduleId {
    fn default() -> Self {
        ScheduleId::new()
    }
}

impl RunId {
    /// A new id, ordered by `now` and unique besides.
    pub fn new(now: Timestamp) -> RunId {
        RunId(uuid_at(now))
    }
}

impl BackfillId {
    /// A new id, ordered by `now` and unique besides.
    pub fn new(now: Timestamp) -> BackfillId {
        BackfillId(uuid_at(now))
    }
}

impl HostId {
    /// A new id, ordered by `now` and unique besides.
    pub fn new(now: Timestamp) -> HostId {
        HostId(uuid_at(now))
    }
}

/// A version 7 UUID of the instant `now`. Those that one process makes sort in the order in which it made them,
/// as long as `now` does not go back.
pub fn uuid_at(now: Timestamp) -> Uuid {
    static MADE: AtomicU16 = AtomicU16::new(0);
    let micros = u64::try_from(now.micros()).unwrap_or(0);
    // After the milliseconds come 12 bits for the microseconds, 14 that count, and 48 of chance.
    let mut rest: [u8; 10] = rand::random();
    rest[..2].copy_from_slice(&((micros % 1_000) as u16).to_be_bytes());
    rest[2..4].copy_from_slice(&MADE.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    uuid::Builder::from_unix_timestamp_millis(micros / 1_000, &rest).into_uuid()
}

words! {
    /// What asked for a launch.
    LaunchKind {
        /// The schedule's rule, in time or a little late.
        Schedule => "schedule",
        /// The schedule's rule, for a slot that was missed.
        Catchup => "catchup",
        /// A person or a program, now.
        Manual => "manual",
        /// A person, for a slot of a time that is past.
        Backfill => "backfill",
        /// A host that started, for the rule `@reboot`.
        Startup => "startup",
    }
}

impl LaunchKind {
    /// Whether the schedule's rule asked for it, in time or not: such launches are counted to `max_launches`.
    pub fn is_of_slot(self) -> bool {
        matches!(self, LaunchKind::Schedule | LaunchKind::Catchup)
    }

    /// Whether a person asked for it: it does not depend on whether the schedule is paused.
    pub fn is_by_hand(self) -> bool {
        matches!(self, LaunchKind::Manual | LaunchKind::Backfill)
    }
}

impl LaunchId {
    /// The namespace of launch ids, fixed for ever: changing it would launch past slots again.
    const NAMESPACE: Uuid = Uuid::from_u128(0x6f1d_2a8e_53b4_4c07_9e11_ca3b_a211_e001);

    /// The id of the launch of `slot` of `schedule`.
    ///
    /// A slot has one launch whether it came in time or as catch-up, so both share an identity;
    /// a manual launch of the same instant is another, and so is one at a host's start. That of a backfill
    /// has [`LaunchId::of_backfill`].
    pub fn of(schedule: ScheduleId, slot: Timestamp, kind: LaunchKind) -> LaunchId {
        let kind: u8 = match kind {
            LaunchKind::Schedule | LaunchKind::Catchup => 0,
            LaunchKind::Manual => 1,
            LaunchKind::Startup => 2,
            LaunchKind::Backfill => 3,
        };
        let name = LaunchId::name(schedule, slot, kind);
        LaunchId(Uuid::new_v5(&LaunchId::NAMESPACE, &name))
    }

    /// The id of the launch of `slot` by one backfill: the same however often that is asked for.
    pub fn of_backfill(schedule: ScheduleId, slot: Timestamp, backfill: BackfillId) -> LaunchId {
        let name = LaunchId::name(schedule, slot, 3);
        let name = [&name[..], backfill.0.as_bytes()].concat();
        LaunchId(Uuid::new_v5(&LaunchId::NAMESPACE, &name))
    }

    fn name(schedule: ScheduleId, slot: Timestamp, kind: u8) -> [u8; 25] {
        let mut name = [0u8; 25];
        name[..16].copy_from_slice(schedule.0.as_bytes());
        name[16..24].copy_from_slice(&slot.micros().to_be_bytes());
        name[24] = kind;
        name
    }
}

/// The SHA-256 of `bytes`, in lower-case hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// The SHA-256 of an artifact, in lower-case hexadecimal.
#[derive(
    Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct ArtifactDigest(String);

impl ArtifactDigest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> ArtifactDigest {
        ArtifactDigest(sha256(bytes))
    }

    /// A digest read back from the database, where only [`ArtifactDigest::of`] put it.
    pub fn from_stored(text: String) -> ArtifactDigest {
        ArtifactDigest(text)
    }

    /// The first twelve digits: enough for a person.
    pub fn short(&self) -> &str {
        &self.0[..self.0.len().min(12)]
    }

    /// All digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ArtifactDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ArtifactDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.short())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn ids_made_at_one_moment_sort_as_they_were_made() {
        let now = Timestamp::from_micros(1_800_000_000_123_456);
        let ids: Vec<RunId> = (0..200).map(|_| RunId::new(now)).collect();
        // Only where the counter begins anew, once in 16 384, does a later id sort before an earlier one.
        let ascents = ids.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!(ascents >= 198, "{ascents} of 199");
        assert!(RunId::new(now.plus(Duration::from_micros(1))) > ids[199]);
        assert_eq!(ids[0].0.get_version_num(), 7);
    }

    #[test]
    fn a_launch_has_one_identity_in_time_or_caught_up() {
        let schedule = ScheduleId(Uuid::from_u128(7));
        let slot = Timestamp::from_micros(1_800_000_000_000_000);
        let id = LaunchId::of(schedule, slot, LaunchKind::Schedule);
        assert_eq!(id, LaunchId::of(schedule, slot, LaunchKind::Catchup));
        assert_ne!(id, LaunchId::of(schedule, slot, LaunchKind::Manual));
        // The value is part of the contract with databases already written.
        assert_eq!(id.to_string(), "f14ae081-fa59-5d3c-9a6e-2833605df847");
    }

    #[test]
    fn runs_sort_in_the_order_they_were_made() {
        let earlier = RunId::new(Timestamp::from_micros(1_800_000_000_000_000));
        let later = RunId::new(Timestamp::from_micros(1_800_000_000_001_000));
        assert!(earlier < later);
    }
}
