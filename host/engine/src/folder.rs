//! The plugin folder's changes: on the record first, the package with its schedules, and then in force.

use std::sync::Arc;

use super::approval::{self, VersionAdmission};
use super::schedule_admin::{self, ScheduleError, Wanted};
use super::{Engine, EngineError, held, recover};
use crate::crash;
use campanile_model::clock::Timestamp;
use campanile_model::text::printable_line;
use campanile_package::{Change, Package, PluginsFolder, RecordedSidecar};
use campanile_schedule::rule::{HashKey, Rule};
use campanile_store::events::{self, EventKind};
use campanile_store::packages::{self, LoadedPackage, SidecarSummary};
use campanile_store::{Origin, Tx, package_versions, schedules, sidecars};

/// A schedule that was not taken, and why.
type Refusals = Vec<(String, String)>;

/// What is new of a package, if it is not merely what the record has already.
#[derive(Clone, Copy)]
struct News<'a> {
    bytes: &'a [u8],
    /// The event, in one sentence.
    said: &'a str,
}

/// What became of a package that was to be put on the record.
enum Recorded {
    /// It is in force, apart from these schedules of it.
    Taken(Refusals),
    /// It is kept out; a sentence says why, unless somebody decided meanwhile.
    Held(Option<String>),
}

impl Engine {
    /// Look through the folder once and take over what changed, each change as it is found.
    ///
    /// A change that cannot be recorded is found again by the next scan. If that is because the
    /// database is away the others wait for it too; otherwise they do not.
    pub async fn scan(&self, folder: &mut PluginsFolder) -> Result<(), EngineError> {
        if self.told.is_to_be_told_again() {
            folder.report_all_again();
        }
        let Some(mut scan) = folder.scan(&self.packages).await else {
            return Ok(());
        };
        let mut failed = Ok(());
        while let Some(change) = folder.next_change(&mut scan, &self.packages).await {
            let taken = match &change {
                Change::Added(new) | Change::Updated { new, .. } => {
                    self.publish(folder, new, &change).await
                }
                Change::Restored(live) => self.restore(live, &change).await,
                Change::Removed(old) => self.withdraw(old, &change).await,
                Change::Gone(name) => {
                    let forgotten = self.forget_file(name, &change).await;
                    if forgotten.is_err() {
                        folder.expect_file(name.clone());
                    }
                    forgotten
                }
                Change::Rejected { name, .. } => {
                    let rejected = self.reject(folder, &change).await;
                    if rejected.is_err() {
                        folder.report_again(name);
                    }
                    rejected
                }
            };
            match taken {
                Err(error) if error.may_pass() => return Err(error),
                Err(error) => failed = Err(error),
                Ok(()) => {}
            }
        }
        self.follow_decisions(folder).await.and(failed)
    }

    /// Let the folder tell of the packages that this host had in an earlier life and whose files are gone.
    pub(super) async fn expect_files(&self, folder: &mut PluginsFolder) -> Result<(), EngineError> {
        let mut tx = self.db.read().await?;
        for name in sidecars::packages(&mut tx, self.host).await? {
            folder.expect_file(name);
        }
        Ok(())
    }

    async fn forget_file(&self, name: &str, change: &Change) -> Result<(), EngineError> {
        let mut tx = self.db.write().await?;
        packages::forget_file(&mut tx, self.host, name).await?;
        tx.commit().await?;
        tracing::info!("{change}");
        Ok(())
    }

    async fn restore(&self, live: &Package, change: &Change) -> Result<(), EngineError> {
        let now = self.clock.now();
        let mut tx = self.db.write().await?;
        packages::clear_pending(&mut tx, &live.name).await?;
        let said = change.to_string();
        events::record(&mut tx, now, EventKind::PackageLoaded, &live.name, &said).await?;
        tx.commit().await?;
        self.told.forget(&live.name);
        tracing::info!("{change}");
        Ok(())
    }

    async fn withdraw(&self, old: &Package, change: &Change) -> Result<(), EngineError> {
        let mut tx = self.db.write().await?;
        packages::withdraw(&mut tx, self.host, &old.name).await?;
        recover::mark_missing(&mut tx, self.clock.now()).await?;
        tx.commit().await?;
        self.packages.apply(change);
        self.told.forget(&old.name);
        tracing::info!("{change}");
        Ok(())
    }

