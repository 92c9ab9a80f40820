//! A host on a simulated clock behaves as its forecast: an outage under every catch-up policy and
//! several overlap policies.

use std::sync::Arc;
use std::time::Duration;

use campanile_control::reports::forecast::snapshot::{self, OmittedSchedule};
use campanile_control::reports::forecast::{
    DurationEstimate, ForecastRequest, Outage, Row, SystemSnapshot,
};
use campanile_control::schedules::definition;
use campanile_control::settings::{RecoveryLimits, Settings};
use campanile_engine::Engine;
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::ScheduleId;
use campanile_schedule::rule::{HashKey, Rule, RuleKind, RuleText};
use campanile_store::launch::{self, LaunchRow, RunEnd};
use campanile_store::schedules::Revision;
use campanile_store::{LaunchStatus, Origin, Tx, stats};
use campanile_tests::{TestDb, on_both};

use crate::fixtures::{self, ClaimedRun, insert_schedule, schedule_id};
use crate::serving::{self, NOOP};

on_both!(
    a_host_recovers_from_an_outage_as_forecast,
    durations_are_of_the_newest_successful_launches,
    a_forecast_starts_from_the_unfinished_launches,
    a_forecast_needs_no_schedule_that_is_due_later_and_not_listed,
);

/// The duration of every run.
const RUN_DURATION: Duration = Duration::from_secs(7 * 60);
const STEP: Duration = Duration::from_secs(30);
const CAPACITY: usize = 64;

fn clock_time(text: &str) -> Timestamp {
    format!("2026-06-01T{text}:00Z").parse().unwrap()
}

/// The catch-up policies, and the rows that are decided at 05:00 with the overlap policy `skip`.
const MODES: [(&str, &str); 4] = [
    (
        r#""catchup":"none""#,
        "02:00-04:50 schedule skipped catchup_none 35
         04:55 schedule skipped overlap
         05:00 schedule skipped overlap",
    ),
    (
        r#""catchup":"latest""#,
        "02:00-04:45 schedule skipped coalesced 34
         04:50 catchup queued fires 04:50
         04:55 schedule skipped overlap
         05:00 schedule skipped overlap",
    ),
    (
        r#""catchup":"earliest""#,
        "02:00 catchup queued fires 02:00
         02:05-04:50 schedule skipped coalesced 34
         04:55 schedule skipped overlap
         05:00 schedule skipped overlap",
    ),
    (
        r#""catchup":"all","catchup_max":3,"catchup_spread":"90s""#,
        "02:00-04:35 schedule skipped catchup_max 32
         04:40 catchup queued fires 05:01:30
         04:45 catchup queued fires 05:03
         04:50 catchup queued fires 05:04:30
         04:55 schedule skipped overlap
         05:00 schedule skipped overlap",
    ),
];

const OVERLAPS: [&str; 4] = [
    r#""overlap":"skip""#,
    r#""overlap":"buffer_all""#,
    r#""overlap":"terminate_other""#,
    r#""overlap":"allow","max_concurrent":2"#,
];

async fn a_host_recovers_from_an_outage_as_forecast(test: TestDb) {
    let clock = Clock::simulated(clock_time("01:54"));
    let (engine, lock) = serving::start(&test, &clock, settings(), NOOP).await;
    let mut ids = Vec::new();
    for overlap in OVERLAPS {
        for (mode, _) in MODES {
            let number = ids.len() as u128;
            ids.push(add(&test, number, &format!("{{{mode},{overlap}}}"), clock.now()).await);
        }
    }
    let outage = Outage {
        from: clock_time("02:00"),
        to: clock_time("05:00"),
    };
    let request = ForecastRequest {
        from: clock.now(),
        to: clock_time("06:00"),
        outages: vec![outage],
        rows_max: 10_000,
    };
    let system = read_snapshot(&test, clock.now()).await;
    let forecast = system.forecast(&request);
    let forecast_rows = |id: ScheduleId| -> Vec<&Row> {
        let rows = forecast.rows.iter();
        rows.filter(|row| system.schedules[row.schedule].due.id == id)
            .collect()
    };
    for (&id, (mode, rows)) in ids.iter().zip(MODES) {
        let at_return = forecast_rows(id)
            .into_iter()
            .filter(|row| row.decided_at == outage.to);
        let at_return: Vec<String> = at_return.map(line).collect();
        let rows: Vec<&str> = rows.lines().map(str::trim).collect();
        assert_eq!(at_return, rows, "{mode}");
    }

    let mut host = Host {
        test: &test,
        clock: &clock,
        engine,
        claimed: Vec::new(),
    };
    host.work_until(outage.from).await;
    drop((lock, host.claimed.split_off(0)));
    clock.advance_to(outage.to);
    let (engine, _lock) = serving::start(&test, &clock, settings(), NOOP).await;
    host.engine = engine;
    host.engine.recover(clock.now()).await.unwrap();
    while host.engine.decide(clock.now()).await.unwrap().more {}
    for &id in &ids {
        let recorded = recorded(&test, id).await;
        let recorded = recorded.iter().filter(|row| row.decided_at == outage.to);
        let recorded: Vec<_> = recorded
            .map(|row| (row.scheduled_time, row.decision))
            .collect();
        let at_return = forecast_rows(id)
            .into_iter()
            .filter(|row| row.decided_at == outage.to);
        let at_return: Vec<_> = at_return
            .map(|row| (row.scheduled_time, row.decision))
            .collect();
        assert_eq!(recorded, at_return, "{id}");
    }
    host.work_until(request.to).await;

    for &id in &ids {
        let recorded = recorded(&test, id).await;
        let recorded: Vec<String> = recorded.iter().map(recorded_text).collect();
        let expected: Vec<String> = forecast_rows(id).into_iter().map(forecast_text).collect();
        assert_eq!(recorded, expected, "{id}");
    }
    assert_eq!(
        forecast.recovered, 16,
        "the launch of 01:55 of each schedule"
    );
}

