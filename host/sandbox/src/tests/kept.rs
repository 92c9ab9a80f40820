//! What calls leave in host memory: each stays within its limits, and all of them within their package's share.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use campanile_model::clock::Clock;
use wasmtime::component::{Resource as Handle, ResourceTable};

use super::all_calls::{of_package, sandbox_with};
use super::guests::*;
use crate::bindings::campanile::task::{outbox, session};
use crate::bindings::wasi::keyvalue::store;
use crate::capability::keyvalue::host::KeyValueView;
use crate::capability::outbox::host::OutboxView;
use crate::capability::shared::Shared;
use crate::ledger::Ledger;
use crate::*;

const MIB: u64 = 1 << 20;

/// Blames the budget for all calls, however high the call's own limits.
const OF_ALL: &str = "a quarter of `memory_total`, is used up";

/// Returns a sandbox keeping up to 16 MiB for all packages, and 9.3 MiB for each.
fn sandbox_that_keeps_little() -> Arc<Sandbox> {
    sandbox_with(4, Ledger::new(64 * MIB, 10_000, 100))
}

/// Calls `package` `times` times in a row. What each call leaves is kept as long as its report.
async fn reports(sandbox: &Sandbox, guest: &Guest, package: &str, times: usize) -> Vec<Report> {
    let artifact = sandbox.load(&guest.component()).unwrap();
    let mut reports = Vec::new();
    for _ in 0..times {
        let mut call = of_package(package);
        call.limits.stdio_bytes_max = 4 << 20;
        call.limits.log_bytes_max = 4 << 20;
        call.limits.output_bytes_max = 4 << 20;
        reports.push(sandbox.run(&artifact, call).await);
    }
    reports
}

/// Repeats `what`.
fn repeats(times: usize, what: &str) -> Guest {
    let body = format!(
        "(local $n i32) (local $stdout i32)
        (local.set $stdout (call $get-stdout))
        (loop $again
            {what}
            (local.set $n (i32.add (local.get $n) (i32.const 1)))
            (br_if $again (i32.lt_u (local.get $n) (i32.const {times}))))"
    );
    guest(&body).completes(None, None)
}

/// Prints 4 KiB at a time.
fn prints(times: usize) -> Guest {
    repeats(
        times,
        "(call $write (local.get $stdout) (i32.const 8192) (i32.const 4096) (i32.const 512))
        (if (i32.load8_u (i32.const 512)) (then unreachable))",
    )
}

/// Logs 4 KiB at a time.
fn logs(times: usize) -> Guest {
    let guest = repeats(
        times,
        "(call $log (i32.const 2) (i32.const 8192) (i32.const 0) (i32.const 8192) (i32.const 4096))",
    );
    guest.data(8192, "x".repeat(4096))
}

/// Returns 3 MB of text.
fn returns_much() -> Guest {
    let body = "(memory.fill (i32.const 131072) (i32.const 120) (i32.const 3000000))
        (i32.store8 (i32.const 131072) (i32.const 34))
        (i32.store8 (i32.const 3131071) (i32.const 34))";
    guest(body)
        .pages(64)
        .data(RESULT, completion_of(131_072, 3_000_000))
}

/// Checks that a hog is charged for all it left, within its share, while its neighbour loses nothing. Dropping the reports releases
/// everything.
async fn assert_shared(sandbox: &Sandbox, hogs: Vec<Report>, left: u64, neighbour: &Guest) {
    let kept = &sandbox.ledger.kept;
    let free = KEPT_FREE_BYTES * hogs.len() as u64;
    assert!(left <= kept.most_of_one() + free, "{left} bytes are kept");
    assert!(left > kept.most_of_one() - 4 * MIB, "only {left} bytes");
    assert!(kept.held("hog") >= left - free);
    let honest = reports(sandbox, neighbour, "honest", 1).await;
    assert_eq!(honest[0].outcome, Outcome::Succeeded, "{honest:#?}");
    assert_eq!(honest[0].stdout_bytes_dropped, 0);
    assert!(honest[0].logs.iter().all(|line| !line.by_host));
    assert!(kept.held("honest") > 0);
    drop((hogs, honest));
    assert_eq!((kept.held("hog"), kept.held("honest")), (0, 0));
}

