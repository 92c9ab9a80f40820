//! Count sealed launches in the rollup: read the rows that they change, and write them with the seal.

use std::collections::BTreeMap;

use crate::error::Result;
use campanile_control::rules::rollup::EndedLaunch;
use campanile_model::clock::Timestamp;
use campanile_model::rollup::Period;
use campanile_store::Tx;
use campanile_store::launch::FinishedLaunch;
use campanile_store::package_versions::{self, VersionResults};
use campanile_store::rollup::{self, PackageRollup, Rollup, ScheduleRollup};

/// The rows that a seal changes, as they are with its launches.
pub(super) struct ChangedRollups {
    schedules: Vec<ScheduleRollup>,
    packages: Vec<PackageRollup>,
    /// What's added to the versions of packages.
    versions: Vec<VersionResults>,
}

impl ChangedRollups {
    /// Reads the rows and adds the launches. `tx` is the snapshot in which the launches aren't sealed.
    pub(super) async fn read(
        tx: &mut Tx,
        launches: &[FinishedLaunch],
        now: Timestamp,
    ) -> Result<ChangedRollups> {
        let keyed = launches.iter().flat_map(|launch| periods(launch, now));
        let schedules = sums(
            keyed.map(|(launch, period, start)| ((launch.schedule_id, period, start), launch)),
        );
        let keyed = launches.iter().flat_map(|launch| periods(launch, now));
        let packages = sums(
            keyed.map(|(launch, period, start)| ((launch.package.clone(), period, start), launch)),
        );
        let keys = Vec::from_iter(schedules.keys().copied());
        let mut all = schedules;
        for row in rollup::of_schedules_at(tx, &keys).await? {
            let sum = all.entry((row.schedule_id, row.period, row.starts_at));
            sum.or_default().add(&row.rollup);
        }
        let row = |((schedule_id, period, starts_at), rollup)| ScheduleRollup {
            schedule_id,
            period,
            starts_at,
            rollup,
        };
        let schedules = all.into_iter().map(row).collect();
        let keys = Vec::from_iter(packages.keys().cloned());
        let mut all = packages;
        for row in rollup::of_packages_at(tx, &keys).await? {
            let sum = all.entry((row.package, row.period, row.starts_at));
            sum.or_default().add(&row.rollup);
        }
        let row = |((package, period, starts_at), rollup)| PackageRollup {
            package,
            period,
            starts_at,
            rollup,
        };
        let packages = all.into_iter().map(row).collect();
        Ok(ChangedRollups {
            schedules,
            packages,
            versions: version_results(launches),
        })
    }

    /// Writes the rows. The transaction has added the seal after the last one of that snapshot.
    pub(super) async fn write(&self, tx: &mut Tx) -> Result {
        rollup::put_schedules(tx, &self.schedules).await?;
        rollup::put_packages(tx, &self.packages).await?;
        package_versions::add_results(tx, &self.versions).await?;
        Ok(())
    }
}

/// Returns the periods in which a launch counts: those of its slot that are kept.
fn periods(
    launch: &FinishedLaunch,
    now: Timestamp,
) -> impl Iterator<Item = (&FinishedLaunch, Period, Timestamp)> {
    let all = Period::ALL.iter().copied();
    let starts = all.map(move |period| (launch, period, period.start(launch.scheduled_time)));
    starts.filter(move |(_, period, start)| *start >= period.oldest(now))
}

fn sums<'l, K: Ord>(
    launches: impl Iterator<Item = (K, &'l FinishedLaunch)>,
) -> BTreeMap<K, Rollup> {
    let mut sums: BTreeMap<K, Rollup> = BTreeMap::new();
    for (key, launch) in launches {
        EndedLaunch::from(launch).count_in(sums.entry(key).or_default());
    }
    sums
}

/// Returns how the launches of each version went.
fn version_results(launches: &[FinishedLaunch]) -> Vec<VersionResults> {
    let of_versions = launches.iter().filter_map(|launch| {
        let digest = launch.digest.clone()?;
        Some(((launch.package.clone(), digest), launch))
    });
    let results = sums(of_versions).into_iter();
    let results = results.map(|((package, digest), sum)| VersionResults {
        package,
        digest,
        succeeded: sum.succeeded,
        failed: sum.failed,
    });
    results
        .filter(|results| results.succeeded + results.failed > 0)
        .collect()
}
