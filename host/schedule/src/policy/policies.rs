//! The policies of a schedule, in one table.
//!
//! Reading, checking, storing, printing, comparing, the flags of the command line and the
//! reference all derive from the table. A new policy is one entry here, and the code that decides by it. CONTRIBUTING.md lists
//! what else names the policies.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::group::GroupName;
use super::retry::{Coefficient, FailureKinds};
use campanile_model::clock::{InvalidTimestamp, Timestamp};
use campanile_model::labels::Labels;
use campanile_model::status::Overlap;
use campanile_model::text::{duration, duration_text};
use campanile_model::words;

words! {
    /// Which missed slots are launched.
    #[derive(Default)]
    Catchup {
        /// No slot.
        None => "none",
        /// The newest slot; it stands for the others.
        #[default]
        Latest => "latest",
        /// The oldest slot; it stands for the others.
        Earliest => "earliest",
        /// All slots, the oldest first.
        All => "all",
    }
}

words! {
    /// Which launch stays in a queue of one.
    #[derive(Default)]
    Keep {
        /// The launch that was queued first.
        #[default]
        First => "first",
        /// The launch that came last.
        Latest => "latest",
    }
}

words! {
    /// What happens to a launch whose run was lost.
    #[derive(Default)]
    Delivery {
        /// Run it again.
        #[default]
        AtLeastOnce => "at_least_once",
        /// End it as `unknown`: its tasks may or may not have run.
        AtMostOnce => "at_most_once",
    }
}

/// The largest `catchup_max`. The evaluator looks back over this many slots each time it decides.
pub const CATCHUP_MAX_LIMIT: u32 = 1_000;

/// The most calls of each task in one launch.
pub const MAX_ATTEMPTS_LIMIT: u32 = 1_000;

/// The largest number that a policy takes: the largest integer of the databases.
pub const NUMBER_MAX: u64 = i64::MAX.unsigned_abs();

/// The largest `priority`.
pub const PRIORITY_MAX: u32 = 9;

const PRIORITY: u32 = 5;
const CATCHUP_MAX: u32 = 100;
const MAX_BUFFERED: u32 = 100;
const CANCEL_GRACE: Duration = Duration::from_secs(30);
const BACKOFF: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// The `catchup_spread` that the alias `execute_with_delay` sets. Schedulers that have this policy give no number.
const EXECUTE_DELAY: Duration = Duration::from_secs(30);

/// The longest duration that a policy takes: ten years.
const DURATION_MAX: Duration = Duration::from_secs(3_650 * 24 * 3_600);

/// What one policy is: its entry of the table.
#[derive(Debug)]
pub struct PolicySpec {
    /// What a value is.
    pub kind: ValueKind,
    /// What applies when the policy is not set.
    pub default: DefaultValue,
    /// Another policy, and its values under which this policy has an effect. With other values, this policy is refused.
    pub needs: Option<(Policy, &'static [&'static str])>,
    /// Whether the policy decides about slots. Then it is refused for `@reboot`, which has none.
    pub decides_slots: bool,
    /// One line for help texts, the reference and `wit/manifest.schema.json`, without a full stop.
    pub meaning: &'static str,
}

/// What the value of a policy is.
#[derive(Clone, Copy, Debug)]
pub enum ValueKind {
    /// One of these words.
    Word(&'static [&'static str]),
    /// A duration above zero and up to ten years, such as the example.
    Duration(&'static str),
    /// A whole number from the first to the second.
    Number(u64, u64),
    /// A [`Coefficient`].
    Coefficient,
    /// Some of these words, as [`FailureKinds`] reads them.
    FailureKinds(&'static [&'static str]),
    /// An instant in RFC 3339.
    Instant,
    /// The name of a concurrency group.
    Group,
    /// Some labels, as [`Labels`] reads them.
    Labels,
}

