//! What a schedule says besides its rule.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use campanile_model::clock::Timestamp;
use campanile_model::status::Overlap;
use campanile_model::words;

words! {
    /// Which of the slots that were missed are launched after all.
    #[derive(Default)]
    Catchup {
        /// None of them.
        None => "none",
        /// The newest, which stands for the others.
        #[default]
        Latest => "latest",
        /// The oldest, which stands for the others.
        Earliest => "earliest",
        /// All of them, the oldest first.
        All => "all",
    }
}

words! {
    /// Which launch waits when there is room for one.
    #[derive(Default)]
    Keep {
        /// The one that came first.
        #[default]
        First => "first",
        /// The one that came last.
        Latest => "latest",
    }
}

words! {
    /// What becomes of a launch whose run was lost.
    #[derive(Default)]
    Delivery {
        /// It is run again.
        #[default]
        AtLeastOnce => "at_least_once",
        /// It ends, and nobody knows whether it was carried out.
        AtMostOnce => "at_most_once",
    }
}

/// The largest `catchup_max`: so many slots are looked at beforehand, each time some are decided.
pub const CATCHUP_MAX_MOST: u32 = 1_000;

/// What `catchup` and `overlap` mean where the schedule gives no number.
const CATCHUP_MAX: u32 = 100;
const BUFFERED_MAX: u32 = 100;
const CANCEL_GRACE: Duration = Duration::from_secs(30);

/// The spread of `execute_with_delay`, which does not say how long its delay is.
const EXECUTE_DELAY: Duration = Duration::from_secs(30);

/// The policies of a schedule. What it does not say is `None`, or the default of its word.
///
/// As JSON: an object without what is not said, durations as in `1h 30m`, instants in RFC 3339.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policies {
    /// Which missed slots are launched after all.
    #[serde(skip_serializing_if = "is_default")]
    pub catchup: Catchup,
    /// A slot missed by more than this is not caught up.
    #[serde(with = "span", skip_serializing_if = "Option::is_none")]
    pub catchup_window: Option<Duration>,
    /// How many missed slots are caught up at most, the newest. 100 unless said otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catchup_max: Option<u32>,
    /// The delay of a launch that is caught up after now, and after the one before it.
    #[serde(with = "span", skip_serializing_if = "Option::is_none")]
    pub catchup_spread: Option<Duration>,
    /// A slot late by more than this was missed.
    #[serde(with = "span", skip_serializing_if = "Option::is_none")]
    pub misfire_grace: Option<Duration>,
    /// What becomes of a launch while another one goes on.
    #[serde(skip_serializing_if = "is_default")]
    pub overlap: Overlap,
    /// How many launches wait at most under `buffer_all`. 100 unless said otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_buffered: Option<u32>,
    /// Which launch waits under `buffer_one`: the first unless said otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<Keep>,
    /// How many launches go on at the same time at most under `allow`. Any number unless said otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<u32>,
    /// How long a launch may take that was asked to end under `cancel_other`. 30 s unless said otherwise.
    #[serde(with = "span", skip_serializing_if = "Option::is_none")]
    pub cancel_grace: Option<Duration>,
    /// What becomes of a launch whose run was lost.
    #[serde(skip_serializing_if = "is_default")]
    pub delivery: Delivery,
    /// A slot fires up to this long after its time, as chosen by hash, and before the next one.
    #[serde(with = "span", skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Duration>,
    /// No slot before this is launched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_at: Option<Timestamp>,
    /// No slot after this is launched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_at: Option<Timestamp>,
    /// The schedule ends after so many launches, those by hand not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_launches: Option<u64>,
    /// The schedule is paused when so many launches in a row have failed for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_on_failure: Option<u32>,
}

/// What the host's configuration says for schedules that do not say it themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// See [`Policies::misfire_grace`].
    pub misfire_grace: Duration,
    /// See [`Policies::catchup_window`].
    pub catchup_window: Duration,
}

impl Default for Defaults {
    fn default() -> Defaults {
        Defaults {
            misfire_grace: Duration::from_secs(5 * 60),
            catchup_window: Duration::from_secs(24 * 3_600),
        }
    }
}

impl Policies {
    /// Set `catchup` as a person wrote it: one of its words, or what another scheduler calls it.
    ///
    /// `skip` is `none`, `run_all` is `all`, `execute` is `latest`, and `execute_with_delay` is
    /// `latest` with a spread of 30 s, unless one is set.
    ///
    /// # Errors
    /// When it is none of these; a clause that names the words there are.
    pub fn set_catchup(&mut self, text: &str) -> Result<(), String> {
        self.catchup = match text {
            "skip" => Catchup::None,
            "run_all" => Catchup::All,
            "execute" => Catchup::Latest,
            "execute_with_delay" => {
                self.catchup_spread.get_or_insert(EXECUTE_DELAY);
                Catchup::Latest
            }
            word => Catchup::read(word)?,
        };
        Ok(())
    }

    /// How many missed slots are caught up at most.
    pub fn catchup_max(&self) -> u32 {
        self.catchup_max.unwrap_or(CATCHUP_MAX)
    }

    /// How many prompt launches wait at most under `buffer_all`.
    pub fn max_buffered(&self) -> u32 {
        self.max_buffered.unwrap_or(BUFFERED_MAX)
    }

    /// Which launch waits under `buffer_one`.
    pub fn keep(&self) -> Keep {
        self.keep.unwrap_or_default()
    }

    /// Whether slots are launched at the same times as under `other`: a change of timing never looks back.
    pub fn same_timing(&self, other: &Policies) -> bool {
        let timing = |policies: &Policies| {
            let ends = (policies.end_at, policies.max_launches);
            (policies.jitter, policies.start_at, ends)
        };
        timing(self) == timing(other)
    }