#[tokio::test]
async fn what_many_calls_print_is_cut_at_the_share_of_their_package() {
    let sandbox = sandbox_that_keeps_little();
    let hogs = reports(&sandbox, &prints(1_000), "hog", 6).await;
    let whole = 1_000 * 4_096;
    for hog in &hogs {
        assert_eq!(hog.outcome, Outcome::Succeeded, "{hog:#?}");
        assert_eq!(hog.stdout.len() as u64 + hog.stdout_bytes_dropped, whole);
    }
    assert_eq!(hogs[0].stdout_bytes_dropped, 0);
    assert_eq!(hogs[5].stdout.len(), 4 << 10, "the host's own reserve");
    let left = hogs.iter().map(|hog| hog.stdout.len() as u64).sum();
    assert_shared(&sandbox, hogs, left, &prints(8)).await;
}

#[tokio::test]
async fn what_many_calls_log_is_cut_at_the_share_of_their_package_and_says_so() {
    let sandbox = sandbox_that_keeps_little();
    let hogs = reports(&sandbox, &logs(900), "hog", 6).await;
    assert_eq!(hogs[0].logs.len(), 900);
    let mark = hogs[5].logs.last().unwrap();
    assert!(mark.by_host && mark.message.contains(OF_ALL), "{mark:?}");
    assert!(!mark.message.contains("limits.log"), "{mark:?}");
    let lines = hogs.iter().flat_map(|hog| &hog.logs);
    let left = lines.map(|line| line.message.len() as u64).sum();
    assert_shared(&sandbox, hogs, left, &logs(8)).await;
}

#[tokio::test]
async fn a_result_beyond_the_share_of_its_package_fails_the_call() {
    let sandbox = sandbox_that_keeps_little();
    let hogs = reports(&sandbox, &returns_much(), "hog", 6).await;
    for hog in &hogs[3..] {
        let failed = failure(hog, Outcome::InvalidOutput);
        assert!(failed.message.contains(OF_ALL), "{}", failed.message);
        assert!(failed.message.contains("raise `memory_total`"));
        assert_eq!(hog.output, None);
    }
    let outputs = hogs.iter().filter_map(|hog| hog.output.as_ref());
    let left = outputs.map(|output| output.as_str().len() as u64).sum();
    assert_shared(&sandbox, hogs, left, &returns_much()).await;
}

/// Returns the shared state of a call of `hog`, allowed to buffer 64 MiB, write to the bucket `state` and send to a server.
fn shared(ledger: &Arc<Ledger>, buckets: Arc<dyn Buckets>) -> Shared {
    let grants = Grants {
        keyvalue: vec![BucketGrant {
            bucket: "state".to_owned(),
            namespace: "hog/state".to_owned(),
            writable: true,
        }],
        http: vec![HttpGrant::get("example.com", 80)],
        ..Grants::default()
    };
    let now = Clock::system().now();
    let limits = Limits {
        uncommitted_bytes_max: 64 << 20,
        ..Limits::default()
    };
    let call = Call {
        grants: Arc::new(grants),
        world: World::real(buckets),
        limits,
        ..of_package("hog")
    };
    Shared::new(call, Arc::clone(ledger), now)
}