/// What applies when a policy is not set.
#[derive(Clone, Copy, Debug)]
pub enum DefaultValue {
    /// No default; the text says what happens then, such as "no limit".
    Nothing(&'static str),
    /// A fixed value.
    Fixed(fn() -> String),
    /// A fixed value, unless the configuration of the hosts says another. Each revision of a schedule records which.
    Recorded(fn() -> String),
    /// A value of the host's configuration.
    Host(fn(&Defaults) -> Duration),
}

/// Declare [`Policies`], [`Policy`] and the table from one entry for each policy.
///
/// An entry is `Variant key "key": Type, kind, default, needs, decides_slots, meaning;`.
macro_rules! policies {
    ($($variant:ident $key:ident $word:literal: $type:ty, kind: $kind:expr, default: $default:expr, needs: $needs:expr, decides_slots: $slots:expr, $meaning:literal;)*) => {
        /// The policies of a schedule. A policy that is not set is `None`, or the default of its word.
        ///
        /// As JSON: an object of the policies that are set. Durations are text such as `1h 30m`, instants RFC 3339.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Policies {
            $(#[doc = $meaning] pub $key: $type,)*
        }

        words! {
            /// A policy, by its key in files and in JSON. The flag is the key with `-` for `_`.
            Policy {
                $(#[doc = $meaning] $variant => $word,)*
            }
        }

        static TABLE: &[PolicySpec] = &[$(PolicySpec {
            kind: $kind,
            default: $default,
            needs: $needs,
            decides_slots: $slots,
            meaning: $meaning,
        },)*];

        impl Policies {
            fn set_value(&mut self, policy: Policy, text: &str) -> Result<(), String> {
                let kind = policy.spec().kind;
                match policy {
                    $(Policy::$variant => self.$key = PolicyValue::read(text, kind)?,)*
                }
                Ok(())
            }

            /// Copy one policy from `other`, also when it is not set there.
            pub fn copy(&mut self, policy: Policy, other: &Policies) {
                match policy {
                    $(Policy::$variant => self.$key.clone_from(&other.$key),)*
                }
            }

            /// Returns the text of one policy; `None` when it is not set, or has the default of its word.
            pub fn text(&self, policy: Policy) -> Option<String> {
                match policy {
                    $(Policy::$variant => self.$key.text(),)*
                }
            }
        }
    };
}

use DefaultValue::{Fixed, Host, Nothing, Recorded};
use ValueKind::{Instant, Number, Word};

const ANY_CATCHUP: &[&str] = &[
    Catchup::Latest.as_str(),
    Catchup::Earliest.as_str(),
    Catchup::All.as_str(),
];

policies! {
    Catchup catchup "catchup": Option<Catchup>,
        kind: Word(Catchup::WORDS), default: Recorded(|| Catchup::default().to_string()), needs: None, decides_slots: true,
        "Which missed slots are launched";
    CatchupWindow catchup_window "catchup_window": Option<Duration>,
        kind: ValueKind::Duration("24h"), default: Host(|host| host.catchup_window), needs: Some((Policy::Catchup, ANY_CATCHUP)), decides_slots: true,
        "The oldest missed slot that is caught up, as time before now";
    CatchupMax catchup_max "catchup_max": Option<u32>,
        kind: Number(1, CATCHUP_MAX_LIMIT as u64), default: Fixed(|| CATCHUP_MAX.to_string()), needs: Some((Policy::Catchup, &[Catchup::All.as_str()])), decides_slots: true,
        "The most missed slots that are caught up; the newest are kept";
    CatchupSpread catchup_spread "catchup_spread": Option<Duration>,
        kind: ValueKind::Duration("30s"), default: Nothing("all at once"), needs: Some((Policy::Catchup, ANY_CATCHUP)), decides_slots: true,
        "The time between launches that are caught up";
    MisfireGrace misfire_grace "misfire_grace": Option<Duration>,
        kind: ValueKind::Duration("5m"), default: Host(|host| host.misfire_grace), needs: None, decides_slots: true,
        "The lateness up to which a slot is launched as if on time; a later slot is missed";
    Overlap overlap "overlap": Overlap,
        kind: Word(Overlap::WORDS), default: Fixed(|| Overlap::default().to_string()), needs: None, decides_slots: false,
        "What happens to a launch while another launch of its schedule is active";
    MaxBuffered max_buffered "max_buffered": Option<u32>,
        kind: Number(1, u32::MAX as u64), default: Fixed(|| MAX_BUFFERED.to_string()), needs: Some((Policy::Overlap, &[Overlap::BufferAll.as_str()])), decides_slots: false,
        "The most launches in the queue";
    Keep keep "keep": Option<Keep>,
        kind: Word(Keep::WORDS), default: Fixed(|| Keep::default().to_string()), needs: Some((Policy::Overlap, &[Overlap::BufferOne.as_str()])), decides_slots: false,
        "Which launch stays in the queue";
    MaxConcurrent max_concurrent "max_concurrent": Option<u32>,
        kind: Number(1, u32::MAX as u64), default: Nothing("no limit"), needs: Some((Policy::Overlap, &[Overlap::Allow.as_str()])), decides_slots: false,
        "The most launches that are active at the same time";
    CancelGrace cancel_grace "cancel_grace": Option<Duration>,
        kind: ValueKind::Duration("30s"), default: Fixed(|| duration_text(CANCEL_GRACE)), needs: Some((Policy::Overlap, &[Overlap::CancelOther.as_str()])), decides_slots: false,
        "The time that a launch has to end after it was asked to";
    Delivery delivery "delivery": Option<Delivery>,
        kind: Word(Delivery::WORDS), default: Recorded(|| Delivery::default().to_string()), needs: None, decides_slots: false,
        "Whether a lost launch is run again; if not, it ends as unknown, and no task is called again after a failure";
    Jitter jitter "jitter": Option<Duration>,
        kind: ValueKind::Duration("30s"), default: Nothing("none"), needs: None, decides_slots: true,
        "The longest delay of a slot, chosen by hash and ending before the next slot";
    StartAt start_at "start_at": Option<Timestamp>,
        kind: Instant, default: Nothing("none"), needs: None, decides_slots: true,
        "No slot before this instant is launched";
    EndAt end_at "end_at": Option<Timestamp>,
        kind: Instant, default: Nothing("none"), needs: None, decides_slots: true,
        "No slot after this instant is launched";
    MaxLaunches max_launches "max_launches": Option<u64>,
        kind: Number(1, NUMBER_MAX), default: Nothing("no limit"), needs: None, decides_slots: true,
        "The number of launches after which the schedule ends; launches by hand are not counted";
    PauseOnFailure pause_on_failure "pause_on_failure": Option<u32>,
        kind: Number(1, u32::MAX as u64), default: Nothing("never"), needs: None, decides_slots: false,
        "The number of launches in a row that fail for good, after which the schedule is paused";
    Priority priority "priority": Option<u32>,
        kind: Number(0, PRIORITY_MAX as u64), default: Fixed(|| PRIORITY.to_string()), needs: None, decides_slots: false,
        "Which launches of a package start first when a host has too little capacity; the highest number is first";
    Group group "group": Option<GroupName>,
        kind: ValueKind::Group, default: Nothing("none"), needs: None, decides_slots: false,
        "The concurrency group, whose launches run at most `max` at the same time on all hosts together";
    RunOn run_on "run_on": Option<Labels>,
        kind: ValueKind::Labels, default: Nothing("any host"), needs: None, decides_slots: false,
        "The labels that a host must have to execute the launches";
    Retention retention "retention": Option<Duration>,
        kind: ValueKind::Duration("7days"), default: Nothing("the ages of the configuration"), needs: None, decides_slots: false,
        "How long the launches of the schedule stay on record after their end, whatever their outcome";
    ExpectWithin expect_within "expect_within": Option<Duration>,
        kind: ValueKind::Duration("1h"), default: Nothing("no limit"), needs: None, decides_slots: true,
        "The time after a slot within which a launch must have succeeded; otherwise an alert fires";
    MaxAttempts max_attempts "max_attempts": Option<u32>,
        kind: Number(1, MAX_ATTEMPTS_LIMIT as u64), default: Nothing("the number of the task"), needs: None, decides_slots: false,
        "The most calls of each task in one launch";
    Backoff backoff "backoff": Option<Duration>,
        kind: ValueKind::Duration("10s"), default: Fixed(|| duration_text(BACKOFF)), needs: None, decides_slots: false,
        "The pause before the first retry of a task";
    BackoffCoefficient backoff_coefficient "backoff_coefficient": Option<Coefficient>,
        kind: ValueKind::Coefficient, default: Fixed(|| Coefficient::DOUBLE.to_string()), needs: None, decides_slots: false,
        "How many times as long each pause before a retry is as the pause before it";
    BackoffMax backoff_max "backoff_max": Option<Duration>,
        kind: ValueKind::Duration("5m"), default: Fixed(|| duration_text(BACKOFF_MAX)), needs: None, decides_slots: false,
        "The longest pause before a retry, unless the task requests a longer one";
    RetryExpiration retry_expiration "retry_expiration": Option<Duration>,
        kind: ValueKind::Duration("1h"), default: Nothing("none"), needs: None, decides_slots: false,
        "The time after the slot, past which no retry begins";
    NonRetryable non_retryable "non_retryable": Option<FailureKinds>,
        kind: ValueKind::FailureKinds(FailureKinds::WORDS), default: Nothing("none"), needs: None, decides_slots: false,
        "The kinds of failure that are not retried";
}

impl Policy {
    /// Returns the entry of the table.
    pub fn spec(self) -> &'static PolicySpec {
        &TABLE[self as usize]
    }

    /// Returns the flag of the command line, without the dashes in front.
    pub fn flag(self) -> &'static str {
        static FLAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
            let keys = Policy::WORDS.iter();
            keys.map(|key| key.replace('_', "-")).collect()
        });
        &FLAGS[self as usize]
    }

    /// Returns `text`, a value of this policy, as JSON: a number, a list, or a text.
    pub fn json(self, text: String) -> Value {
        let number = || text.parse().map(Value::Number).ok();
        match self.spec().kind {
            Number(..) | ValueKind::Coefficient => number().unwrap_or_else(|| Value::from(text)),
            ValueKind::FailureKinds(_) | ValueKind::Labels => text.split(',').collect(),
            _ => Value::from(text),
        }
    }
}