    async fn reject(&self, folder: &PluginsFolder, change: &Change) -> Result<(), EngineError> {
        let Change::Rejected {
            name, error, kept, ..
        } = change
        else {
            return Ok(());
        };
        let now = self.clock.now();
        let mut tx = self.db.write().await?;
        packages::reject(&mut tx, self.host, name, error, now).await?;
        events::record(&mut tx, now, EventKind::PackageRejected, name, error).await?;
        tx.commit().await?;
        self.told.forget(name);
        tracing::warn!("{change}");
        match kept {
            None => self.bring_back(folder, name).await,
            Some(_) => Ok(()),
        }
    }

    /// Put a package and its schedules on the record in one transaction, and then in force; or keep it out, and let the
    /// version in force go on.
    async fn publish(
        &self,
        folder: &PluginsFolder,
        new: &Package,
        change: &Change,
    ) -> Result<(), EngineError> {
        if self.is_known_to_be_held(new).await? || self.take_over(new, change).await? == Some(false)
        {
            return self.stand_in(folder, new).await;
        }
        Ok(())
    }

    /// Put a package in force if it may be; gives whether it is, and none when its file changed meanwhile.
    async fn take_over(&self, new: &Package, change: &Change) -> Result<Option<bool>, EngineError> {
        let Some(bytes) = self.bytes_of(new, change).await? else {
            return Ok(None);
        };
        let said = change.to_string();
        let news = News {
            bytes: &bytes,
            said: &said,
        };
        let refusals = match self.put_in_force(new, change, Some(news)).await? {
            Recorded::Taken(refusals) => refusals,
            Recorded::Held(said) => {
                if let Some(said) = said {
                    tracing::warn!("{}: {said}", new.name);
                }
                return Ok(Some(false));
            }
        };
        self.told.forget(&new.name);
        tracing::info!("{change}");
        self.followed(&refusals);
        Ok(Some(true))
    }

    /// Put a change on the record and in force.
    ///
    /// A package that was not there is here before the record has it: its launches may be taken from that moment on,
    /// and are not sooner.
    async fn put_in_force(
        &self,
        new: &Package,
        change: &Change,
        news: Option<News<'_>>,
    ) -> Result<Recorded, EngineError> {
        if let Change::Added(_) = change {
            self.packages.apply(change);
        }
        let recorded = self.record_package(new, news).await;
        match (&recorded, change) {
            (Ok(Recorded::Taken(_)), _) => self.packages.apply(change),
            (_, Change::Added(new)) => self.packages.apply(&Change::Removed(Arc::clone(new))),
            _ => {}
        }
        recorded
    }

    /// The schedules of a package are those that it has now.
    fn followed(&self, refusals: &Refusals) {
        tell(refusals);
        self.wake.schedules();
        self.wake.launches();
    }

    /// The bytes of a package that is to be recorded; none when the file has changed again since it
    /// was compiled: the next scan has the newer one.
    async fn bytes_of(
        &self,
        new: &Package,
        change: &Change,
    ) -> Result<Option<Vec<u8>>, EngineError> {
        match change {
            // Only the settings are new, and the file may be broken: the record has the bytes.
            Change::Updated { old, .. } if old.digest == new.digest => {
                let mut tx = self.db.read().await?;
                Ok(packages::artifact(&mut tx, &new.digest).await?)
            }
            _ => Ok(new.read_again().await),
        }
    }

