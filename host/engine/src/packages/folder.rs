//! The plugin folder: each change is recorded first, the package with its schedules, and then active on this host.
//!
//! A version in a file may be pending or rejected. Then the active version runs on, from the database if its file is
//! gone. A scan finds such a file again each time, because it differs from the active version. That costs one query,
//! which also notices when an operator decides, or when the sidecar grants what the version requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::alive::start;
use crate::ctx::{Ctx, SharedCtx};
use crate::error::{EngineError, Result};
use crate::packages::forget::end_forgotten;
use crate::packages::record_package::{Recorded, record_package};
use crate::packages::version_check::{self, StoredCode, not_run, refusal, stored_code};
use crate::packages::watch::Watch;
use crate::recover::mark_missing;
use crate::service::{Next, RETRY_PAUSE, Service};
use crate::tell::log_spans;
use campanile_control::admin::approval::{self, VersionAdmission};
use campanile_control::admin::schedule_admin::Refusal;
use campanile_model::clock::Timestamp;
use campanile_model::text::{cut_error, printable_line};
use campanile_package::{Approval, Change, Package, PluginsFolder, Vouched};
use campanile_store::events::{self, EventKind};
use campanile_store::package_versions::{self, VersionDecision};
use campanile_store::{DbError, packages, sidecars};
use tokio::time::{Instant, timeout_at};

/// The service that follows the plugin folder.
pub(crate) struct FolderSync {
    pub(crate) folder: PluginsFolder,
    pub(crate) watcher: Watch,
    /// The packages that are recorded as being loaded.
    pub(crate) recorded_loads: BTreeSet<String>,
    /// Whether the packages of ended hosts are still to be forgotten, because this host could not scan its folder before.
    pub(crate) must_forget: bool,
}

/// A load that takes longer is recorded, so that `package list` and `health` show it.
const LONG_LOAD: Duration = Duration::from_secs(1);

impl Service for FolderSync {
    const STEP: &'static str = "following the plugin folder";
    /// A scan that compiles may take long.
    const IS_INTERRUPTIBLE: bool = true;

    fn first(_: &Ctx) -> Next {
        Next::After(LONG_LOAD)
    }

    async fn tick(&mut self, ctx: &SharedCtx, _: Timestamp) -> Result<Next> {
        scan(ctx, &mut self.folder).await?;
        if self.must_forget && !self.folder.is_unusable() {
            start::forget_ended_hosts(ctx, ctx.clock.now()).await?;
            self.must_forget = false;
        }
        self.record_loads(ctx).await?;
        Ok(if self.folder.is_loading() {
            Next::After(LONG_LOAD)
        } else {
            Next::WhenWoken
        })
    }

    fn after_error(error: &EngineError) -> Next {
        match error.may_pass() {
            // A change that could not be recorded does not wait for the folder to change again.
            true => Next::After(RETRY_PAUSE),
            false => Next::WhenWoken,
        }
    }

    async fn woken(&mut self, ctx: &Ctx) {
        tokio::select! {
            () = self.watcher.changed() => {}
            () = self.folder.load_ended() => {}
            () = ctx.wake.folder_sync.notified() => {}
        }
    }
}

impl FolderSync {
    /// Records which files are being loaded, and since when.
    async fn record_loads(&mut self, ctx: &Ctx) -> Result {
        let now = ctx.clock.now();
        let long: BTreeMap<String, Timestamp> = (self.folder.loading())
            .map(|(name, since)| (name.to_owned(), since.elapsed()))
            .filter(|(_, elapsed)| *elapsed >= LONG_LOAD)
            .map(|(name, elapsed)| (name, now.minus(elapsed)))
            .collect();
        let names: BTreeSet<String> = long.keys().cloned().collect();
        if names == self.recorded_loads {
            return Ok(());
        }
        let mut tx = ctx.db.write().await?;
        for name in names.symmetric_difference(&self.recorded_loads) {
            match long.get(name) {
                Some(since) => packages::set_loading(&mut tx, ctx.host, name, *since).await?,
                None => packages::end_loading(&mut tx, ctx.host, name).await?,
            }
        }
        tx.commit().await?;
        self.recorded_loads = names;
        Ok(())
    }
}

