//! What writing to the database can't do: granting a package anything, or running one's own bytes with its grants.

use std::path::PathBuf;
use std::sync::Arc;

use campanile_engine::Engine;
use campanile_model::clock::Clock;
use campanile_model::ids::ArtifactDigest;
use campanile_package::PluginsFolder;
use campanile_schedule::policy::Policies;
use campanile_store::events::{self, EventKind};
use campanile_store::launch::{self, LaunchRow};
use campanile_store::packages::{self, LoadedPackage, SidecarSummary};
use campanile_store::{FailureKind, HostLock, LaunchStatus, probe};
use campanile_tests::{TestDb, on_both};

use crate::host_steps::{add, clock_time};
use crate::serving::{self, NOOP, settings};

on_both!(
    a_start_takes_no_sidecar_from_the_database,
    bytes_that_were_written_into_the_database_run_without_grants_only,
    bytes_that_were_written_into_the_database_do_not_replace_a_broken_file,
    a_version_that_was_in_the_folder_runs_again_with_its_grants,
    a_launch_is_left_to_the_host_that_has_its_version,
);

/// Another valid package with different bytes.
const OTHER: &[u8] = include_bytes!("../guests/diamond.wasm");
const GRANTS: &str = "grants.env = ['TOKEN=abc']";

struct Host<'t> {
    test: &'t TestDb,
    clock: Clock,
    engine: Arc<Engine>,
    folder: PluginsFolder,
    plugins: PathBuf,
    _lock: HostLock,
}

impl<'t> Host<'t> {
    /// Starts a host with nothing on its own disk, and a folder with the package `noop` and this sidecar.
    async fn start(
        test: &'t TestDb,
        (name, plugins): (&str, &str),
        bytes: &[u8],
        sidecar: &str,
    ) -> Host<'t> {
        let clock = Clock::simulated(clock_time("10:30:00"));
        let folder = test.place.folder.path().join(plugins);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("noop.toml"), sidecar).unwrap();
        let guest = ("noop", bytes);
        let started = serving::start_named(test, &clock, settings(8), guest, (name, plugins));
        let (engine, lock, scanned) = started.await;
        Host {
            test,
            clock,
            engine,
            folder: scanned,
            plugins: folder,
            _lock: lock,
        }
    }

    async fn put(&mut self, file: &str, content: impl AsRef<[u8]>) {
        std::fs::write(self.plugins.join(file), content).unwrap();
        self.engine.scan(&mut self.folder).await.unwrap();
    }

    /// Decides the slot at `time` without running it.
    async fn decide(&self, time: &str) {
        self.clock.advance_to(clock_time(time));
        self.engine.decide(clock_time(time)).await.unwrap();
    }

    /// Does all steps at `time`, returning the newest launch.
    async fn tick(&self, time: &str) -> LaunchRow {
        self.clock.advance_to(clock_time(time));
        self.engine.tick(clock_time(time)).await.unwrap();
        let mut tx = self.test.read().await;
        launch::list(&mut tx, None, 1).await.unwrap().remove(0)
    }

    /// Whether this host has the package active.
    async fn has_package(&self) -> bool {
        let mut tx = self.test.read().await;
        let on_hosts = packages::on_hosts(&mut tx).await.unwrap();
        let own = self.engine.host();
        on_hosts.iter().any(|(host, ..)| *host == own)
    }

    /// Does what anyone writing to the database can do: storing bytes and making them the active version.
    async fn write_version(&self, bytes: &[u8]) {
        let mut tx = self.test.write().await;
        let version = LoadedPackage {
            name: "noop",
            digest: &ArtifactDigest::of(bytes),
            form: "typed_component",
            bytes,
            manifest: "{}",
            signature: None,
            sidecar: SidecarSummary::default(),
        };
        let now = self.clock.now();
        packages::publish(&mut tx, self.engine.host(), &version, now)
            .await
            .unwrap();
        let forget = "DELETE FROM package_host";
        probe::execute(&mut tx, forget).await.unwrap();
        tx.commit().await.unwrap();
        // Hosts record what they have with each scan; here, the host still has its version.
        let mut tx = self.test.write().await;
        let (name, digest) = ("noop", ArtifactDigest::of(NOOP.1));
        let none = SidecarSummary::default();
        packages::publish_host(&mut tx, self.engine.host(), name, &digest, none)
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }

    async fn refusals(&self) -> Vec<String> {
        let mut tx = self.test.read().await;
        let all = events::list(&mut tx, None, 100).await.unwrap();
        let refused = all.into_iter();
        let refused = refused.filter(|event| event.kind == EventKind::VersionRefused);
        refused.map(|event| event.detail).collect()
    }
}

