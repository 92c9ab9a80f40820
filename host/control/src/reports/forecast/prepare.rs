//! Read the schedules, hosts and launches that a forecast begins with from the database.

use std::time::Duration;

use super::snapshot::{self, OmittedSchedule};
use super::{ForecastRequest, SystemSnapshot};
use crate::admin::schedule_admin::{self, Refusal, ScheduleDefinition, ScheduleError};
use crate::schedules::schedules_file::rehearse;
use crate::settings::Settings;
use campanile_model::clock::Timestamp;
use campanile_store::{Db, DbError, Tx, schedules, stats};

/// The schedules with the earliest next slots that the beginning of a forecast is about.
pub const FIRST_SCHEDULES_MAX: i64 = 200;
/// The schedules, the first by name, that it lists although they may have no slot in its span.
const FIRST_LISTED_MAX: i64 = 50;
/// Its most decisions.
const FIRST_DECISIONS_MAX: usize = 4_000;
/// The least time between two slots of a rule.
const MOMENT: Duration = Duration::from_micros(1);

/// A forecast whose data is read.
pub struct PreparedForecast {
    pub(super) request: ForecastRequest,
    /// The schedule to show; none for all.
    pub(super) name: Option<String>,
    pub(super) snapshot: SystemSnapshot,
    /// The present schedules, when the snapshot has those of a file.
    pub(super) present: Option<SystemSnapshot>,
    pub(super) omitted: Vec<OmittedSchedule>,
    pub(super) refused: Vec<Refusal>,
}

impl PreparedForecast {
    /// Read what a forecast needs. With a `name`, it shows only that schedule. With the definitions `wanted` of a schedules
    /// file, it is about the schedules after that file, and shows the differences; nothing is changed.
    pub async fn read(
        db: &Db,
        settings: &Settings,
        request: ForecastRequest,
        name: Option<&str>,
        wanted: Option<&[ScheduleDefinition]>,
        now: Timestamp,
    ) -> Result<PreparedForecast, ScheduleError> {
        let mut tx = db.read_long().await?;
        let names = names(&mut tx, name, wanted).await?;
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        let mut needed = snapshot::needed(&mut tx, &request, &names).await?;
        let learned = snapshot::estimate_durations(&mut tx, &needed, snapshot::SAMPLES).await?;
        if wanted.is_some() {
            // The file is applied without a commit. The locks keep hosts from deciding between the two snapshots.
            drop(tx);
            tx = db.write_long().await?;
            let locked = needed.iter().map(|needed| &*needed.definition.name);
            schedules::lock_named(&mut tx, &locked.collect::<Vec<_>>()).await?;
            needed = snapshot::needed(&mut tx, &request, &names).await?;
        }
        let (mut snapshot, mut omitted) =
            snapshot::read(&mut tx, settings, &learned, &needed, now).await?;
        let (mut present, mut refused) = (None, Vec::new());
        if let Some(wanted) = wanted {
            let diff;
            (diff, refused) = rehearse(&mut tx, wanted, now).await?;
            present = Some(snapshot);
            needed = snapshot::needed(&mut tx, &request, &names).await?;
            (snapshot, omitted) = snapshot::read(&mut tx, settings, &learned, &needed, now).await?;
            omitted.extend(diff.removed.into_iter().map(|removed| OmittedSchedule {
                name: removed.definition.name,
                why: "the file removes it".to_owned(),
            }));
        }
        if let Some(name) = name
            && omitted.iter().all(|omitted| omitted.name != name)
        {
            schedule_admin::find(&mut tx, name).await?;
        }
        Ok(PreparedForecast {
            request,
            name: name.map(str::to_owned),
            snapshot,
            present,
            omitted,
            refused,
        })
    }

    /// Read what the beginning of a forecast of all schedules needs, for a page that is shown at once: about the schedules
    /// whose slots come first. Return it, and when it ends earlier than `request` says, the time at which more schedules
    /// have slots.
    ///
    /// It reads a bounded number of rows, whatever the number of schedules and launches is.
    pub async fn read_beginning(
        db: &Db,
        settings: &Settings,
        mut request: ForecastRequest,
        now: Timestamp,
    ) -> Result<(PreparedForecast, Option<Timestamp>), DbError> {
        let mut tx = db.read().await?;
        let next = stats::next_slots(&mut tx, FIRST_SCHEDULES_MAX + 1).await?;
        let is_cut = next.len() as i64 > FIRST_SCHEDULES_MAX;
        let cut_at = next.last().map(|next| next.slot).filter(|_| is_cut);
        let cut_at = cut_at.filter(|at| *at < request.to);
        if let Some(cut_at) = cut_at {
            // Schedules with the same next slot are shown with it.
            request.to = cut_at.max(request.from).plus(MOMENT);
        }
        request.rows_max = request.rows_max.min(FIRST_DECISIONS_MAX);
        let (limit, listed) = (FIRST_SCHEDULES_MAX, FIRST_LISTED_MAX);
        let needed = snapshot::needed_first(&mut tx, request.to, limit, listed).await?;
        let learned = snapshot::estimate_durations(&mut tx, &needed, snapshot::FIRST_SAMPLES);
        let learned = learned.await?;
        let (snapshot, omitted) = snapshot::read(&mut tx, settings, &learned, &needed, now).await?;
        let prepared = PreparedForecast {
            request,
            name: None,
            snapshot,
            present: None,
            omitted,
            refused: Vec::new(),
        };
        Ok((prepared, cut_at))
    }
}

/// Returns the names of the schedules that the forecast must contain: the requested schedule, and the schedules that the definitions
/// `wanted` of a schedules file may change.
async fn names(
    tx: &mut Tx,
    name: Option<&str>,
    wanted: Option<&[ScheduleDefinition]>,
) -> Result<Vec<String>, DbError> {
    let mut names: Vec<String> = name.map(str::to_owned).into_iter().collect();
    if let Some(wanted) = wanted {
        let of_file = schedules::defined_by_file(tx).await?.into_iter();
        names.extend(of_file.map(|schedule| schedule.definition.name));
        names.extend(wanted.iter().map(|wanted| wanted.name.clone()));
    }
    names.sort_unstable();
    names.dedup();
    Ok(names)
}
