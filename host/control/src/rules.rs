//! Pure rules, shared with the engine.

pub mod alert_rule;
pub mod lateness;
pub mod leaf;
pub mod plan;
pub mod recovery_rules;
pub mod rollup;
