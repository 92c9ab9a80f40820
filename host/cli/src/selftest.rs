//! Rounds of faults: hosts serve one database, and in each round one of them is killed, suspended or cut off.
//!
//! ```text
//! round:   fault of one host ─▶ every schedule continues ─▶ the record is verified
//! end:     every launch has ended ─▶ launches, runs and effects are compared
//! ```
//!
//! `campanile selftest` runs them on the database of the user, and `tests/crash/rounds.rs` through proxies.

mod comparison;
mod faults;
mod process;
mod scratch;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde::Serialize;

use self::comparison::{FaultTime, Record, compare, delays, take_overs};
use self::faults::{Choices, Fault, plan};
use self::process::HostProcess;
use campanile_control::reports::verify::{self, FaultKind as RecordFault, Span, Verification};
use campanile_control::rules::lateness::Lag;
use campanile_model::clock::{Clock, Timestamp};
use campanile_store::{DatabaseUrl, Db, DbError, changes, launch, runs, schedules, stats};

pub use self::comparison::Totals;
pub use self::faults::FaultKind;
pub use self::scratch::Scratch;

/// The schedules, each with a slot every second.
pub const SCHEDULES: usize = 10;
/// How often the record is read while something is awaited.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// How long the hosts may take to continue after a fault, besides the length of a lease.
const CONTINUE_MAX: Duration = Duration::from_secs(60);
/// How long the launches may take to end after the last fault, besides the length of two leases.
const END_MAX: Duration = Duration::from_secs(120);
/// How long a host may take to reach a crash point.
const CRASH_MAX: Duration = Duration::from_secs(10);
/// More launches than any number of rounds makes.
const ROWS_MAX: i64 = 10_000_000;
/// More launches than can be unfinished at the same time.
const UNFINISHED_MAX: i64 = 10_000;
/// The most problems that are listed.
const PROBLEMS_MAX: usize = 20;
/// How a process ends at a crash point.
const ABORTED: i32 = Signal::ABORT.as_raw();

/// A network between a host and its database that can be cut.
pub trait Network: Send + Sync {
    /// Forward nothing until [`Network::mend`].
    fn cut(&self);
    fn mend(&self);
}

/// A host that is to be started, and how it reaches the database.
pub struct Place {
    pub name: String,
    pub database: DatabaseUrl,
    pub network: Option<Box<dyn Network>>,
}

/// What is run.
pub struct Settings {
    /// The program of the hosts.
    pub program: PathBuf,
    pub rounds: usize,
    pub seed: u64,
    /// The lease of the hosts' configuration.
    pub lease: Duration,
    /// Every other round lets a host abort at one of these points.
    pub crash_points: &'static [&'static str],
}

/// What the rounds have shown.
#[derive(Debug, Default, Serialize, schemars::JsonSchema)]
pub struct Outcome {
    /// The rounds that are over.
    pub rounds_done: usize,
    pub kills: usize,
    pub suspensions: usize,
    /// How often the network between a host and its database was cut.
    #[serde(skip)]
    pub cuts: usize,
    /// The crash points that hosts have reached, each once, in this order.
    pub crash_points: Vec<&'static str>,
    /// Slots that were verified, those without a decision, and those with more than one.
    pub slots: u64,
    pub slots_missing: usize,
    pub slots_twice: usize,
    #[serde(flatten)]
    pub totals: Totals,
    /// Launches that lost their first run by a fault and ran again.
    pub take_overs: usize,
    /// From the fault to that next run.
    pub take_over_ms: Lag,
    /// The longest delay of a launch after each fault, from its slot to its first start.
    pub delay_ms: Lag,
    /// The verification at the end. After each round there was one too.
    pub verification: Verification,
    /// What is wrong: a sentence each. Empty when the guarantees hold.
    pub problems: Vec<String>,
    /// Further problems that are not listed.
    pub problems_left_out: usize,
}

impl Outcome {
    fn problem(&mut self, what: impl Into<String>) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(what.into())
        } else {
            self.problems_left_out += 1
        }
    }

    /// Add the faults of the verification at the end as problems.
    fn note(&mut self, verification: Verification) {
        let faults = &verification.faults;
        let of = |kind: RecordFault| faults.iter().filter(|fault| fault.kind == kind).count();
        self.slots = verification.slots;
        self.slots_missing = of(RecordFault::SlotMissing);
        self.slots_twice = of(RecordFault::SlotTwice);
        for fault in faults {
            self.problem(fault.to_string());
        }
        self.verification = verification;
    }
}

/// A host of the rounds.
struct Host {
    place: Place,
    /// None while it is meant to be down.
    process: Option<HostProcess>,
}

/// The rounds while they run.
struct Rounds<'a> {
    db: &'a Db,
    clock: &'a Clock,
    scratch: &'a Scratch,
    settings: &'a Settings,
    hosts: Vec<Host>,
    faults: Vec<FaultTime>,
    outcome: Outcome,
}

