//! The plugin folder's changes: on the record first, then in force, then the schedules follow.

use super::schedules::{self as orders, ScheduleError, Wanted};
use super::{Engine, EngineError, recover};
use crate::clock::Timestamp;
use crate::db::events::{self, EventKind};
use crate::db::packages::{self, Loaded};
use crate::db::{Origin, Tx, schedules};
use crate::ids::ArtifactDigest;
use crate::package::{Change, Folder, Package};
use crate::schedule::RuleText;

impl Engine {
    /// Look through the folder once and take over what changed.
    ///
    /// A change that cannot be recorded now is found again by the next scan.
    pub async fn scan(&self, folder: &mut Folder) -> Result<(), EngineError> {
        for change in folder.scan(&self.packages).await {
            let now = self.clock.now();
            match &change {
                Change::Added(new) => self.publish(new, &change, now).await?,
                Change::Updated { new, .. } => self.publish(new, &change, now).await?,
                Change::Removed(old) => {
                    let mut tx = self.db.write().await?;
                    packages::withdraw(&mut tx, self.host, &old.name).await?;
                    recover::mark_missing(&mut tx, now).await?;
                    tx.commit().await?;
                    self.packages.apply(&change);
                    tracing::info!("{change}");
                }
                Change::Rejected {
                    name, error, kept, ..
                } => {
                    tracing::warn!("{change}");
                    let mut tx = self.db.write().await?;
                    packages::reject(&mut tx, name, error, now).await?;
                    events::record(&mut tx, now, EventKind::PackageRejected, name, error).await?;
                    tx.commit().await?;
                    if kept.is_none() {
                        self.bring_back(folder, name).await?;
                    }
                }
            }
        }
        Ok(())
    }

    async fn publish(
        &self,
        new: &Package,
        change: &Change,
        now: Timestamp,
    ) -> Result<(), EngineError> {
        let bytes = match tokio::fs::read(&new.path).await {
            Ok(bytes) if ArtifactDigest::of(&bytes) == new.digest => bytes,
            // It changed again since it was compiled; the next scan has the newer one.
            _ => return Ok(()),
        };
        let mut tx = self.db.write().await?;
        self.record_package(&mut tx, new, &bytes, now).await?;
        events::record(
            &mut tx,
            now,
            EventKind::PackageLoaded,
            &new.name,
            &change.to_string(),
        )
        .await?;
        tx.commit().await?;
        self.packages.apply(change);
        tracing::info!("{change}");
        self.follow_schedules(new, now).await?;
        self.wake.schedules();
        self.wake.launches();
        Ok(())
    }

    /// The file in the folder cannot be used, and this host has no earlier version of it: perhaps the record has.
    async fn bring_back(&self, folder: &mut Folder, name: &str) -> Result<(), EngineError> {
        let mut tx = self.db.read().await?;
        let Some(digest) = packages::find(&mut tx, name)
            .await?
            .and_then(|row| row.digest)
        else {
            return Ok(());
        };
        let Some(bytes) = packages::artifact(&mut tx, &digest).await? else {
            return Ok(());
        };
        drop(tx);
        let Some(package) = folder.bring_back(name, &bytes).await else {
            return Ok(());
        };
        tracing::warn!(package = %name, digest = digest.short(), "the last good version goes on, from the record");
        let mut tx = self.db.write().await?;
        packages::publish_host(&mut tx, self.host, name, &digest).await?;
        tx.commit().await?;
        self.packages.apply(&Change::Added(package));
        Ok(())
    }

    /// Put all packages of this host on the record again, after others took it for dead.
    pub(super) async fn publish_all(&self, tx: &mut Tx) -> Result<(), EngineError> {
        for package in self.packages.all().values() {
            packages::publish_host(tx, self.host, &package.name, &package.digest).await?;
        }
        Ok(())
    }

