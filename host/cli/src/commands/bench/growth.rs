//! `campanile bench growth`: what launches and questions cost when the record holds millions of launches.

use campanile_control::reports::{health, statistics};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use super::{
    BACKLOG, BenchHost, HOUR, SCHEDULES, Scratch, add_backlog, add_schedules_with, every,
    finish_without_calls, launches_per_s, scratch_db,
};
use crate::config::Config;
use crate::output::{self, Failure, Record, Result, failed, refused};
use crate::progress::Line;
use campanile_control::admin::schedule_admin;
use campanile_control::reports::why;
use campanile_control::rules::lateness::Lag;
use campanile_engine::packages::watch::Mode;
use campanile_model::clock::{Clock, Timestamp};
use campanile_schedule::policy::{Overlap, Policies};
use campanile_store::disk::DiskSigns;
use campanile_store::schedules::{self, Schedule};
use campanile_store::{Db, Tx, launch, runs, size};

/// The schedules that fill the record are called `growth-0`, `growth-1`, … Each has one slot an hour.
const FILLER: &str = "growth-";
/// The most launches of one measurement of the speed.
const LAUNCHES_MAX: u32 = 20_000;
/// The speed is measured on an empty and on the full record in turns, so often.
const ROUNDS: usize = 3;
/// How often each question is asked.
const QUESTIONS: usize = 5;
/// The pause between two messages about the progress.
const MESSAGE_INTERVAL: Duration = Duration::from_secs(10);
/// Statistics are asked for this span.
const DAY: Duration = Duration::from_secs(24 * 3_600);

#[derive(Args)]
pub(crate) struct Growth {
    /// The number of launches to fill the record with, rounded up to a multiple of 1,000
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=50_000_000))]
    launches: u32,
}

/// The result of `bench growth`.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct GrowthReport {
    backend: &'static str,
    /// The launches on the record.
    launches: u64,
    /// Decided, claimed and finished without a call. Null when the record was full already.
    filled_per_s: Option<f64>,
    /// The bytes of the database, with its indexes, for each launch.
    bytes_per_launch: f64,
    /// On an empty record, in the round of the median ratio.
    launches_per_s_empty: f64,
    /// On the full record, in that round.
    launches_per_s_full: f64,
    /// The second divided by the first.
    ratio: f64,
    /// The newest 50 launches, and those of one schedule.
    launch_list_ms: Lag,
    launch_list_of_schedule_ms: Lag,
    run_list_ms: Lag,
    /// The statistics of the last day.
    stats_ms: Lag,
    health_ms: Lag,
    /// The last decision and the next slot of one schedule.
    why_ms: Lag,
}

impl Record for GrowthReport {}

impl Growth {
    /// Fill the database of the configuration, and measure it. The database stays; a second call continues.
    pub(super) async fn measure(&self, config: &Config) -> Result<GrowthReport> {
        let clock = Clock::system();
        let db = Db::open_and_migrate(&config.files.database).await?;
        refuse_other_schedules(&db).await?;
        let filled_per_s = self.fill(config, db.clone(), &clock).await?;

        let n = self.launches.min(LAUNCHES_MAX);
        let mut rounds = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let scratch = scratch_db(config).await?;
            let empty = speed(config, scratch.clone(), n).await?;
            scratch.discard().await?;
            rounds.push((empty, speed(config, db.clone(), n).await?));
        }
        let ratio = |(empty, full): &(f64, f64)| full / empty;
        rounds.sort_by(|one, other| ratio(one).total_cmp(&ratio(other)));
        let (launches_per_s_empty, launches_per_s_full) = rounds[ROUNDS / 2];

        let launches = count(&db).await?;
        let mut tx = db.read_long().await?;
        let now = clock.now();
        let settings = crate::commands::serve::settings(config);
        let name = format!("{FILLER}0");
        let report = GrowthReport {
            backend: config.files.database.backend(),
            launches,
            filled_per_s,
            bytes_per_launch: size::used_bytes(&mut tx).await? as f64 / launches as f64,
            launches_per_s_empty,
            launches_per_s_full,
            ratio: launches_per_s_full / launches_per_s_empty,
            launch_list_ms: time(&db, async |tx| launch::list(tx, None, 50).await).await?,
            launch_list_of_schedule_ms: time(&db, async |tx| {
                launch::list_of(tx, &name, None, 50).await
            })
            .await?,
            run_list_ms: time(&db, async |tx| runs::list(tx, None, 50).await).await?,
            stats_ms: time(&db, async |tx| statistics::read(tx, now, DAY).await).await?,
            health_ms: time(&db, async |tx| {
                health::read(tx, now, &settings, 0, DiskSigns::default()).await
            })
            .await?,
            why_ms: time(&db, async |tx| why::why(tx, &name, None, now).await).await?,
        };
        drop(tx);
        db.close().await;
        Ok(report)
    }

    /// Decide, claim and finish launches hour by hour, with the statements of a host, until there are as many as wanted.
    /// Returns how many a second; none when there are that many already.
    async fn fill(&self, config: &Config, db: Db, clock: &Clock) -> Result<Option<f64>> {
        let hours = self.launches.div_ceil(SCHEDULES);
        let before = count(&db).await?;
        if before >= u64::from(hours) * u64::from(SCHEDULES) {
            return Ok(None);
        }
        let mut scratch = Scratch::new(config, db.clone()).await?;
        scratch.load().await?;
        add_fillers(&db, hours, clock.now()).await?;
        let begun = Instant::now();
        let (mut filled, mut printed_at) = (0, Instant::now());
        let line = Line::parts(u64::from(hours) * u64::from(SCHEDULES));
        loop {
            // Dropped before the next commit: SQLite cannot begin its log anew while an earlier state is read.
            let next = schedules::next_due(&mut db.read().await?).await?;
            let Some(next) = next.filter(|next| *next <= clock.now()) else {
                break;
            };
            let done = finish_without_calls(&scratch.engine, next).await;
            filled += done.map_err(Failure::failed)?;
            let launches = before + filled as u64;
            line.set(launches);
            if printed_at.elapsed() >= MESSAGE_INTERVAL && !line.is_drawn() {
                printed_at = Instant::now();
                output::print_message!("{launches} launches");
            }
        }
        drop(scratch.lock);
        Ok(Some(filled as f64 / begun.elapsed().as_secs_f64()))
    }
}

