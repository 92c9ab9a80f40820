//! Ids as newtypes, so that the compiler refuses a schedule's id for a run's.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU16, Ordering};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::words;

/// Declare an id; `ordered` ids are made from the present instant.
macro_rules! uuid_newtype {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
        #[cfg_attr(feature = "sqlx", derive(sqlx::Type), sqlx(transparent))]
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
    ($(#[$doc:meta])* $name:ident, ordered) => {
        uuid_newtype! { $(#[$doc])* $name }

        impl $name {
            /// Return a new id. Ids sort by `now`.
            pub fn new(now: Timestamp) -> $name {
                $name(uuid_at(now))
            }
        }
    };
}

uuid_newtype! {
    /// A schedule. Renames and edits keep the id.
    ScheduleId
}
uuid_newtype! {
    /// A launch. The id is the same on every host and after every crash; see [`LaunchId::of`].
    LaunchId
}
uuid_newtype! {
    /// A run: one execution of a launch. Later runs sort after earlier runs.
    RunId, ordered
}
uuid_newtype! {
    /// A backfill: a request to launch past slots.
    BackfillId, ordered
}
uuid_newtype! {
    /// One process of `campanile serve`. A restart has a new id.
    HostId, ordered
}

impl ScheduleId {
    /// Return a new random id.
    pub fn new() -> ScheduleId {
        ScheduleId(Uuid::new_v4())
    }
}

impl Default for ScheduleId {
    fn default() -> Self {
        ScheduleId::new()
    }
}

/// Return a version 7 UUID of `now`.
///
/// The UUIDs of one process sort in the order in which it makes them, unless `now` goes back.
pub fn uuid_at(now: Timestamp) -> Uuid {
    static MADE: AtomicU16 = AtomicU16::new(0);
    let micros = u64::try_from(now.micros()).unwrap_or(0);
    // After the milliseconds: 12 bits of microseconds, 14 bits of a counter, 48 random bits.
    let mut rest: [u8; 10] = rand::random();
    rest[..2].copy_from_slice(&((micros % 1_000) as u16).to_be_bytes());
    rest[2..4].copy_from_slice(&MADE.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    uuid::Builder::from_unix_timestamp_millis(micros / 1_000, &rest).into_uuid()
}

words! {
    /// The cause of a launch.
    LaunchKind {
        /// A slot of the rule, on time or late within the grace.
        Schedule => "schedule",
        /// A slot of the rule that was missed.
        Catchup => "catchup",
        /// An operator or a program.
        Manual => "manual",
        /// A backfill, for a past slot.
        Backfill => "backfill",
        /// The start of a host, for the rule `@reboot`.
        Startup => "startup",
    }
}

impl LaunchKind {
    /// Whether the launch is of a slot of the rule. `max_launches` counts these launches.
    pub fn is_of_slot(self) -> bool {
        matches!(self, LaunchKind::Schedule | LaunchKind::Catchup)
    }

    /// Whether an operator asked for the launch. A paused schedule does not hold it back.
    pub fn is_by_hand(self) -> bool {
        matches!(self, LaunchKind::Manual | LaunchKind::Backfill)
    }
}

impl LaunchId {
    /// The namespace of launch ids. It must never change: past slots would be launched again.
    const NAMESPACE: Uuid = Uuid::from_u128(0x6f1d_2a8e_53b4_4c07_9e11_ca3b_a211_e001);

    /// Return the id of the launch of `slot` of `schedule`.
    ///
    /// A launch on time and a caught-up launch of one slot have the same id. A manual launch and a launch at
    /// a host's start at the same instant have other ids. [`LaunchId::of_backfill`] is for backfills.
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

    /// Return the id of the launch of `slot` by a backfill; a repeated request has the same id.
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

/// Return the SHA-256 of `bytes` in lower-case hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// The SHA-256 of a package's bytes, in lower-case hexadecimal.
#[derive(
    Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[cfg_attr(feature = "sqlx", derive(sqlx::Type), sqlx(transparent))]
#[serde(transparent)]
pub struct ArtifactDigest(String);

impl ArtifactDigest {
    /// Return the digest of `bytes`.
    pub fn of(bytes: &[u8]) -> ArtifactDigest {
        ArtifactDigest(sha256(bytes))
    }

    /// Return the first twelve digits, for messages.
    pub fn short(&self) -> &str {
        &self.0[..self.0.len().min(12)]
    }

    /// Return all digits.
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
    fn ids_of_one_instant_sort_in_the_order_of_creation() {
        let now = Timestamp::from_micros(1_800_000_000_123_456);
        let ids: Vec<RunId> = (0..200).map(|_| RunId::new(now)).collect();
        // When the counter restarts, once in 16,384 ids, a later id sorts before an earlier id.
        let ascents = ids.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!(ascents >= 198, "{ascents} of 199");
        assert!(RunId::new(now.plus(Duration::from_micros(1))) > ids[199]);
        assert_eq!(ids[0].0.get_version_num(), 7);
    }

    #[test]
    fn a_launch_has_one_id_on_time_or_caught_up() {
        let schedule = ScheduleId(Uuid::from_u128(7));
        let slot = Timestamp::from_micros(1_800_000_000_000_000);
        let id = LaunchId::of(schedule, slot, LaunchKind::Schedule);
        assert_eq!(id, LaunchId::of(schedule, slot, LaunchKind::Catchup));
        assert_ne!(id, LaunchId::of(schedule, slot, LaunchKind::Manual));
        // Existing databases depend on this value.
        assert_eq!(id.to_string(), "f14ae081-fa59-5d3c-9a6e-2833605df847");
    }

    #[test]
    fn runs_sort_in_the_order_of_creation() {
        let earlier = RunId::new(Timestamp::from_micros(1_800_000_000_000_000));
        let later = RunId::new(Timestamp::from_micros(1_800_000_000_001_000));
        assert!(earlier < later);
    }
}