/// How long the start of a host waits for files that are being loaded.
const START_WAIT: Duration = Duration::from_secs(10);

/// Scans the folder, and loads its files as far as they can be loaded within [`START_WAIT`].
///
/// Of a package whose newest file takes longer, the active version is restored.
pub(crate) async fn scan_at_start(ctx: &Ctx, folder: &mut PluginsFolder) -> Result {
    let mut loading = (ctx, &mut *folder);
    if !load_within(START_WAIT, &mut loading).await? {
        for name in folder.unloaded() {
            tracing::warn!(package = %name, "the file is not loaded yet; the host starts without it");
            restore_from_db(ctx, folder, &name).await?;
        }
    }
    if folder.is_unusable() {
        keep_recorded(ctx, folder).await
    } else {
        Ok(())
    }
}

/// Files being loaded.
trait Loading {
    /// Records and applies what has been loaded, and begins to load more. False when nothing is being loaded any more.
    async fn go_on(&mut self) -> Result<bool>;

    /// Waits for the end of a load. Nothing is lost if the wait is given up.
    async fn load_ended(&mut self);
}

impl Loading for (&Ctx, &mut PluginsFolder) {
    async fn go_on(&mut self) -> Result<bool> {
        scan(self.0, self.1).await?;
        Ok(self.1.is_loading())
    }

    async fn load_ended(&mut self) {
        self.1.load_ended().await;
    }
}

