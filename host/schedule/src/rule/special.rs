//! Days that need their month to be known: `L`, `L-3`, `15W`, `LW`, `MON#2`, `FRIL`.
//!
//! An extension of cron, from Quartz. They stand alone or in lists, never in ranges or steps.

use super::error::RuleError;
use super::field::{DAY_OF_MONTH, DAY_OF_WEEK, FieldSpec};

/// A day that needs its month to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Special {
    /// `L` for 0, else `L-n`: so many days before the last of the month; none if that has fewer.
    BeforeLast(u8),
    /// `nW`: the Monday to Friday nearest to day n, in the same month; none if that has no day n.
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

impl Special {
    /// Its bit among those of its field.
    fn bit(self) -> u8 {
        match self {
            Special::BeforeLast(before) => before,
            Special::Nearest(day) => NEAREST + day,
            Special::LastWorkday => LAST_WORKDAY,
            Special::Nth { weekday, week } => 7 * (week - 1) + weekday,
            Special::Last { weekday } => LAST + weekday,
        }
    }

    /// The special days of a day-of-month field, by their bits.
    pub(super) fn of_month(bits: u64) -> impl Iterator<Item = Special> {
        ones(bits).map(|bit| match bit {
            LAST_WORKDAY => Special::LastWorkday,
            bit if bit > NEAREST => Special::Nearest(bit - NEAREST),
            before => Special::BeforeLast(before),
        })
    }

    /// The special days of a day-of-week field, by their bits.
    pub(super) fn of_week(bits: u64) -> impl Iterator<Item = Special> {
        ones(bits).map(|bit| match bit.checked_sub(LAST) {
            Some(weekday) => Special::Last { weekday },
            None => Special::Nth {
                weekday: bit % 7,
                week: bit / 7 + 1,
            },
        })
    }

    /// How it is written, with numbers for names.
    fn text(self) -> String {
        match self {
            Special::BeforeLast(0) => "L".to_owned(),
            Special::BeforeLast(before) => format!("L-{before}"),
            Special::Nearest(day) => format!("{day}W"),
            Special::LastWorkday => "LW".to_owned(),
            Special::Nth { weekday, week } => format!("{weekday}#{week}"),
            Special::Last { weekday } => format!("{weekday}L"),
        }
    }
}

/// The positions of the ones in `bits`, ascending.
pub(super) fn ones(mut bits: u64) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let one = (bits != 0).then(|| bits.trailing_zeros() as u8);
        bits &= bits.wrapping_sub(1);
        one
    })
}

impl FieldSpec {
    /// The bit of the special day that `item` is; `None` if it is none.
    ///
    /// # Errors
    /// When it is like one, and none of this field.
    pub(super) fn special(&self, item: &str, position: usize) -> Result<Option<u64>, RuleError> {
        // Of an item with a step, the range is asked for.
        let special = if item.contains('/') {
            None
        } else if *self == DAY_OF_MONTH {
            self.special_of_month(item, position)?
        } else if *self == DAY_OF_WEEK {
            self.special_of_week(item, position)?
        } else {
            None
        };
        Ok(special.map(|special| 1 << special.bit()))
    }

    fn special_of_month(&self, item: &str, position: usize) -> Result<Option<Special>, RuleError> {
        let upper = item.to_ascii_uppercase();
        let number = |text: &str, numbers: std::ops::RangeInclusive<u8>| {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse().ok().filter(|_| digits);
            number.filter(|number| numbers.contains(number))
        };
        let special = match upper.as_str() {
            "L" => Some(Special::BeforeLast(0)),
            "LW" => Some(Special::LastWorkday),
            text => match (text.strip_prefix('L'), text.strip_suffix('W')) {
                (Some(rest), _) => rest
                    .strip_prefix('-')
                    .and_then(|before| number(before, 1..=30))
                    .map(Special::BeforeLast),
                (None, Some(day)) => number(day, 1..=31).map(Special::Nearest),
                (None, None) => return Ok(None),
            },
        };
        match special {
            Some(special) => Ok(Some(special)),
            None => Err(RuleError::new(
                self.at(item, position, "is not a day"),
                "write `L`, `L-1` to `L-30`, `1W` to `31W` or `LW`",
            )),
        }
    }

    fn special_of_week(&self, item: &str, position: usize) -> Result<Option<Special>, RuleError> {
        if let Some((weekday, week)) = item.split_once('#') {
            let weekday = self.folded(self.value(weekday, position)?.number);
            return match week.as_bytes() {
                [digit @ b'1'..=b'5'] => Ok(Some(Special::Nth {
                    weekday,
                    week: digit - b'0',
                })),
                _ => Err(RuleError::new(
                    self.at(item, position, "has no week of 1 to 5 after its `#`"),
                    "write the second Monday of the month as `MON#2`",
                )),
            };
        }
        let Some(weekday) = item.strip_suffix(['L', 'l']) else {
            return Ok(None);
        };
        if weekday.is_empty() {
            return Err(RuleError::new(
                self.at(item, position, "names no weekday"),
                "write `FRIL` for the last Friday of the month, or `SAT` for every Saturday",
            ));
        }
        let weekday = self.folded(self.value(weekday, position)?.number);
        Ok(Some(Special::Last { weekday }))
    }

    /// The special days of this field as they are written.
    pub(super) fn special_texts(&self, bits: u64) -> Vec<String> {
        if *self == DAY_OF_WEEK {
            Special::of_week(bits).map(Special::text).collect()
        } else {
            Special::of_month(bits).map(Special::text).collect()
        }
    }
}
