//! `campanile selftest`: its report, what it refuses, and that it leaves nothing behind.

use std::path::Path;

use campanile_store::{DatabaseUrl, Db, probe};
use campanile_tests::{Backend, HostProcess, Place, on_both_empty, run_empty_case};
use rustix::process::Signal;
use serde_json::Value;

use crate::site::{Site, eventually, list, stop, text};

on_both_empty!(
    a_selftest_reports_no_problem_and_leaves_nothing,
    a_database_in_use_and_wrong_numbers_are_refused,
    an_interrupted_selftest_leaves_nothing,
    a_kept_selftest_says_where_it_is,
);

const SHORT_LEASE: &str = "[recovery]\nlease = \"3s\"\nrenew = \"500ms\"\ninterval = \"500ms\"\n";

/// A site, and on Postgres the role that its address names, which owns what it creates.
struct Ground {
    site: Site,
    owner: DatabaseUrl,
    role: Option<String>,
}

impl Ground {
    /// Return a site with a short lease. With `may_create`, its role may create schemas.
    async fn new(mut place: Place, may_create: bool) -> Ground {
        let owner = place.url.clone();
        let mut role = None;
        if place.backend == Backend::Postgres {
            let name = format!("selftest_{}", uuid::Uuid::new_v4().simple());
            run_sql(
                &owner,
                &format!("CREATE ROLE {name} LOGIN PASSWORD 'secret'"),
            )
            .await;
            let may = "DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO ROLE', current_database()); END $$";
            if may_create {
                run_sql(&owner, &may.replace("ROLE", &name)).await;
            }
            let url = owner.expose();
            let (_, server) = url.split_once('@').expect("a server");
            let server = server.split('?').next().expect("a database");
            place.url = format!("postgres://{name}:secret@{server}")
                .parse()
                .expect("an address");
            role = Some(name);
        }
        let site = Site::new(place);
        site.configure(SHORT_LEASE);
        Ground { site, owner, role }
    }

    /// Return the names of the schemas or folders that a selftest created.
    async fn created(&self) -> Vec<String> {
        let Some(role) = &self.role else {
            let entries = std::fs::read_dir(self.site.folder()).expect("the folder");
            let names = entries.flatten().map(|entry| entry.file_name());
            let names = names.map(|name| name.to_string_lossy().into_owned());
            return names.filter(|name| name.contains("selftest")).collect();
        };
        let sql =
            format!("SELECT nspname::text FROM pg_namespace WHERE nspowner = '{role}'::regrole");
        let db = Db::open(&self.owner).await.expect("the server");
        let rows = probe::rows(&mut db.read().await.expect("a transaction"), &sql).await;
        db.close().await;
        rows.expect("schemas").concat()
    }

    /// Drop the role.
    async fn end(self) {
        if let Some(role) = &self.role {
            let sql = format!("DROP OWNED BY {role} CASCADE; DROP ROLE {role}");
            run_sql(&self.owner, &sql).await;
        }
    }
}

/// Run statements about a role and its privileges on the database, one test at a time.
///
/// Postgres refuses two changes of the privileges on one database at the same moment.
async fn run_sql(url: &DatabaseUrl, sql: &str) {
    let db = Db::open(url).await.expect("the database");
    let mut tx = db.write().await.expect("a transaction");
    for sql in ["SELECT pg_advisory_xact_lock(7979)", sql] {
        probe::execute(&mut tx, sql)
            .await
            .unwrap_or_else(|error| panic!("{error}\n{sql}"));
    }
    tx.commit().await.expect("a commit");
    db.close().await;
}

