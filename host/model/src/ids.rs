//! Ids as newtypes, so that the compiler refuses a schedule's id for a run's.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU16, Ordering};

use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::words;

/// A text that is no id.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no id: give all of it, as the list with `--json` shows it")]
pub struct InvalidId(String);

/// Declare ids.
macro_rules! uuid_newtypes {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, schemars::JsonSchema)]
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
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let id = Uuid::parse_str(text).map($name);
                id.map_err(|_| InvalidId(text.to_owned()))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        impl $name {
            /// An id before that of any other.
            pub const FIRST: $name = $name(Uuid::nil());
            /// An id after that of any other.
            pub const LAST: $name = $name(Uuid::max());
        }
    )*};
}

uuid_newtypes! {
    /// A schedule. Renames and edits keep the id.
    ScheduleId,
    /// A launch. The id is the same on every host and after every crash; see [`LaunchId::of`].
    LaunchId,
    /// A run: one execution of a launch. The id is that of the launch with the number of the run in its last byte.
    RunId,
    /// A backfill: a request to launch past slots.
    BackfillId,
    /// One process of `campanile serve`. A restart has a new id.
    HostId,
    /// A message of the outbox, and its idempotency key; see [`MessageId::of`].
    MessageId,
    /// An event.
    EventId,
    /// An alert: one incident of a rule.
    AlertId,
    /// A silence of alerts.
    SilenceId,
}

/// Let new ids be made from the present instant.
macro_rules! ordered_ids {
    ($($name:ident),*) => {$(
        impl $name {
            /// Returns a new id. Ids sort by `now`.
            pub fn new(now: Timestamp) -> $name {
                $name(uuid_at(now))
            }
        }
    )*};
}

ordered_ids!(BackfillId, HostId, EventId, AlertId, SilenceId);

impl ScheduleId {
    /// Returns a new id.
    pub fn random() -> ScheduleId {
        ScheduleId(Uuid::new_v4())
    }
}

impl MessageId {
    /// Returns the id of the message with this number among those of a call of `task`.
    ///
    /// It is the same for each call of the task for `launch`. Ids sort by the launch's time, as those of launches do.
    pub fn of(launch: LaunchId, task: &str, number: u64) -> MessageId {
        let name = format!("{launch}/{number}/{task}");
        let mut bytes = Uuid::new_v5(&LaunchId::NAMESPACE, name.as_bytes()).into_bytes();
        bytes[..5].copy_from_slice(&launch.0.as_bytes()[..5]);
        MessageId(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }

    /// Returns a new id of a message about alerts. Ids sort by `now`.
    pub fn of_alerts(now: Timestamp) -> MessageId {
        MessageId(uuid_at(now))
    }

    /// Returns the id that sorts directly after this one.
    pub fn next(self) -> MessageId {
        MessageId(Uuid::from_u128(self.0.as_u128().saturating_add(1)))
    }
}

impl EventId {
    /// Returns an id before those of events from `time` on, and after those of earlier milliseconds.
    pub fn first_at(time: Timestamp) -> EventId {
        let millis = u64::try_from(time.micros() / 1_000).unwrap_or(0);
        EventId(Uuid::from_u128(u128::from(millis) << 80))
    }

    /// Returns when the event was recorded, in whole milliseconds.
    pub fn time(self) -> Timestamp {
        let millis = (self.0.as_u128() >> 80) as i64;
        Timestamp::from_micros(millis.saturating_mul(1_000))
    }
}

/// Returns a version 7 UUID of `now`.
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

    /// Returns the id of the launch of `slot` of `schedule`.
    ///
    /// A launch on time and a caught-up launch of one slot have the same id. A manual launch and a launch at
    /// a host's start at the same instant have other ids. [`LaunchId::of_backfill`] is for backfills.
    ///
    /// The id is a UUID of version 8: 40 bits of time in units of 256 ms, 74 bits of a hash of the schedule, the slot and
    /// the kind, and a last byte of 0, where [`RunId`] has the number of the run. Launches of one time have neighbouring
    /// ids, so a database writes them to the same pages of an index.
    pub fn of(schedule: ScheduleId, slot: Timestamp, kind: LaunchKind) -> LaunchId {
        let kind: u8 = match kind {
            LaunchKind::Schedule | LaunchKind::Catchup => 0,
            LaunchKind::Manual => 1,
            LaunchKind::Startup => 2,
            LaunchKind::Backfill => 3,
        };
        LaunchId::from_parts(time_bytes(slot), &LaunchId::name(schedule, slot, kind))
    }

