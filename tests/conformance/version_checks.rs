//! What runs is what was approved: pins, decisions, stored bytes, approvals and signatures, checked before code runs.

use std::path::PathBuf;
use std::sync::Arc;

use campanile_control::admin::approval;
use campanile_control::admin::schedule_admin::known_package;
use campanile_engine::Engine;
use campanile_model::clock::Clock;
use campanile_model::ids::ArtifactDigest;
use campanile_package::{Approval, PluginsFolder, VersionPolicy};
use campanile_schedule::policy::{Overlap, Policies};
use campanile_store::events::{self, Event, EventKind};
use campanile_store::launch::{self, LaunchRow, RunEnd};
use campanile_store::packages::{self, PackageRow, PackageState};
use campanile_store::{FailureKind, HostLock, LaunchStatus, package_versions, probe, sidecars};
use campanile_tests::{TestDb, on_both};
use minisign::KeyPair;

use crate::fixtures::ada;
use crate::host_steps::{add, claim_one, clock_time};
use crate::serving::{self, GUESTS, NOOP, settings};

on_both!(
    a_launch_of_another_digest_than_the_pin_is_refused_with_one_event,
    an_active_version_that_the_sidecar_no_longer_pins_is_refused,
    stored_bytes_with_another_digest_are_not_run,
    stored_bytes_with_another_digest_are_not_restored,
    a_launch_of_a_version_that_was_rolled_back_is_refused_until_it_is_approved,
    every_version_waits_when_the_policy_is_always,
    a_first_version_that_is_gone_before_its_approval_leaves_no_pending_version,
    a_version_runs_only_when_a_sidecar_pins_it,
    a_queued_launch_and_a_retry_are_refused_by_a_new_pin,
    a_recovered_launch_is_refused_after_a_rollback,
    stored_bytes_are_hashed_once_while_a_host_keeps_them_loaded,
    altered_bytes_are_replaced_when_the_file_is_back,
    an_active_version_is_refused_until_its_approval_when_the_policy_becomes_always,
    a_version_without_a_pin_is_not_claimed_when_the_policy_becomes_pinned,
    a_host_that_requires_approvals_refuses_what_another_host_activated,
    a_host_that_requires_signatures_refuses_what_another_host_activated,
    stored_bytes_without_the_required_signature_are_not_run,
);

/// Another valid package with other bytes.
const OTHER: &[u8] = include_bytes!("../guests/diamond.wasm");
/// The names of hosts and of their folders.
const FIRST: (&str, &str) = ("host-1", "plugins");
const SECOND: (&str, &str) = ("host-2", "more");

fn digest(bytes: &[u8]) -> ArtifactDigest {
    ArtifactDigest::of(bytes)
}

/// A host on a simulated clock with the package `noop`, and a schedule that is due every hour.
struct Host<'t> {
    test: &'t TestDb,
    clock: Clock,
    engine: Arc<Engine>,
    folder: PluginsFolder,
    /// The name of that folder.
    plugins: &'static str,
    _lock: HostLock,
}

impl<'t> Host<'t> {
    async fn start(test: &'t TestDb, policy: VersionPolicy) -> Host<'t> {
        let clock = Clock::simulated(clock_time("10:30:00"));
        Host::start_named(test, clock, policy, NOOP.1, FIRST).await
    }

    /// Start a host with these names of itself and of its folder, and with these bytes in the file of the package.
    async fn start_named(
        test: &'t TestDb,
        clock: Clock,
        policy: VersionPolicy,
        bytes: &'static [u8],
        (name, plugins): (&str, &'static str),
    ) -> Host<'t> {
        let settings = campanile_control::settings::Settings {
            policy,
            ..settings(8)
        };
        let guest = ("noop", bytes);
        let started = serving::start_named(test, &clock, settings, guest, (name, plugins));
        let (engine, lock, folder) = started.await;
        Host {
            test,
            clock,
            engine,
            folder,
            plugins,
            _lock: lock,
        }
    }

    async fn add_schedule(&self) {
        add(self.test, "noop", None, &Policies::default()).await;
    }

    /// Decide the slot at `time`, and do not run it.
    async fn decide(&self, time: &str) {
        self.clock.advance_to(clock_time(time));
        let decided = self.engine.decide(clock_time(time)).await.unwrap();
        assert_eq!(decided.decisions, 1);
    }

    /// Do all steps at `time`. Return the newest launch.
    async fn tick(&self, time: &str) -> LaunchRow {
        self.clock.advance_to(clock_time(time));
        self.engine.tick(clock_time(time)).await.unwrap();
        let mut tx = self.test.read().await;
        launch::list(&mut tx, None, 1).await.unwrap().remove(0)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.test.place.folder.path().join(self.plugins).join(file)
    }

    /// Write a file into the plugins folder, and scan it.
    async fn put(&mut self, file: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path(file), bytes).unwrap();
        self.scan().await;
    }

