//! A role of Postgres that may change no table serves, and tables of other programs stay as they are.

use campanile_store::{Db, probe};
use campanile_tests::{Backend, Place, run_empty_case};

use crate::site::{Site, stop};

/// Run statements as the owner of the database.
async fn as_owner(place: &Place, statements: &[String]) {
    let db = Db::open(&place.url).await.unwrap();
    let mut tx = db.write().await.unwrap();
    for statement in statements {
        probe::execute(&mut tx, statement).await.unwrap();
    }
    tx.commit().await.unwrap();
    db.close().await;
}

#[test]
fn a_role_with_the_printed_grants_serves_and_changes_no_table() {
    run_empty_case(Backend::Postgres, async |mut place| {
        let owner = Db::open_and_migrate(&place.url).await.unwrap();
        owner.close().await;
        let role = format!("hosts_{}", uuid::Uuid::new_v4().simple());
        let create = format!("CREATE ROLE {role} LOGIN PASSWORD 'secret'");
        as_owner(&place, &[create]).await;
        let url = place.url.expose();
        let (_, server) = url.split_once('@').unwrap();
        let as_role = format!("postgres://{role}:secret@{server}")
            .parse()
            .unwrap();
        let as_owner_url = std::mem::replace(&mut place.url, as_role);
        let site = Site::new(place);
        site.copy_package("guests");
        // Without the grants, one sentence says what to do.
        site.run(["serve"])
            .assert_refused(&["`campanile db grants ROLE`"]);

        let printed = site.ok(["db", "grants", &role]);
        let grants: Vec<String> = printed.lines().map(str::to_owned).collect();
        let owner = Db::open(&as_owner_url).await.unwrap();
        let mut tx = owner.write().await.unwrap();
        for grant in &grants {
            probe::execute(&mut tx, grant).await.unwrap();
        }
        tx.commit().await.unwrap();

        let mut host = site.serve();
        site.add("daily", "echo", &["--at", "2099-01-01T00:00:00Z"]);
        let launch = site.trigger_and_wait("daily");
        assert_eq!(launch["status"], "succeeded");
        stop(&mut host);
        for denied in ["CREATE TABLE other (id INT)", "DROP TABLE event"] {
            let db = Db::open(&site.place().url).await.unwrap();
            let done = probe::execute(&mut db.write().await.unwrap(), denied).await;
            assert!(done.is_err(), "{denied}");
        }
        let mut tx = owner.write().await.unwrap();
        let drop = format!("DROP OWNED BY {role}; DROP ROLE {role}");
        probe::execute(&mut tx, &drop).await.unwrap();
        tx.commit().await.unwrap();
        owner.close().await;
    });
}

/// `doctor` refuses whatever `serve` refuses, in the same words.
fn assert_both_refuse(site: &Site, said: &str) {
    site.configure("[host]\nwait = \"0s\"\n");
    site.run(["serve"]).assert_refused(&[said]);
    let doctor = site.run(["doctor", "--json"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    let report = doctor.json();
    let checks = report["checks"].as_array().expect("checks");
    let database = checks.iter().find(|check| check["check"] == "database");
    let database = database.expect("a check of the database");
    assert_eq!(database["state"], "failed", "{report:#}");
    let detail = format!("{} {}", database["detail"], database["fix"]);
    assert!(detail.contains(said), "{detail}");
}

#[test]
fn doctor_sees_a_server_that_accepts_no_writes() {
    run_empty_case(Backend::Postgres, async |mut place| {
        Db::open_and_migrate(&place.url)
            .await
            .unwrap()
            .close()
            .await;
        let read_only = "options=-c%20default_transaction_read_only%3Don%20-c";
        let url = place.url.expose().replace("options=-c", read_only);
        assert!(url.contains(read_only), "{url}");
        place.url = url.parse().unwrap();
        assert_both_refuse(&Site::new(place), "is a standby, or read-only");
    });
}

#[test]
fn doctor_sees_a_role_without_rights_and_half_a_schema() {
    run_empty_case(Backend::Postgres, async |mut place| {
        Db::open_and_migrate(&place.url)
            .await
            .unwrap()
            .close()
            .await;
        let role = format!("reader_{}", uuid::Uuid::new_v4().simple());
        let owner = place.url.clone();
        let grants = [
            format!("CREATE ROLE {role} LOGIN PASSWORD 'secret'"),
            format!(
                "DO $$ BEGIN EXECUTE format('GRANT USAGE ON SCHEMA %I TO {role}', current_schema()); END $$"
            ),
            format!(
                "DO $$ BEGIN EXECUTE format('GRANT SELECT ON ALL TABLES IN SCHEMA %I TO {role}', current_schema()); END $$"
            ),
        ];
        as_owner(&place, &grants).await;
        let url = place.url.expose();
        let (_, server) = url.split_once('@').unwrap();
        let as_role = format!("postgres://{role}:secret@{server}");
        place.url = as_role.parse().unwrap();
        let site = Site::new(place);
        assert_both_refuse(&site, "`campanile db grants ROLE`");
        let db = Db::open(&owner).await.unwrap();
        let mut tx = db.write().await.unwrap();
        let drop = format!("DROP OWNED BY {role}; DROP ROLE {role}");
        probe::execute(&mut tx, &drop).await.unwrap();
        tx.commit().await.unwrap();
        db.close().await;
    });
}

#[test]
fn a_schema_of_another_program_is_refused_and_left_as_it_is() {
    run_empty_case(Backend::Postgres, async |place| {
        as_owner(&place, &["CREATE TABLE launch (id INT)".to_owned()]).await;
        let site = Site::new(place);
        site.run(["serve"])
            .assert_refused(&["a table `launch` that this campanile did not create"]);
        let db = Db::open(&site.place().url).await.unwrap();
        let tables = "SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema()";
        let rows = probe::rows(&mut db.read().await.unwrap(), tables).await;
        assert_eq!(rows.unwrap(), [["launch"]]);
        db.close().await;
    });
}

#[test]
fn a_half_made_schema_is_refused() {
    run_empty_case(Backend::Postgres, async |place| {
        Db::open_and_migrate(&place.url)
            .await
            .unwrap()
            .close()
            .await;
        as_owner(&place, &["DROP TABLE event".to_owned()]).await;
        let site = Site::new(place);
        site.run(["serve"])
            .assert_refused(&["lacks the table `event`", "restore a backup"]);
    });
}

#[test]
fn a_sqlite_database_has_no_roles() {
    run_empty_case(Backend::Sqlite, async |place| {
        let site = Site::new(place);
        site.run(["db", "grants", "hosts"])
            .assert_refused(&["a SQLite database has no roles"]);
    });
}
