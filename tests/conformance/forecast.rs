//! A host does what a forecast says, on a simulated clock: an outage under every way of
//! catching up and several of overlapping.

use std::sync::Arc;
use std::time::Duration;

use campanile_engine::definition;
use campanile_engine::forecast::{
    DurationEstimate, ForecastRequest, Outage, Row, SystemSnapshot, snapshot,
};
use campanile_engine::{Engine, RecoveryLimits, Settings};
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::ScheduleId;
use campanile_schedule::rule::{HashKey, Rule, RuleKind, RuleText};
use campanile_store::launches::{self, LaunchRow};
use campanile_store::runs::{self, RunEnd};
use campanile_store::schedules::{self, Revision};
use campanile_store::{LaunchStatus, Origin, stats};
use campanile_tests::{TestDb, on_both};

use crate::fixtures::{self, Held, schedule_id};
use crate::serving::{self, NOOP};

on_both!(
    an_outage_ends_as_the_forecast_says,
    durations_are_those_of_the_newest_successes,
    a_forecast_starts_from_the_unfinished_launches,
);

/// The duration of every run.
const RUN_DURATION: Duration = Duration::from_secs(7 * 60);
const STEP: Duration = Duration::from_secs(30);
const PLACES: usize = 64;

fn clock_at(text: &str) -> Timestamp {
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

async fn an_outage_ends_as_the_forecast_says(test: TestDb) {
    let clock = Clock::simulated(clock_at("01:54"));
    let (engine, lock) = serving::start(&test, &clock, settings(), NOOP).await;
    let mut ids = Vec::new();
    for overlap in OVERLAPS {
        for (mode, _) in MODES {
            let number = ids.len() as u128;
            ids.push(add(&test, number, &format!("{{{mode},{overlap}}}"), clock.now()).await);
        }
    }
    let outage = Outage {
        from: clock_at("02:00"),
        to: clock_at("05:00"),
    };
    let question = ForecastRequest {
        from: clock.now(),
        to: clock_at("06:00"),
        outages: vec![outage],
        rows_max: 10_000,
    };
    let tower = stand(&test, clock.now()).await;
    let forecast = tower.forecast(&question);
    let foretold = |id: ScheduleId| -> Vec<&Row> {
        let rows = forecast.rows.iter();
        rows.filter(|row| tower.schedules[row.schedule].due.id == id)
            .collect()
    };
    for (&id, (mode, rows)) in ids.iter().zip(MODES) {
        let back = foretold(id)
            .into_iter()
            .filter(|row| row.decided_at == outage.to);
        let back: Vec<String> = back.map(line).collect();
        let rows: Vec<&str> = rows.lines().map(str::trim).collect();
        assert_eq!(back, rows, "{mode}");
    }

    let mut host = Host {
        test: &test,
        clock: &clock,
        engine,
        held: Vec::new(),
    };
    host.live(outage.from).await;
    drop((lock, host.held.split_off(0)));
    clock.advance_to(outage.to);
    let (engine, _lock) = serving::start(&test, &clock, settings(), NOOP).await;
    host.engine = engine;
    host.engine.recover(clock.now()).await.unwrap();
    while host.engine.decide(clock.now()).await.unwrap().more {}
    for &id in &ids {
        let recorded = recorded(&test, id).await;
        let recorded = recorded.iter().filter(|row| row.claimed_at == outage.to);
        let recorded: Vec<_> = recorded
            .map(|row| (row.scheduled_time, row.decision))
            .collect();
        let back = foretold(id)
            .into_iter()
            .filter(|row| row.decided_at == outage.to);
        let back: Vec<_> = back.map(|row| (row.scheduled_time, row.decision)).collect();
        assert_eq!(recorded, back, "{id}");
    }
    host.live(question.to).await;

    for &id in &ids {
        let recorded = recorded(&test, id).await;
        let recorded: Vec<String> = recorded.iter().map(became).collect();
        let foretold: Vec<String> = foretold(id).into_iter().map(will_become).collect();
        assert_eq!(recorded, foretold, "{id}");
    }
    assert_eq!(forecast.recovered, 16, "the launch of 01:55 of each");
}

/// How the hosts work: what an outage of hours interrupts is run again.
fn settings() -> Settings {
    let usual = serving::settings(PLACES);
    let recovery = RecoveryLimits {
        age_max: Duration::from_secs(24 * 3_600),
        ..usual.recovery
    };
    Settings { recovery, ..usual }
}

/// A snapshot of the system, with the duration of its runs.
async fn stand(test: &TestDb, now: Timestamp) -> SystemSnapshot {
    let mut tx = test.read().await;
    let learned = snapshot::estimate_durations(&mut tx).await.unwrap();
    let (mut tower, left_out) = snapshot::read(&mut tx, &settings(), &learned, now)
        .await
        .unwrap();
    assert_eq!(left_out, []);
    assert_eq!(tower.capacity, PLACES);
    for schedule in &mut tower.schedules {
        assert_eq!(
            schedule.duration_estimate,
            DurationEstimate::from_durations(Vec::new())
        );
        schedule.duration_estimate = DurationEstimate::from_durations(vec![RUN_DURATION]);
    }
    tower
}

/// Add a schedule of every five minutes.
async fn add(test: &TestDb, number: u128, policies: &str, now: Timestamp) -> ScheduleId {
    let id = schedule_id(number);
    let text = RuleText::new(RuleKind::Cron, "*/5 * * * *", "UTC");
    let next = Rule::parse(&text, HashKey::of(id)).unwrap().next(now);
    let definition = Revision {
        schedule_id: id,
        revision: 1,
        name: format!("bell-{number}"),
        package: "noop".to_owned(),
        task: None,
        rule: text,
        policies: policies.to_owned(),
        context: "{}".to_owned(),
        since: now,
    };
    definition::parse(&definition).unwrap_or_else(|error| panic!("{policies}: {error}"));
    let mut tx = test.write().await;
    schedules::insert(&mut tx, &definition, Origin::Operator, next)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    id
}

/// A host whose runs have the duration [`RUN_DURATION`].
struct Host<'a> {
    test: &'a TestDb,
    clock: &'a Clock,
    engine: Arc<Engine>,
    held: Vec<(Timestamp, Held)>,
}

