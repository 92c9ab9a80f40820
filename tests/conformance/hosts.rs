//! Hosts, the packages in their folders, and the lock of each host.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use campanile_model::ids::{ArtifactDigest, LaunchId};
use campanile_store::hosts::{self, DeadHost, EndReason};
use campanile_store::packages::{self, LoadedPackage, PackageRow, SidecarSummary};
use campanile_store::{Db, DbError, FileLoss, Tx, launch, schedules};
use campanile_tests::{Backend, Cluster, TestDb, fresh_db, on_both};

use crate::fixtures::{
    BYTES, PACKAGE, add_host, add_schedule, at, digest, host, host_id, host_with_schedules,
    insert_and_claim, launch, lease_until, publish,
};

on_both!(
    a_host_is_live_until_it_ends,
    earlier_hosts_of_the_same_name_are_marked_dead,
    silent_hosts_are_marked_dead_and_can_be_revived,
    a_run_of_a_host_that_was_marked_as_dead_is_lost_at_the_end_of_its_own_lease,
    the_newest_version_of_a_package_is_active,
    a_file_that_two_hosts_reject_is_new_once,
    a_rejected_file_leaves_the_older_version_active,
    a_package_is_missing_when_no_live_host_has_it,
    a_missing_package_is_found_again_by_its_digest,
    a_scratch_database_is_separate_and_leaves_nothing_behind,
    a_process_whose_name_was_taken_stays_dead,
    a_host_lock_excludes_a_second_host_of_the_same_name,
    a_host_lock_reports_that_its_file_is_gone,
);

async fn a_host_is_live_until_it_ends(test: TestDb) {
    let mut tx = test.write().await;
    let first = host(host_id(1), "host-1", at(5));
    let second = host(host_id(2), "host-2", at(3));
    hosts::register(&mut tx, &first).await.unwrap();
    hosts::register(&mut tx, &second).await.unwrap();
    assert_eq!(
        hosts::live(&mut tx).await.unwrap(),
        [second.clone(), first.clone()],
        "oldest first"
    );
    assert!(
        hosts::heartbeat(&mut tx, first.id, at(9), lease_until(at(9)))
            .await
            .unwrap()
    );
    hosts::end(&mut tx, second.id, at(10)).await.unwrap();
    let live = hosts::live(&mut tx).await.unwrap();
    assert_eq!((live.len(), live[0].heartbeat_at), (1, at(9)));
    assert!(
        !hosts::heartbeat(&mut tx, second.id, at(11), lease_until(at(11)))
            .await
            .unwrap()
    );
    assert!(
        !hosts::heartbeat(&mut tx, host_id(3), at(11), lease_until(at(11)))
            .await
            .unwrap(),
        "never registered"
    );
    // A host ends once.
    hosts::end(&mut tx, second.id, at(12)).await.unwrap();
    assert_eq!(
        hosts::mark_predecessors_dead(&mut tx, "host-2", at(13))
            .await
            .unwrap(),
        []
    );
    tx.commit().await.unwrap();
    let ended = test
        .rows("SELECT name, end_reason FROM host WHERE ended_at IS NOT NULL")
        .await;
    assert_eq!(ended, [["host-2", EndReason::Stopped.as_str()]]);

    let mut tx = test.write().await;
    let second_time = hosts::register(&mut tx, &first).await;
    assert!(
        matches!(second_time, Err(DbError::Conflict(_))),
        "{second_time:?}"
    );
}

async fn earlier_hosts_of_the_same_name_are_marked_dead(test: TestDb) {
    let mut tx = test.write().await;
    for (number, name) in [(1, "host-1"), (2, "host-1"), (3, "other")] {
        hosts::register(&mut tx, &host(host_id(number), name, at(0)))
            .await
            .unwrap();
    }
    let mut dead = hosts::mark_predecessors_dead(&mut tx, "host-1", at(5))
        .await
        .unwrap();
    dead.sort_by_key(|dead| dead.id);
    let dead_host = |number| DeadHost {
        id: host_id(number),
        name: "host-1".to_owned(),
    };
    assert_eq!(dead, [dead_host(1), dead_host(2)]);
    assert_eq!(
        hosts::mark_predecessors_dead(&mut tx, "host-1", at(6))
            .await
            .unwrap(),
        []
    );
    assert_eq!(hosts::live(&mut tx).await.unwrap().len(), 1);
    assert!(
        !hosts::heartbeat(&mut tx, host_id(1), at(7), lease_until(at(7)))
            .await
            .unwrap()
    );
}

