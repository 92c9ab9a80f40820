//! A host on a simulated clock, with one committed package in its folder.

use std::sync::Arc;
use std::time::Duration;

use campanile_control::settings::{RecoveryLimits, Settings};
use campanile_engine::Engine;
use campanile_model::clock::Clock;
use campanile_package::{
    ForeignWriters, HostRules, OwnRecord, PackageLoader, Packages, PluginsFolder, VersionPolicy,
};
use campanile_sandbox::{CodeCache, Limits, Sandbox, SandboxSettings};
use campanile_schedule::policy::Defaults;
use campanile_store::HostLock;
use campanile_tests::TestDb;

use crate::fixtures::approval_key;

/// A package: its name and its bytes.
pub type Guest<'g> = (&'g str, &'g [u8]);

pub const NOOP: Guest<'static> = ("noop", include_bytes!("../guests/noop.wasm"));
pub const GUESTS: Guest<'static> = ("guests", include_bytes!("../guests/guests.wasm"));

/// Start a host that has loaded the package `guest`.
pub async fn start(
    test: &TestDb,
    clock: &Clock,
    settings: Settings,
    guest: Guest<'_>,
) -> (Arc<Engine>, HostLock) {
    let (engine, lock, _) = start_with_folder(test, clock, settings, guest).await;
    (engine, lock)
}

/// Start a host that has scanned its folder with the package `name`. Return the folder too, for more scans.
pub async fn start_with_folder(
    test: &TestDb,
    clock: &Clock,
    settings: Settings,
    guest: Guest<'_>,
) -> (Arc<Engine>, HostLock, PluginsFolder) {
    start_named(test, clock, settings, guest, ("host-1", "plugins")).await
}

/// Start a host of another name, which has scanned the folder of another name.
pub fn start_named(
    test: &TestDb,
    clock: &Clock,
    settings: Settings,
    guest: Guest<'_>,
    names: (&str, &str),
) -> impl Future<Output = (Arc<Engine>, HostLock, PluginsFolder)> {
    start_in(test, clock, settings, guest, names, sandbox_settings())
}

pub fn sandbox_settings() -> SandboxSettings {
    SandboxSettings {
        calls_max: 8,
        guest_threads: 2,
        // The cache is shared, so that the package is compiled once for all tests.
        code_cache: CodeCache::Directory(env!("CARGO_TARGET_TMPDIR").into()),
        memory_bytes_max: Limits::default().memory_bytes_max,
        ..SandboxSettings::default()
    }
}

/// Starts a host with its own name, folder and sandbox.
pub async fn start_in(
    test: &TestDb,
    clock: &Clock,
    settings: Settings,
    (name, bytes): Guest<'_>,
    (host, folder): (&str, &str),
    sandbox: SandboxSettings,
) -> (Arc<Engine>, HostLock, PluginsFolder) {
    let memory_bytes_max = sandbox.memory_bytes_max;
    let sandbox = Arc::new(Sandbox::new(sandbox, clock.clone()).unwrap());
    let loader = Arc::new(PackageLoader::in_this_process(sandbox));
    let plugins = test.place.folder.path().join(folder);
    let file = plugins.join(format!("{name}.wasm"));
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, bytes).unwrap();
    let rules = HostRules {
        secret_variables: Default::default(),
        limits: Limits::default(),
        memory_bytes_most: memory_bytes_max,
        env: |_| None,
        own_paths: Vec::new(),
        foreign_writers: ForeignWriters::default(),
        secrets: settings.secrets.keys().cloned().collect(),
        groups: Default::default(),
        policy: settings.policy.clone(),
    };
    let mut folder = PluginsFolder::open(&plugins, Arc::clone(&loader), rules).unwrap();
    let (engine, lock) = Engine::start(
        test.db.clone(),
        clock.clone(),
        Some(host),
        settings,
        Packages::new(OwnRecord::default().with_key(approval_key().clone())),
        loader,
    )
    .await
    .unwrap();
    engine.scan(&mut folder).await.unwrap();
    (engine, lock, folder)
}

/// The settings of a host with capacity for `runs_max` runs.
pub fn settings(runs_max: usize) -> Settings {
    Settings {
        runs_max,
        quota: Default::default(),
        groups: Default::default(),
        namespaces: Default::default(),
        labels: Default::default(),
        placement: Default::default(),
        lease: Duration::from_secs(30),
        renew: Duration::from_secs(10),
        late: Defaults::default(),
        schedule_defaults: Default::default(),
        recovery: RecoveryLimits {
            lost_threshold: Duration::from_secs(60),
            age_max: Duration::from_secs(3_600),
            attempts_max: 3,
        },
        recovery_interval: Duration::from_secs(10),
        audit_interval: Duration::from_secs(600),
        retention: campanile_control::settings::RetentionLimits::FOR_EVER,
        forget_after: None,
        disk_reserve_bytes: 0,
        give_up_after: Duration::from_secs(3_600),
        drain: Duration::from_secs(1),
        secrets: Default::default(),
        policy: VersionPolicy::default(),
        alerts: Default::default(),
        traces: None,
    }
}