    /// The file in the folder is not to be used: the version in force goes on, from the record if it is not live here.
    pub(super) async fn bring_back(
        &self,
        folder: &PluginsFolder,
        name: &str,
    ) -> Result<(), EngineError> {
        let mut tx = self.db.read().await?;
        let Some(digest) = packages::find(&mut tx, name)
            .await?
            .and_then(|row| row.digest)
        else {
            return Ok(());
        };
        let old = self.packages.get(name);
        if old.as_ref().is_some_and(|live| live.digest == digest) {
            return Ok(());
        }
        let Some(bytes) = packages::artifact(&mut tx, &digest).await? else {
            return Ok(());
        };
        let kept = sidecars::find(&mut tx, self.host, name).await?;
        drop(tx);
        let kept = kept.map(|kept| RecordedSidecar {
            text: kept.sidecar,
            grants: kept.grants,
        });
        let new = match folder.restore(name, &bytes, kept).await {
            Ok(new) => new,
            Err(why) => {
                let why = printable_line(&why);
                tracing::warn!(package = %name, digest = digest.short(), "the version in force cannot go on: {why}");
                if folder.pins_another_version(name, &digest) {
                    // What was kept is older than what could be read, and does not come back.
                    let mut tx = self.db.write().await?;
                    sidecars::forget(&mut tx, self.host, name).await?;
                    tx.commit().await?;
                }
                return Ok(());
            }
        };
        tracing::warn!(package = %name, digest = digest.short(), "the version in force goes on, from the record");
        self.stay_with(match old {
            Some(old) => Change::Updated { old, new },
            None => Change::Added(new),
        })
        .await
    }

    /// Let the version in force be the live one, as the sidecar has it now: the record says already that it is in force.
    pub(super) async fn stay_with(&self, change: Change) -> Result<(), EngineError> {
        let (Change::Added(new) | Change::Updated { new, .. }) = &change else {
            return Ok(());
        };
        // Held, when a decision came between: the scan that it woke looks again.
        if let Recorded::Taken(refusals) = self.put_in_force(new, &change, None).await? {
            tracing::info!("{change}");
            self.followed(&refusals);
        }
        Ok(())
    }

    /// Put all packages of this host on the record again, after others took it for dead.
    pub(super) async fn publish_all(&self, tx: &mut Tx) -> Result<(), EngineError> {
        for package in self.packages.all().values() {
            let (name, digest) = (&package.name, &package.digest);
            packages::publish_host(tx, self.host, name, digest, settings_of(package)).await?;
        }
        Ok(())
    }

    /// Put on the record that this host has `package`, and make its schedules follow, in one transaction.
    async fn record_package(
        &self,
        package: &Package,
        news: Option<News<'_>>,
    ) -> Result<Recorded, EngineError> {
        let now = self.clock.now();
        // It collides when another host has the same file and was quicker.
        let recorded = campanile_store::retry(ScheduleError::is_collision, || async {
            let mut tx = self.db.write().await?;
            let recorded = self.record_package_in(&mut tx, package, news, now).await?;
            crash::point("before_package_commit");
            tx.commit().await?;
            Ok(recorded)
        })
        .await;
        match recorded {
            Err(ScheduleError::Db(error)) => Err(error.into()),
            Err(other) => Err(EngineError::Bug(other.to_string())),
            Ok(recorded) => {
                crash::point("after_package_commit");
                Ok(recorded)
            }
        }
    }

    async fn record_package_in(
        &self,
        tx: &mut Tx,
        package: &Package,
        news: Option<News<'_>>,
        now: Timestamp,
    ) -> Result<Recorded, ScheduleError> {
        let (name, digest) = (&package.name, &package.digest);
        let settings = settings_of(package);
        // From here on nobody else decides about this package.
        packages::lock_or_create(tx, name).await?;
        let row = packages::find(tx, name).await?;
        let Some(News { bytes, said }) = news else {
            if row.and_then(|row| row.digest).as_ref() != Some(digest) {
                return Ok(Recorded::Held(None));
            }
            packages::publish_host(tx, self.host, name, digest, settings).await?;
            let refusals = follow_schedules(tx, package, now).await?;
            return Ok(Recorded::Taken(refusals));
        };
        let loaded = LoadedPackage {
            name,
            digest,
            form: package.artifact.form.as_str(),
            bytes,
            manifest: &package.manifest.description.to_string(),
            sidecar: settings,
        };
        let decision = package_versions::decision(tx, name, digest).await?;
        let admission = approval::admission(row.as_ref(), decision, package);
        if admission != VersionAdmission::Active {
            let said = held::keep_out(tx, &loaded, &admission, now).await?;
            return Ok(Recorded::Held(said));
        }
        packages::publish(tx, self.host, &loaded, now).await?;
        events::record(tx, now, EventKind::PackageLoaded, name, said).await?;
        let refusals = follow_schedules(tx, package, now).await?;
        Ok(Recorded::Taken(refusals))
    }
}