async fn silent_hosts_are_marked_dead_and_can_be_revived(test: TestDb) {
    let mut tx = test.write().await;
    for number in 1..=3 {
        hosts::register(
            &mut tx,
            &host(host_id(number), &format!("host-{number}"), at(0)),
        )
        .await
        .unwrap();
    }
    hosts::heartbeat(&mut tx, host_id(1), at(10), lease_until(at(10)))
        .await
        .unwrap();
    hosts::heartbeat(&mut tx, host_id(2), at(9), lease_until(at(9)))
        .await
        .unwrap();
    let mut dead = hosts::mark_silent_dead(&mut tx, at(20)).await.unwrap();
    dead.sort_by_key(|dead| dead.id);
    let ids: Vec<_> = dead.iter().map(|dead| dead.id).collect();
    assert_eq!(
        ids,
        [host_id(2), host_id(3)],
        "a heartbeat at the limit keeps a host live"
    );
    assert_eq!(hosts::mark_silent_dead(&mut tx, at(20)).await.unwrap(), []);
    assert!(
        !hosts::heartbeat(&mut tx, host_id(2), at(21), lease_until(at(21)))
            .await
            .unwrap(),
        "the host learns that it was marked dead"
    );
    hosts::revive(&mut tx, host_id(2), at(21), lease_until(at(21)))
        .await
        .unwrap();
    assert!(
        hosts::heartbeat(&mut tx, host_id(2), at(22), lease_until(at(22)))
            .await
            .unwrap()
    );
    let live = hosts::live(&mut tx).await.unwrap();
    let mut names: Vec<_> = live.iter().map(|host| host.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["host-1", "host-2"]);
    assert!(
        live.iter()
            .all(|host| host.ended_at.is_none() && host.end_reason.is_none())
    );
}

async fn the_newest_version_of_a_package_is_active(test: TestDb) {
    let mut tx = test.write().await;
    let host = add_host(&mut tx, 1, at(0)).await;
    let newer = LoadedPackage {
        name: PACKAGE,
        digest: &ArtifactDigest::of(b"newer bytes"),
        form: "core_module_with_wit",
        bytes: b"newer bytes",
        manifest: r#"{"tasks":[]}"#,
        signature: None,
        sidecar: SidecarSummary {
            grants: r#"["env","TOKEN"]"#,
            pin: None,
            context: "",
        },
    };
    packages::publish(&mut tx, host, &newer, at(5))
        .await
        .unwrap();
    let row = packages::find(&mut tx, PACKAGE).await.unwrap().unwrap();
    let expected = PackageRow {
        name: PACKAGE.to_owned(),
        digest: Some(newer.digest.clone()),
        form: Some("core_module_with_wit".to_owned()),
        size_bytes: Some(11),
        manifest: r#"{"tasks":[]}"#.to_owned(),
        loaded_at: Some(at(5)),
        grants: r#"["env","TOKEN"]"#.to_owned(),
        pending_digest: None,
        pending_since: None,
        pending_decision: None,
        missing_since: None,
        rejection: None,
        rejected_at: None,
        loading_since: None,
    };
    assert_eq!(row, expected);
    // The older bytes stay for launches that were decided with them.
    assert!(
        packages::artifact(&mut tx, &digest())
            .await
            .unwrap()
            .is_some()
    );
    publish(&mut tx, host, "a-second", BYTES, at(6)).await;
    let all = packages::list(&mut tx, None, None, i64::MAX).await.unwrap();
    let names: Vec<_> = all.iter().map(|package| package.name.as_str()).collect();
    assert_eq!(names, ["a-second", PACKAGE]);
    for (pattern, after, limit, expected) in [
        (None, None, 1, &["a-second"][..]),
        (None, Some("a-second"), 2, &[PACKAGE]),
        (Some("a-%"), None, 2, &["a-second"]),
        (Some("a-%"), Some("a-second"), 2, &[]),
    ] {
        let page = packages::list(&mut tx, pattern, after, limit).await;
        let page = page.unwrap().into_iter().map(|row| row.name);
        assert_eq!(Vec::from_iter(page), expected, "{pattern:?} {after:?}");
    }
    assert_eq!(packages::find(&mut tx, "missing").await.unwrap(), None);
}