    async fn scan(&mut self) {
        self.engine.scan(&mut self.folder).await.unwrap();
    }

    async fn package(&self) -> PackageRow {
        let row = packages::find(&mut self.test.read().await, "noop").await;
        row.unwrap().expect("a package")
    }

    async fn events(&self, kind: EventKind) -> Vec<Event> {
        let mut all = events::list(&mut self.test.read().await, None, 100)
            .await
            .unwrap();
        all.retain(|event| event.kind == kind);
        all
    }

    async fn approve(&self) {
        self.approve_one(None).await;
    }

    async fn approve_one(&self, digest: Option<&ArtifactDigest>) {
        let mut tx = self.test.write().await;
        let (digest, now) = (digest.map(ArtifactDigest::as_str), self.clock.now());
        approval::approve(&mut tx, "noop", digest, ada(), now)
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }

    /// Activate the former version. Do not scan.
    async fn roll_back(&self) -> ArtifactDigest {
        let mut tx = self.test.write().await;
        let back = approval::roll_back(&mut tx, "noop", None, ada(), self.clock.now()).await;
        tx.commit().await.unwrap();
        back.unwrap().digest
    }

    /// Put the bytes of [`OTHER`] in the place of those of [`NOOP`] in the database.
    async fn alter_stored_bytes(&self) {
        let mut tx = self.test.write().await;
        let sql = format!(
            "UPDATE artifact SET bytes = (SELECT bytes FROM artifact WHERE digest = {}) WHERE digest = {}",
            self.test.backend().bytes(digest(OTHER).as_str()),
            self.test.backend().bytes(digest(NOOP.1).as_str())
        );
        probe::execute(&mut tx, &sql).await.unwrap();
        tx.commit().await.unwrap();
    }
}

#[track_caller]
fn assert_refused(launch: &LaunchRow, expected: &str) {
    assert_eq!(
        (launch.status, launch.failure),
        (LaunchStatus::Failed, Some(FailureKind::Refused)),
        "{launch:?}"
    );
    let message = launch.message.as_deref().unwrap_or_default();
    assert!(message.contains(expected), "no `{expected}`: {message}");
}

async fn a_launch_of_another_digest_than_the_pin_is_refused_with_one_event(test: TestDb) {
    let mut host = Host::start(&test, VersionPolicy::default()).await;
    host.add_schedule().await;
    host.decide("11:00:00").await;
    let pin = format!("sha256 = '{}'", digest(OTHER));
    std::fs::write(host.path("noop.wasm"), OTHER).unwrap();
    host.put("noop.toml", pin).await;
    assert_eq!(host.package().await.digest, Some(digest(OTHER)));
    let launch = host.tick("11:00:01").await;
    assert_eq!(
        launch.digest,
        Some(digest(NOOP.1)),
        "the digest of its decision"
    );
    assert_refused(&launch, "noop.toml pins");
    let events = host.events(EventKind::VersionRefused).await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].subject, "noop");
    assert!(
        events[0].detail.contains(digest(NOOP.1).short()),
        "{events:?}"
    );
    // The pinned version runs.
    assert_eq!(host.tick("12:00:00").await.status, LaunchStatus::Succeeded);
}

async fn an_active_version_that_the_sidecar_no_longer_pins_is_refused(test: TestDb) {
    let mut host = Host::start(&test, VersionPolicy::default()).await;
    host.add_schedule().await;
    assert_eq!(host.tick("11:00:00").await.status, LaunchStatus::Succeeded);
    // The file in the folder is the bad one, and the operator pins another.
    let pin = format!("sha256 = '{}'", digest(OTHER));
    host.put("noop.toml", pin).await;
    for slot in ["12:00:00", "13:00:00"] {
        assert_refused(&host.tick(slot).await, "noop.toml pins");
    }
    assert_eq!(host.events(EventKind::VersionRefused).await.len(), 1);
    std::fs::remove_file(host.path("noop.toml")).unwrap();
    host.scan().await;
    assert_eq!(host.tick("14:00:00").await.status, LaunchStatus::Succeeded);
}

