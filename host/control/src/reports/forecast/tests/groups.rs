//! Concurrency groups and priorities in forecasts.

use super::*;

#[test]
fn a_group_has_room_for_its_max_and_the_urgent_launches_come_first() {
    let policies = |priority| format!(r#"{{"group":"db","priority":{priority}}}"#);
    let schedules = [1, 5, 9, 5].iter().zip(1..);
    let schedules = schedules.map(|(priority, number)| {
        schedule(
            number,
            (RuleKind::Cron, "0 * * * *"),
            &policies(*priority),
            60,
        )
    });
    let snapshot = snapshot(10, schedules.collect());
    let forecast = snapshot.forecast(&until("08:30"));
    assert_eq!(forecast.all.peak, 2);
    let starts = forecast
        .rows
        .iter()
        .map(|row| (row.schedule, clock(row.started_at.unwrap())));
    let starts: std::collections::BTreeMap<usize, String> = starts.collect();
    let starts: Vec<&str> = starts.values().map(String::as_str).collect();
    assert_eq!(starts, ["08:01", "08:00", "08:00", "08:01"]);
}
