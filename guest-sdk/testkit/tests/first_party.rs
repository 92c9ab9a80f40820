//! Tests of the testkit with real packages: grants, limits and the idempotency check.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use campanile_testkit::{Error, Moment, Outcome, Reply, TaskTest};
use serde_json::json;

fn package(path: &str) -> TaskTest {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    TaskTest::load(root.join(path)).unwrap()
}

const NOTHING: [(&str, &str); 0] = [];

#[test]
fn a_task_receives_its_context_and_returns_its_output() {
    let report = package("plugins/hello.wasm")
        .context(json!({"name": "Ada"}))
        .slot("2026-11-21T02:00:00Z")
        .run()
        .unwrap();
    assert!(report.succeeded(), "{report}");
    assert!(
        report.output().unwrap().to_string().contains("Ada"),
        "{report}"
    );
    assert!(!report.logs().is_empty());
}

#[test]
fn a_request_is_denied_unless_its_address_is_granted() {
    let context = json!({"urls": ["https://status.example.com/health"]});
    let denied = package("plugins/http-check.wasm")
        .context(context.clone())
        .run()
        .unwrap();
    assert_eq!(denied.outcome(), Outcome::Denied, "{denied}");
    assert!(
        denied.message().contains("https://status.example.com"),
        "{denied}"
    );
    let mut granted = package("plugins/http-check.wasm").context(context).http(
        "https://status.example.com/health",
        |request| {
            assert_eq!(request.method, "GET");
            Reply::text(200, "fine")
        },
    );
    // The second call starts from the same state.
    for _ in 0..2 {
        let report = granted.run().unwrap();
        assert!(report.succeeded(), "{report}");
        assert_eq!(report.requests().len(), 1);
        assert_eq!(
            report.requests()[0].url,
            "https://status.example.com/health"
        );
    }
}

#[test]
fn a_refused_connection_is_a_failure_of_the_task() {
    let report = package("plugins/http-check.wasm")
        .context(json!({"urls": ["https://status.example.com/"]}))
        .http("https://status.example.com", |_| Reply::refused())
        .run()
        .unwrap();
    assert_eq!(report.outcome(), Outcome::Failed, "{report}");
}

#[test]
fn a_package_without_its_requested_grants_is_not_called() {
    let report = package("plugins/backup.wasm").run().unwrap();
    assert_eq!(report.outcome(), Outcome::Denied);
    assert!(report.message().contains("/snapshots"), "{report}");
}

#[test]
fn a_test_can_set_files_and_read_them_after_the_call() {
    let report = package("plugins/backup.wasm")
        .files("/source", [("a.txt", "one"), ("b/c.txt", "two")])
        .writable_files("/snapshots", NOTHING)
        .slot("2026-11-21T02:00:00Z")
        .run()
        .unwrap();
    assert!(report.succeeded(), "{report}");
    assert_eq!(
        report.file("/snapshots/2026-11-21/b/c.txt"),
        Some(&b"two"[..])
    );
    assert_eq!(report.files().len(), 2, "{:?}", report.files());
}

#[test]
fn the_backup_is_idempotent() {
    let found = package("plugins/backup.wasm")
        .files(
            "/source",
            [("a.txt", "one"), ("b/c.txt", "two"), ("d.txt", "three")],
        )
        .writable_files(
            "/snapshots",
            [("2026-11-01/old.txt", "old"), ("2026-11-02/old.txt", "old")],
        )
        .context(json!({"keep": 2}))
        .slot("2026-11-21T02:00:00Z")
        .check_idempotent()
        .unwrap();
    assert!(found.holds(), "{found}");
    let effects = &found.undisturbed.effects;
    assert!(effects.len() >= 8, "{effects:#?}");
    assert_eq!(found.crashes, 2 * effects.len());
    assert!(
        effects
            .iter()
            .any(|effect| effect
                .starts_with("wasi:filesystem: rename /snapshots/.partial-2026-11-21")),
        "{effects:#?}"
    );
}

#[test]
fn a_crash_point_that_is_not_reached_fails_the_check() {
    // The two undisturbed runs send two requests each. After them, connections are refused, and a run ends with its
    // first request.
    let requests = AtomicUsize::new(0);
    let found = package("tests/guests/guests.wasm")
        .task("http_get")
        .context(json!({"url": "https://api.example.com/", "times": 2}))
        .http("https://api.example.com", move |_| {
            match requests.fetch_add(1, Ordering::SeqCst) {
                0..4 => Reply::text(200, "fine"),
                _ => Reply::refused(),
            }
        })
        .check_idempotent()
        .unwrap();
    assert!(!found.holds());
    assert_eq!((found.tried, found.crashes), (2, 2), "{found}");
    let unreached: Vec<_> = found
        .unreached
        .iter()
        .map(|unreached| (unreached.number, unreached.moment))
        .collect();
    assert_eq!(unreached, [(2, Moment::Before), (2, Moment::After)]);
    assert!(
        found.to_string().contains(
            "not crashed before effect 2, wasi:http: GET https://api.example.com/: the run ended before it"
        ),
        "{found}"
    );
}

