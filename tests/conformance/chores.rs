//! The lease of the chores: one host at a time does them, and a former holder changes nothing.

use std::time::Duration;

use campanile_control::admin::host_admin;
use campanile_control::settings::{RetentionLimits, Settings};
use campanile_engine::{Engine, Removed};
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::HostId;
use campanile_store::chores;
use campanile_tests::{TestDb, on_both};

use crate::host_steps::clock_time;
use crate::serving::{self, NOOP, settings};

on_both!(
    a_lease_is_taken_when_it_has_ended,
    a_chore_of_a_former_holder_changes_nothing,
    a_holder_begins_no_chore_after_its_deadline,
    two_hosts_take_turns,
    no_host_takes_the_lease_while_a_chore_is_under_way,
);

/// The lease of [`settings`] is 30 s. It ends for its holder 3 s before.
const HELD: Duration = Duration::from_secs(27);

fn seconds(seconds: u64) -> Timestamp {
    clock_time("10:30:00").plus(Duration::from_secs(seconds))
}

async fn take(test: &TestDb, host: HostId, at: u64) -> Option<i64> {
    let mut tx = test.write().await;
    let epoch = chores::take(&mut tx, host, seconds(at), seconds(at + 30)).await;
    tx.commit().await.unwrap();
    epoch.unwrap()
}

async fn renew(test: &TestDb, host: HostId, epoch: i64, at: u64) -> bool {
    let mut tx = test.write().await;
    let renewed = chores::renew(&mut tx, host, epoch, seconds(at + 30)).await;
    tx.commit().await.unwrap();
    renewed.unwrap()
}

async fn fence(test: &TestDb, host: HostId, epoch: i64) -> bool {
    let mut tx = test.write().await;
    let fenced = chores::fence(&mut tx, host, epoch).await;
    // A dropped transaction keeps its lock for a moment.
    tx.commit().await.unwrap();
    fenced.unwrap().is_some()
}

