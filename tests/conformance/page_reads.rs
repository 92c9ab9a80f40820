//! What the pages for a browser read: no more of a record four times as large, and no more with four times the schedules.
//!
//! On SQLite the test counts the steps of the statements, of which each row takes a few. On Postgres it counts the rows and
//! the entries of indexes. A host in this process answers the pages.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use campanile_control::reports::failure_feed::FailureFeed;
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::{
    AlertId, EventId, HostId, LaunchId, LaunchKind, MessageId, RunId, ScheduleId,
};
use campanile_model::rollup::Period;
use campanile_schedule::rule::{RuleKind, RuleText};
use campanile_server::{App, Listen, Server};
use campanile_store::schedules::{self, NewSchedule, Revision};
use campanile_store::{Origin, hosts, probe};
use campanile_tests::{Backend, TestDb, on_both};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use uuid::Uuid;

use crate::fixtures::{at, host, host_id, revision, schedule_id};
use crate::serving::{self, NOOP, settings};

on_both!(pages_read_no_more_of_a_larger_record);

/// The launches of the small record. Each bound on what a page reads is below the half of them.
const LAUNCHES: u64 = 24_000;
/// The schedules of the small record.
const SCHEDULES: u128 = 400;
/// By how much the other record is larger.
const FACTOR: u64 = 4;
/// The schedules with launches. The first has one half of them, all in the last minutes.
const BUSY: u64 = 12;
/// The rows of one statement.
const ROWS: usize = 500;
/// The bytes of a page with its style sheet, its script and its icon.
const FIRST_VIEW_BYTES_MAX: usize = 100_000;
/// A statement that reads all launches, among the pages.
const WHOLE: &str = "all launches";
/// The connections of the pools.
const SQLITE_READERS: usize = 4;
const POSTGRES_CONNECTIONS: usize = 8;

/// A month after the schedules were added.
fn now() -> Timestamp {
    at(30 * 24 * 3_600)
}

/// Return the schedule and the slot of a launch.
fn launch(number: u64) -> (ScheduleId, Timestamp) {
    let half = number / 2;
    match number % 2 {
        // Within nine minutes: the factor has no divisor in common with them, so each slot is another one.
        0 => {
            let before = Duration::from_millis(60_000 + half * 7_919 % 480_000);
            (schedule_id(1), now().minus(before))
        }
        // Half a minute apart.
        _ => {
            let before = Duration::from_secs(3_600 + 30 * half);
            (
                schedule_id(2 + u128::from(half % (BUSY - 1))),
                now().minus(before),
            )
        }
    }
}

/// Insert rows, some at a time.
async fn insert(test: &TestDb, into: &str, rows: impl Iterator<Item = String>) {
    let rows = Vec::from_iter(rows);
    let mut tx = test.write().await;
    for rows in rows.chunks(ROWS) {
        let sql = format!("INSERT INTO {into} VALUES {}", rows.join(", "));
        probe::execute(&mut tx, &sql)
            .await
            .unwrap_or_else(|error| panic!("{error}: {}", sql.get(..400).unwrap_or(&sql)));
    }
    tx.commit().await.unwrap();
}

