//! Checks that hold for any text given as a rule. A test and the fuzz target call them.

use std::time::Duration;

use campanile_model::clock::Timestamp;
use campanile_schedule::rule::{HashKey, Rule, RuleError, RuleKind, RuleText};

/// Reads a rule text. A test also measures the time.
pub type Parse<'a> = &'a mut dyn FnMut(&RuleText) -> Result<Rule, RuleError>;

/// Read a rule text without measuring the time.
pub fn parse(text: &RuleText) -> Result<Rule, RuleError> {
    Rule::parse(text, HashKey::NONE)
}

/// Read `bytes` as an expression of every kind, and as an exclusion. Return how many were valid.
///
/// # Panics
/// For an error without a hint or of more than one line, a slot that is not after the given instant, or a normal form
/// with another meaning.
pub fn check(bytes: &[u8], parse: Parse) -> usize {
    let text = String::from_utf8_lossy(bytes);
    let kinds = RuleKind::ALL.iter();
    let mut texts: Vec<RuleText> = kinds
        .map(|&kind| RuleText::new(kind, text.as_ref(), "America/New_York"))
        .collect();
    texts.push(RuleText {
        exclude: vec![text.into_owned()],
        ..RuleText::new(RuleKind::Cron, "0 9 * * *", "America/New_York")
    });
    let valid = texts.iter().filter(|text| check_text(text, parse));
    valid.count()
}

fn check_text(text: &RuleText, parse: Parse) -> bool {
    let rule = match parse(text) {
        Ok(rule) => rule,
        Err(error) => {
            let message = error.to_string();
            assert!(
                !message.is_empty() && !message.contains('\n'),
                "{text:?}: {message}"
            );
            assert!(!error.hint().is_empty(), "{text:?}: {message}");
            return false;
        }
    };
    // 01:45 in New York, in the hour that the clock repeats.
    let after = Timestamp::from_micros(1_793_515_500_000_000);
    if let Some(slot) = rule.next(after) {
        assert!(slot > after, "{text:?}");
        assert!(
            rule.matches(slot) && !rule.matches(slot.plus(Duration::from_micros(1))),
            "{text:?}"
        );
        assert!(rule.prev(slot).is_none_or(|slot| slot <= after), "{text:?}");
    }
    let normal = RuleText {
        expression: rule.normal_form(),
        ..text.clone()
    };
    assert_eq!(parse(&normal).as_ref(), Ok(&rule), "{text:?}");
    true
}