/// The host's configuration for policies that a schedule does not set.
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
    /// Set one policy from its text.
    ///
    /// # Errors
    /// When the text is no value of the policy. The error is a clause that continues the key.
    /// [`Policies::check`] refuses values that contradict each other.
    pub fn set(&mut self, policy: Policy, text: &str) -> Result<(), String> {
        // Temporal and Quartz have other names for the words of `catchup`.
        let text = match (policy, text) {
            (Policy::Catchup, "skip") => Catchup::None.as_str(),
            (Policy::Catchup, "run_all") => Catchup::All.as_str(),
            (Policy::Catchup, "execute") => Catchup::Latest.as_str(),
            (Policy::Catchup, "execute_with_delay") => {
                self.catchup_spread.get_or_insert(EXECUTE_DELAY);
                Catchup::Latest.as_str()
            }
            (_, text) => text,
        };
        self.set_value(policy, text)
    }

    /// Returns the explicitly set policies, each with its text.
    pub fn entries(&self) -> impl Iterator<Item = (Policy, String)> {
        let all = Policy::ALL.iter();
        all.filter_map(|&policy| Some((policy, self.text(policy)?)))
    }

    /// Returns every policy with the text that applies: its own, or its default.
    ///
    /// `None` stands for a policy without an effect beside the others, and for one that sets no limit.
    pub fn effective(&self, defaults: &Defaults) -> impl Iterator<Item = (Policy, Option<String>)> {
        Policy::ALL.iter().map(move |&policy| {
            let text = self.text_or_default(policy, defaults);
            (policy, text.filter(|_| self.unmet_need(policy).is_none()))
        })
    }

    fn text_or_default(&self, policy: Policy, defaults: &Defaults) -> Option<String> {
        self.text(policy).or_else(|| match policy.spec().default {
            Nothing(_) => None,
            Fixed(text) | Recorded(text) => Some(text()),
            Host(of) => Some(duration_text(of(defaults))),
        })
    }

    /// If `needs` of `policy` is not met, return the other policy, its present word, and the words that would do.
    pub(super) fn unmet_need(
        &self,
        policy: Policy,
    ) -> Option<(Policy, String, &'static [&'static str])> {
        let (other, words) = policy.spec().needs?;
        let word = self.text_or_default(other, &Defaults::default());
        let word = word.unwrap_or_default();
        (!words.contains(&word.as_str())).then_some((other, word, words))
    }

    /// Returns these policies, and of `others` those that are not set here.
    pub fn or(&self, others: &Policies) -> Policies {
        let mut all = self.clone();
        for (policy, _) in self.unset_of(others).entries() {
            all.copy(policy, others);
        }
        all
    }

    /// Returns those of `others` that are not set here.
    pub fn unset_of(&self, others: &Policies) -> Policies {
        let mut unset = others.clone();
        for (policy, _) in self.entries() {
            unset.copy(policy, &Policies::default());
        }
        unset
    }

    /// Returns which missed slots are launched.
    pub fn catchup(&self) -> Catchup {
        self.catchup.unwrap_or_default()
    }

    /// Returns whether a lost launch is run again.
    pub fn delivery(&self) -> Delivery {
        self.delivery.unwrap_or_default()
    }

    /// Returns how many missed slots are caught up at most.
    pub fn catchup_max(&self) -> u32 {
        self.catchup_max.unwrap_or(CATCHUP_MAX)
    }

    /// Returns how many launches on time are queued at most under `buffer_all`.
    pub fn max_buffered(&self) -> u32 {
        self.max_buffered.unwrap_or(MAX_BUFFERED)
    }

    /// Returns which launch stays in the queue under `buffer_one`.
    pub fn keep(&self) -> Keep {
        self.keep.unwrap_or_default()
    }

    /// Returns the priority of the launches, 0 to [`PRIORITY_MAX`].
    pub fn priority(&self) -> u32 {
        self.priority.unwrap_or(PRIORITY)
    }

    /// Returns how long a launch may take to end after it was asked to under `cancel_other`.
    pub fn cancel_grace(&self) -> Duration {
        self.cancel_grace.unwrap_or(CANCEL_GRACE)
    }

    /// Returns the pause before the first retry of a task.
    pub fn backoff(&self) -> Duration {
        self.backoff.unwrap_or(BACKOFF)
    }

    /// Returns how many times as long each pause before a retry is as the pause before it.
    pub fn backoff_coefficient(&self) -> f64 {
        let coefficient = self.backoff_coefficient.unwrap_or(Coefficient::DOUBLE);
        coefficient.value()
    }

    /// Returns the longest pause before a retry.
    pub fn backoff_max(&self) -> Duration {
        self.backoff_max.unwrap_or(BACKOFF_MAX)
    }

    /// Whether slots are launched at the same times as under `other`. If not, an edit moves the cursor to now.
    ///
    /// A new policy that moves slots belongs here.
    pub fn same_timing(&self, other: &Policies) -> bool {
        let timing = |policies: &Policies| {
            let ends = (policies.end_at, policies.max_launches);
            (policies.jitter, policies.start_at, ends)
        };
        timing(self) == timing(other)
    }

    /// Returns the earliest next slot: `slot`, but not before `start_at`. `None` when `end_at` has passed, or `made` launches
    /// reach `max_launches`.
    pub fn allowed_from(&self, slot: Timestamp, made: u64) -> Option<Timestamp> {
        let slot = self.start_at.map_or(slot, |start| start.max(slot));
        let ended =
            self.end_at.is_some_and(|end| slot > end) || self.launches_left(made) == Some(0);
        (!ended).then_some(slot)
    }

    /// Returns how many launches the schedule may make after `made`; `None` when there is no limit.
    pub fn launches_left(&self, made: u64) -> Option<u64> {
        self.max_launches.map(|max| max.saturating_sub(made))
    }

    /// Whether `failures_in_a_row` launches that failed for good reach `pause_on_failure`.
    pub fn pauses_after(&self, failures_in_a_row: u32) -> bool {
        self.pause_on_failure
            .is_some_and(|failures| failures_in_a_row >= failures)
    }
}