#[tokio::test]
async fn what_calls_hold_back_is_refused_beyond_the_share_of_their_package() {
    let ledger = Arc::new(Ledger::new(64 * MIB, 10_000, 100));
    let shared = shared(&ledger, Arc::new(MemoryBuckets::default()));
    let mut uncommitted = Uncommitted::default();
    let mut table = ResourceTable::new();
    let mut view = KeyValueView {
        shared: &shared,
        uncommitted: &mut uncommitted,
        table: &mut table,
    };
    let opened = session::Host::open(&mut view, "state".to_owned()).await;
    let bucket = opened.unwrap().unwrap().rep();
    // Setting the same key repeatedly keeps just one value.
    for key in ["a"; 100].into_iter().chain(["b", "c", "d", "e"]) {
        let handle = Handle::new_borrow(bucket);
        let set = store::HostBucket::set(&mut view, handle, key.to_owned(), vec![0; 1 << 20]);
        set.await.unwrap().unwrap();
        let handle = Handle::new_borrow(bucket);
        let got = store::HostBucket::get(&mut view, handle, "unset".to_owned());
        assert_eq!(got.await.unwrap().unwrap(), None);
    }
    let in_session = ledger.kept.held("hog");
    assert!((5 * MIB..6 * MIB).contains(&in_session), "{in_session}");
    let mut sent = 0;
    let refused = loop {
        let mut view = OutboxView {
            shared: &shared,
            uncommitted: &mut uncommitted,
        };
        let message = outbox::Message {
            method: "GET".to_owned(),
            url: "http://example.com/".to_owned(),
            headers: Vec::new(),
            body: vec![0; 1 << 20],
        };
        match outbox::Host::send(&mut view, message).await.unwrap() {
            Ok(_) => sent += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!(sent, 4);
    let outbox::Error::Refused(why) = refused else {
        panic!("{refused:?}");
    };
    assert!(why.contains(OF_ALL), "{why}");
    let mut view = KeyValueView {
        shared: &shared,
        uncommitted: &mut uncommitted,
        table: &mut table,
    };
    let handle = Handle::new_borrow(bucket);
    let set = store::HostBucket::set(&mut view, handle, "f".to_owned(), vec![0; 1 << 20]);
    let refused = set.await.unwrap();
    let Err(store::Error::Other(why)) = refused else {
        panic!("{refused:?}");
    };
    assert!(why.contains(OF_ALL), "{why}");
    let left = uncommitted.bytes();
    let share = shared.kept.end(left);
    assert!(ledger.kept.held("hog") >= left - (4 << 10));
    drop(share);
    assert_eq!(ledger.kept.held("hog"), 0);
}

/// A bucket with a database that never responds.
struct Stuck;

#[async_trait]
impl Buckets for Stuck {
    async fn get(&self, _: &str, _: &[String]) -> BucketResult<Vec<Option<Vec<u8>>>> {
        std::future::pending().await
    }

    async fn exist(&self, _: &str, _: &[String]) -> BucketResult<Vec<bool>> {
        std::future::pending().await
    }

    async fn keys(&self, _: &str, _: u64, _: usize) -> BucketResult<Vec<(u64, String)>> {
        std::future::pending().await
    }

    async fn write(&self, _: &str, _: &[Change], _: u64) -> BucketResult<u64> {
        std::future::pending().await
    }

    async fn increment(&self, _: &str, _: &str, _: u64, _: u64) -> BucketResult<(u64, u64)> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn what_a_call_passes_to_a_bucket_counts_while_it_waits() {
    let ledger = Arc::new(Ledger::new(4 * MIB, 10_000, 100));
    let shared = shared(&ledger, Arc::new(Stuck));
    let mut view = KeyValueView {
        shared: &shared,
        uncommitted: &mut Uncommitted::default(),
        table: &mut ResourceTable::new(),
    };
    let opened = store::Host::open(&mut view, "state".to_owned()).await;
    let bucket = opened.unwrap().unwrap().rep();
    {
        let handle = Handle::new_borrow(bucket);
        let set = store::HostBucket::set(&mut view, handle, "a".to_owned(), vec![0; 500 << 10]);
        let mut waits = pin!(set);
        let polled = waits.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Pending));
        assert!(ledger.kept.held("hog") >= 496 << 10);
    }
    assert_eq!(ledger.kept.held("hog"), 0);
    let handle = Handle::new_borrow(bucket);
    let set = store::HostBucket::set(&mut view, handle, "a".to_owned(), vec![0; 900 << 10]);
    let refused = set.await.unwrap();
    assert!(
        matches!(&refused, Err(store::Error::Other(why)) if why.contains(OF_ALL)),
        "{refused:?}"
    );
    let handle = Handle::new_borrow(bucket);
    let get = store::HostBucket::get(&mut view, handle, "k".repeat(900 << 10));
    let refused = get.await.unwrap();
    assert!(
        matches!(&refused, Err(store::Error::Other(why)) if why.contains(OF_ALL)),
        "{refused:?}"
    );
}
