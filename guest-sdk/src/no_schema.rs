//! The replacement for `schema.rs` without the feature `schema`: no schema is ever derived.

use serde_json::Value;

#[derive(Clone, Copy)]
pub(crate) enum Derive {}

pub(crate) fn of_all(_: &[(&str, Derive)]) -> Option<Value> {
    None
}