    /// Returns the id of the launch of `slot` by a backfill; a repeated request has the same id.
    ///
    /// Its time is that of the request: the launches of a backfill are neighbours, whatever their slots.
    pub fn of_backfill(schedule: ScheduleId, slot: Timestamp, backfill: BackfillId) -> LaunchId {
        let name = LaunchId::name(schedule, slot, 3);
        let name = [&name[..], backfill.0.as_bytes()].concat();
        // The id of a backfill begins with its time in milliseconds, 48 bits.
        let [a, b, c, d, e, ..] = *backfill.0.as_bytes();
        LaunchId::from_parts([a, b, c, d, e], &name)
    }

    /// Returns the id of a launch that runs `original` again, as an operator asked at `now`.
    ///
    /// Its time is that of the request.
    pub fn of_retry(original: LaunchId, now: Timestamp) -> LaunchId {
        let name = [&original.0.as_bytes()[..], &now.micros().to_be_bytes()].concat();
        LaunchId::from_parts(time_bytes(now), &name)
    }

    /// Returns the beginning of the id, for lists. [`ShortId`] reads it.
    pub fn short(self) -> String {
        let mut text = self.to_string();
        text.truncate(SHORT_LEN);
        text
    }

    /// Returns about when the slot of the launch was, up to 256 ms too early. For a backfill, when it was requested.
    pub fn slot(self) -> Timestamp {
        let mut millis = [0; 8];
        millis[2..7].copy_from_slice(&self.0.as_bytes()[..5]);
        let millis = i64::from_be_bytes(millis);
        Timestamp::from_micros(millis.saturating_mul(1_000))
    }

    /// Returns an id that no launch has: ids of launches of slots before `time` are smaller, all others are greater.
    ///
    /// An id holds its time in units of 256 ms, so launches up to 255 ms before `time` count as later ones.
    pub fn first_at(time: Timestamp) -> LaunchId {
        let mut bytes = [0; 16];
        bytes[..5].copy_from_slice(&time_bytes(time));
        LaunchId(Uuid::from_bytes(bytes))
    }

    fn from_parts(time: [u8; 5], name: &[u8]) -> LaunchId {
        let mut bytes = Uuid::new_v5(&LaunchId::NAMESPACE, name).into_bytes();
        bytes[..5].copy_from_slice(&time);
        bytes[RUN_BYTE] = 0;
        LaunchId(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }

    fn name(schedule: ScheduleId, slot: Timestamp, kind: u8) -> Vec<u8> {
        let slot = slot.micros().to_be_bytes();
        [&schedule.0.as_bytes()[..], &slot, &[kind]].concat()
    }
}

/// Returns the milliseconds of `time` without the last 8 of their 48 bits: the beginning of a launch's id.
fn time_bytes(time: Timestamp) -> [u8; 5] {
    let millis = u64::try_from(time.micros() / 1_000).unwrap_or(0);
    let [_, _, bytes @ .., _] = millis.to_be_bytes();
    bytes
}

/// The characters of an id that lists show: 40 bits of time, and 20 bits of a hash.
const SHORT_LEN: usize = "01a1fd88-9872-8d5c".len();

/// The byte of a launch's id that is 0, and of a run's id that is its number.
const RUN_BYTE: usize = 15;

impl RunId {
    /// The most runs of a launch.
    pub const NUMBER_MAX: i64 = u8::MAX as i64;

    /// Returns the id of the run of `launch` with this number, from 1 to [`RunId::NUMBER_MAX`].
    pub fn of(launch: LaunchId, number: i64) -> RunId {
        let mut bytes = launch.0.into_bytes();
        bytes[RUN_BYTE] = u8::try_from(number).unwrap_or(u8::MAX);
        RunId(Uuid::from_bytes(bytes))
    }

    /// Returns the launch of this run.
    pub fn launch(self) -> LaunchId {
        let mut bytes = self.0.into_bytes();
        bytes[RUN_BYTE] = 0;
        LaunchId(Uuid::from_bytes(bytes))
    }

    /// Returns the number of this run among those of its launch; the first is 1.
    pub fn number(self) -> i64 {
        self.0.into_bytes()[RUN_BYTE].into()
    }

    /// Returns the beginning of its launch's id, and its number, for lists: `01a1fd88-9872-8d5c.1`. [`ShortId`] reads it.
    pub fn short(self) -> String {
        format!("{}.{}", self.launch().short(), self.number())
    }
}

/// The fewest digits of a short id.
const SHORT_DIGITS_MIN: usize = 4;
/// The digits of a UUID.
const DIGITS: usize = 32;

/// The id of a launch or of a run as a person gives it: whole, or its first digits. A run's number may follow a dot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShortId {
    /// Ids of launches that begin with the digits are from here to `last`.
    pub first: LaunchId,
    pub last: LaunchId,
    /// The number of the run, if one is given.
    pub number: Option<i64>,
    text: String,
}