/// Insert the launches of these numbers, and what the record gets besides: calls, events, alerts, hosts and removed schedules.
async fn fill(test: &TestDb, from: u64, to: u64) {
    let backend = test.backend();
    let instant = |at: Timestamp| backend.instant(at);
    let digest = backend.bytes(&"ab".repeat(32));
    let host = backend.id(host_id(99).0);
    let second = Duration::from_secs(1);
    let row = |number: u64| {
        let (schedule, slot) = launch(number);
        let id = backend.id(LaunchId::of(schedule, slot, LaunchKind::Schedule).0);
        let (status, reason, ran) = match number % 10 {
            2 | 3 => ("failed", "NULL", true),
            4 | 5 => ("skipped", "'overlap'", false),
            _ => ("succeeded", "NULL", true),
        };
        let (host, started) = match ran {
            true => (&*host, instant(slot.plus(second))),
            false => ("NULL", "NULL".to_owned()),
        };
        let failure = if status == "failed" {
            "'failed', 'it broke'"
        } else {
            "NULL, NULL"
        };
        let (schedule, slot, end) = (
            backend.id(schedule.0),
            instant(slot),
            instant(slot.plus(second * 2)),
        );
        format!(
            "({id}, {schedule}, 1, 'schedule', '{status}', {slot}, 0, {reason}, 'noop', {digest}, FALSE, 5, {slot}, {slot}, {host}, {}, {slot}, {started}, {end}, {failure})",
            u8::from(ran)
        )
    };
    insert(
        test,
        "launch (id, schedule_id, schedule_revision, kind, status, scheduled_time, utc_offset, reason, package, digest, proposed,
            priority, interval_start, fire_time, host_id, attempts, decided_at, started_at, finished_at, failure, message)",
        (from..to).map(row),
    )
    .await;
    let call = |number: u64| {
        let (schedule, slot) = launch(number);
        let id = backend.id(LaunchId::of(schedule, slot, LaunchKind::Schedule).0);
        let slot = instant(slot);
        format!("({id}, 'strike', 1, 1, TRUE, {slot}, {slot}, '1', '', '', '', 1, 1, 1, '{{}}')")
    };
    insert(
        test,
        "task_run (launch_id, task, attempt, run_number, succeeded, started_at, finished_at, output, stdout, stderr, logs, wall_ms,
            cpu_ms, memory_peak_bytes, usage)",
        (from..to).filter(|number| matches!(number % 10, 6..=9)).map(call),
    )
    .await;
    fill_rollups(test, from, to).await;
    let event = |number: u64| {
        let at = now().minus(Duration::from_secs(60 + number));
        let id = backend.id(EventId::new(at).0);
        format!(
            "({id}, {}, 'schedule_paused', 'other-{number}', 'paused', 'ada', 'cli')",
            instant(at)
        )
    };
    let into = "event (id, at, kind, subject, detail, principal, channel)";
    insert(test, into, (from..to).step_by(4).map(event)).await;
    let alert = |number: u64| {
        let at = now().minus(Duration::from_secs(60 + number));
        let (id, at) = (backend.id(AlertId::new(at).0), instant(at));
        format!(
            "({id}, 'broken', 'failed', 'warning', 'resolved', 'busy-1', 'busy-{number}', 'it failed', 3, {at}, {at}, {at}, 0)"
        )
    };
    let into = "alert (id, rule, kind, severity, status, subject, subject_id, detail, version, since_at, fired_at, resolved_at, flaps)";
    insert(test, into, (from..to).step_by(40).map(alert)).await;
    let message = |number: u64| {
        let (schedule, slot) = launch(number);
        let launch = LaunchId::of(schedule, slot, LaunchKind::Schedule);
        let id = backend.id(MessageId::of(launch, "strike", 0).0);
        let (launch, at) = (backend.id(launch.0), instant(slot));
        // Few wait.
        let (status, next, finished) = match number % 4_000 {
            0 => ("pending", at.as_str(), "NULL"),
            _ => ("delivered", "NULL", at.as_str()),
        };
        format!(
            "({id}, '{status}', {launch}, 'noop', 'strike', 0, 'POST', 'https://example.com/', '[]', {}, {at}, {at}, 1, {next}, {finished})",
            backend.bytes("00")
        )
    };
    let into = "outbox_message (id, status, launch_id, package, task, number, method, url, headers, body, created_at, give_up_at, attempts,
        next_attempt_at, finished_at)";
    insert(test, into, (from..to).step_by(20).map(message)).await;
    let ended = |number: u64| {
        let at = now().minus(Duration::from_secs(3_600 + number));
        let (id, at) = (backend.id(HostId::new(at).0), instant(at));
        format!(
            "({id}, 'former', {number} + 1, '0.1.0', '48', '2026a', {at}, {at}, {at}, 8, '', {at}, 'stopped')"
        )
    };
    let into = "host (id, name, number, version, wasmtime_version, tzdata_version, started_at, heartbeat_at, lease_until, runs_max, labels,
        ended_at, end_reason)";
    insert(test, into, (from..to).step_by(50).map(ended)).await;
    let removed = |number: u64| {
        let id = backend.id(Uuid::from_u128(0xD000_0000 + u128::from(number)));
        let at = instant(at(number));
        format!("({id}, 'removed-{number}', 'noop', 'operator', 1, TRUE, {at}, {at}, {at}, {at})")
    };
    let into = "schedule (id, name, package, origin, revision, enabled, cursor_at, created_at, updated_at, deleted_at)";
    insert(test, into, (from..to).step_by(50).map(removed)).await;
    test.execute(
        "INSERT INTO schedule_revision (schedule_id, revision, name, package, task, kind, expression, anchor, timezone, day_match, dst_gap,
            dst_fold, exclude, policies, defaults, args, context, since)
        SELECT s.id, 1, s.name, r.package, r.task, r.kind, r.expression, r.anchor, r.timezone, r.day_match, r.dst_gap,
            r.dst_fold, r.exclude, r.policies, r.defaults, r.args, r.context, r.since
        FROM schedule s JOIN schedule b ON b.name = 'busy-1' JOIN schedule_revision r ON r.schedule_id = b.id
        WHERE s.deleted_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM schedule_revision o WHERE o.schedule_id = s.id)",
    )
    .await;
    analyze(test).await;
}

