//! The days of Quartz, which depend on the month: `L`, `L-3`, `15W`, `LW`, `MON#2`, `FRIL`.
//!
//! They stand alone or in lists, never in ranges or steps.

use super::error::RuleError;
use super::field_spec::{DAY_OF_MONTH, DAY_OF_WEEK, FieldSpec, is_digits, ones};
use super::part::Part;

/// A day that depends on the month.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuartzDay {
    /// `L` for 0, `L-n` for n: n days before the last day of the month, if the month has so many.
    BeforeLast(u8),
    /// `nW`: the Monday to Friday nearest to day n in the same month, if the month has a day n.
    Nearest(u8),
    /// `LW`: the last Monday to Friday of the month.
    LastWorkday,
    /// `MON#2`: the second Monday of the month, if it has so many.
    Nth { weekday: u8, week: u8 },
    /// `FRIL`: the last Friday of the month.
    Last { weekday: u8 },
}

const NEAREST: u8 = 31;
const LAST_WORKDAY: u8 = 63;
const LAST: u8 = 35;

impl QuartzDay {
    fn bit(self) -> u8 {
        match self {
            QuartzDay::BeforeLast(before) => before,
            QuartzDay::Nearest(day) => NEAREST + day,
            QuartzDay::LastWorkday => LAST_WORKDAY,
            QuartzDay::Nth { weekday, week } => 7 * (week - 1) + weekday,
            QuartzDay::Last { weekday } => LAST + weekday,
        }
    }

    /// Returns the days of a day-of-month field from their bits.
    pub(super) fn of_month(bits: u64) -> impl Iterator<Item = QuartzDay> {
        ones(bits).map(|bit| match bit {
            LAST_WORKDAY => QuartzDay::LastWorkday,
            bit if bit > NEAREST => QuartzDay::Nearest(bit - NEAREST),
            before => QuartzDay::BeforeLast(before),
        })
    }

    /// Returns the days of a day-of-week field from their bits.
    pub(super) fn of_week(bits: u64) -> impl Iterator<Item = QuartzDay> {
        ones(bits).map(|bit| match bit.checked_sub(LAST) {
            Some(weekday) => QuartzDay::Last { weekday },
            None => QuartzDay::Nth {
                weekday: bit % 7,
                week: bit / 7 + 1,
            },
        })
    }

    /// Print the day, with a number for the weekday.
    fn text(self) -> String {
        match self {
            QuartzDay::BeforeLast(0) => "L".to_owned(),
            QuartzDay::BeforeLast(before) => format!("L-{before}"),
            QuartzDay::Nearest(day) => format!("{day}W"),
            QuartzDay::LastWorkday => "LW".to_owned(),
            QuartzDay::Nth { weekday, week } => format!("{weekday}#{week}"),
            QuartzDay::Last { weekday } => format!("{weekday}L"),
        }
    }
}

impl FieldSpec {
    /// Read a Quartz day and return its bit; `None` when `item` is no Quartz day.
    ///
    /// # Errors
    /// When `item` resembles a Quartz day that this field cannot have.
    pub(super) fn quartz_day(&self, item: Part<'_>) -> Result<Option<u64>, RuleError> {
        // `item` reads a step apart from the day.
        let day = if item.text.contains('/') {
            None
        } else if *self == DAY_OF_MONTH {
            self.quartz_day_of_month(item)?
        } else if *self == DAY_OF_WEEK {
            self.quartz_day_of_week(item)?
        } else {
            None
        };
        Ok(day.map(|day| 1 << day.bit()))
    }

    fn quartz_day_of_month(&self, item: Part<'_>) -> Result<Option<QuartzDay>, RuleError> {
        let upper = item.text.to_ascii_uppercase();
        let number = |text: &str, numbers: std::ops::RangeInclusive<u8>| {
            let number = text.parse().ok().filter(|_| is_digits(text));
            number.filter(|number| numbers.contains(number))
        };
        let day = match upper.as_str() {
            "L" => Some(QuartzDay::BeforeLast(0)),
            "LW" => Some(QuartzDay::LastWorkday),
            text => match (text.strip_prefix('L'), text.strip_suffix('W')) {
                (Some(rest), _) => rest
                    .strip_prefix('-')
                    .and_then(|before| number(before, 1..=30))
                    .map(QuartzDay::BeforeLast),
                (None, Some(day)) => number(day, 1..=31).map(QuartzDay::Nearest),
                (None, None) => return Ok(None),
            },
        };
        let hint = "write `L`, `L-1` to `L-30`, `1W` to `31W` or `LW`";
        let refusal = || self.refusal(item, "is not a day", hint);
        day.map(Some).ok_or_else(refusal)
    }

    fn quartz_day_of_week(&self, item: Part<'_>) -> Result<Option<QuartzDay>, RuleError> {
        let weekday_of = |part| Ok(self.folded(self.value(part)?.number));
        if let Some((weekday, week)) = item.split_once('#') {
            let weekday = weekday_of(weekday)?;
            let [digit @ b'1'..=b'5'] = week.text.as_bytes() else {
                let hint = "write the second Monday of the month as `MON#2`";
                return Err(self.refusal(item, "has no week of 1 to 5 after its `#`", hint));
            };
            let week = digit - b'0';
            return Ok(Some(QuartzDay::Nth { weekday, week }));
        }
        let Some(text) = item.text.strip_suffix(['L', 'l']) else {
            return Ok(None);
        };
        if text.is_empty() {
            let hint = "write `FRIL` for the last Friday of the month, or `SAT` for every Saturday";
            return Err(self.refusal(item, "names no weekday", hint));
        }
        let weekday = weekday_of(Part { text, ..item })?;
        Ok(Some(QuartzDay::Last { weekday }))
    }

    pub(super) fn quartz_texts(&self, bits: u64) -> Vec<String> {
        if *self == DAY_OF_WEEK {
            QuartzDay::of_week(bits).map(QuartzDay::text).collect()
        } else {
            QuartzDay::of_month(bits).map(QuartzDay::text).collect()
        }
    }
}