impl Serialize for Policies {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(
            self.entries()
                .map(|(policy, text)| (policy.as_str(), policy.json(text))),
        )
    }
}

impl<'de> Deserialize<'de> for Policies {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Policies, D::Error> {
        let mut policies = Policies::default();
        for (key, value) in BTreeMap::<String, Value>::deserialize(deserializer)? {
            let policy: Policy = key.parse().map_err(D::Error::custom)?;
            let text = match (policy.spec().kind, value) {
                (_, Value::Null) => continue,
                (Number(..) | ValueKind::Coefficient, Value::Number(number)) => number.to_string(),
                (ValueKind::FailureKinds(_) | ValueKind::Labels, Value::Array(items)) => {
                    let items = items.iter().map(|item| item.as_str().unwrap_or_default());
                    items.collect::<Vec<&str>>().join(",")
                }
                (
                    Word(_) | ValueKind::Duration(_) | Instant | ValueKind::Group,
                    Value::String(text),
                ) => text,
                (_, value) => return Err(D::Error::custom(format!("{key} cannot be {value}"))),
            };
            let set = policies.set(policy, &text);
            set.map_err(|fault| D::Error::custom(format!("{key} {fault}")))?;
        }
        Ok(policies)
    }
}

/// A type that a field of [`Policies`] may have.
trait PolicyValue: Sized {
    fn read(text: &str, kind: ValueKind) -> Result<Self, String>;