/// Insert what the rollup has of these numbers: hours and days before now, of schedules with launches and of their package.
async fn fill_rollups(test: &TestDb, from: u64, to: u64) {
    let backend = test.backend();
    let of = |number: u64, key: &str| {
        let rows = Period::ALL.iter().map(|period| {
            let before = period.length() * u32::try_from(number).unwrap();
            let start = backend.instant(period.start(now()).minus(before));
            let (period, empty) = (period.as_str(), backend.bytes(""));
            format!("({key}, '{period}', {start}, 3, 1, 2, 0, 1, 9, {empty}, {empty})")
        });
        Vec::from_iter(rows).join(", ")
    };
    let schedules = (from..to).step_by(10).map(|number| {
        let schedule = schedule_id(1 + u128::from(number / 10 % BUSY));
        of(number / 10 / BUSY, &backend.id(schedule.0))
    });
    insert(test, "schedule_rollup", schedules).await;
    let packages = (from..to)
        .step_by(10)
        .map(|number| of(number / 10, "'noop'"));
    insert(test, "package_rollup", packages).await;
}

/// Postgres looks at its tables by itself, some time after they have grown. SQLite does not.
async fn analyze(test: &TestDb) {
    if test.backend() == Backend::Postgres {
        let tables = "launch, task_run, event, alert, host, schedule, schedule_revision, schedule_result, schedule_rollup, package_rollup";
        test.execute(&format!("ANALYZE {tables}")).await;
    }
}

/// Add the schedules of these numbers. Each has succeeded, and launches once a day.
async fn add_schedules(test: &TestDb, numbers: std::ops::RangeInclusive<u128>) {
    let new = |number: u128| {
        let is_busy = number <= u128::from(BUSY);
        let name = if is_busy { "busy" } else { "filled" };
        let minutes = u64::try_from(number).unwrap() % 1_440;
        let next = now().plus(Duration::from_secs(60 * (minutes + 1)));
        NewSchedule {
            definition: Revision {
                name: format!("{name}-{number}"),
                package: NOOP.0.to_owned(),
                rule: RuleText {
                    anchor: Some(next),
                    ..RuleText::new(RuleKind::Every, "24h", "UTC")
                },
                ..revision(number)
            },
            origin: Origin::Operator,
            next_slot: Some(next),
        }
    };
    let all = Vec::from_iter(numbers.map(new));
    let mut tx = test.write().await;
    schedules::insert_all(&mut tx, &all).await.unwrap();
    tx.commit().await.unwrap();
    let slot = test.backend().instant(at(0));
    test.execute(&format!(
        "INSERT INTO schedule_result (schedule_id, success_scheduled_time, result) SELECT id, {slot}, '1' FROM schedule s
        WHERE s.deleted_at IS NULL AND NOT EXISTS (SELECT 1 FROM schedule_result m WHERE m.schedule_id = s.id)"
    ))
    .await;
    analyze(test).await;
}

/// What is read of a database.
struct Reads<'t> {
    test: &'t TestDb,
    steps: Arc<AtomicU64>,
}

impl Reads<'_> {
    async fn of(test: &TestDb) -> Reads<'_> {
        let steps = Arc::new(AtomicU64::new(0));
        let connections = match test.backend() {
            Backend::Sqlite => SQLITE_READERS,
            Backend::Postgres => POSTGRES_CONNECTIONS,
        };
        let mut all = Vec::new();
        for _ in 0..connections {
            let mut tx = test.read().await;
            if test.backend() == Backend::Postgres {
                // In tables of some thousand rows it is cheaper to read all than some entries of an index. In those of millions it
                // is not.
                let settings = "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off";
                let set = probe::execute(&mut tx, settings);
                set.await.unwrap();
            }
            let counting = probe::count_steps(&mut tx, Arc::clone(&steps));
            counting.await.unwrap();
            all.push(tx);
        }
        for tx in all {
            tx.commit().await.unwrap();
        }
        Reads { test, steps }
    }

    /// Return how much was read so far.
    async fn count(&self) -> u64 {
        if self.test.backend() == Backend::Sqlite {
            return self.steps.load(Ordering::SeqCst);
        }
        // Each session of the server reports what it has read when it ends a transaction, and not each time.
        let mut all = Vec::new();
        for _ in 0..POSTGRES_CONNECTIONS {
            let mut tx = self.test.read().await;
            probe::execute(&mut tx, "SELECT pg_stat_force_next_flush()")
                .await
                .unwrap();
            all.push(tx);
        }
        for tx in all {
            tx.commit().await.unwrap();
        }
        let read = self.test.value(
            "SELECT CAST((SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE schemaname = current_schema())
                + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE schemaname = current_schema()) AS TEXT)",
        );
        read.await.parse().unwrap()
    }
}

