use serde_json::json;

use super::*;
use crate::admin::backfill::batch::tests::{backfill, minute};

#[test]
fn requests_are_equal_when_every_argument_is_equal() {
    let before = backfill();
    // The order of the keys does not matter.
    let context = JsonObject::from([
        ("b".to_owned(), json!(2).into()),
        ("a".to_owned(), json!(1).into()),
    ]);
    let request = BackfillRequest {
        id: before.id,
        from: before.from,
        to: before.to,
        spread: Duration::ZERO,
        forced: false,
        context: Some(&context),
        by: "somebody else",
    };
    assert_eq!(
        differences(&before, "nightly", &request),
        Vec::<String>::new()
    );
    let other = BackfillRequest {
        to: minute(8),
        spread: Duration::from_secs(2),
        forced: true,
        context: None,
        ..request
    };
    let found = differences(&before, "daily", &other);
    assert_eq!(
        found,
        [
            "the schedule `nightly` instead of `daily`",
            "--to 2026-01-01T00:09:00Z instead of 2026-01-01T00:08:00Z",
            "--spread 0s instead of 2s",
            "--force false instead of true",
            r#"--context {"a":1,"b":2} instead of none"#,
        ]
    );
}