fn settings_of(package: &Package) -> SidecarSummary<'_> {
    SidecarSummary {
        grants: &package.grant_record.text,
        pin: package.sidecar.pin.as_deref(),
        text: package.sidecar.text.as_deref(),
    }
}

fn tell(refusals: &Refusals) {
    for (schedule, why) in refusals {
        let why = printable_line(why);
        tracing::warn!(%schedule, "the package's schedule was not taken: {why}");
    }
}

/// Make the schedules of a package those that its sidecar orders, or else those that it proposes.
///
/// Gives those that were refused. They are on the record too, and then no schedule is ended: one of
/// them may be meant to go on under the name that was refused.
async fn follow_schedules(
    tx: &mut Tx,
    package: &Package,
    now: Timestamp,
) -> Result<Refusals, ScheduleError> {
    let origin = match package.sidecar.schedules {
        Some(_) => Origin::Sidecar,
        None => Origin::Package,
    };
    let wanted = package.schedules().into_iter().map(|(name, spec)| Wanted {
        name,
        package: package.name.clone(),
        rule: spec.rule,
        policies: spec.policies,
        task: spec.task,
        context: spec.context,
    });
    let wanted: Vec<Wanted> = wanted.collect();
    schedules::lock(tx, None, Some(&package.name)).await?;
    let mut refusals = Refusals::new();
    for wanted in &wanted {
        let read = Rule::parse(&wanted.rule, HashKey::NONE);
        for note in read.iter().flat_map(Rule::notes) {
            tracing::warn!(schedule = %printable_line(&wanted.name), "{note}");
        }
        match follow(tx, wanted, origin, now).await {
            Ok(()) => {}
            // Nothing of this transaction can be kept.
            Err(error @ (ScheduleError::Db(_) | ScheduleError::Raced(_))) => return Err(error),
            Err(refused) => {
                let why = refused.to_string();
                events::record(tx, now, EventKind::ScheduleRefused, &wanted.name, &why).await?;
                refusals.push((wanted.name.clone(), why));
            }
        }
    }
    if refusals.is_empty() {
        end_others(tx, &package.name, &wanted, now).await?;
    }
    Ok(refusals)
}

/// End the schedules of a package that neither its sidecar orders nor it proposes any more.
async fn end_others(
    tx: &mut Tx,
    package: &str,
    wanted: &[Wanted],
    now: Timestamp,
) -> Result<(), ScheduleError> {
    for schedule in schedules::list(tx, None, Some(package)).await? {
        let is_wanted = wanted
            .iter()
            .any(|wanted| wanted.name == schedule.definition.name);
        if is_of_package(schedule.state.origin) && !is_wanted {
            schedule_admin::end(tx, &schedule, now).await?;
        }
    }
    Ok(())
}

/// Whether schedules of that origin come and go with what a package and its sidecar say.
fn is_of_package(origin: Origin) -> bool {
    match origin {
        Origin::Sidecar | Origin::Package => true,
        Origin::Operator | Origin::File => false,
    }
}

/// Add or change one schedule of a package, or leave it when it says that already.
async fn follow(
    tx: &mut Tx,
    wanted: &Wanted,
    origin: Origin,
    now: Timestamp,
) -> Result<(), ScheduleError> {
    schedules::lock(tx, Some(&wanted.name), None).await?;
    let Some(schedule) = schedules::find(tx, &wanted.name).await? else {
        schedule_admin::add(tx, wanted, origin, now).await?;
        return Ok(());
    };
    if !is_of_package(schedule.state.origin) || schedule.definition.package != wanted.package {
        return Err(ScheduleError::Exists(wanted.name.clone()));
    }
    let definition = &schedule.definition;
    let context: serde_json::Value = serde_json::from_str(&definition.context).unwrap_or_default();
    let policies = serde_json::to_string(&wanted.policies).unwrap_or_default();
    let same = definition.rule == wanted.rule
        && definition.policies == policies
        && definition.task == wanted.task
        && context.as_object() == Some(&wanted.context)
        && schedule.state.origin == origin;
    if !same {
        schedule_admin::revise(tx, &schedule, wanted, origin, now).await?;
    }
    Ok(())
}