/// A browser with a session.
struct Browser {
    address: SocketAddr,
    cookie: String,
}

impl Browser {
    /// Send a request. Return the status, the head and the body.
    async fn send(&self, method: &str, path: &str, body: &str) -> (u16, String, String) {
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAccept: text/html,*/*\r\n",
            self.address
        );
        let kind = "application/x-www-form-urlencoded";
        let _ = write!(
            request,
            "Connection: close\r\nCookie: {}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
            self.cookie,
            body.len()
        );
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_owned(), body.to_owned())
    }

    /// Sign in with the token of the file.
    async fn sign_in(address: SocketAddr, token: &str) -> Browser {
        let mut browser = Browser {
            address,
            cookie: String::new(),
        };
        let (status, head, body) = browser
            .send("POST", "/login", &format!("token={token}"))
            .await;
        assert_eq!(status, 303, "{body}");
        let cookie = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("set-cookie").then_some(value)
        });
        browser.cookie = cookie.unwrap().split(';').next().unwrap().to_owned();
        browser
    }

    async fn page(&self, path: &str) -> String {
        let (status, _, body) = self.send("GET", path, "").await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }
}

/// Return each page that is measured, and whether it may read many schedules: a search looks at each name, and a package shows
/// up to a thousand.
fn paths() -> Vec<(String, bool)> {
    let (schedule, slot) = launch(6);
    let id = LaunchId::of(schedule, slot, LaunchKind::Schedule);
    let (of_skipped, skipped) = launch(5);
    let skipped_id = LaunchId::of(of_skipped, skipped, LaunchKind::Schedule);
    let (other, of_other) = launch(7);
    assert_eq!(other, schedule_id(5));
    let at = |slot: Timestamp| slot.to_string().replace(':', "%3A");
    let run = RunId::of(id, 1);
    let short = id.to_string()[..13].to_owned();
    let each = [
        "/".to_owned(),
        "/schedules".to_owned(),
        "/schedules?after=filled-100".to_owned(),
        "/schedules?view=grid".to_owned(),
        "/schedules?view=grid&span=30d".to_owned(),
        "/schedules/busy-1".to_owned(),
        "/schedules/busy-1?span=12w".to_owned(),
        "/schedules/busy-1?span=1y".to_owned(),
        "/schedules/filled-100".to_owned(),
        format!("/schedules/busy-1?at={}", at(slot)),
        format!("/schedules/busy-5?at={}", at(of_other)),
        "/schedules/filled-100?at=2027-02-01T00:00:00Z".to_owned(),
        "/schedules/busy-1/edit".to_owned(),
        "/schedules/busy-1/calendar".to_owned(),
        "/backfills".to_owned(),
        "/launches".to_owned(),
        format!("/launches?after={id}"),
        "/launches?status=failed".to_owned(),
        "/launches?status=failed,abandoned,unknown&since=24h".to_owned(),
        "/launches?schedule=busy-1".to_owned(),
        "/launches?schedule=busy-2&status=failed&since=240h".to_owned(),
        "/launches?kind=manual".to_owned(),
        "/launches?reason=overlap&until=1h".to_owned(),
        "/launches?package=none".to_owned(),
        format!("/launches/{id}"),
        format!("/launches/{short}"),
        format!("/launches/{skipped_id}"),
        format!("/runs/{run}"),
        "/plan".to_owned(),
        "/packages".to_owned(),
        "/hosts".to_owned(),
        "/hosts?all=true".to_owned(),
        "/events".to_owned(),
        "/alerts".to_owned(),
        "/alerts?all=true".to_owned(),
        "/outbox".to_owned(),
        "/statistics?span=30d".to_owned(),
        "/statistics?by=schedule&span=7d".to_owned(),
        "/tokens".to_owned(),
        "/configuration".to_owned(),
    ];
    let searches = [
        "/schedules?q=filled-13",
        "/search?q=filled-13",
        "/schedules?state=paused",
        "/packages/noop",
    ];
    let each = each.into_iter().map(|path| (path, false));
    each.chain(searches.map(|path| (path.to_owned(), true)))
        .collect()
}

/// Return how much each page reads, and at last what a listener to failures does.
async fn measure(reads: &Reads<'_>, browser: &Browser) -> Vec<(String, bool, u64)> {
    let mut assets = 0;
    for path in ["/assets/app.css", "/assets/app.js", "/assets/icon.svg"] {
        assets += browser.page(path).await.len();
    }
    let mut all = Vec::new();
    for (path, is_search) in paths() {
        // The first request prepares the statements.
        let body = browser.page(&path).await;
        let bytes = body.len() + assets;
        assert!(
            bytes <= FIRST_VIEW_BYTES_MAX,
            "{path}: {bytes} bytes at the first view"
        );
        let before = reads.count().await;
        browser.page(&path).await;
        all.push((path, is_search, reads.count().await - before));
    }
    // What grows is seen.
    let before = reads.count().await;
    let all_launches = "SELECT CAST(count(*) AS TEXT) FROM launch WHERE message IS NULL";
    reads.test.rows(all_launches).await;
    all.push((WHOLE.to_owned(), false, reads.count().await - before));
    let mut feed = FailureFeed::default();
    let mut tx = reads.test.read().await;
    feed.read(&mut tx).await.unwrap();
    drop(tx);
    let before = reads.count().await;
    let mut tx = reads.test.read().await;
    assert!(feed.read(&mut tx).await.unwrap().is_empty());
    drop(tx);
    all.push(("/updates".to_owned(), false, reads.count().await - before));
    all
}

async fn pages_read_no_more_of_a_larger_record(test: TestDb) {
    let clock = Clock::simulated(now());
    let (engine, lock) = serving::start(&test, &clock, settings(8), NOOP).await;
    let token_file = test.place.folder.path().join("token");
    let server = Server {
        listen: Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0))),
        token_file: token_file.clone(),
        rate_limit: 1_000_000,
        ..Server::default()
    };
    let bound = campanile_server::bind(&server, None)
        .await
        .unwrap()
        .unwrap();
    let address = bound
        .url
        .strip_prefix("http://")
        .and_then(|url| url.split('/').next());
    let address = address.unwrap().parse().unwrap();
    let (stop, stopping) = watch::channel(false);
    let app = App {
        engine: Arc::clone(&engine),
        configuration: Vec::new(),
        settings: settings(8),
        stopping,
        uploads: None,
        machine_notes: Arc::new(Vec::new),
    };
    let serving = tokio::spawn(campanile_server::serve(bound, app));
    let token = std::fs::read_to_string(&token_file).unwrap();
    let browser = Browser::sign_in(address, token.trim()).await;

    let mut tx = test.write().await;
    let claimer = host(host_id(99), "host-0", now());
    hosts::register(&mut tx, &claimer).await.unwrap();
    tx.commit().await.unwrap();
    add_schedules(&test, 1..=SCHEDULES).await;
    fill(&test, 0, LAUNCHES).await;
    let reads = Reads::of(&test).await;
    let small = measure(&reads, &browser).await;
    fill(&test, LAUNCHES, LAUNCHES * FACTOR).await;
    let large = measure(&reads, &browser).await;
    let more = SCHEDULES * u128::from(FACTOR);
    add_schedules(&test, SCHEDULES + 1..=more).await;
    let wide = measure(&reads, &browser).await;

    let mut table = String::new();
    let mut grown = Vec::new();
    let measured = small.iter().zip(large.iter().zip(&wide));
    for ((path, is_search, small), ((_, _, large), (_, _, wide))) in measured {
        let _ = writeln!(table, "{small:>8} {large:>8} {wide:>8}  {path}");
        // A larger index has more levels.
        let most = small + small / 4 + 200;
        // Health counts cursors by an index of the schedules.
        let entries = match path.as_str() {
            "/" => 4 * u64::try_from(more - SCHEDULES).unwrap(),
            _ => 0,
        };
        if *large > most || (*wide > most + entries && !is_search) {
            grown.push(path.as_str());
        }
    }
    println!("{table}");
    assert_eq!(
        grown,
        [WHOLE],
        "these read more of a larger record:\n{table}"
    );
    stop.send(true).unwrap();
    serving.await.unwrap();
    drop(lock);
}