async fn a_selftest_reports_no_problem_and_leaves_nothing(place: Place) {
    let ground = Ground::new(place, true).await;
    let site = &ground.site;
    let backend = site.place().backend;
    let report = site.json(["selftest", "--rounds", "4", "--seed", "7"]);
    assert_eq!(report["ok"], true, "{report:#}");
    assert_eq!(report["database"], backend.name());
    assert_eq!(
        (&report["seed"], &report["rounds_done"]),
        (&7.into(), &4.into())
    );
    let hosts = if backend == Backend::Postgres { 3 } else { 1 };
    assert_eq!(report["hosts"], hosts);
    let count = |key: &str| {
        let count = report[key].as_u64();
        count.unwrap_or_else(|| panic!("{key}: {report:#}"))
    };
    for nothing in [
        "failed",
        "unfinished",
        "lost",
        "doubled",
        "slots_missing",
        "slots_twice",
    ] {
        assert_eq!(count(nothing), 0, "{nothing}: {report:#}");
    }
    assert!(count("kills") >= 2, "{report:#}");
    assert!(count("launches") >= 40, "{report:#}");
    assert!(count("effects") >= count("succeeded"), "{report:#}");
    assert!(count("slots") >= count("launches"), "{report:#}");
    for key in ["database_version", "campanile_version", "system"] {
        assert!(!text(&report[key]).is_empty(), "{key}: {report:#}");
    }
    // This build has crash points. Each host that aborts at one was there.
    assert_eq!(report["has_crash_points"], true);
    let points = list(report["crash_points"].clone());
    assert!(
        points.contains(&"before_decide_commit".into()),
        "{report:#}"
    );
    for key in ["take_over_ms", "delay_ms"] {
        assert!(report[key]["p99"].is_f64(), "{key}: {report:#}");
    }
    assert!(report["delay_ms"]["max"].as_f64() > Some(0.0), "{report:#}");
    assert_eq!(report["verification"]["faults"], Value::Array(Vec::new()));
    assert_eq!(ground.created().await, [] as [String; 0]);
    assert!(!site.folder().join("campanile.db").exists());
    ground.end().await;
}

async fn a_database_in_use_and_wrong_numbers_are_refused(place: Place) {
    let site = Site::new(place);
    let backend = site.place().backend;
    for (arguments, part) in [
        (["--rounds", "0"], "0 is not in 1..=1000"),
        (["--rounds", "1001"], "1001 is not in 1..=1000"),
        (["--hosts", "0"], "0 is not in 1..=8"),
        (["--hosts", "9"], "9 is not in 1..=8"),
        (["--seed", "x"], "invalid"),
    ] {
        let done = site.run(["selftest"].into_iter().chain(arguments));
        done.assert_refused(&[part]);
    }
    if backend == Backend::Sqlite {
        let done = site.run(["selftest", "--hosts", "2"]);
        done.assert_refused(&["a SQLite file is served by one host"]);
        let nowhere = ["selftest", "--database", "sqlite:absent/campanile.db"];
        site.run(nowhere)
            .assert_refused(&["no folder can be created beside the database", "absent"]);
    }
    let mut host = site.serve();
    let before = names(site.folder());
    let done = site.run(["selftest", "--rounds", "1"]);
    let part = match backend {
        Backend::Sqlite => "a host serves this database",
        Backend::Postgres => "live hosts serve this database: `",
    };
    done.assert_refused(&[part, "stop the hosts, or name another database"]);
    assert_eq!(names(site.folder()), before);
    stop(&mut host);
    if backend == Backend::Postgres {
        // No host serves it any more, and the address still names a schema with a record.
        let done = site.run(["selftest", "--rounds", "1"]);
        done.assert_refused(&[
            "the address names the schema `t_",
            "leave `search_path` out",
        ]);
    }
}

/// Return the names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn a_role_that_may_not_create_a_schema_is_refused() {
    run_empty_case(Backend::Postgres, async |place| {
        let ground = Ground::new(place, false).await;
        let done = ground.site.run(["selftest", "--rounds", "1"]);
        done.assert_refused(&[
            "no schema can be created: permission denied",
            "GRANT CREATE ON DATABASE",
        ]);
        assert_eq!(ground.created().await, [] as [String; 0]);
        ground.end().await;
    });
}