/// Refuse a database with schedules of other origin: this benchmark would launch them.
async fn refuse_other_schedules(db: &Db) -> Result {
    let all = schedules::all(&mut db.read().await?).await?;
    let is_other = |schedule: &&Schedule| {
        let name = &schedule.definition.name;
        !name.starts_with(FILLER) && !name.starts_with(BACKLOG)
    };
    match all.iter().find(is_other) {
        None => Ok(()),
        Some(other) => Err(refused!(
            "the database {} has the schedule `{}`, so it is not one that this benchmark made",
            db.url(),
            other.definition.name
        )
        .hint("give another database, such as `--database sqlite:growth.db`")),
    }
}

/// Count the launches by the counters of their schedules.
async fn count(db: &Db) -> Result<u64> {
    let all = schedules::all(&mut db.read().await?).await?;
    let launches = all.iter().map(|row| row.state.history.launches_made());
    Ok(launches.sum())
}

/// Add the schedules that fill the record, each with `hours` slots before `now`, unless they are there.
async fn add_fillers(db: &Db, hours: u32, now: Timestamp) -> Result {
    let first = format!("{FILLER}0");
    let limit = Some(u64::from(hours));
    if let Some(there) = schedules::find(&mut db.read().await?, &first).await? {
        let policies: Option<Policies> = serde_json::from_str(&there.definition.policies).ok();
        let made_for = policies.and_then(|policies| policies.max_launches);
        if made_for == limit {
            return Ok(());
        }
        let made_for = made_for.unwrap_or_default() * u64::from(SCHEDULES);
        return Err(
            refused!("the database {} was made for {made_for} launches", db.url())
                .hint(format!("give `--launches {made_for}`, or another database")),
        );
    }
    let since = now.minus(HOUR * (hours + 1));
    let policies = Policies {
        overlap: Overlap::Allow,
        max_launches: limit,
        ..Policies::default()
    };
    add_schedules_with(
        db,
        (FILLER, 0..SCHEDULES),
        &every("1h", since),
        &policies,
        since,
    )
    .await
}

/// Measure how many launches of a backlog of `n` a host executes in a second.
async fn speed(config: &Config, db: Db, n: u32) -> Result<f64> {
    remove_backlog(&db).await?;
    let host = BenchHost::start(config, db.clone(), Mode::Off).await?;
    let now = host.engine.clock().now();
    add_backlog(&db, n, now).await?;
    let idle = host.until_idle().await;
    let rows = host.backlog(n, now).await?;
    host.end().await?;
    remove_backlog(&db).await?;
    idle?;
    let found = rows.len();
    if found != n as usize {
        return Err(failed!("{found} of {n} launches are on the record"));
    }
    Ok(launches_per_s(&rows))
}

/// Remove the schedules of a backlog. Their launches stay.
pub(super) async fn remove_backlog(db: &Db) -> Result {
    let now = Clock::system().now();
    let removing = schedule_admin::change(db, async |tx| {
        for schedule in schedules::all(tx).await? {
            if schedule.definition.name.starts_with(BACKLOG) {
                schedules::remove(tx, schedule.state.id, now).await?;
            }
        }
        Ok(())
    });
    Ok(removing.await?)
}

/// Ask a question again and again, and return how long the answers took.
async fn time<T, E>(db: &Db, question: impl AsyncFn(&mut Tx) -> Result<T, E>) -> Result<Lag>
where
    Failure: From<E>,
{
    let mut answers = Vec::with_capacity(QUESTIONS);
    for _ in 0..QUESTIONS {
        let begun = Instant::now();
        question(&mut db.read_long().await?).await?;
        answers.push(begun.elapsed());
    }
    Ok(Lag::of_times(answers))
}