#[track_caller]
fn assert_refused(launch: &LaunchRow) {
    assert_eq!(
        (launch.status, launch.failure),
        (LaunchStatus::Failed, Some(FailureKind::Refused)),
        "{launch:?}"
    );
    let message = launch.message.as_deref().unwrap_or_default();
    assert!(message.contains("only the database knows it"), "{message}");
}

async fn a_start_takes_no_sidecar_from_the_database(test: TestDb) {
    let first = Host::start(&test, ("host-1", "plugins"), NOOP.1, GRANTS).await;
    assert!(first.has_package().await);
    drop(first);
    // Only the database has a readable copy of this host's last sidecar.
    let again = Host::start(&test, ("host-1", "plugins"), NOOP.1, "grants = ").await;
    assert!(!again.has_package().await);
}

async fn bytes_that_were_written_into_the_database_run_without_grants_only(test: TestDb) {
    let mut host = Host::start(&test, ("host-1", "plugins"), NOOP.1, GRANTS).await;
    add(&test, "noop", None, &Policies::default()).await;
    host.write_version(OTHER).await;
    host.decide("11:00:00").await;
    // Another host may still claim to have the file.
    let launch = host.tick("11:00:30").await;
    assert_eq!(launch.digest, Some(ArtifactDigest::of(OTHER)));
    assert_refused(&launch);
    let refusals = host.refusals().await;
    assert_eq!(refusals.len(), 1);
    assert!(refusals[0].contains("noop.toml"), "{refusals:?}");
    // A package with no grants is nothing to gain.
    host.put("noop.toml", "[limits]").await;
    host.write_version(OTHER).await;
    host.decide("12:00:00").await;
    let launch = host.tick("12:00:30").await;
    assert_eq!(
        (launch.digest, launch.status),
        (Some(ArtifactDigest::of(OTHER)), LaunchStatus::Succeeded)
    );
}

async fn bytes_that_were_written_into_the_database_do_not_replace_a_broken_file(test: TestDb) {
    let host = Host::start(&test, ("host-1", "plugins"), NOOP.1, GRANTS).await;
    host.write_version(OTHER).await;
    drop(host);
    let again = Host::start(&test, ("host-1", "plugins"), b"broken", GRANTS).await;
    assert!(!again.has_package().await);
    assert_eq!(again.refusals().await.len(), 1);
}

async fn a_version_that_was_in_the_folder_runs_again_with_its_grants(test: TestDb) {
    let mut host = Host::start(&test, ("host-1", "plugins"), NOOP.1, GRANTS).await;
    add(&test, "noop", None, &Policies::default()).await;
    host.decide("11:00:00").await;
    host.put("noop.wasm", OTHER).await;
    let launch = host.tick("11:00:01").await;
    assert_eq!(launch.digest, Some(ArtifactDigest::of(NOOP.1)));
    assert_eq!(launch.status, LaunchStatus::Succeeded, "{launch:?}");
}

/// While several hosts are being updated, the one with the new file runs whatever is decided with it.
async fn a_launch_is_left_to_the_host_that_has_its_version(test: TestDb) {
    if !test.db.url().is_shared() {
        return;
    }
    let first = Host::start(&test, ("host-1", "plugins"), NOOP.1, GRANTS).await;
    let second = Host::start(&test, ("host-2", "more"), OTHER, GRANTS).await;
    add(&test, "noop", None, &Policies::default()).await;
    // Both hosts are alive, and the first knows of the second.
    let now = clock_time("11:00:00");
    for host in [&second, &first] {
        host.clock.advance_to(now);
        host.engine.renew(now).await.unwrap();
    }
    first.engine.look_at_hosts(now).await.unwrap();
    first.decide("11:00:00").await;
    for time in ["11:00:01", "11:00:20"] {
        let launch = first.tick(time).await;
        assert_eq!(launch.digest, Some(ArtifactDigest::of(OTHER)));
        assert_eq!(launch.status, LaunchStatus::Open, "{launch:?}");
    }
    let launch = second.tick("11:00:21").await;
    assert_eq!(launch.status, LaunchStatus::Succeeded, "{launch:?}");
}