async fn stored_bytes_with_another_digest_are_not_run(test: TestDb) {
    let mut host = Host::start(&test, VersionPolicy::default()).await;
    host.add_schedule().await;
    host.decide("11:00:00").await;
    host.put("noop.wasm", OTHER).await;
    host.alter_stored_bytes().await;
    let launch = host.tick("11:00:01").await;
    assert_refused(&launch, "the database holds other bytes");
    let events = host.events(EventKind::VersionAltered).await;
    assert_eq!(events.len(), 1);
    assert!(
        events[0].detail.contains(digest(OTHER).as_str()),
        "{events:?}"
    );
}

/// The file in the folder is broken, so a start uses the bytes in the database.
async fn stored_bytes_with_another_digest_are_not_restored(test: TestDb) {
    let mut host = Host::start(&test, VersionPolicy::default()).await;
    host.put("noop.wasm", OTHER).await;
    assert_eq!(host.roll_back().await, digest(NOOP.1));
    host.alter_stored_bytes().await;
    for _ in 0..2 {
        host.scan().await;
    }
    assert_eq!(host.events(EventKind::VersionAltered).await.len(), 1);
    host.add_schedule().await;
    let launch = host.tick("11:00:00").await;
    assert_eq!(launch.digest, Some(digest(NOOP.1)));
    assert_refused(&launch, "the database holds other bytes");
}

async fn a_launch_of_a_version_that_was_rolled_back_is_refused_until_it_is_approved(test: TestDb) {
    let mut host = Host::start(&test, VersionPolicy::default()).await;
    host.put("noop.wasm", OTHER).await;
    host.add_schedule().await;
    host.decide("11:00:00").await;
    host.roll_back().await;
    let launch = host.tick("11:00:01").await;
    assert_eq!(launch.digest, Some(digest(OTHER)));
    assert_refused(&launch, "an operator rolled back from it");
    assert_eq!(host.events(EventKind::VersionRefused).await.len(), 1);
    host.scan().await;
    let launch = host.tick("12:00:00").await;
    assert_eq!(
        (launch.status, launch.digest),
        (LaunchStatus::Succeeded, Some(digest(NOOP.1)))
    );
    // The operator decides again between the decision and the run.
    host.approve().await;
    host.decide("13:00:00").await;
    assert_eq!(host.tick("13:00:01").await.status, LaunchStatus::Succeeded);
}

async fn every_version_waits_when_the_policy_is_always(test: TestDb) {
    let policy = VersionPolicy {
        approval: Approval::Always,
        ..VersionPolicy::default()
    };
    let mut host = Host::start(&test, policy).await;
    let row = host.package().await;
    assert_eq!(row.state(), PackageState::PendingApproval);
    assert_eq!(
        (row.digest, row.pending_digest),
        (None, Some(digest(NOOP.1)))
    );
    host.scan().await;
    let pending = host.events(EventKind::VersionPending).await;
    assert_eq!(pending.len(), 1);
    assert!(
        pending[0].detail.contains("no version is active"),
        "{pending:?}"
    );
    let mut tx = test.read().await;
    let refused = known_package(&mut tx, "noop");
    let refused = refused.await.unwrap_err().to_string();
    drop(tx);
    assert!(refused.contains("package approve noop"), "{refused}");

    host.approve().await;
    host.scan().await;
    let row = host.package().await;
    assert_eq!(
        (row.state(), row.digest),
        (PackageState::Active, Some(digest(NOOP.1)))
    );
    host.add_schedule().await;
    assert_eq!(host.tick("11:00:00").await.status, LaunchStatus::Succeeded);

    // Other bytes that request nothing wait too, and the active version runs on.
    host.put("noop.wasm", OTHER).await;
    let row = host.package().await;
    assert_eq!(row.state(), PackageState::PendingApproval);
    assert_eq!(row.pending_digest, Some(digest(OTHER)));
    let launch = host.tick("12:00:00").await;
    assert_eq!(
        (launch.status, launch.digest),
        (LaunchStatus::Succeeded, Some(digest(NOOP.1)))
    );
    host.approve().await;
    host.scan().await;
    assert_eq!(host.tick("13:00:00").await.digest, Some(digest(OTHER)));
}