async fn a_file_that_two_hosts_reject_is_new_once(test: TestDb) {
    let mut tx = test.write().await;
    let first = add_host(&mut tx, 1, at(0)).await;
    let second = add_host(&mut tx, 2, at(0)).await;
    let (one, other) = (digest(), ArtifactDigest::of(b"another file"));
    let (no_wasm, no_import) = ("not wasm", "it imports wasi:sockets");
    for (host, name, file, why, is_new) in [
        (first, PACKAGE, Some(&one), no_wasm, true),
        (second, PACKAGE, Some(&one), no_wasm, false),
        (first, PACKAGE, Some(&one), no_wasm, false),
        // Another file, or another reason, in the folder of one of them.
        (first, PACKAGE, Some(&other), no_wasm, true),
        (second, PACKAGE, Some(&other), no_wasm, false),
        (second, PACKAGE, Some(&other), no_import, true),
        // A file that can't be read has no digest.
        (first, "new", None, no_wasm, true),
        (second, "new", None, no_wasm, false),
        (second, "new", Some(&one), no_wasm, true),
    ] {
        let rejected = packages::reject(&mut tx, host, name, (file, why), at(5)).await;
        assert_eq!(rejected.unwrap(), is_new, "{name} {file:?} {why}");
    }
    // It's rejected as long as a host has it.
    packages::withdraw(&mut tx, first, PACKAGE).await.unwrap();
    let row = packages::find(&mut tx, PACKAGE).await.unwrap().unwrap();
    assert_eq!(row.rejection.as_deref(), Some(no_import));
    // The same file again, after one that could be used.
    publish(&mut tx, second, PACKAGE, BYTES, at(6)).await;
    let file = (Some(&other), no_import);
    let again = packages::reject(&mut tx, second, PACKAGE, file, at(7)).await;
    assert!(again.unwrap());
}

async fn a_rejected_file_leaves_the_older_version_active(test: TestDb) {
    let mut tx = test.write().await;
    let host = add_host(&mut tx, 1, at(0)).await;
    packages::reject(
        &mut tx,
        host,
        PACKAGE,
        (None, "it imports wasi:sockets"),
        at(5),
    )
    .await
    .unwrap();
    let row = packages::find(&mut tx, PACKAGE).await.unwrap().unwrap();
    assert_eq!((row.digest, row.missing_since), (Some(digest()), None));
    assert_eq!(row.rejection.as_deref(), Some("it imports wasi:sockets"));
    assert_eq!((row.loaded_at, row.rejected_at), (Some(at(0)), Some(at(5))));
    // A loaded file clears the rejection.
    publish(&mut tx, host, PACKAGE, BYTES, at(6)).await;
    let row = packages::find(&mut tx, PACKAGE).await.unwrap().unwrap();
    assert_eq!((row.rejection, row.rejected_at), (None, None));
    // A package without any usable file has no version, and is missing.
    packages::reject(&mut tx, host, "new", (None, "not wasm"), at(7))
        .await
        .unwrap();
    packages::reject(&mut tx, host, "new", (None, "still not wasm"), at(8))
        .await
        .unwrap();
    let row = packages::find(&mut tx, "new").await.unwrap().unwrap();
    assert_eq!((row.digest, row.form, row.size_bytes), (None, None, None));
    assert_eq!(
        (row.missing_since, row.rejected_at),
        (Some(at(7)), Some(at(8)))
    );
    assert_eq!(row.rejection.as_deref(), Some("still not wasm"));
}