async fn an_interrupted_selftest_leaves_nothing(place: Place) {
    let ground = Ground::new(place, true).await;
    for signal in [Signal::INT, Signal::TERM] {
        let (mut running, children) = start(&ground).await;
        running.signal(signal);
        let ended = running.wait_exit();
        let log = running.stderr_lines().join("\n");
        assert_eq!(ended.code(), Some(1), "{log}");
        assert!(log.contains("the selftest was stopped"), "{log}");
        assert!(children.iter().all(|child| !is_alive(*child)), "{log}");
        assert_eq!(ground.created().await, [] as [String; 0]);
    }
    // A killed one cannot clean up. Its hosts end with it, where the system can tell them.
    let (mut running, children) = start(&ground).await;
    running.kill();
    if cfg!(target_os = "linux") {
        eventually(|| match children.iter().any(|child| is_alive(*child)) {
            false => Ok(()),
            true => Err(format!("hosts are alive: {children:?}")),
        });
    }
    ground.end().await;
}

/// If the parent dies before its host could ask to be told, the host notices its new parent and ends.
#[cfg(target_os = "linux")]
#[test]
fn a_host_whose_parent_has_already_died_ends() {
    run_empty_case(Backend::Sqlite, async |place| {
        let site = Site::new(place);
        // The id of an ended process, no longer this one's child.
        let mut ended = std::process::Command::new("true").spawn().expect("true");
        ended.wait().expect("its end");
        let gone = ended.id().to_string();
        let done = site.run(["serve", "--listen", "off", "--end-with-parent", &gone]);
        assert_eq!(done.code, 1, "{done:?}");
        let why = format!("the process {gone}, which started this host, has ended");
        assert!(done.stderr.contains(&why), "{done:?}");
        assert!(!site.folder().join("campanile.db").exists());
    });
}

/// Start a selftest of many rounds, and wait until its hosts run. Return it with the ids of their processes.
async fn start(ground: &Ground) -> (HostProcess, Vec<u32>) {
    let arguments = ["selftest", "--rounds", "500", "--seed", "1"];
    let running = HostProcess::spawn(&mut ground.site.command(arguments));
    let hosts = if ground.role.is_some() { 3 } else { 1 };
    let children = eventually(|| {
        let children = children(running.id());
        match children.len() >= hosts {
            true => Ok(children),
            false => Err(format!("{children:?}; {:?}", running.stderr_lines())),
        }
    });
    assert_eq!(ground.created().await.len(), 1);
    (running, children)
}

/// Return the ids of the child processes of `parent`.
fn children(parent: u32) -> Vec<u32> {
    let listed = std::process::Command::new("ps")
        .args(["-A", "-o", "pid=,ppid="])
        .output()
        .expect("ps");
    let listed = String::from_utf8(listed.stdout).expect("text");
    let rows = listed.lines().map(|line| {
        let mut numbers = line.split_whitespace().map(|word| word.parse::<u32>());
        let pid = numbers.next().expect("an id").expect("a number");
        (pid, numbers.next().expect("an id").expect("a number"))
    });
    rows.filter(|(_, of)| *of == parent)
        .map(|(pid, _)| pid)
        .collect()
}

/// Return whether a process runs. A process that has ended and is not waited for does not.
fn is_alive(pid: u32) -> bool {
    let listed = std::process::Command::new("ps")
        .args(["-o", "stat=", "-p", &pid.to_string()])
        .output()
        .expect("ps");
    let state = String::from_utf8_lossy(&listed.stdout).trim().to_owned();
    !state.is_empty() && !state.starts_with('Z')
}

async fn a_kept_selftest_says_where_it_is(place: Place) {
    let ground = Ground::new(place, true).await;
    let done = ground
        .site
        .run(["selftest", "--rounds", "1", "--hosts", "1", "--keep"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.ends_with("no problem\n"), "{done:?}");
    for line in [
        "rounds        1 of 1",
        "crash points  ",
        "take-over     p50 ",
        "verification  no fault in ",
    ] {
        assert!(done.stdout.contains(line), "{line}: {done:?}");
    }
    let kept: Vec<&str> = done
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("kept          "))
        .collect();
    let [database, folder] = kept[..] else {
        panic!("not two places: {done:?}");
    };
    let created = ground.created().await;
    assert!(database.contains(&created[0]), "{created:?}: {database}");
    assert!(
        Path::new(folder).join("selftest-1.log").exists(),
        "{folder}"
    );
    assert!(!done.stdout.contains("secret"), "{done:?}");
    std::fs::remove_dir_all(folder).expect("a folder");
    ground.end().await;
}