async fn a_first_version_that_is_gone_before_its_approval_leaves_no_pending_version(test: TestDb) {
    let policy = VersionPolicy {
        approval: Approval::Always,
        ..VersionPolicy::default()
    };
    let mut host = Host::start(&test, policy).await;
    let mut tx = test.read().await;
    let known = sidecars::packages(&mut tx, host.engine.host()).await;
    assert_eq!(known.unwrap(), ["noop"], "a restart expects the file");
    drop(tx);
    std::fs::remove_file(host.path("noop.wasm")).unwrap();
    host.scan().await;
    let row = host.package().await;
    assert_eq!(
        (row.state(), row.pending_digest),
        (PackageState::Missing, None)
    );
    // The file comes back, is rejected, and is gone again.
    host.put("noop.wasm", NOOP.1).await;
    let mut tx = test.write().await;
    let now = host.clock.now();
    let rejected = approval::reject(&mut tx, "noop", None, ada(), now).await;
    assert_eq!(rejected.unwrap().before, None);
    tx.commit().await.unwrap();
    host.scan().await;
    assert_eq!(host.package().await.state(), PackageState::Rejected);
    std::fs::remove_file(host.path("noop.wasm")).unwrap();
    host.scan().await;
    let versions = package_versions::of_package(&mut test.read().await, "noop").await;
    assert_eq!(versions.unwrap().len(), 1, "the decision stays");
}

async fn a_version_runs_only_when_a_sidecar_pins_it(test: TestDb) {
    let policy = VersionPolicy {
        approval: Approval::Pinned,
        ..VersionPolicy::default()
    };
    let mut host = Host::start(&test, policy).await;
    let row = host.package().await;
    assert_eq!((row.state(), &row.digest), (PackageState::Rejected, &None));
    let rejection = row.rejection.unwrap();
    assert!(
        rejection.contains("no sidecar pins it") && rejection.contains(digest(NOOP.1).as_str()),
        "{rejection}"
    );
    let pin = |bytes: &[u8]| format!("sha256 = '{}'", digest(bytes));
    host.put("noop.toml", pin(NOOP.1)).await;
    host.add_schedule().await;
    assert_eq!(host.tick("11:00:00").await.status, LaunchStatus::Succeeded);
    // Without the pin the loaded version does not run either.
    host.put("noop.toml", "").await;
    assert_refused(&host.tick("12:00:00").await, "no sidecar pins it");
    host.put("noop.toml", pin(NOOP.1)).await;
    assert_eq!(host.tick("13:00:00").await.status, LaunchStatus::Succeeded);
}

/// The database cannot be made to run bytes that no trusted key signed.
async fn stored_bytes_without_the_required_signature_are_not_run(test: TestDb) {
    let pair = KeyPair::generate_unencrypted_keypair().unwrap();
    let sign = |bytes: &[u8]| sign(&pair, bytes);
    let mut host = Host::start(&test, signed_by(&pair)).await;
    let rejection = host.package().await.rejection.unwrap();
    assert!(rejection.contains("it has no signature"), "{rejection}");
    host.put("noop.wasm.minisig", sign(OTHER)).await;
    let rejection = host.package().await.rejection.unwrap();
    assert!(rejection.contains("of other bytes"), "{rejection}");
    host.put("noop.wasm.minisig", sign(NOOP.1)).await;
    assert_eq!(host.package().await.state(), PackageState::Active);

    host.add_schedule().await;
    let set_signature = async |value: &str| {
        let mut tx = test.write().await;
        let sql = format!("UPDATE package_version SET signature = {value}");
        probe::execute(&mut tx, &sql).await.unwrap();
        tx.commit().await.unwrap();
    };
    std::fs::write(host.path("noop.wasm.minisig"), sign(OTHER)).unwrap();
    for (slot, value) in [("11:00:00", Some("NULL")), ("12:00:00", None)] {
        // The launch is decided with the version in the database, and the folder has another one.
        host.put("noop.wasm", NOOP.1).await;
        host.put("noop.wasm.minisig", sign(NOOP.1)).await;
        host.decide(slot).await;
        if let Some(value) = value {
            set_signature(value).await;
        }
        std::fs::write(host.path("noop.wasm"), OTHER).unwrap();
        host.put("noop.wasm.minisig", sign(OTHER)).await;
        assert_eq!(host.package().await.digest, Some(digest(OTHER)));
        let launch = host.tick(slot).await;
        assert_eq!(launch.digest, Some(digest(NOOP.1)));
        match value {
            None => assert_eq!(launch.status, LaunchStatus::Succeeded, "{launch:?}"),
            Some(_) => assert_refused(&launch, "it has no signature"),
        }
    }
}