/// Why the rounds end early: with a problem, or without an answer of the database.
enum Ended {
    Problem(String),
    Db(DbError),
}

impl From<DbError> for Ended {
    fn from(error: DbError) -> Ended {
        Ended::Db(error)
    }
}

/// Run the rounds on `db`, whose tables are empty. After each round, `on_round` is called with the number of finished rounds.
///
/// The first problem ends the rounds. When the future is dropped, the hosts are killed.
///
/// # Errors
///
/// When the database does not answer.
pub async fn run(
    db: &Db,
    clock: &Clock,
    scratch: &Scratch,
    places: Vec<Place>,
    settings: &Settings,
    on_round: impl Fn(usize),
) -> Result<Outcome, DbError> {
    let hosts = places.into_iter().map(|place| Host {
        place,
        process: None,
    });
    let mut rounds = Rounds {
        db,
        clock,
        scratch,
        settings,
        hosts: hosts.collect(),
        faults: Vec::new(),
        outcome: Outcome::default(),
    };
    match rounds.run_all(on_round).await {
        Ok(()) => {}
        Err(Ended::Problem(what)) => rounds.outcome.problem(what),
        Err(Ended::Db(error)) => return Err(error),
    }
    rounds.conclude().await
}

impl Rounds<'_> {
    async fn run_all(&mut self, on_round: impl Fn(usize)) -> Result<(), Ended> {
        let choices = Choices {
            hosts: self.hosts.len(),
            lease: self.settings.lease,
            can_cut: self.hosts.iter().all(|host| host.place.network.is_some()),
            crash_points: self.settings.crash_points,
        };
        for host in 0..self.hosts.len() {
            self.start(host, None)?;
        }
        self.until_all_continue().await?;
        for fault in plan(&choices, self.settings.rounds, self.settings.seed) {
            self.round(fault).await?;
            self.outcome.rounds_done += 1;
            on_round(self.outcome.rounds_done);
        }
        self.until_ended(self.clock.now()).await
    }

    /// Let a fault happen, wait until all schedules continue, and verify the record.
    async fn round(&mut self, fault: Fault) -> Result<(), Ended> {
        tokio::time::sleep(fault.after).await;
        let host = fault.host;
        self.faults.push(FaultTime {
            host: self.hosts[host].place.name.clone(),
            at: self.clock.now(),
        });
        match fault.kind {
            FaultKind::Kill(away) => {
                self.outcome.kills += 1;
                self.kill(host);
                tokio::time::sleep(away).await;
                self.start(host, None)?;
            }
            FaultKind::Suspend(away) => {
                self.outcome.suspensions += 1;
                self.signal(host, Signal::STOP);
                tokio::time::sleep(away).await;
                self.signal(host, Signal::CONT);
            }
            FaultKind::Cut(away) => {
                self.outcome.cuts += 1;
                let network = self.hosts[host].place.network.as_deref();
                network.inspect(|network| network.cut());
                tokio::time::sleep(away).await;
                network.inspect(|network| network.mend());
            }
            FaultKind::Crash(point) => {
                self.outcome.kills += 1;
                self.crash(host, point).await?;
            }
        }
        self.until_all_continue().await?;
        self.verify().await
    }

    /// Kill a host, let it start and abort at `point`, and start it again.
    async fn crash(&mut self, host: usize, point: &'static str) -> Result<(), Ended> {
        use std::os::unix::process::ExitStatusExt as _;

        self.kill(host);
        self.start(host, Some(point))?;
        let until = Instant::now() + CRASH_MAX;
        while Instant::now() < until {
            tokio::time::sleep(LOOK_INTERVAL).await;
            match self.hosts[host]
                .process
                .as_mut()
                .and_then(HostProcess::ended)
            {
                None => {}
                Some(status) if status.signal() == Some(ABORTED) => {
                    if !self.outcome.crash_points.contains(&point) {
                        self.outcome.crash_points.push(point);
                    }
                    break;
                }
                Some(_) => return self.all_run(),
            }
        }
        self.kill(host);
        self.start(host, None)
    }

    fn start(&mut self, host: usize, crash_at: Option<&str>) -> Result<(), Ended> {
        let Host { place, process } = &mut self.hosts[host];
        let name = &place.name;
        let mut command = (self.scratch).serve(&self.settings.program, name, &place.database);
        command.envs(crash_at.map(|point| ("CAMPANILE_CRASH_AT", point)));
        let started = HostProcess::start(command, &self.scratch.log(name));
        let started = started.map_err(|error| {
            Ended::Problem(format!("the host {name} cannot be started: {error}"))
        })?;
        *process = Some(started);
        Ok(())
    }

    fn kill(&mut self, host: usize) {
        // Dropping it kills the process.
        self.hosts[host].process = None;
    }

    fn signal(&mut self, host: usize, signal: Signal) {
        if let Some(process) = &mut self.hosts[host].process {
            process.signal(signal);
        }
    }

    /// Returns a problem if a host ended without being killed.
    fn all_run(&mut self) -> Result<(), Ended> {
        for Host { place, process } in &mut self.hosts {
            if let Some(process) = process
                && let Some(status) = process.ended()
            {
                return Err(Ended::Problem(format!(
                    "the host {} ended by itself ({status}); it wrote last: {}",
                    place.name,
                    process.last_line()
                )));
            }
        }
        Ok(())
    }

    /// Wait until every schedule has decided a slot that is later than this call.
    async fn until_all_continue(&mut self) -> Result<(), Ended> {
        let (db, now) = (self.db, self.clock.now());
        let limit = self.settings.lease + CONTINUE_MAX;
        let continues = async || {
            let schedules = schedules::all(&mut db.read().await?).await?;
            let mut cursors = schedules.iter().map(|schedule| schedule.state.cursor_at);
            Ok(schedules.len() == SCHEDULES && cursors.all(|cursor| cursor > now))
        };
        self.until(limit, "not every schedule continues", continues)
            .await
    }

    /// Wait until every launch of a slot up to `until` has ended. Then pause the schedules, and wait for the others.
    async fn until_ended(&mut self, until: Timestamp) -> Result<(), Ended> {
        let db = self.db;
        let limit = self.settings.lease * 2 + END_MAX;
        let what = "not every launch has ended";
        let have_ended = async || {
            let launches = launch::list(&mut db.read().await?, None, UNFINISHED_MAX).await?;
            let mut due = launches.iter().filter(|row| row.scheduled_time <= until);
            Ok(due.all(|launch| launch.finished_at.is_some()))
        };
        self.until(limit, what, have_ended).await?;
        self.pause_all().await?;
        let have_ended = async || Ok(stats::unfinished(&mut db.read().await?).await? == 0);
        self.until(limit, what, have_ended).await
    }

    async fn pause_all(&self) -> Result<(), DbError> {
        let now = self.clock.now();
        let pause = schedules::Pause {
            by: "selftest",
            note: None,
            until: None,
        };
        let mut tx = self.db.write().await?;
        for schedule in schedules::all(&mut tx).await? {
            schedules::pause(&mut tx, schedule.state.id, pause, now).await?;
        }
        changes::bump(&mut tx).await?;
        tx.commit().await
    }

    /// Ask `is_done` until it is, for at most `limit`. All hosts must run meanwhile.
    async fn until(
        &mut self,
        limit: Duration,
        problem: &str,
        is_done: impl AsyncFn() -> Result<bool, DbError>,
    ) -> Result<(), Ended> {
        let until = Instant::now() + limit;
        while !is_done().await? {
            self.all_run()?;
            if Instant::now() > until {
                let seconds = limit.as_secs();
                return Err(Ended::Problem(format!("{problem} within {seconds} s")));
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        Ok(())
    }

    /// Verify the record while the hosts serve. A fault ends the rounds.
    async fn verify(&mut self) -> Result<(), Ended> {
        let faults = self.verified().await?.faults;
        let Some(first) = faults.first() else {
            return Ok(());
        };
        Err(Ended::Problem(format!(
            "the verification after round {} found {} faults; the first is {first}",
            self.outcome.rounds_done + 1,
            faults.len()
        )))
    }

    async fn verified(&self) -> Result<Verification, DbError> {
        let now = self.clock.now();
        let span = Span {
            from: Timestamp::FIRST,
            to: now,
        };
        verify::verify(self.db, span, None, now).await
    }

    /// Kill the hosts, verify the record, and compare launches, runs and effects with each other.
    async fn conclude(mut self) -> Result<Outcome, DbError> {
        self.hosts.clear();
        let verification = self.verified().await?;
        self.outcome.note(verification);
        let record = read(self.db).await?;
        let (totals, problems) = compare(&record, &self.scratch.effects());
        problems
            .into_iter()
            .for_each(|what| self.outcome.problem(what));
        self.outcome.totals = totals;
        let times = take_overs(&record, &self.faults);
        self.outcome.take_overs = times.len();
        self.outcome.take_over_ms = Lag::of_times(times);
        self.outcome.delay_ms = Lag::of_times(delays(&record, &self.faults));
        Ok(self.outcome)
    }
}

async fn read(db: &Db) -> Result<Record, DbError> {
    let mut tx = db.read_long().await?;
    Ok(Record {
        launches: launch::list(&mut tx, None, ROWS_MAX).await?,
        runs: runs::list(&mut tx, None, ROWS_MAX).await?,
    })
}
