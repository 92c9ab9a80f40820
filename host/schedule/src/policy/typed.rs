//! Policies as people write them: one key each, the same in files, on the command line and in what packages propose.

use std::time::Duration;

use super::says::{Catchup, Delivery, Keep, Policies};
use campanile_model::clock::{InvalidTimestamp, Timestamp};
use campanile_model::status::Overlap;
use campanile_model::text;
use campanile_model::words;

words! {
    /// One policy of a schedule, by its key.
    Policy {
        Catchup => "catchup",
        CatchupWindow => "catchup_window",
        CatchupMax => "catchup_max",
        CatchupSpread => "catchup_spread",
        MisfireGrace => "misfire_grace",
        Overlap => "overlap",
        MaxBuffered => "max_buffered",
        Keep => "keep",
        MaxConcurrent => "max_concurrent",
        CancelGrace => "cancel_grace",
        Delivery => "delivery",
        Jitter => "jitter",
        StartAt => "start_at",
        EndAt => "end_at",
        MaxLaunches => "max_launches",
        PauseOnFailure => "pause_on_failure",
    }
}

/// What a policy is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A word, or a span such as `30s`.
    Text,
    /// A whole number.
    Number,
    /// An instant in RFC 3339.
    Instant,
}

/// The largest number that any policy takes: what a database counts with.
pub const NUMBER_MOST: u64 = i64::MAX.unsigned_abs();

/// No span of a policy is longer: ten years.
const SPAN_MOST: Duration = Duration::from_secs(3_650 * 24 * 3_600);

impl Policy {
    /// What it is written as.
    pub fn shape(self) -> Shape {
        match self {
            Policy::CatchupMax
            | Policy::MaxBuffered
            | Policy::MaxConcurrent
            | Policy::MaxLaunches
            | Policy::PauseOnFailure => Shape::Number,
            Policy::StartAt | Policy::EndAt => Shape::Instant,
            _ => Shape::Text,
        }
    }
}

impl Policies {
    /// Set one policy as a person wrote it.
    ///
    /// # Errors
    /// When it is nothing that this policy can be; a clause that reads after its key. What contradicts another
    /// policy is for [`Policies::check`].
    pub fn set(&mut self, policy: Policy, text: &str) -> Result<(), String> {
        match policy {
            Policy::Catchup => self.set_catchup(text),
            _ => self.field(policy).set(text),
        }
    }

    /// Say nothing of one policy.
    pub fn clear(&mut self, policy: Policy) {
        self.field(policy).clear();
    }

    /// Make one policy what it is in `others`.
    pub fn copy(&mut self, policy: Policy, others: &Policies) {
        self.clear(policy);
        if let Some(text) = others.text(policy) {
            // What was read once is read again.
            let _ = self.field(policy).set(&text);
        }
    }

    /// What is said of one policy, as [`Policies::set`] reads it; `None` when that is nothing, or its default.
    pub fn text(&self, policy: Policy) -> Option<String> {
        self.clone().field(policy).text()
    }

    /// The policies of which something is said, each with its text.
    pub fn said(&self) -> impl Iterator<Item = (Policy, String)> {
        let said = Policy::ALL.iter();
        said.filter_map(|&policy| Some((policy, self.text(policy)?)))
    }

    fn field(&mut self, policy: Policy) -> &mut dyn Field {
        match policy {
            Policy::Catchup => &mut self.catchup,
            Policy::CatchupWindow => &mut self.catchup_window,
            Policy::CatchupMax => &mut self.catchup_max,
            Policy::CatchupSpread => &mut self.catchup_spread,
            Policy::MisfireGrace => &mut self.misfire_grace,
            Policy::Overlap => &mut self.overlap,
            Policy::MaxBuffered => &mut self.max_buffered,
            Policy::Keep => &mut self.keep,
            Policy::MaxConcurrent => &mut self.max_concurrent,
            Policy::CancelGrace => &mut self.cancel_grace,
            Policy::Delivery => &mut self.delivery,
            Policy::Jitter => &mut self.jitter,
            Policy::StartAt => &mut self.start_at,
            Policy::EndAt => &mut self.end_at,
            Policy::MaxLaunches => &mut self.max_launches,
            Policy::PauseOnFailure => &mut self.pause_on_failure,
        }
    }
}

/// What is said of one policy.
trait Field {
    fn set(&mut self, text: &str) -> Result<(), String>;
    fn clear(&mut self);
    /// `None` for what says nothing.
    fn text(&self) -> Option<String>;
}

/// A value that can be said, or not.
trait Value: Sized {
    fn read(text: &str) -> Result<Self, String>;
    fn write(&self) -> String;
}

impl<T: Value> Field for Option<T> {
    fn set(&mut self, text: &str) -> Result<(), String> {
        *self = Some(T::read(text)?);
        Ok(())
    }

    fn clear(&mut self) {
        *self = None;
    }

    fn text(&self) -> Option<String> {
        self.as_ref().map(T::write)
    }
}

/// Words of which one is the default.
macro_rules! word_fields {
    ($($word:ty),*) => {$(
        impl Field for $word {
            fn set(&mut self, text: &str) -> Result<(), String> {
                *self = <$word>::read(text)?;
                Ok(())
            }

            fn clear(&mut self) {
                *self = <$word>::default();
            }

            fn text(&self) -> Option<String> {
                (*self != <$word>::default()).then(|| self.to_string())
            }
        }
    )*};
}
word_fields!(Catchup, Overlap, Delivery);