    async fn record_package(
        &self,
        tx: &mut Tx,
        package: &Package,
        bytes: &[u8],
        now: Timestamp,
    ) -> Result<(), EngineError> {
        let manifest = package.manifest.description.to_string();
        let loaded = Loaded {
            name: &package.name,
            digest: &package.digest,
            form: package.artifact.form.as_str(),
            bytes,
            manifest: &manifest,
        };
        packages::publish(tx, self.host, &loaded, now).await?;
        Ok(())
    }

    /// Make the schedules of a package those that its sidecar orders, or else those that it proposes.
    async fn follow_schedules(&self, package: &Package, now: Timestamp) -> Result<(), EngineError> {
        let origin = match package.sidecar.schedules {
            Some(_) => Origin::Sidecar,
            None => Origin::Package,
        };
        let wanted: Vec<Wanted> = package
            .schedules()
            .into_iter()
            .map(|(name, spec)| Wanted {
                name,
                package: package.name.clone(),
                task: spec.task,
                rule: RuleText {
                    kind: spec.kind,
                    expression: spec.expression,
                    anchor: spec.anchor,
                    timezone: spec.timezone,
                },
                context: spec.context,
            })
            .collect();
        for wanted in &wanted {
            match self.follow_schedule(wanted, origin, now).await {
                Ok(()) => {}
                Err(ScheduleError::Db(error)) => return Err(error.into()),
                Err(refused) => self.refuse(&wanted.name, &refused.to_string(), now).await?,
            }
        }
        match self.end_others(&package.name, &wanted, now).await {
            Ok(()) => Ok(()),
            Err(ScheduleError::Db(error)) => Err(error.into()),
            Err(other) => Err(EngineError::Bug(other.to_string())),
        }
    }

    async fn follow_schedule(
        &self,
        wanted: &Wanted,
        origin: Origin,
        now: Timestamp,
    ) -> Result<(), ScheduleError> {
        let mut tries = 0;
        loop {
            let mut tx = self.db.write().await?;
            let done = match follow(&mut tx, wanted, origin, now).await {
                Ok(()) => tx.commit().await.map_err(ScheduleError::from),
                Err(error) => Err(error),
            };
            tries += 1;
            match done {
                // Another host has the same file and was quicker.
                Err(error) if error.is_collision() && tries < orders::TRIES_MAX => {}
                done => return done,
            }
        }
    }

    /// End the schedules of a package that neither its sidecar orders nor it proposes any more.
    async fn end_others(
        &self,
        package: &str,
        wanted: &[Wanted],
        now: Timestamp,
    ) -> Result<(), ScheduleError> {
        let mut tx = self.db.write().await?;
        schedules::lock(&mut tx, None, Some(package)).await?;
        for schedule in schedules::list(&mut tx, None, Some(package)).await? {
            let is_wanted = wanted
                .iter()
                .any(|wanted| wanted.name == schedule.says.name);
            if schedule.state.origin != Origin::Operator && !is_wanted {
                orders::end(&mut tx, &schedule, now).await?;
            }
        }
        tx.commit().await?;
        Ok(())
    }

    async fn refuse(&self, name: &str, why: &str, now: Timestamp) -> Result<(), EngineError> {
        tracing::warn!(schedule = %name, "the package's schedule was not taken: {why}");
        let mut tx = self.db.write().await?;
        events::record(&mut tx, now, EventKind::ScheduleRefused, name, why).await?;
        tx.commit().await?;
        Ok(())
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
        orders::add(tx, wanted, origin, now).await?;
        return Ok(());
    };
    if schedule.state.origin == Origin::Operator || schedule.says.package != wanted.package {
        return Err(ScheduleError::Exists(wanted.name.clone()));
    }
    let says = &schedule.says;
    let context: serde_json::Value = serde_json::from_str(&says.context).unwrap_or_default();
    let same = says.rule_text() == wanted.rule
        && says.task == wanted.task
        && context.as_object() == Some(&wanted.context)
        && schedule.state.origin == origin;
    if !same {
        orders::revise(tx, &schedule, wanted, origin, now).await?;
    }
    Ok(())
}
