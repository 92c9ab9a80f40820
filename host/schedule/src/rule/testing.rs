//! Helpers of the tests of this module and of `policy`.

use rand::SeedableRng as _;
use rand::rngs::StdRng;

use super::{HashKey, Rule, RuleError, RuleKind, RuleText};
use campanile_model::clock::Timestamp;

pub(crate) fn time(text: &str) -> Timestamp {
    text.parse().unwrap()
}

pub(crate) fn times(texts: &[&str]) -> Vec<Timestamp> {
    texts.iter().map(|text| time(text)).collect()
}

/// Parse the rule of no schedule.
pub(crate) fn rule(text: &RuleText) -> Result<Rule, RuleError> {
    Rule::parse(text, HashKey::NONE)
}

pub(crate) fn parsed(kind: RuleKind, expression: &str, timezone: &str) -> Result<Rule, RuleError> {
    rule(&RuleText::new(kind, expression, timezone))
}

pub(crate) fn cron(expression: &str, timezone: &str) -> Result<Rule, RuleError> {
    parsed(RuleKind::Cron, expression, timezone)
}

pub(crate) fn every(expression: &str, timezone: &str) -> Result<Rule, RuleError> {
    parsed(RuleKind::Every, expression, timezone)
}

pub(crate) fn at(expression: &str, timezone: &str) -> Result<Rule, RuleError> {
    parsed(RuleKind::At, expression, timezone)
}

/// Returns a source of random values. It prints its seed, or takes it from `CAMPANILE_TEST_SEED`.
pub(crate) fn seeded(what: &str) -> StdRng {
    let seed = match std::env::var("CAMPANILE_TEST_SEED") {
        Ok(seed) => seed.parse().expect("CAMPANILE_TEST_SEED is a whole number"),
        Err(_) => rand::random(),
    };
    println!("{what}: replay with CAMPANILE_TEST_SEED={seed}");
    StdRng::seed_from_u64(seed)
}
