//! Damaging a database under a working host: the host launches nothing more until it's restarted.

use campanile_control::reports::health;
use campanile_model::clock::Clock;
use campanile_schedule::policy::Policies;
use campanile_store::disk::DiskSigns;
use campanile_store::{Db, DbError, changes, launch};
use campanile_tests::{Backend, TestDb, on_both};
use std::path::PathBuf;

use crate::host_steps::{add, clock_time};
use crate::serving::{self, GUESTS, settings};

on_both!(a_host_that_meets_damage_launches_nothing_until_it_is_started_again);

/// Damages what transactions read, and undoes that.
struct Damage<'a> {
    test: &'a TestDb,
    path: PathBuf,
    whole: Vec<u8>,
}

impl Damage<'_> {
    async fn make(test: &TestDb) -> Damage<'_> {
        let path = test.place.folder.path().join("campanile.db");
        let mut whole = Vec::new();
        match test.backend() {
            Backend::Postgres => {
                test.execute(
                    "CREATE FUNCTION damaged() RETURNS trigger LANGUAGE plpgsql AS
                        $$ BEGIN RAISE EXCEPTION 'invalid page in block 7' USING ERRCODE = 'XX001'; END $$;
                    CREATE TRIGGER damaged BEFORE UPDATE ON change FOR EACH ROW EXECUTE FUNCTION damaged()",
                )
                .await;
            }
            Backend::Sqlite => {
                test.db.merge_log().await.unwrap();
                whole = std::fs::read(&path).unwrap();
                let mut ruined = whole.clone();
                ruined[4_096..].fill(0);
                Damage::write(&path, &ruined);
            }
        }
        Damage { test, path, whole }
    }

    /// Overwrites a file in place.
    fn write(path: &std::path::Path, bytes: &[u8]) {
        use std::io::Write as _;
        let file = std::fs::File::options().write(true).open(path).unwrap();
        (&file).write_all(bytes).unwrap();
        // Closing it would drop SQLite's locks.
        std::mem::forget(file);
    }

    async fn undo(self) {
        match self.test.backend() {
            Backend::Postgres => self.test.execute("DROP FUNCTION damaged CASCADE").await,
            Backend::Sqlite => Damage::write(&self.path, &self.whole),
        }
    }
}

async fn a_host_that_meets_damage_launches_nothing_until_it_is_started_again(test: TestDb) {
    let clock = Clock::simulated(clock_time("10:30:00"));
    let (engine, lock) = serving::start(&test, &clock, settings(8), GUESTS).await;
    add(&test, "guests", Some("ok"), &Policies::default()).await;
    clock.advance_to(clock_time("11:00:01"));
    let ticked = engine.tick(clock.now()).await.unwrap();
    assert_eq!((ticked.decisions, ticked.finished), (1, 1));

    let damage = Damage::make(&test).await;
    let met = async {
        launch::list(&mut test.db.read().await?, None, 100).await?;
        let mut tx = test.db.write().await?;
        changes::bump(&mut tx).await?;
        tx.commit().await
    };
    let met = met.await;
    assert!(matches!(met, Err(DbError::Damaged(_))), "{met:?}");
    assert!(test.db.damage().is_some());
    damage.undo().await;

    // Being readable again repairs nothing.
    clock.advance_to(clock_time("12:00:01"));
    let now = clock.now();
    let _ = engine.renew(now).await;
    // SQLite may have cached an unreadable page.
    let ticked = engine.tick(now).await.unwrap_or_default();
    assert_eq!((ticked.decisions, ticked.claimed), (0, 0));
    if test.backend() == Backend::Postgres {
        let mut tx = test.read().await;
        let health = health::read(&mut tx, now, &settings(8), 0, DiskSigns::default()).await;
        let said = health.unwrap().issues.join("; ");
        assert!(
            said.contains("the database is damaged") && said.contains("restore a backup"),
            "{said}"
        );
    }
    drop((engine, lock));

    test.db.close().await;
    let again = TestDb {
        db: Db::open(&test.place.url).await.unwrap(),
        place: test.place,
    };
    let (engine, _lock) = serving::start(&again, &clock, settings(8), GUESTS).await;
    let ticked = engine.tick(clock.now()).await.unwrap();
    assert_eq!((ticked.decisions, ticked.finished), (1, 1));
}