/// Return host settings that run launches again after an outage of hours.
fn settings() -> Settings {
    let default = serving::settings(CAPACITY);
    let recovery = RecoveryLimits {
        age_max: Duration::from_secs(24 * 3_600),
        ..default.recovery
    };
    Settings {
        recovery,
        ..default
    }
}

/// Read what a forecast of a day needs.
async fn read(
    tx: &mut Tx,
    settings: &Settings,
    now: Timestamp,
) -> (SystemSnapshot, Vec<OmittedSchedule>) {
    let request = ForecastRequest {
        from: now,
        to: now.plus(Duration::from_secs(24 * 3_600)),
        outages: Vec::new(),
        rows_max: 100_000,
    };
    let needed = snapshot::needed(tx, &request, &[]).await.unwrap();
    let estimates = snapshot::estimate_durations(tx, &needed, (50, 500))
        .await
        .unwrap();
    snapshot::read(tx, settings, &estimates, &needed, now)
        .await
        .unwrap()
}

/// Return a snapshot of the system in which each run takes [`RUN_DURATION`].
async fn read_snapshot(test: &TestDb, now: Timestamp) -> SystemSnapshot {
    let mut tx = test.read().await;
    let (mut system, left_out) = read(&mut tx, &settings(), now).await;
    assert_eq!(left_out, []);
    assert_eq!(system.capacity, CAPACITY);
    for schedule in &mut system.schedules {
        assert_eq!(
            schedule.duration_estimate,
            DurationEstimate::from_durations(Vec::new())
        );
        schedule.duration_estimate = DurationEstimate::from_durations(vec![RUN_DURATION]);
    }
    system
}

/// Add a schedule of every five minutes.
async fn add(test: &TestDb, number: u128, policies: &str, now: Timestamp) -> ScheduleId {
    let id = schedule_id(number);
    let text = RuleText::new(RuleKind::Cron, "*/5 * * * *", "UTC");
    let next = Rule::parse(&text, HashKey::of(id)).unwrap().next(now);
    let definition = Revision {
        schedule_id: id,
        revision: 1,
        name: format!("schedule-{number}"),
        package: "noop".to_owned(),
        task: None,
        rule: text,
        policies: policies.to_owned(),
        defaults: "{}".to_owned(),
        args: None,
        context: "{}".to_owned(),
        since: now,
    };
    definition::parse(&definition).unwrap_or_else(|error| panic!("{policies}: {error}"));
    let mut tx = test.write().await;
    insert_schedule(&mut tx, &definition, Origin::Operator, next)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    id
}

/// A host whose runs take [`RUN_DURATION`].
struct Host<'a> {
    test: &'a TestDb,
    clock: &'a Clock,
    engine: Arc<Engine>,
    claimed: Vec<(Timestamp, ClaimedRun)>,
}