async fn a_lease_is_taken_when_it_has_ended(test: TestDb) {
    let [one, two] = [0, 1].map(|at| HostId::new(seconds(at)));
    assert_eq!(chores::holder(&mut test.read().await).await.unwrap(), None);
    assert_eq!(take(&test, one, 0).await, Some(1));
    assert_eq!(take(&test, two, 29).await, None);
    assert!(renew(&test, one, 1, 20).await);
    assert!(!renew(&test, one, 2, 20).await && !renew(&test, two, 1, 20).await);
    assert_eq!(take(&test, two, 49).await, None, "it was renewed");
    assert_eq!(take(&test, two, 50).await, Some(2));
    assert!(!renew(&test, one, 1, 51).await);
    assert!(!fence(&test, one, 1).await && !fence(&test, one, 2).await);
    assert!(fence(&test, two, 2).await && !fence(&test, two, 1).await);
    let holder = chores::holder(&mut test.read().await).await.unwrap();
    let holder = holder.expect("a holder");
    assert_eq!(
        (holder.host_id, holder.epoch, holder.chores_since),
        (two, 2, seconds(50))
    );
    let mut tx = test.write().await;
    chores::release(&mut tx, one, seconds(52)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(take(&test, one, 52).await, None, "it was not its lease");
    let mut tx = test.write().await;
    chores::release(&mut tx, two, seconds(52)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(take(&test, one, 52).await, Some(3));
}

/// The settings of a host that removes events after a minute.
fn with_retention() -> Settings {
    let retention = RetentionLimits {
        events: Some(Duration::from_secs(60)),
        ..RetentionLimits::FOR_EVER
    };
    Settings {
        retention,
        ..settings(8)
    }
}

async fn count(test: &TestDb, table: &str) -> String {
    let sql = format!("SELECT CAST(count(*) AS TEXT) FROM {table}");
    test.value(&sql).await
}

/// Do the chores with the lease that the engine knows. Return whether they changed anything.
async fn do_chores(test: &TestDb, engine: &Engine, now: Timestamp) -> bool {
    let seals = count(test, "seal").await;
    engine.seal(now).await.unwrap();
    let has_sealed = count(test, "seal").await != seals;
    let removed = engine.remove_old(now).await.unwrap();
    assert_eq!(has_sealed, removed != Removed::default());
    has_sealed
}

async fn a_chore_of_a_former_holder_changes_nothing(test: TestDb) {
    let clock = Clock::simulated(seconds(0));
    let (engine, _lock) = serving::start(&test, &clock, with_retention(), NOOP).await;
    let now = seconds(120);
    clock.advance_to(now);
    assert!(!do_chores(&test, &engine, now).await, "it has no lease yet");
    assert!(engine.hold_chores(now).await.unwrap());
    // The host does not know that another one has taken the lease.
    test.execute("UPDATE chore_lease SET epoch = epoch + 1")
        .await;
    assert!(!do_chores(&test, &engine, now).await);
    test.execute("UPDATE chore_lease SET epoch = epoch - 1")
        .await;
    assert!(do_chores(&test, &engine, now).await);
    // It learns that with its next heartbeat.
    test.execute("UPDATE chore_lease SET epoch = epoch + 1")
        .await;
    assert!(!engine.hold_chores(now).await.unwrap());
}

async fn a_holder_begins_no_chore_after_its_deadline(test: TestDb) {
    let clock = Clock::simulated(seconds(0));
    let (engine, _lock) = serving::start(&test, &clock, with_retention(), NOOP).await;
    let taken = seconds(120);
    clock.advance_to(taken);
    assert!(engine.hold_chores(taken).await.unwrap());
    let late = taken.plus(HELD);
    clock.advance_to(late);
    assert!(!do_chores(&test, &engine, late).await);
    // No other host has taken the lease, so the host renews it in the same epoch.
    assert!(engine.hold_chores(late).await.unwrap());
    assert!(do_chores(&test, &engine, late).await);
    let holder = chores::holder(&mut test.read().await).await.unwrap();
    let holder = holder.expect("a holder");
    assert_eq!((holder.epoch, holder.chores_since), (1, taken));
}

/// Return the host of whom `host list` says that it does the chores.
async fn shown(test: &TestDb, now: Timestamp) -> Vec<String> {
    let mut tx = test.read().await;
    let hosts = host_admin::list(&mut tx, true, now).await.unwrap();
    let holders = hosts.into_iter().filter(|host| host.chores_since.is_some());
    holders.map(|host| host.name).collect()
}

/// SQLite has one host at a time: the second one is its next process.
async fn two_hosts_take_turns(test: TestDb) {
    let clock = Clock::simulated(seconds(0));
    let (first, lock) = serving::start(&test, &clock, with_retention(), NOOP).await;
    assert!(first.hold_chores(seconds(0)).await.unwrap());
    assert_eq!(shown(&test, seconds(0)).await, ["host-1"]);
    if !test.db.url().is_shared() {
        drop(lock);
        clock.advance_to(seconds(1));
        let (second, _lock) = serving::start(&test, &clock, with_retention(), NOOP).await;
        assert!(second.hold_chores(seconds(1)).await.unwrap());
        assert!(!first.hold_chores(seconds(1)).await.unwrap());
        return;
    }
    let names = ("host-2", "plugins-2");
    let started = serving::start_named(&test, &clock, with_retention(), NOOP, names).await;
    let (second, _second_lock, _folder) = started;
    clock.advance_to(seconds(29));
    assert!(!second.hold_chores(seconds(29)).await.unwrap());
    assert!(!do_chores(&test, &second, seconds(29)).await);
    // The first host is suspended, and its lease ends.
    clock.advance_to(seconds(120));
    assert_eq!(shown(&test, seconds(120)).await, [""; 0]);
    assert!(second.hold_chores(seconds(120)).await.unwrap());
    assert_eq!(shown(&test, seconds(120)).await, ["host-2"]);
    // It wakes up: neither its memory nor its heartbeat lets it do a chore.
    assert!(!do_chores(&test, &first, seconds(120)).await);
    assert!(!first.hold_chores(seconds(120)).await.unwrap());
    assert!(!do_chores(&test, &first, seconds(120)).await);
    assert!(do_chores(&test, &second, seconds(120)).await);
}

/// SQLite has one writer, so another transaction waits for the chore.
async fn no_host_takes_the_lease_while_a_chore_is_under_way(test: TestDb) {
    let [one, two] = [0, 1].map(|at| HostId::new(seconds(at)));
    assert_eq!(take(&test, one, 0).await, Some(1));
    let mut chore = test.write().await;
    assert_eq!(chores::fence(&mut chore, one, 1).await.unwrap(), Some(1));
    if test.db.url().is_shared() {
        // The holder's heartbeat and another chore of the holder do not wait for this chore.
        assert!(renew(&test, one, 1, 1).await);
        assert!(fence(&test, one, 1).await);
        assert_eq!(take(&test, two, 100).await, None);
    }
    chore.commit().await.unwrap();
    assert_eq!(take(&test, two, 100).await, Some(2));
}
