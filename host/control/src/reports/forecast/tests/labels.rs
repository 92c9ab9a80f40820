//! Launches that no live host can execute.

use super::*;
use campanile_model::labels::Labels;

#[test]
fn a_launch_without_a_host_for_its_labels_waits_and_keeps_no_room_from_others() {
    let mut on_gpu = schedule(1, EVERY_FIVE, "{\"run_on\":[\"gpu\"]}", 60);
    on_gpu.missing_labels = Some(Labels::new(["gpu"]).unwrap());
    let other = schedule(2, EVERY_FIVE, "{}", 60);
    let snapshot = snapshot(1, vec![on_gpu, other]);
    let forecast = snapshot.forecast(&until("08:16"));
    let rows: Vec<String> = forecast
        .rows
        .iter()
        .map(|row| shown(&snapshot, row))
        .collect();
    let waiting = forecast.rows.iter().find(|row| row.schedule == 0);
    let waiting = waiting.expect("a decision");
    assert_eq!(
        (waiting.status, waiting.started_at),
        (LaunchStatus::Open, None),
        "{rows:#?}"
    );
    // It counts for the overlap policy, as on record.
    assert_eq!(forecast.schedules[0].launches, 1, "{rows:#?}");
    assert_eq!(forecast.schedules[0].skipped.get("overlap"), Some(&3));
    assert_eq!(forecast.schedules[0].starts.len(), 0);
    assert_eq!(forecast.schedules[1].launches, 4);
    assert_eq!(forecast.schedules[1].starts.len(), 4);
}

#[test]
fn a_launch_that_waits_for_its_labels_is_skipped_for_the_next() {
    let policies = r#"{"run_on":["gpu"],"overlap":"cancel_other"}"#;
    let mut on_gpu = schedule(1, EVERY_FIVE, policies, 60);
    on_gpu.missing_labels = Some(Labels::new(["gpu"]).unwrap());
    let snapshot = snapshot(1, vec![on_gpu]);
    let forecast = snapshot.forecast(&until("08:16"));
    let [earlier @ .., last] = &forecast.rows[..] else {
        panic!("no rows");
    };
    assert_eq!(earlier.len(), 3);
    for (row, next) in earlier.iter().zip(&forecast.rows[1..]) {
        assert_eq!(
            (row.status, row.reason.as_deref(), row.overlaps),
            (LaunchStatus::Skipped, Some("overlap"), Some(next.id)),
            "{}",
            shown(&snapshot, row)
        );
    }
    assert_eq!(last.status, LaunchStatus::Open);
}