async fn a_package_is_missing_when_no_live_host_has_it(test: TestDb) {
    let mut tx = test.write().await;
    let host_1 = add_host(&mut tx, 1, at(0)).await;
    let host_2 = add_host(&mut tx, 2, at(0)).await;
    add_schedule(&mut tx, 1, 10).await;
    assert_eq!(
        packages::mark_missing(&mut tx, at(1)).await.unwrap(),
        Vec::<String>::new()
    );
    packages::withdraw(&mut tx, host_1, PACKAGE).await.unwrap();
    assert_eq!(
        packages::mark_missing(&mut tx, at(2)).await.unwrap(),
        Vec::<String>::new(),
        "one host still has it"
    );
    packages::withdraw_ended(&mut tx).await.unwrap();
    assert_eq!(
        packages::mark_missing(&mut tx, at(3)).await.unwrap(),
        Vec::<String>::new(),
        "the host with the package is live"
    );
    hosts::end(&mut tx, host_2, at(4)).await.unwrap();
    packages::withdraw_ended(&mut tx).await.unwrap();
    assert_eq!(
        packages::mark_missing(&mut tx, at(5)).await.unwrap(),
        [PACKAGE]
    );
    assert_eq!(
        packages::mark_missing(&mut tx, at(6)).await.unwrap(),
        Vec::<String>::new(),
        "a missing package is returned once"
    );
    let due = schedules::due(&mut tx, at(10), 9).await.unwrap();
    assert_eq!(due[0].missing_since, Some(at(5)));
    publish(&mut tx, host_1, PACKAGE, BYTES, at(7)).await;
    let row = packages::find(&mut tx, PACKAGE).await.unwrap().unwrap();
    assert_eq!(row.missing_since, None, "the package is published again");
}

async fn a_missing_package_is_found_again_by_its_digest(test: TestDb) {
    let mut tx = test.write().await;
    let host_1 = add_host(&mut tx, 1, at(0)).await;
    let host_2 = host_id(2);
    hosts::register(&mut tx, &host(host_2, "host-2", at(0)))
        .await
        .unwrap();
    packages::withdraw(&mut tx, host_1, PACKAGE).await.unwrap();
    packages::mark_missing(&mut tx, at(1)).await.unwrap();
    packages::publish_host(
        &mut tx,
        host_2,
        PACKAGE,
        &digest(),
        SidecarSummary::default(),
    )
    .await
    .unwrap();
    let row = packages::find(&mut tx, PACKAGE).await.unwrap().unwrap();
    assert_eq!((row.missing_since, row.loaded_at), (None, Some(at(0))));
    let still = packages::mark_missing(&mut tx, at(2)).await.unwrap();
    assert_eq!(still, Vec::<String>::new());
    packages::publish_host(
        &mut tx,
        host_2,
        PACKAGE,
        &digest(),
        SidecarSummary::default(),
    )
    .await
    .unwrap();
}

/// The clock may have been set back in between, so times and ids don't say which process came later.
async fn a_process_whose_name_was_taken_stays_dead(test: TestDb) {
    let mut tx = test.write().await;
    for (number, started) in [(2, 50), (1, 10)] {
        hosts::mark_predecessors_dead(&mut tx, "north", at(started))
            .await
            .unwrap();
        let host = host(host_id(number), "north", at(started));
        hosts::register(&mut tx, &host).await.unwrap();
    }
    for (name, number, expected) in [("north", 1, true), ("north", 2, false), ("south", 1, false)] {
        let is_replaced = hosts::is_replaced(&mut tx, name, number).await.unwrap();
        assert_eq!(is_replaced, expected, "{name} {number}");
    }
    let now = at(60);
    assert!(
        !hosts::revive(&mut tx, host_id(2), now, lease_until(now))
            .await
            .unwrap()
    );
    // Even after the later one has ended.
    hosts::end(&mut tx, host_id(1), now).await.unwrap();
    assert!(
        !hosts::revive(&mut tx, host_id(2), now, lease_until(now))
            .await
            .unwrap()
    );
    assert!(
        hosts::revive(&mut tx, host_id(1), now, lease_until(now))
            .await
            .unwrap()
    );
    let alive = hosts::last_sign_of_life(&mut tx, "north").await.unwrap();
    assert_eq!(alive, Some((now, lease_until(now))));
}

