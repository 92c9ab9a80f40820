//! The values of the policies about retries that no other policy has.

use std::fmt;
use std::str::FromStr;

use campanile_model::status::FailureKind;

/// How many times as long each pause before a retry is as the pause before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coefficient {
    hundredths: u32,
}

impl Coefficient {
    pub const LEAST: u32 = 1;
    pub const MOST: u32 = 10;
    /// Each pause is twice as long.
    pub(super) const DOUBLE: Coefficient = Coefficient { hundredths: 200 };

    pub fn value(self) -> f64 {
        f64::from(self.hundredths) / 100.0
    }
}

impl fmt::Display for Coefficient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value().fmt(f)
    }
}

impl FromStr for Coefficient {
    type Err = String;

    fn from_str(text: &str) -> Result<Coefficient, String> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str, most: usize| {
            let is_number = (1..=most).contains(&text.len());
            let is_number = is_number && text.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| text.parse::<u32>().unwrap_or(u32::MAX))
        };
        let hundredths = || {
            let tenth = if decimals.len() == 1 { 10 } else { 1 };
            Some(digits(whole, 2)? * 100 + digits(decimals, 2)? * tenth)
        };
        let (least, most) = (Self::LEAST, Self::MOST);
        let hundredths = hundredths().filter(|n| (least * 100..=most * 100).contains(n));
        hundredths
            .map(|hundredths| Coefficient { hundredths })
            .ok_or_else(|| {
                format!(
                    "must be a number from {least} to {most} with at most two decimals, such as 1.5"
                )
            })
    }
}

/// Kinds of failure, in the order of their declaration, each once. As text: their words, separated by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureKinds(Vec<FailureKind>);

impl FailureKinds {
    /// The words of the kinds that are retried unless a schedule says otherwise.
    pub const WORDS: &[&str] = &[
        FailureKind::Failed.as_str(),
        FailureKind::Trapped.as_str(),
        FailureKind::TimedOut.as_str(),
        FailureKind::MemoryExceeded.as_str(),
        FailureKind::HostError.as_str(),
    ];

    pub fn contains(&self, kind: FailureKind) -> bool {
        self.0.contains(&kind)
    }
}

impl fmt::Display for FailureKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.0.iter().map(|kind| kind.as_str()).collect();
        f.write_str(&words.join(","))
    }
}

impl FromStr for FailureKinds {
    type Err = String;

    fn from_str(text: &str) -> Result<FailureKinds, String> {
        let named: Vec<&str> = text.split(',').map(str::trim).collect();
        let is_known = |word: &&str| FailureKinds::WORDS.contains(word);
        if let Some(unknown) = named.iter().find(|word| !is_known(word)) {
            let words = FailureKinds::WORDS.join("`, `");
            return Err(format!(
                "names {unknown:?}, which is no kind of failure that is retried: write some of `{words}`"
            ));
        }
        let kinds = FailureKind::ALL.iter().copied();
        let kinds = kinds.filter(|kind| named.contains(&kind.as_str()));
        Ok(FailureKinds(kinds.collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coefficient_has_at_most_two_decimals() {
        for (text, value) in [("1", 1.0), ("1.5", 1.5), ("1.05", 1.05), ("10.00", 10.0)] {
            let read: Coefficient = text.parse().unwrap();
            assert!((read.value() - value).abs() < 1e-9, "{text}");
            assert_eq!(read.to_string().parse(), Ok(read));
        }
        assert_eq!(Coefficient::DOUBLE.to_string(), "2");
        for text in [
            "", "0", "0.99", "10.01", "11", "-1", "+1", "1.", ".5", "1.555", "1e1", "NaN",
        ] {
            let fault = text.parse::<Coefficient>().unwrap_err();
            assert!(fault.starts_with("must be a number from 1 to 10"), "{text}");
        }
    }

    #[test]
    fn kinds_of_failure_are_read_in_any_order_and_written_in_one() {
        let kinds: FailureKinds = "timed_out, failed,timed_out".parse().unwrap();
        assert_eq!(kinds.to_string(), "failed,timed_out");
        assert!(kinds.contains(FailureKind::TimedOut) && !kinds.contains(FailureKind::Trapped));
        for (text, unknown) in [
            ("denied", "denied"),
            ("failed,", ""),
            ("", ""),
            ("late", "late"),
        ] {
            let fault = text.parse::<FailureKinds>().unwrap_err();
            assert!(fault.starts_with(&format!("names {unknown:?}")), "{fault}");
        }
    }
}