impl Host<'_> {
    /// Do all there is to do until `until` comes, step by step.
    async fn live(&mut self, until: Timestamp) {
        while self.clock.now() < until {
            self.step().await;
            self.clock.advance_to(self.clock.now().plus(STEP));
        }
    }

    async fn step(&mut self) {
        let now = self.clock.now();
        let is_over = |(began, _): &mut (Timestamp, Held)| began.plus(RUN_DURATION) <= now;
        let ends = self.held.extract_if(.., is_over);
        let end = RunEnd::Succeeded { output: None };
        let ends: Vec<_> = ends
            .map(|(_, held)| held.finish(end.clone(), now))
            .collect();
        let mut tx = self.test.write().await;
        // A displaced run is not this host's any more.
        runs::finish(&mut tx, &ends).await.unwrap();
        tx.commit().await.unwrap();
        while self.engine.decide(now).await.unwrap().more {}
        self.engine.release(now).await.unwrap();
        for work in self.engine.claim(now).await.unwrap() {
            let held = Held {
                run_id: work.run_id,
                fence: work.fence,
                launch_id: work.launch.launch_id,
                schedule_id: work.launch.schedule_id,
                scheduled_time: work.launch.scheduled_time,
            };
            self.held.push((now, held));
        }
    }
}

/// The rows of a schedule, oldest slot first.
async fn recorded(test: &TestDb, id: ScheduleId) -> Vec<LaunchRow> {
    let mut tx = test.read().await;
    let mut rows = launches::of_schedule(&mut tx, id, 1_000).await.unwrap();
    rows.reverse();
    rows
}