/// SQLite would continue to use a deleted file, which no other process can open.
async fn a_host_lock_reports_that_its_file_is_gone(test: TestDb) {
    let mut lock = test.db.host_lock("host-1").await.unwrap().expect("free");
    assert_eq!(lock.file_loss(), None);
    if test.backend() != Backend::Sqlite {
        return;
    }
    for (end, loss) in [
        ("", FileLoss::Moved as fn(PathBuf) -> FileLoss),
        ("-wal", FileLoss::Journal),
        ("-shm", FileLoss::Journal),
    ] {
        let path = test.place.folder.path().join(format!("campanile.db{end}"));
        let aside = path.with_extension("aside");
        let expected = Some(loss(path.clone()));
        std::fs::rename(&path, &aside).unwrap();
        assert_eq!(lock.file_loss(), expected, "deleted: {end}");
        std::fs::write(&path, b"another").unwrap();
        assert_eq!(lock.file_loss(), expected, "replaced: {end}");
        std::fs::rename(&aside, &path).unwrap();
        assert_eq!(lock.file_loss(), None, "{end}");
    }
}

/// Each stays the same file but with different content.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_host_lock_reports_that_its_files_were_cut_or_overwritten() {
    async fn write(test: &TestDb, rounds: u32) {
        for round in 0..rounds {
            let create = format!("CREATE TABLE t{round} (x TEXT)");
            test.execute(&create).await;
            test.execute(&format!("DROP TABLE t{round}")).await;
        }
    }
    let resize = |path: &Path, bytes: u64| {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.set_len(bytes).unwrap();
        // Closing it would drop SQLite's locks.
        std::mem::forget(file);
    };
    for case in ["log", "file", "zeroes", "checkpoint"] {
        let test = fresh_db(Backend::Sqlite).await;
        let path = test.place.folder.path().join("campanile.db");
        let log = test.place.folder.path().join("campanile.db-wal");
        let mut lock = test.db.host_lock("host-1").await.unwrap().expect("free");
        write(&test, 10).await;
        assert_eq!(lock.file_loss(), None, "{case}");
        let expected = match case {
            "log" => {
                resize(&log, 0);
                Some(FileLoss::Overwritten(log))
            }
            "file" => {
                test.db.merge_log().await.unwrap();
                assert_eq!(lock.file_loss(), None);
                resize(&path, 4_096);
                Some(FileLoss::Overwritten(path))
            }
            "zeroes" => {
                test.db.merge_log().await.unwrap();
                assert_eq!(lock.file_loss(), None);
                let file = std::fs::File::options().write(true).open(&path).unwrap();
                (&file).write_all(&[0; 4_096]).unwrap();
                std::mem::forget(file);
                Some(FileLoss::Overwritten(path))
            }
            // SQLite itself shortens the log.
            _ => {
                for _ in 0..3 {
                    test.db.merge_log().await.unwrap();
                    assert_eq!(lock.file_loss(), None);
                    write(&test, 2).await;
                    assert_eq!(lock.file_loss(), None);
                }
                None
            }
        };
        assert_eq!(lock.file_loss(), expected, "{case}");
    }
}