impl Value for Keep {
    fn read(text: &str) -> Result<Keep, String> {
        Keep::read(text)
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl Value for Duration {
    fn read(text: &str) -> Result<Duration, String> {
        match text::duration(text)? {
            span if span <= SPAN_MOST => Ok(span),
            _ => Err(format!(
                "is \"{text}\", longer than ten years: write a shorter time"
            )),
        }
    }

    fn write(&self) -> String {
        text::duration_text(*self)
    }
}

impl Value for Timestamp {
    fn read(text: &str) -> Result<Timestamp, String> {
        text.parse()
            .map_err(|error: InvalidTimestamp| format!("is wrong: {error}"))
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl Value for u32 {
    fn read(text: &str) -> Result<u32, String> {
        text.parse()
            .map_err(|_| format!("must be a whole number from 1 to {}", u32::MAX))
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl Value for u64 {
    fn read(text: &str) -> Result<u64, String> {
        let number = text.parse().ok();
        number
            .filter(|&number| number <= NUMBER_MOST)
            .ok_or_else(|| format!("must be a whole number from 1 to {NUMBER_MOST}"))
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of everything, as it is written.
    const WRITTEN: [(Policy, &str); 16] = [
        (Policy::Catchup, "all"),
        (Policy::CatchupWindow, "1h 30m"),
        (Policy::CatchupMax, "7"),
        (Policy::CatchupSpread, "1s 500ms"),
        (Policy::MisfireGrace, "1m"),
        (Policy::Overlap, "buffer_one"),
        (Policy::MaxBuffered, "3"),
        (Policy::Keep, "first"),
        (Policy::MaxConcurrent, "2"),
        (Policy::CancelGrace, "10s"),
        (Policy::Delivery, "at_most_once"),
        (Policy::Jitter, "30s"),
        (Policy::StartAt, "2026-01-01T00:00:00Z"),
        (Policy::EndAt, "2027-01-01T00:00:00Z"),
        (Policy::MaxLaunches, "1000"),
        (Policy::PauseOnFailure, "5"),
    ];

    #[test]
    fn every_policy_is_written_as_it_is_read_under_the_key_that_is_stored() {
        let mut all = Policies::default();
        for (policy, text) in WRITTEN {
            all.set(policy, text).unwrap();
        }
        let said: Vec<(Policy, String)> = all.said().collect();
        let written = WRITTEN.map(|(policy, text)| (policy, text.to_owned()));
        assert_eq!(said, written);
        let stored = serde_json::to_value(&all).unwrap();
        let stored = stored.as_object().unwrap();
        assert_eq!(stored.len(), WRITTEN.len());
        for (policy, text) in WRITTEN {
            let value = &stored[policy.as_str()];
            let number = value.as_u64().map(|number| number.to_string());
            assert_eq!(number.as_deref().or(value.as_str()), Some(text));
            assert_eq!(number.is_some(), policy.shape() == Shape::Number);
        }
    }

    #[test]
    fn policies_are_cleared_and_copied_one_by_one() {
        let mut all = Policies::default();
        for (policy, text) in WRITTEN {
            all.set(policy, text).unwrap();
        }
        let mut copy = Policies::default();
        for (policy, text) in WRITTEN {
            copy.copy(policy, &all);
            assert_eq!(copy.text(policy).as_deref(), Some(text));
        }
        assert_eq!(copy, all);
        for (policy, _) in WRITTEN {
            all.clear(policy);
            assert_eq!(all.text(policy), None);
            copy.copy(policy, &all);
        }
        assert_eq!((all, copy), (Policies::default(), Policies::default()));
    }

    #[test]
    fn what_a_policy_cannot_be_is_refused_in_words_that_follow_its_key() {
        for (policy, text, clause) in [
            (
                Policy::Catchup,
                "newest",
                "must be `none` or `latest` or `earliest` or `all`",
            ),
            (
                Policy::Overlap,
                "bufer_one",
                "must be `skip` or `buffer_one` or `buffer_all` or `cancel_other` or `terminate_other` or `allow`; \
                 did you mean `buffer_one`?",
            ),
            (
                Policy::Keep,
                "last",
                "must be `first` or `latest`; did you mean `latest`?",
            ),
            (
                Policy::Jitter,
                "soon",
                "is \"soon\", which is not a duration: write a number with a unit, such as \"30s\" or \"5m\"",
            ),
            (
                Policy::CancelGrace,
                "11y",
                "is \"11y\", longer than ten years: write a shorter time",
            ),
            (
                Policy::CatchupMax,
                "many",
                "must be a whole number from 1 to 4294967295",
            ),
            (
                Policy::MaxLaunches,
                "9223372036854775808",
                "must be a whole number from 1 to 9223372036854775807",
            ),
            (
                Policy::EndAt,
                "noon",
                "is wrong: `noon` is not an RFC 3339 time such as 2026-11-21T08:00:00Z",
            ),
        ] {
            let mut policies = Policies::default();
            assert_eq!(policies.set(policy, text), Err(clause.to_owned()));
            assert_eq!(policies, Policies::default(), "{policy}");
        }
    }
}