impl Host<'_> {
    /// Work in steps of [`STEP`] until `until`.
    async fn work_until(&mut self, until: Timestamp) {
        while self.clock.now() < until {
            self.step().await;
            self.clock.advance_to(self.clock.now().plus(STEP));
        }
    }

    async fn step(&mut self) {
        let now = self.clock.now();
        let is_finished =
            |(started_at, _): &mut (Timestamp, ClaimedRun)| started_at.plus(RUN_DURATION) <= now;
        let ends = self.claimed.extract_if(.., is_finished);
        let end = RunEnd::Succeeded { output: None };
        let ends: Vec<_> = ends.map(|(_, run)| run.finish(end.clone(), now)).collect();
        let mut tx = self.test.write().await;
        // The store ignores the end of a run that was displaced.
        launch::finish(&mut tx, &ends).await.unwrap();
        tx.commit().await.unwrap();
        while self.engine.decide(now).await.unwrap().more {}
        self.engine.release(now).await.unwrap();
        for work in self.engine.claim(now).await.unwrap() {
            self.claimed.push((now, ClaimedRun::of(&work.launch)));
        }
    }
}

/// Return the launches of a schedule, oldest slot first.
async fn recorded(test: &TestDb, id: ScheduleId) -> Vec<LaunchRow> {
    let mut tx = test.read().await;
    let mut rows = launch::of_schedule(&mut tx, id, 1_000).await.unwrap();
    rows.reverse();
    rows
}

/// Return the time of day, such as `05:01:30` or `05:00`.
fn clock_text(time: Timestamp) -> String {
    let text = time.to_string();
    let text = &text[11..19];
    text.strip_suffix(":00").unwrap_or(text).to_owned()
}

/// Return a decision of the forecast as text.
fn line(row: &Row) -> String {
    let mut text = clock_text(row.scheduled_time);
    if row.last_scheduled_time > row.scheduled_time {
        text += &format!("-{}", clock_text(row.last_scheduled_time));
    }
    text += &format!(" {} {}", row.kind, row.decision);
    match row.status == LaunchStatus::Skipped {
        true => text += &format!(" {}", row.reason.as_deref().unwrap_or("-")),
        false => text += &format!(" fires {}", clock_text(row.fire_time)),
    }
    if row.slot_count > 1 {
        text += &format!(" {}", row.slot_count);
    }
    text
}

/// Return everything that the forecast contains about a launch, as text.
fn forecast_text(row: &Row) -> String {
    // For a recovered launch only the last start is recorded.
    let started_at = row.started_at.filter(|_| row.recoveries == 0);
    format!(
        "{} {} {} {} {} {:?} {:?} fires {} at {} {:?} {:?} {}",
        row.scheduled_time,
        row.last_scheduled_time,
        row.slot_count,
        row.kind,
        row.status,
        row.reason,
        row.overlaps,
        row.fire_time,
        row.decided_at,
        started_at,
        row.finished_at,
        row.recoveries
    )
}

/// Return the same about a recorded launch.
fn recorded_text(row: &LaunchRow) -> String {
    let started_at = row.started_at.filter(|_| row.recoveries == 0);
    format!(
        "{} {} {} {} {} {:?} {:?} fires {} at {} {:?} {:?} {}",
        row.scheduled_time,
        row.last_scheduled_time,
        row.slot_count,
        row.kind,
        row.status,
        row.reason.as_deref(),
        row.overlaps,
        row.fire_time,
        row.decided_at,
        started_at,
        row.finished_at,
        row.recoveries
    )
}

async fn durations_are_of_the_newest_successful_launches(test: TestDb) {
    let host = fixtures::host_with_schedules(&test, 2).await;
    let at = fixtures::at;
    let mut tx = test.write().await;
    for (slot, takes) in [(10, 5), (20, 7), (30, 1)] {
        let decided = [fixtures::launch(1, slot), fixtures::launch(2, slot)];
        let claimed = fixtures::insert_and_claim(&mut tx, host, &decided, at(slot)).await;
        let ends: Vec<_> = claimed
            .iter()
            .map(|run| match run.schedule_id == schedule_id(1) {
                true => run.succeeded("{}", at(slot + takes)),
                false => run.failed("no", at(slot + takes)),
            })
            .collect();
        launch::finish(&mut tx, &ends).await.unwrap();
    }
    // A manual launch may have another context.
    let claimed =
        fixtures::insert_and_claim(&mut tx, host, &[fixtures::manual(1, 40)], at(40)).await;
    launch::finish(&mut tx, &[claimed[0].succeeded("{}", at(49))])
        .await
        .unwrap();
    let mut durations = async |schedule, limit, launches_max| {
        let found = stats::successes(&mut tx, schedule_id(schedule), limit, launches_max)
            .await
            .unwrap();
        let durations = found.iter().map(|(start, end)| end.since(*start).as_secs());
        durations.collect::<Vec<_>>()
    };
    assert_eq!(durations(1, 50, 500).await, [1, 7, 5]);
    assert_eq!(durations(1, 2, 500).await, [1, 7]);
    assert!(durations(2, 50, 500).await.is_empty());
    // Only the newest launches are searched.
    assert_eq!(durations(1, 50, 1).await, [1]);
}