crate::as_text!(ShortId);

/// A text that is no id of a launch or a run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no id of a launch or a run: give all of it, or its first digits (at least {SHORT_DIGITS_MIN}), such as 01a1fd88-9872-8d5c"
)]
pub struct InvalidShortId(String);

impl ShortId {
    /// Returns the only launch that it can mean; none when digits are missing.
    pub fn whole(&self) -> Option<LaunchId> {
        (self.first == self.last).then_some(self.first)
    }
}

impl fmt::Display for ShortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for ShortId {
    type Err = InvalidShortId;

    fn from_str(text: &str) -> Result<ShortId, InvalidShortId> {
        let invalid = || InvalidShortId(text.to_owned());
        let (id, number) = match text.split_once('.') {
            None => (text, None),
            Some((id, number)) => {
                let number = number.parse::<u8>().ok().filter(|number| *number > 0);
                (id, Some(number.ok_or_else(invalid)?.into()))
            }
        };
        let digits = id.replace('-', "");
        let is_id = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        if !is_id || !(SHORT_DIGITS_MIN..=DIGITS).contains(&digits.len()) {
            return Err(invalid());
        }
        let filled = |digit: &str| {
            let missing = digit.repeat(DIGITS - digits.len());
            let id = Uuid::parse_str(&format!("{digits}{missing}")).map_err(|_| invalid())?;
            Ok(RunId(id))
        };
        let (first, last) = (filled("0")?, filled("f")?);
        let of_run = (digits.len() == DIGITS && first.number() > 0).then(|| first.number());
        Ok(ShortId {
            first: first.launch(),
            last: last.launch(),
            number: number.or(of_run),
            text: text.to_owned(),
        })
    }
}

/// Returns the SHA-256 of `bytes` in lower-case hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Returns the first half of the SHA-256 of `bytes`.
pub fn sha256_half(bytes: &[u8]) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&Sha256::digest(bytes)[..16]);
    half
}

/// Declare kinds of SHA-256. A hash is text in lower-case hexadecimal in Rust, and 32 bytes in a database.
macro_rules! sha256_newtypes {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
        #[serde(transparent)]
        pub struct $name(pub(crate) String);

        impl $name {
            /// Returns the hash of `bytes`.
            pub fn of(bytes: &[u8]) -> $name {
                $name(sha256(bytes))
            }

            /// Returns the first twelve digits, for use in messages. Text from elsewhere might be no hash at all, so cutting respects
            /// characters.
            pub fn short(&self) -> &str {
                &self.0[..self.0.floor_char_boundary(12)]
            }

            /// Returns all digits.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.short())
            }
        }
    )*};
}

sha256_newtypes! {
    /// The SHA-256 of a package's bytes, in lower-case hexadecimal.
    ArtifactDigest,
    /// The SHA-256 of what a run uses besides its code, in lower-case hexadecimal.
    InputHash,
    /// The end of a chain of SHA-256 over rows of the record that were removed, in lower-case hexadecimal.
    ChainHash,
    /// The SHA-256 of the secret of a token, in lower-case hexadecimal.
    TokenHash,
}