/// A launch waits for the end of another one, which waits for its retry, when the sidecar pins another version.
async fn a_queued_launch_and_a_retry_are_refused_by_a_new_pin(test: TestDb) {
    let mut host = Host::start(&test, VersionPolicy::default()).await;
    let policies = Policies {
        overlap: Overlap::BufferOne,
        ..Policies::default()
    };
    add(&test, "noop", None, &policies).await;
    let work = claim_one(&host.engine, &host.clock, "11:00:00").await;
    let end = RunEnd::Waiting {
        retry_at: clock_time("12:00:30"),
    };
    let end = work.finished(end, Vec::new(), clock_time("11:00:01"));
    assert_eq!(host.engine.finish(&[end]).await.unwrap(), 1);
    host.decide("12:00:00").await;
    let pin = format!("sha256 = '{}'", digest(OTHER));
    std::fs::write(host.path("noop.wasm"), OTHER).unwrap();
    host.put("noop.toml", pin).await;
    for time in ["12:00:30", "12:00:31"] {
        host.tick(time).await;
    }
    let launches = launch::list(&mut test.read().await, None, 10)
        .await
        .unwrap();
    assert_eq!(launches.len(), 2);
    for launch in &launches {
        assert_eq!(launch.digest, Some(digest(NOOP.1)));
        assert_refused(launch, "noop.toml pins");
    }
    assert_eq!(host.events(EventKind::VersionRefused).await.len(), 1);
}

async fn a_recovered_launch_is_refused_after_a_rollback(test: TestDb) {
    let mut host = Host::start(&test, VersionPolicy::default()).await;
    host.put("noop.wasm", OTHER).await;
    host.add_schedule().await;
    let work = claim_one(&host.engine, &host.clock, "11:00:00").await;
    assert_eq!(work.launch.digest, digest(OTHER));
    host.roll_back().await;
    // The run is not tracked, so its lease expires.
    host.clock.advance_to(clock_time("11:01:00"));
    host.engine.renew(clock_time("11:01:00")).await.unwrap();
    let launch = host.tick("11:01:00").await;
    assert_eq!(launch.recoveries, 1);
    assert_refused(&launch, "an operator rolled back from it");
}

async fn stored_bytes_are_hashed_once_while_a_host_keeps_them_loaded(test: TestDb) {
    let mut host = Host::start(&test, VersionPolicy::default()).await;
    host.add_schedule().await;
    host.decide("11:00:00").await;
    host.put("noop.wasm", OTHER).await;
    let launch = host.tick("11:00:01").await;
    assert_eq!(
        (launch.status, launch.digest),
        (LaunchStatus::Succeeded, Some(digest(NOOP.1)))
    );
    host.alter_stored_bytes().await;
    // The host has not scanned: it still runs the version as an older one.
    host.roll_back().await;
    let launch = host.tick("12:00:00").await;
    assert_eq!(
        (launch.status, launch.digest),
        (LaunchStatus::Succeeded, Some(digest(NOOP.1)))
    );
}

async fn altered_bytes_are_replaced_when_the_file_is_back(test: TestDb) {
    let mut host = Host::start(&test, VersionPolicy::default()).await;
    host.put("noop.wasm", OTHER).await;
    host.alter_stored_bytes().await;
    host.put("noop.wasm", NOOP.1).await;
    let stored = packages::artifact(&mut test.read().await, &digest(NOOP.1)).await;
    assert!(stored.unwrap().as_deref() == Some(NOOP.1));
}