/// `05:01:30` of a time.
fn clock_text(time: Timestamp) -> String {
    let text = time.to_string();
    let text = &text[11..19];
    text.strip_suffix(":00").unwrap_or(text).to_owned()
}

/// A decision as it is recorded.
fn line(row: &Row) -> String {
    let mut text = clock_text(row.scheduled_time);
    if row.last_scheduled_time > row.scheduled_time {
        text += &format!("-{}", clock_text(row.last_scheduled_time));
    }
    text += &format!(" {} {}", row.kind, row.decision);
    match row.status == LaunchStatus::Skipped {
        true => text += &format!(" {}", row.reason.unwrap_or("-")),
        false => text += &format!(" fires {}", clock_text(row.fire_time)),
    }
    if row.slot_count > 1 {
        text += &format!(" {}", row.slot_count);
    }
    text
}

/// All that the forecast says about a launch.
fn will_become(row: &Row) -> String {
    // Of a run that was recovered only the last start is on the record.
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

/// The same about a recorded launch.
fn became(row: &LaunchRow) -> String {
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
        row.claimed_at,
        started_at,
        row.finished_at,
        row.recoveries
    )
}

async fn durations_are_those_of_the_newest_successes(test: TestDb) {
    let host = fixtures::small_setup(&test, 2).await;
    let at = fixtures::at;
    let mut tx = test.write().await;
    for (slot, takes) in [(10, 5), (20, 7), (30, 1)] {
        let decided = [fixtures::launch(1, slot), fixtures::launch(2, slot)];
        let held = fixtures::begin(&mut tx, host, &decided, u128::from(slot), at(slot)).await;
        let ends: Vec<_> = held
            .iter()
            .map(|held| match held.schedule_id == schedule_id(1) {
                true => held.succeeded("{}", at(slot + takes)),
                false => held.failed("no", at(slot + takes)),
            })
            .collect();
        runs::finish(&mut tx, &ends).await.unwrap();
    }
    // A manual launch may have another context.
    let held = fixtures::begin(&mut tx, host, &[fixtures::manual(1, 40)], 40, at(40)).await;
    runs::finish(&mut tx, &[held[0].succeeded("{}", at(49))])
        .await
        .unwrap();
    let mut durations = async |schedule, limit, looked_at| {
        let found = stats::durations(&mut tx, schedule_id(schedule), limit, looked_at)
            .await
            .unwrap();
        found.iter().map(Duration::as_secs).collect::<Vec<_>>()
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
    let held = fixtures::begin(&mut tx, host, &[fixtures::launch(1, 10)], 1, at(12)).await;
    runs::finish(
        &mut tx,
        &[held[0].finish(RunEnd::Waiting { retry_at: at(60) }, at(15))],
    )
    .await
    .unwrap();
    fixtures::begin(&mut tx, host, &[fixtures::launch(2, 20)], 2, at(21)).await;
    launches::insert(&mut tx, &[fixtures::launch(2, 30)])
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let mut tx = test.read().await;
    let settings = serving::settings(3);
    let learned = snapshot::estimate_durations(&mut tx).await.unwrap();
    let (tower, _) = snapshot::read(&mut tx, &settings, &learned, at(31))
        .await
        .unwrap();
    let going_on = tower
        .schedules
        .iter()
        .flat_map(|schedule| &schedule.unfinished);
    let going_on: Vec<_> = going_on
        .map(|on| (on.launch.id, on.launch.status, on.started_at, on.retry_at))
        .collect();
    let id = |schedule, slot| fixtures::launch(schedule, slot).id;
    assert_eq!(
        going_on,
        [
            (id(1, 10), LaunchStatus::Waiting, Some(at(12)), Some(at(60))),
            (id(2, 20), LaunchStatus::Running, Some(at(21)), None),
            (id(2, 30), LaunchStatus::Open, None, None),
        ]
    );
    // The host's last heartbeat is older than its lease: the forecast still assumes a host.
    assert_eq!(tower.capacity, 3);
}