impl ChainHash {
    /// Returns the end of the chain `before`, or of a new chain, after `row`.
    pub fn after(before: Option<&ChainHash>, row: &str) -> ChainHash {
        let before = before.map_or("", ChainHash::as_str);
        ChainHash::of(format!("{before}{row}").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_digest_that_is_no_hash_is_cut_at_a_character() {
        for text in [
            "é".repeat(20),
            "0123456789aé0".to_owned(),
            "日本".to_owned(),
            String::new(),
        ] {
            let digest: ArtifactDigest = serde_json::from_value(text.clone().into()).unwrap();
            assert!(text.starts_with(digest.short()), "{text}");
            assert!(digest.short().len() <= 12);
        }
    }

    #[test]
    fn ids_of_one_instant_sort_in_the_order_of_creation() {
        let now = Timestamp::from_micros(1_800_000_000_123_456);
        let ids: Vec<HostId> = (0..200).map(|_| HostId::new(now)).collect();
        // When the counter restarts, once in 16,384 ids, a later id sorts before an earlier id.
        let ascents = ids.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!(ascents >= 198, "{ascents} of 199");
        assert!(HostId::new(now.plus(Duration::from_micros(1))) > ids[199]);
        assert_eq!(ids[0].0.get_version_num(), 7);
        let millisecond = Duration::from_millis(1);
        assert!(EventId::first_at(now) < EventId::new(now));
        assert!(EventId::first_at(now.plus(millisecond)) > EventId::new(now));
    }

    #[test]
    fn a_launch_has_one_id_on_time_or_caught_up() {
        let schedule = ScheduleId(Uuid::from_u128(7));
        let slot = Timestamp::from_micros(1_800_000_000_000_000);
        let id = LaunchId::of(schedule, slot, LaunchKind::Schedule);
        assert_eq!(id, LaunchId::of(schedule, slot, LaunchKind::Catchup));
        assert_ne!(id, LaunchId::of(schedule, slot, LaunchKind::Manual));
        // Existing databases depend on this value.
        assert_eq!(id.to_string(), "01a3185c-5059-8d3c-9a6e-2833605df800");
    }

    #[test]
    fn launches_sort_by_time_and_runs_name_their_launch() {
        let schedule = ScheduleId(Uuid::from_u128(7));
        let slot = Timestamp::from_micros(1_800_000_000_000_000);
        let of = |slot| LaunchId::of(schedule, slot, LaunchKind::Schedule);
        let later = slot.plus(Duration::from_secs(1));
        assert!(of(slot) < of(later) && of(later) < of(later.plus(Duration::from_secs(1))));
        assert_eq!(of(slot).0.get_version_num(), 8);
        let backfill = BackfillId::new(later);
        let filled = LaunchId::of_backfill(schedule, slot, backfill);
        assert_eq!(filled.0.as_bytes()[..5], of(later).0.as_bytes()[..5]);

        assert!(LaunchId::first_at(slot) < of(slot) && LaunchId::first_at(later) > of(slot));
        assert!(LaunchId::first_at(later) < filled);
        assert!(of(slot).slot() <= slot && slot.since(of(slot).slot()).as_millis() < 256);

        let runs = [1, 2, 255].map(|number| RunId::of(of(slot), number));
        assert!(runs.is_sorted());
        assert_eq!(runs.map(RunId::number), [1, 2, 255]);
        assert_eq!(runs.map(RunId::launch), [of(slot); 3]);
    }

    #[test]
    fn a_retry_has_an_id_of_its_own_and_the_time_of_its_request() {
        let schedule = ScheduleId(Uuid::from_u128(7));
        let slot = Timestamp::from_micros(1_800_000_000_000_000);
        let original = LaunchId::of(schedule, slot, LaunchKind::Schedule);
        let now = slot.plus(Duration::from_secs(3_600));
        let retry = LaunchId::of_retry(original, now);
        assert_eq!(retry.slot(), LaunchId::first_at(now).slot());
        let next = LaunchId::of_retry(original, now.plus(Duration::from_micros(1)));
        assert!(retry != next && next != LaunchId::of_retry(retry, now));
        assert_eq!(RunId(retry.0).number(), 0);
    }

    #[test]
    fn a_short_id_means_the_launches_that_begin_with_it() {
        let read = |text: &str| text.parse::<ShortId>();
        let id: LaunchId = "01a3185c-5059-8d3c-9a6e-2833605df800".parse().unwrap();
        let whole = read(&id.to_string()).unwrap();
        assert_eq!((whole.whole(), whole.number), (Some(id), None));
        // Only the number of the run is missing.
        let without_number = read("01a3185c-5059-8d3c-9a6e-2833605df8").unwrap();
        assert_eq!(
            (without_number.whole(), without_number.number),
            (Some(id), None)
        );
        let run = read(&RunId::of(id, 3).to_string()).unwrap();
        assert_eq!((run.whole(), run.number), (Some(id), Some(3)));

        for text in ["01a3", &id.short(), "01A3185C5059"] {
            let short = read(text).unwrap();
            assert!(short.first <= id && id <= short.last, "{text}");
            assert_eq!((short.whole(), short.number), (None, None), "{text}");
        }
        let short = read(&RunId::of(id, 2).short()).unwrap();
        assert_eq!(short.to_string(), "01a3185c-5059-8d3c.2");
        assert_eq!(short.number, Some(2));
        let other: LaunchId = "01a3185c-5059-8d3d-8000-000000000000".parse().unwrap();
        assert!(short.last < other);

        let too_long = format!("{id}0");
        for text in [
            "", "01a", "nightly", "01a3.", "01a3.0", "01a3.256", "01a3.x", &too_long,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