    /// Returns the text; `None` for a policy that is not set, or has the default of its word.
    fn text(&self) -> Option<String>;
}

/// Implement [`PolicyValue`] for types, each with the functions that read and print it.
macro_rules! policy_values {
    ($($type:ty: $read:expr, $print:expr;)*) => {$(
        impl PolicyValue for $type {
            fn read(text: &str, kind: ValueKind) -> Result<$type, String> {
                let read: fn(&str, ValueKind) -> Result<$type, String> = $read;
                read(text, kind)
            }

            fn text(&self) -> Option<String> {
                let print: fn(&$type) -> Option<String> = $print;
                print(self)
            }
        }
    )*};
}

policy_values! {
    Option<Catchup>: |text, _| Catchup::read(text).map(Some), value_text;
    Overlap: |text, _| Overlap::read(text), word_text;
    Option<Delivery>: |text, _| Delivery::read(text).map(Some), value_text;
    Option<Keep>: |text, _| Keep::read(text).map(Some), value_text;
    Option<u32>: number, value_text;
    Option<u64>: number, value_text;
    Option<GroupName>: |text, _| text.parse().map(Some), value_text;
    Option<Coefficient>: |text, _| text.parse().map(Some), value_text;
    Option<Labels>: |text, _| text.parse().map(Some), value_text;
    Option<FailureKinds>: |text, _| text.parse().map(Some), value_text;
    Option<Timestamp>: |text, _| instant(text).map(Some), value_text;
    Option<Duration>: |text, _| limited_duration(text).map(Some), |span| span.map(duration_text);
}

/// Returns the text of a word; `None` for the default.
fn word_text<T: fmt::Display + Default + PartialEq>(word: &T) -> Option<String> {
    (*word != T::default()).then(|| word.to_string())
}

fn value_text<T: fmt::Display>(value: &Option<T>) -> Option<String> {
    value.as_ref().map(T::to_string)
}

fn number<T: TryFrom<u64>>(text: &str, kind: ValueKind) -> Result<Option<T>, String> {
    let number = text.parse().ok().filter(|&number| number <= NUMBER_MAX);
    let number = number.and_then(|number| T::try_from(number).ok());
    number.map(Some).ok_or_else(|| match kind {
        Number(least, most) => format!("must be a whole number from {least} to {most}"),
        _ => "must be a whole number".to_owned(),
    })
}

fn instant(text: &str) -> Result<Timestamp, String> {
    text.parse()
        .map_err(|error: InvalidTimestamp| format!("is wrong: {error}"))
}

/// Read a duration of at most ten years.
fn limited_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        span if span <= DURATION_MAX => Ok(span),
        _ => Err(format!(
            "is {text:?}, longer than ten years: write a shorter time"
        )),
    }
}

#[cfg(test)]
mod tests;