/// Loads files for `wait`, returning whether all are loaded.
///
/// Only waiting for loads is cut short. A package being recorded is already active in memory, so dropping that halfway would leave it
/// active here and unknown to the database, and no later scan would see a difference.
async fn load_within(wait: Duration, loading: &mut impl Loading) -> Result<bool> {
    let until = Instant::now() + wait;
    while loading.go_on().await? {
        if timeout_at(until, loading.load_ended()).await.is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Restores the packages that this host had before, when its folder cannot be used.
async fn keep_recorded(ctx: &Ctx, folder: &PluginsFolder) -> Result {
    for name in sidecars::packages(&mut ctx.db.read().await?, ctx.host).await? {
        restore_from_db(ctx, folder, &name).await?;
    }
    Ok(())
}

/// Scans the folder until every file is loaded.
pub(crate) async fn scan_and_load(ctx: &Ctx, folder: &mut PluginsFolder) -> Result {
    loop {
        scan(ctx, folder).await?;
        if !folder.is_loading() {
            return Ok(());
        }
        folder.load_ended().await;
    }
}

/// Scans the folder once, and records and applies each change as it is found.
///
/// The next scan finds a change again that could not be recorded. The other changes wait for it only when the database
/// is away. Packages are forgotten last: a file that is back counts.
pub(crate) async fn scan(ctx: &Ctx, folder: &mut PluginsFolder) -> Result {
    if ctx.reported.take_lost() {
        folder.report_all_again();
        if let Err(error) = record_all_again(ctx, folder).await {
            ctx.reported.mark_lost();
            return Err(error);
        }
    }
    let Some(mut scan) = folder.scan(&ctx.packages).await else {
        return Ok(());
    };
    let mut failed = Ok(());
    while let Some(change) = folder.next_change(&mut scan, &ctx.packages).await {
        match apply(ctx, folder, &change).await {
            Err(error) if error.may_pass() => return Err(error),
            Err(error) => failed = Err(error),
            Ok(()) => {}
        }
    }
    follow_decisions(ctx, folder).await.and(failed)?;
    end_forgotten(ctx, ctx.clock.now()).await
}

/// Records the packages of this host again, with their schedules, because the database may lack them.
///
/// It leaves out a package of which the database has this version, but another one is active: another host or an operator
/// activated that.
async fn record_all_again(ctx: &Ctx, folder: &PluginsFolder) -> Result {
    for package in ctx.packages.all().values() {
        let mut tx = ctx.db.read().await?;
        let row = packages::find(&mut tx, &package.name).await?;
        let versions = package_versions::of_package(&mut tx, &package.name).await?;
        drop(tx);
        if row.and_then(|row| row.digest).as_ref() == Some(&package.digest) {
            let change = Change::Restored(Arc::clone(package));
            record_package(ctx, package, &change, None).await?;
        } else if versions.iter().all(|it| it.digest != package.digest) {
            publish(ctx, folder, package, &Change::Added(Arc::clone(package))).await?;
        }
    }
    Ok(())
}

/// Have the folder report the packages whose files were removed while this host was down.
pub(crate) async fn expect_files(ctx: &Ctx, folder: &mut PluginsFolder) -> Result {
    for name in sidecars::packages(&mut ctx.db.read().await?, ctx.host).await? {
        folder.expect_file(name);
    }
    Ok(())
}

/// Records one change, and makes it here.
async fn apply(ctx: &Ctx, folder: &mut PluginsFolder, change: &Change) -> Result {
    let done = match change {
        Change::Added(new) | Change::Updated { new, .. } => publish(ctx, folder, new, change).await,
        _ => record_without_version(ctx, folder, change).await,
    };
    match change {
        Change::Gone(name) if done.is_err() => folder.expect_file(name.clone()),
        Change::Rejected { name, .. } if done.is_err() => folder.report_again(name),
        _ => {}
    }
    done
}

/// Records a change that brings no new version, and makes it here.
async fn record_without_version(ctx: &Ctx, folder: &PluginsFolder, change: &Change) -> Result {
    let now = ctx.clock.now();
    let mut tx = ctx.db.write().await?;
    let name = match change {
        // `publish` records these.
        Change::Added(new) | Change::Updated { new, .. } => &new.name,
        Change::Restored(active) => {
            packages::clear_pending(&mut tx, &active.name).await?;
            let said = change.to_string();
            events::record(&mut tx, now, EventKind::PackageLoaded, &active.name, &said).await?;
            &active.name
        }
        Change::Removed(old) => {
            packages::withdraw(&mut tx, ctx.host, &old.name).await?;
            mark_missing(&mut tx, now).await?;
            &old.name
        }
        Change::Gone(name) => {
            packages::withdraw(&mut tx, ctx.host, name).await?;
            name
        }
        Change::Rejected {
            name,
            digest,
            error,
            ..
        } => {
            let file = (digest.as_ref(), error.as_str());
            // Hosts with the same file are one event.
            if packages::reject(&mut tx, ctx.host, name, file, now).await? {
                events::record(&mut tx, now, EventKind::PackageRejected, name, error).await?;
            }
            name
        }
    };
    tx.commit().await?;
    ctx.packages.apply(change);
    if let Change::Removed(_) | Change::Gone(_) = change {
        // The operator who brings the package back grants anew.
        ctx.packages.own_record().forget_sidecar(name).await;
    }
    ctx.reported.forget(name);
    let Change::Rejected { kept, .. } = change else {
        tracing::info!("{change}");
        return Ok(());
    };
    ctx.metrics.count_load(false);
    tracing::warn!("{change}");
    match kept {
        Some(_) => Ok(()),
        None => restore_from_db(ctx, folder, name).await,
    }
}

/// Records a package and its schedules, then activates it here; or records it as pending, and keeps the active version.
async fn publish(ctx: &Ctx, folder: &PluginsFolder, new: &Package, change: &Change) -> Result {
    if is_known_as_pending(ctx, new).await? {
        return keep_active(ctx, folder, new).await;
    }
    let Some(bytes) = bytes_of(ctx, new, change).await? else {
        return Ok(());
    };
    if let Recorded::Pending(said) = activate(ctx, new, change, Some(&bytes)).await? {
        if let Some(said) = said {
            tracing::warn!(package = %new.name, "{said}");
        }
        let own = ctx.packages.own_record();
        own.keep_sidecar(&new.name, &new.sidecar).await;
        return keep_active(ctx, folder, new).await;
    }
    ctx.reported.forget(&new.name);
    Ok(())
}

/// Records a change, makes it active here, and reports that.
///
/// A new package is here before the database has it: from that moment on its launches may be claimed, and not sooner.
async fn activate(
    ctx: &Ctx,
    new: &Package,
    change: &Change,
    bytes: Option<&[u8]>,
) -> Result<Recorded> {
    if let Change::Added(_) = change {
        ctx.packages.apply(change);
    }
    let recorded = record_package(ctx, new, change, bytes).await;
    match (&recorded, change) {
        (Ok(Recorded::Active(refusals)), _) => {
            ctx.packages.apply(change);
            let own = ctx.packages.own_record();
            own.keep_sidecar(&new.name, &new.sidecar).await;
            ctx.metrics.count_load(true);
            tracing::info!("{change}");
            for Refusal { schedule, error } in refusals {
                let why = printable_line(error);
                log_spans::decision(Some(schedule), None)
                    .in_scope(|| tracing::warn!("the package's schedule is refused: {why}"));
            }
            ctx.wake.scheduler.notify_one();
            ctx.wake.dispatcher.notify_one();
            report_unapproved(ctx, new).await?;
        }
        (_, Change::Added(new)) => ctx.packages.apply(&Change::Removed(Arc::clone(new))),
        _ => {}
    }
    recorded
}

/// Reports an active version that this host does not run because no operator has approved it.
///
/// It became active under another policy: on another host, or before the policy changed.
async fn report_unapproved(ctx: &Ctx, new: &Package) -> Result {
    let policy = &ctx.settings.policy;
    if policy.approval != Approval::Always {
        return Ok(());
    }
    let (name, digest) = (&new.name, &new.digest);
    let mut tx = ctx.db.read().await?;
    let counted = version_check::decision(ctx, &mut tx, name, digest).await?;
    drop(tx);
    match refusal(counted, digest, new, policy) {
        Some(why) => {
            let kind = EventKind::VersionRefused;
            version_check::report(ctx, kind, name, digest, &why).await
        }
        None => Ok(()),
    }
}

/// Returns the bytes of a package to record; none when its file has changed again since it was compiled: the next
/// scan has the newer one.
async fn bytes_of(ctx: &Ctx, new: &Package, change: &Change) -> Result<Option<Vec<u8>>> {
    match change {
        // Only the sidecar is new, and the file may be broken: the database has the bytes.
        Change::Updated { old, .. } if old.digest == new.digest => {
            Ok(packages::artifact(&mut ctx.db.read().await?, &new.digest).await?)
        }
        _ => Ok(new.read_again().await),
    }
}

/// Whether `new` is pending or rejected, and this host has already reported that.
async fn is_known_as_pending(ctx: &Ctx, new: &Package) -> Result<bool, DbError> {
    if !ctx.reported.contains(new) {
        return Ok(false);
    }
    let mut tx = ctx.db.read().await?;
    let row = packages::find(&mut tx, &new.name).await?;
    let counted = version_check::decision(ctx, &mut tx, &new.name, &new.digest).await?;
    let is_recorded = row.as_ref().is_some_and(|row| row.pending_digest.is_some());
    let approval = ctx.settings.policy.approval;
    let admission = approval::admission(approval, row.as_ref(), counted.decision, new);
    Ok(is_recorded && admission != VersionAdmission::Active)
}

/// Keeps the active version under the current sidecar, while the file `new` is not active.
async fn keep_active(ctx: &Ctx, folder: &PluginsFolder, new: &Package) -> Result {
    ctx.reported.insert(new);
    restore_from_db(ctx, folder, &new.name).await?;
    let old = ctx.packages.get(&new.name);
    let old = old.filter(|active| active.sidecar_hash != new.sidecar_hash);
    let again = old.and_then(|old| Some((folder.with_current_sidecar(&old)?, old)));
    match again {
        Some((new, old)) => activate_recorded(ctx, Change::Updated { old, new }).await,
        None => Ok(()),
    }
}

/// Replace each loaded version that an operator rejected or rolled back by the active version of its package.
async fn follow_decisions(ctx: &Ctx, folder: &PluginsFolder) -> Result {
    let followed = package_versions::followed(&mut ctx.db.read().await?).await?;
    version_check::note_decisions(ctx, &followed).await?;
    for it in followed {
        let (name, is_approved) = (
            it.recorded.package,
            it.recorded.decision == VersionDecision::Approved,
        );
        let active = ctx.packages.get(&name);
        let is_loaded = active.is_some_and(|active| active.digest == it.recorded.digest);
        if is_loaded && !is_approved && !it.is_active {
            restore_from_db(ctx, folder, &name).await?;
        }
    }
    Ok(())
}

/// Makes the active version of a package active on this host too, from the bytes in the database.
async fn restore_from_db(ctx: &Ctx, folder: &PluginsFolder, name: &str) -> Result {
    let row = packages::find(&mut ctx.db.read().await?, name).await?;
    let Some(digest) = row.and_then(|row| row.digest) else {
        return Ok(());
    };
    let old = ctx.packages.get(name);
    if old.as_ref().is_some_and(|active| active.digest == digest) {
        return Ok(());
    }
    let (bytes, vouched) = match stored_code(ctx, name, &digest).await? {
        StoredCode::Bytes(bytes, vouched) => (bytes, vouched),
        StoredCode::NotStored => return Ok(()),
        StoredCode::Refused(kind, why) => {
            return version_check::report(ctx, kind, name, &digest, &why).await;
        }
    };
    let own = ctx.packages.own_record();
    let new = match folder.restore(name, (&bytes, vouched), own).await {
        Ok(new) => new,
        Err(why) => {
            let why = cut_error(printable_line(&why));
            let digest_text = digest.short();
            tracing::warn!(package = %name, digest = digest_text, why, "the active version cannot be restored");
            if folder.pins_another_version(name, &digest) {
                // The kept sidecar is older than one that could be read. It must not come back.
                own.forget_sidecar(name).await;
            }
            if vouched == Vouched::OnlyInDatabase {
                let (kind, why) = (EventKind::VersionRefused, not_run(&digest, &why));
                version_check::report(ctx, kind, name, &digest, &why).await?;
            }
            return Ok(());
        }
    };
    tracing::warn!(package = %name, digest = digest.short(), "restored the active version from the database");
    let change = match old {
        Some(old) => Change::Updated { old, new },
        None => Change::Added(new),
    };
    activate_recorded(ctx, change).await
}

/// Activates a version here that the database has as active, under the current sidecar.
async fn activate_recorded(ctx: &Ctx, change: Change) -> Result {
    let (Change::Added(new) | Change::Updated { new, .. }) = &change else {
        return Ok(());
    };
    // When an operator decided meanwhile, that decision has woken the next scan.
    activate(ctx, new, &change, None).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_millis(10);

    /// Loads never end, and recording takes longer than [`WAIT`].
    #[derive(Default)]
    struct Slow {
        begun: u32,
        recorded: u32,
    }

    impl Loading for Slow {
        async fn go_on(&mut self) -> Result<bool> {
            self.begun += 1;
            tokio::time::sleep(WAIT * 5).await;
            self.recorded += 1;
            Ok(true)
        }

        async fn load_ended(&mut self) {
            std::future::pending().await
        }
    }

    #[tokio::test]
    async fn a_package_that_is_being_recorded_when_the_wait_ends_is_recorded() {
        let mut slow = Slow::default();
        assert!(!load_within(WAIT, &mut slow).await.unwrap());
        assert_eq!((slow.begun, slow.recorded), (1, 1));
    }
}