async fn a_scratch_database_is_separate_and_leaves_nothing_behind(test: TestDb) {
    let files = || {
        let folder = std::fs::read_dir(test.place.folder.path()).unwrap();
        let mut names: Vec<_> = folder.map(|file| file.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = files();
    let name = format!("scratch_{}", uuid::Uuid::new_v4().simple());
    let scratch = Db::open_scratch(test.db.url(), &name).await.unwrap();
    let mut tx = scratch.write().await.unwrap();
    add_host(&mut tx, 1, at(0)).await;
    tx.commit().await.unwrap();
    assert_eq!(hosts::live(&mut test.read().await).await.unwrap(), []);
    scratch.discard().await.unwrap();
    assert_eq!(files(), before);
    if test.backend() == Backend::Postgres {
        let schemas = test
            .rows(&format!(
                "SELECT nspname::text FROM pg_namespace WHERE nspname = '{name}'"
            ))
            .await;
        assert!(schemas.is_empty());
    }
}

async fn a_host_lock_excludes_a_second_host_of_the_same_name(test: TestDb) {
    let mut first = test.db.host_lock("host-1").await.unwrap().expect("free");
    let other = Db::open(&test.place.url).await.unwrap();
    assert!(other.host_lock("host-1").await.unwrap().is_none());
    // One host at a time serves a file. Hosts of different names may share a server.
    let second = other.host_lock("another").await.unwrap();
    assert_eq!(second.is_some(), test.backend() == Backend::Postgres);
    assert!(first.hold().await.unwrap());
    drop(first);
    // The server notices the end of a connection a moment later.
    for _ in 0..200 {
        if other.host_lock("host-1").await.unwrap().is_some() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the lock was not released by a drop");
}

#[tokio::test]
async fn two_schemas_of_one_server_have_hosts_of_the_same_name() {
    let first = campanile_tests::fresh_db(Backend::Postgres).await;
    let second = campanile_tests::fresh_db(Backend::Postgres).await;
    let lock = first.db.host_lock("host-1").await.unwrap();
    assert!(lock.is_some());
    assert!(second.db.host_lock("host-1").await.unwrap().is_some());
}

#[tokio::test]
async fn a_host_lock_is_acquired_again_after_a_restart_of_the_server() {
    let mut cluster = Cluster::start().unwrap_or_else(|line| panic!("{line}"));
    let db = Db::open_and_migrate(cluster.url()).await.unwrap();
    let mut lock = db.host_lock("host-1").await.unwrap().expect("free");
    cluster.stop().unwrap();
    assert!(matches!(lock.hold().await, Err(DbError::Unavailable(_))));
    cluster.start_again().unwrap();
    assert!(lock.hold().await.unwrap(), "no other process has locked it");
    // After the next restart another process gets the lock first.
    cluster.crash().unwrap();
    cluster.start_again().unwrap();
    let other = Db::open(cluster.url()).await.unwrap();
    let other_lock = other.host_lock("host-1").await.unwrap();
    assert!(other_lock.is_some());
    assert!(!lock.hold().await.unwrap());
}

/// The host may only be cut off, and works on the run until the end of its lease.
async fn a_run_of_a_host_that_was_marked_as_dead_is_lost_at_the_end_of_its_own_lease(test: TestDb) {
    let host = host_with_schedules(&test, 1).await;
    let mut tx = test.write().await;
    // The last heartbeat was at 0 s, and the claim came after it.
    let lease = lease_until(at(0));
    let run = insert_and_claim(&mut tx, host, &[launch(1, 5)], at(5)).await[0];
    let marked = hosts::mark_silent_dead(&mut tx, lease).await.unwrap();
    assert_eq!(marked, [], "the lease ends after this instant");
    let dead_at = lease.plus(Duration::from_micros(1));
    let marked = hosts::mark_silent_dead(&mut tx, dead_at).await.unwrap();
    assert_eq!(marked.len(), 1);
    let orphaned = async |tx: &mut Tx, now| {
        let orphaned = launch::orphaned_runs(tx, now, at(0), 9).await;
        let ids = orphaned.unwrap().into_iter().map(|orphan| orphan.launch_id);
        ids.collect::<Vec<LaunchId>>()
    };
    assert_eq!(orphaned(&mut tx, dead_at).await, []);
    let other = host_id(2);
    let next = hosts::next_lease_end(&mut tx, other).await.unwrap();
    assert_eq!(next, Some(at(35)), "another host looks again then");
    assert_eq!(orphaned(&mut tx, at(34)).await, []);
    assert_eq!(orphaned(&mut tx, at(35)).await, [run.launch_id()]);
    // A host that is revived after a sleep keeps its run, if it renews the lease before another host has taken it over.
    hosts::revive(&mut tx, host, at(36), lease_until(at(36)))
        .await
        .unwrap();
    let held = [(run.run_id, run.fence)];
    let renewed = launch::renew(&mut tx, &held, at(66)).await.unwrap();
    assert_eq!(renewed.len(), 1);
    assert_eq!(orphaned(&mut tx, at(36)).await, []);
    let next = hosts::next_lease_end(&mut tx, other).await.unwrap();
    assert_eq!(next, Some(lease_until(at(36))), "that of the host");
    let own = hosts::next_lease_end(&mut tx, host).await.unwrap();
    assert_eq!(own, None);
}