#[test]
fn the_check_finds_random_names() {
    let found = package("tests/guests/guests.wasm")
        .task("keep_by_chance")
        .bucket("default", [("", ""); 0])
        .check_idempotent()
        .unwrap();
    assert!(found.undisturbed.unlike.is_empty(), "{found}");
    let after = found.broken.iter().map(|crashed| crashed.moment);
    assert_eq!(after.collect::<Vec<_>>(), [Moment::After], "{found}");
}

#[test]
fn the_check_finds_an_append_that_is_repeated() {
    let found = package("tests/guests/append.wasm")
        .writable_files("/out", NOTHING)
        .slot("2026-11-21T02:00:00Z")
        .check_idempotent()
        .unwrap();
    assert!(!found.holds());
    // Opening and creating the file can be repeated, but the write cannot.
    let effects = &found.undisturbed.effects;
    let writing = effects
        .iter()
        .position(|effect| effect.contains("bytes to /out/effects.log"));
    let broken: Vec<_> = found
        .broken
        .iter()
        .map(|crashed| (crashed.number, crashed.moment))
        .collect();
    let number = writing.unwrap() + 1;
    assert!(broken.contains(&(number, Moment::After)), "{found}");
    assert!(
        found
            .to_string()
            .contains("crashed after effect 2, wasi:filesystem: write"),
        "{found}"
    );
}

#[test]
fn a_test_can_set_a_bucket_and_read_it_after_the_call() {
    let denied = package("tests/guests/guests.wasm")
        .task("use_bucket")
        .run()
        .unwrap();
    assert_eq!(denied.outcome(), Outcome::Denied, "{denied}");
    let mut given = package("tests/guests/guests.wasm")
        .task("use_bucket")
        .bucket("default", [("calls", "41")]);
    let report = given.run().unwrap();
    assert!(report.succeeded(), "{report}");
    assert_eq!(report.bucket("default")["calls"], b"42", "{report}");
    let found = given.check_idempotent().unwrap();
    assert!(!found.holds(), "a call is counted twice");
    assert!(
        found
            .to_string()
            .contains("wasi:keyvalue: increment \"calls\" by 1 in the bucket `default`"),
        "{found}"
    );
}

#[test]
fn a_test_sets_the_limits() {
    let report = package("tests/guests/guests.wasm")
        .task("spin")
        .timeout(Duration::from_millis(100))
        .run()
        .unwrap();
    assert_eq!(report.outcome(), Outcome::TimedOut, "{report}");
    let report = package("tests/guests/guests.wasm")
        .task("spin")
        .limits(|limits| limits.cpu = Some(Duration::from_millis(50)))
        .run()
        .unwrap();
    assert_eq!(report.outcome(), Outcome::TimedOut, "{report}");
    assert!(report.message().contains("on a processor"), "{report}");
}

#[test]
fn an_invalid_test_is_an_error() {
    let wrong = |test: &mut TaskTest| match test.run() {
        Err(Error::Test(why)) => why,
        other => panic!("{other:?}"),
    };
    let hello = || package("plugins/hello.wasm");
    let no_object = wrong(&mut hello().context(json!([1])));
    assert!(no_object.contains("must be a JSON object"), "{no_object}");
    let reserved = wrong(&mut hello().context(json!({"attempt": 1})));
    assert!(reserved.contains("attempt"), "{reserved}");
    let unknown = wrong(&mut hello().task("helo"));
    assert!(unknown.contains("choose one of hello"), "{unknown}");
    let time = wrong(&mut hello().now("yesterday"));
    assert!(time.contains("now is \"yesterday\""), "{time}");
    let address = wrong(&mut hello().http("example.com", |_| Reply::refused()));
    assert!(address.contains("is not an address"), "{address}");
}

#[test]
fn a_file_that_is_not_a_package_is_an_error() {
    let file = std::env::temp_dir().join(format!("campanile-testkit-{}.wasm", std::process::id()));
    std::fs::write(&file, "(module)").unwrap();
    let refused = TaskTest::load(&file).err().map(|error| error.to_string());
    std::fs::remove_file(&file).unwrap();
    assert!(refused.unwrap().contains("WebAssembly text"));
}

#[tokio::test]
async fn a_test_can_run_in_an_async_context() {
    let report = package("plugins/hello.wasm").run().unwrap();
    assert!(report.succeeded(), "{report}");
}