    /// How long a launch may take that was asked to end under `cancel_other`.
    pub fn cancel_grace(&self) -> Duration {
        self.cancel_grace.unwrap_or(CANCEL_GRACE)
    }

    /// The first slot from `slot` on that may be launched when so many launches were made, if any slot will do.
    pub fn allowed_from(&self, slot: Timestamp, made: u64) -> Option<Timestamp> {
        let slot = self.start_at.map_or(slot, |start| start.max(slot));
        let ended =
            self.end_at.is_some_and(|end| slot > end) || self.launches_left(made) == Some(0);
        (!ended).then_some(slot)
    }

    /// How many launches may still be made after `made`; `None` when there is no limit.
    pub fn launches_left(&self, made: u64) -> Option<u64> {
        self.max_launches.map(|max| max.saturating_sub(made))
    }

    /// Whether so many launches that failed for good, one after the other, pause the schedule.
    pub fn pauses_after(&self, failures_in_a_row: u32) -> bool {
        self.pause_on_failure
            .is_some_and(|failures| failures_in_a_row >= failures)
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Durations that may be missing, as text.
mod span {
    use std::time::Duration;

    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    use campanile_model::text;

    pub fn serialize<S: Serializer>(
        span: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match span {
            Some(span) => serializer.serialize_str(&text::duration_text(*span)),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        let span = text.map(|text| text::duration(&text)).transpose();
        span.map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn everything() -> Policies {
        Policies {
            catchup: Catchup::All,
            catchup_window: Some(Duration::from_secs(5_400)),
            catchup_max: Some(7),
            catchup_spread: Some(Duration::from_millis(1_500)),
            misfire_grace: Some(Duration::from_secs(60)),
            overlap: Overlap::BufferOne,
            max_buffered: Some(3),
            keep: Some(Keep::Latest),
            max_concurrent: Some(2),
            cancel_grace: Some(Duration::from_secs(10)),
            delivery: Delivery::AtMostOnce,
            jitter: Some(Duration::from_secs(30)),
            start_at: Some("2026-01-01T00:00:00Z".parse().unwrap()),
            end_at: Some("2027-01-01T00:00:00Z".parse().unwrap()),
            max_launches: Some(1_000),
            pause_on_failure: Some(5),
        }
    }

    #[test]
    fn what_is_not_said_is_not_stored() {
        let stored = serde_json::to_string(&Policies::default()).unwrap();
        assert_eq!(stored, "{}");
        assert_eq!(
            serde_json::from_str::<Policies>("{}").unwrap(),
            Policies::default()
        );
    }

    #[test]
    fn all_that_is_said_is_stored_and_read_back() {
        // The text is part of the contract with databases already written.
        let stored = r#"{"catchup":"all","catchup_window":"1h 30m","catchup_max":7,"catchup_spread":"1s 500ms","misfire_grace":"1m","overlap":"buffer_one","max_buffered":3,"keep":"latest","max_concurrent":2,"cancel_grace":"10s","delivery":"at_most_once","jitter":"30s","start_at":"2026-01-01T00:00:00Z","end_at":"2027-01-01T00:00:00Z","max_launches":1000,"pause_on_failure":5}"#;
        assert_eq!(serde_json::to_string(&everything()).unwrap(), stored);
        assert_eq!(
            serde_json::from_str::<Policies>(stored).unwrap(),
            everything()
        );
    }

    #[test]
    fn what_this_version_does_not_know_is_not_read_over() {
        for stored in [
            r#"{"catchup":"newest"}"#,
            r#"{"jitter":"soon"}"#,
            r#"{"grace":"5m"}"#,
        ] {
            assert!(
                serde_json::from_str::<Policies>(stored).is_err(),
                "{stored}"
            );
        }
    }

    #[test]
    fn catch_up_has_the_names_of_other_schedulers() {
        let read = |text: &str| {
            let mut policies = Policies::default();
            policies.set_catchup(text)?;
            Ok::<_, String>((policies.catchup, policies.catchup_spread))
        };
        for &word in Catchup::ALL {
            assert_eq!(read(word.as_str()), Ok((word, None)));
        }
        for (alias, word, spread) in [
            ("skip", Catchup::None, None),
            ("run_all", Catchup::All, None),
            ("execute", Catchup::Latest, None),
            ("execute_with_delay", Catchup::Latest, Some(EXECUTE_DELAY)),
        ] {
            assert_eq!(read(alias), Ok((word, spread)), "{alias}");
        }
        let fault = read("newest").unwrap_err();
        assert_eq!(fault, "must be `none` or `latest` or `earliest` or `all`");
    }

    #[test]
    fn a_delay_that_was_chosen_stays() {
        let mut policies = everything();
        policies.set_catchup("execute_with_delay").unwrap();
        assert_eq!(policies.catchup_spread, everything().catchup_spread);
    }

    #[test]
    fn a_row_of_failures_pauses_when_the_schedule_says_so() {
        assert!(!Policies::default().pauses_after(u32::MAX));
        for (failures, pauses) in [(4, false), (5, true), (6, true)] {
            assert_eq!(everything().pauses_after(failures), pauses, "{failures}");
        }
    }

    #[test]
    fn launches_are_counted_down_to_none() {
        assert_eq!(Policies::default().launches_left(9), None);
        for (made, left) in [(0, 1_000), (999, 1), (1_000, 0), (1_001, 0)] {
            assert_eq!(everything().launches_left(made), Some(left), "{made}");
        }
    }
}