/// A version without an approval became active before.
async fn an_active_version_is_refused_until_its_approval_when_the_policy_becomes_always(
    test: TestDb,
) {
    let host = Host::start(&test, VersionPolicy::default()).await;
    host.add_schedule().await;
    assert_eq!(host.tick("11:00:00").await.status, LaunchStatus::Succeeded);
    drop(host);
    let policy = VersionPolicy {
        approval: Approval::Always,
        ..VersionPolicy::default()
    };
    let clock = Clock::simulated(clock_time("11:30:00"));
    let host = Host::start_named(&test, clock, policy, NOOP.1, FIRST).await;
    let events = host.events(EventKind::VersionRefused).await;
    assert_eq!(events.len(), 1, "at the start");
    let digest = digest(NOOP.1);
    let approve = approval::approve_command("noop", &digest);
    assert!(events[0].detail.contains(&approve), "{events:?}");
    for slot in ["12:00:00", "13:00:00"] {
        assert_refused(&host.tick(slot).await, "no operator has approved it");
    }
    assert_eq!(host.events(EventKind::VersionRefused).await.len(), 1);
    host.approve_one(Some(&digest)).await;
    let row = host.package().await;
    assert_eq!(
        (row.state(), row.digest),
        (PackageState::Active, Some(digest))
    );
    assert_eq!(host.tick("14:00:00").await.status, LaunchStatus::Succeeded);
}

async fn a_version_without_a_pin_is_not_claimed_when_the_policy_becomes_pinned(test: TestDb) {
    let host = Host::start(&test, VersionPolicy::default()).await;
    host.add_schedule().await;
    host.decide("11:00:00").await;
    drop(host);
    let policy = VersionPolicy {
        approval: Approval::Pinned,
        ..VersionPolicy::default()
    };
    let clock = Clock::simulated(clock_time("11:00:01"));
    let mut host = Host::start_named(&test, clock, policy, NOOP.1, FIRST).await;
    assert_eq!(host.package().await.state(), PackageState::Rejected);
    assert_eq!(host.tick("11:00:02").await.status, LaunchStatus::Open);
    let pin = format!("sha256 = '{}'", digest(NOOP.1));
    host.put("noop.toml", pin).await;
    assert_eq!(host.tick("11:00:03").await.status, LaunchStatus::Succeeded);
}

/// The hosts serve one after the other, as SQLite demands.
async fn a_host_that_requires_approvals_refuses_what_another_host_activated(test: TestDb) {
    let always = VersionPolicy {
        approval: Approval::Always,
        ..VersionPolicy::default()
    };
    let strict = Host::start(&test, always.clone()).await;
    strict.approve().await;
    drop(strict);
    lax_host_decides(&test, OTHER, None).await;
    let clock = Clock::simulated(clock_time("11:00:01"));
    let strict = Host::start_named(&test, clock, always, NOOP.1, FIRST).await;
    let launch = strict.tick("11:00:02").await;
    assert_eq!(launch.digest, Some(digest(OTHER)));
    assert_refused(&launch, "no operator has approved it");
    assert_eq!(
        strict.tick("12:00:00").await.status,
        LaunchStatus::Succeeded
    );
}

async fn a_host_that_requires_signatures_refuses_what_another_host_activated(test: TestDb) {
    let pair = KeyPair::generate_unencrypted_keypair().unwrap();
    let mut strict = Host::start(&test, signed_by(&pair)).await;
    strict.put("noop.wasm", OTHER).await;
    strict.put("noop.wasm.minisig", sign(&pair, OTHER)).await;
    assert_eq!(strict.package().await.digest, Some(digest(OTHER)));
    drop(strict);
    lax_host_decides(&test, GUESTS.1, Some("ok")).await;
    let clock = Clock::simulated(clock_time("11:00:01"));
    let strict = Host::start_named(&test, clock, signed_by(&pair), OTHER, FIRST).await;
    let launch = strict.tick("11:00:02").await;
    assert_eq!(launch.digest, Some(digest(GUESTS.1)));
    assert_refused(&launch, "it has no signature");
}

/// Let another host with the default policy activate `bytes`, and decide a launch of this task at 11:00.
async fn lax_host_decides(test: &TestDb, bytes: &[u8], task: Option<&str>) {
    let clock = Clock::simulated(clock_time("10:40:00"));
    let mut lax = Host::start_named(test, clock, VersionPolicy::default(), NOOP.1, SECOND).await;
    lax.put("noop.wasm", bytes).await;
    assert_eq!(lax.package().await.digest, Some(digest(bytes)));
    add(test, "noop", task, &Policies::default()).await;
    lax.decide("11:00:00").await;
}

fn signed_by(pair: &KeyPair) -> VersionPolicy {
    VersionPolicy {
        trusted_keys: vec![pair.pk.to_base64().parse().unwrap()],
        require_signature: true,
        ..VersionPolicy::default()
    }
}

fn sign(pair: &KeyPair, bytes: &[u8]) -> String {
    let signed = minisign::sign(None, &pair.sk, bytes, None, None);
    signed.unwrap().into_string()
}