async fn a_forecast_starts_from_the_unfinished_launches(test: TestDb) {
    let at = fixtures::at;
    for number in [1, 2] {
        add(&test, number, "{}", at(0)).await;
    }
    let mut tx = test.write().await;
    let host = fixtures::add_host(&mut tx, 1, at(0)).await;
    let claimed =
        fixtures::insert_and_claim(&mut tx, host, &[fixtures::launch(1, 10)], at(12)).await;
    launch::finish(
        &mut tx,
        &[claimed[0].finish(RunEnd::Waiting { retry_at: at(60) }, at(15))],
    )
    .await
    .unwrap();
    fixtures::insert_and_claim(&mut tx, host, &[fixtures::launch(2, 20)], at(21)).await;
    launch::insert(&mut tx, &[fixtures::launch(2, 30)])
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let mut tx = test.read().await;
    let settings = serving::settings(3);
    let (system, _) = read(&mut tx, &settings, at(31)).await;
    let unfinished = system
        .schedules
        .iter()
        .flat_map(|schedule| &schedule.unfinished);
    let unfinished: Vec<_> = unfinished
        .map(|(launch, run)| {
            (
                launch.id,
                launch.life.status,
                run.map(|run| run.started_at),
                run.and_then(|run| run.retry_at),
            )
        })
        .collect();
    let id = |schedule, slot| fixtures::launch(schedule, slot).id;
    assert_eq!(
        unfinished,
        [
            (id(1, 10), LaunchStatus::Waiting, Some(at(12)), Some(at(60))),
            (id(2, 20), LaunchStatus::Running, Some(at(21)), None),
            (id(2, 30), LaunchStatus::Open, None, None),
        ]
    );
    // The host's last heartbeat is older than its lease. The forecast still assumes that it serves.
    assert_eq!(system.capacity, 3);
}

/// Of 1,100 schedules, one has a slot in the span, one an unfinished launch, and one is named by the caller.
async fn a_forecast_needs_no_schedule_that_is_due_later_and_not_listed(test: TestDb) {
    let now = clock_time("00:00");
    let request = ForecastRequest {
        from: now,
        to: now.plus(Duration::from_secs(3_600)),
        outages: Vec::new(),
        rows_max: 1,
    };
    let name = |number: usize| format!("schedule-{number:04}");
    let (due, due_after, unfinished, named, later) = (1_050, 1_051, 1_060, 1_070, 1_080);
    let mut tx = test.write().await;
    for number in 0..1_100 {
        let id = schedule_id(number as u128 + 1);
        let text = RuleText::new(RuleKind::Cron, "@yearly", "UTC");
        let definition = Revision {
            schedule_id: id,
            revision: 1,
            name: name(number),
            package: "noop".to_owned(),
            task: None,
            rule: text,
            policies: "{}".to_owned(),
            defaults: "{}".to_owned(),
            args: None,
            context: "{}".to_owned(),
            since: now,
        };
        let minutes = match number {
            _ if number == due => 5,
            _ if number == due_after => 6,
            _ => 1_000,
        };
        let next = Some(now.plus(Duration::from_secs(minutes * 60)));
        insert_schedule(&mut tx, &definition, Origin::Operator, next)
            .await
            .unwrap();
        if number == unfinished {
            let launch = fixtures::launch(number as u128 + 1, 10);
            launch::insert(&mut tx, &[launch]).await.unwrap();
        }
    }
    tx.commit().await.unwrap();

    let mut tx = test.read().await;
    let wanted = name(named);
    let wanted = [wanted.as_str(), "no-such-schedule"];
    let needed = snapshot::needed(&mut tx, &request, &wanted).await.unwrap();
    let needed: Vec<String> = needed
        .into_iter()
        .map(|schedule| schedule.definition.name)
        .collect();
    let listed = (0..1_000).chain([due, unfinished, named]).map(name);
    assert_eq!(needed, listed.collect::<Vec<_>>());
    assert!(!needed.contains(&name(due_after)) && !needed.contains(&name(later)));
}
