//! Random sequences of steps of hosts on a simulated clock, checked against a model of Campanile's guarantees.
//!
//! A sequence is a list of random steps: time passes, schedules are added, edited, paused, resumed, removed and
//! triggered, hosts start and die, tasks end well or badly or not at all. The hosts are real engines on a real
//! database. Only the sandbox is simulated: the sequence decides how each run ends. After every step [`model`] checks
//! the invariants of all rows. `CAMPANILE_TEST_SEED=N` replays one sequence.
//!
//! It takes longest, so its name comes first.

mod definition;
pub mod host;
mod model;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use campanile_control::admin::backfill::{self, BackfillRequest};
use campanile_control::admin::schedule_admin::{self, ScheduleError, Skip, Trigger};
use campanile_control::reports::verify;
use campanile_engine::Work;
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::BackfillId;
use campanile_package::PackageLoader;
use campanile_schedule::policy::{Delivery, Overlap};
use campanile_store::launch::RunEnd;
use campanile_store::schedules::Pause;
use campanile_store::{FailureKind, Origin};
use campanile_tests::{Backend, TestDb, fresh_db, on_both};
use futures_util::future::join_all;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::fixtures::at;
use crate::verify::ALL;
use definition::wanted;
use host::{LiveHost, finish, settings};
use model::Model;

on_both!(keeps_the_guarantees);

/// Number of sequences for each database, ten times as many with `CAMPANILE_LONG_TESTS`.
const SEQUENCES: u64 = 500;
/// How many simulations share them, each with a database of its own.
const SIMULATIONS: usize = 4;
const STEPS: usize = 30;
const SCHEDULES_MAX: usize = 4;
/// The most rounds that a host may need until no work is left.
const ROUNDS_MAX: usize = 500;

async fn keeps_the_guarantees(test: TestDb) {
    if let Ok(text) = std::env::var("CAMPANILE_TEST_SEED") {
        let seed = text.parse().expect("CAMPANILE_TEST_SEED is a number");
        return Simulation::new(test).run_sequence(seed).await;
    }
    let sequences = SEQUENCES * std::env::var_os("CAMPANILE_LONG_TESTS").map_or(1, |_| 10);
    let first: u64 = rand::random::<u32>().into();
    // Each simulation mostly waits for its database.
    let simulate = async |number| {
        let mut simulation = Simulation::new(fresh_db(test.backend()).await);
        for seed in (first + number..first + sequences).step_by(SIMULATIONS) {
            simulation.run_sequence(seed).await;
        }
        simulation.occurrences
    };
    let all = join_all((0..SIMULATIONS as u64).map(simulate)).await;
    let mut occurrences = BTreeMap::new();
    for (what, times) in all.into_iter().flatten() {
        *occurrences.entry(what).or_insert(0) += times;
    }
    println!("{sequences} sequences from {first} on: {occurrences:?}");
    for what in model::EXPECTED {
        let times = occurrences.get(what).copied().unwrap_or_default();
        assert!(
            times >= 40,
            "these sequences had {what} less than 40 times: {occurrences:?}"
        );
    }
}

struct Simulation {
    test: TestDb,
    loader: Arc<PackageLoader>,
    clock: Clock,
    random: StdRng,
    seed: u64,
    hosts: Vec<LiveHost>,
    /// Runs of dead hosts, and runs that were lost: their ends may still arrive.
    orphans: Vec<Work>,
    hosts_started: usize,
    model: Model,
    /// How often each situation occurred. A simulation without them would prove nothing.
    occurrences: BTreeMap<&'static str, usize>,
}

impl Simulation {
    fn new(test: TestDb) -> Simulation {
        let clock = Clock::simulated(at(0));
        Simulation {
            test,
            loader: host::loader(&clock),
            clock,
            random: StdRng::seed_from_u64(0),
            seed: 0,
            hosts: Vec::new(),
            orphans: Vec::new(),
            hosts_started: 0,
            model: Model::default(),
            occurrences: Default::default(),
        }
    }

    fn one_in(&mut self, times: u32) -> bool {
        self.random.random_ratio(1, times)
    }

    fn seconds(&mut self, most: u64) -> Duration {
        Duration::from_secs(self.random.random_range(1..=most))
    }

    fn count(&mut self, what: &'static str) {
        *self.occurrences.entry(what).or_default() += 1;
    }

    /// Run one sequence, from an empty database until all launches have ended.
    async fn run_sequence(&mut self, seed: u64) {
        self.reset(seed).await;
        for step in 0..STEPS {
            let what = self.step().await;
            if !self.one_in(5) {
                self.tick_hosts().await;
            }
            self.check(&format!("step {step}, {what}")).await;
        }
        self.finish_all().await;
    }

    async fn reset(&mut self, seed: u64) {
        self.hosts.clear();
        self.orphans.clear();
        self.test
            .execute(
                "DELETE FROM task_run; DELETE FROM lost_run; DELETE FROM launch; DELETE FROM schedule_result;
                 DELETE FROM backfill; DELETE FROM schedule_revision; DELETE FROM schedule; DELETE FROM package_host;
                 DELETE FROM package_version; DELETE FROM package_sidecar; DELETE FROM package; DELETE FROM artifact; DELETE FROM event; DELETE FROM seal; DELETE FROM schedule_rollup; DELETE FROM package_rollup; DELETE FROM host; UPDATE chore_lease SET epoch = 0, host_id = NULL, chores_since = NULL, lease_until = NULL",
            )
            .await;
        self.clock = Clock::simulated(at(0));
        self.random = StdRng::seed_from_u64(seed);
        self.seed = seed;
        self.model = Model::default();
        self.start_host().await;
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    async fn check(&mut self, after: &str) {
        let mut tx = self.test.read().await;
        let case = format!(
            "{after}, at {}, CAMPANILE_TEST_SEED={}",
            self.now(),
            self.seed
        );
        let situations = self.model.check(&mut tx, self.now(), &case).await;
        drop(tx);
        for what in situations {
            self.count(what);
        }
        if self.one_in(8) && crate::rollup::check(&self.test, self.now(), &case).await > 0 {
            self.count("rollup");
        }
    }

    async fn step(&mut self) -> &'static str {
        match self.random.random_range(0..100) {
            0..30 => self.advance().await,
            30..36 => self.sleep(),
            36..44 => self.add().await,
            44..49 => self.edit().await,
            49..54 => self.pause_or_resume().await,
            54..56 => self.remove().await,
            56..62 => self.trigger().await,
            62..64 => self.run_backfills().await,
            64..67 => self.kill_host(),
            67 => self.skip().await,
            68..74 => self.add_host().await,
            74..76 => self.finish_orphan().await,
            _ => self.finish_run().await,
        }
    }

    /// Let time pass, with heartbeats of every host.
    async fn advance(&mut self) -> &'static str {
        let later = self.now().plus(self.seconds(25));
        self.clock.advance_to(later);
        for index in 0..self.hosts.len() {
            self.renew(index).await;
        }
        "time passes"
    }

    /// Let time pass without heartbeats, as during a sleep of the machine.
    fn sleep(&mut self) -> &'static str {
        let long = if self.one_in(4) { 100_000 } else { 2_000 };
        let later = self.now().plus(self.seconds(long));
        self.clock.advance_to(later);
        self.count("sleep");
        "the machine slept"
    }

    async fn renew(&mut self, index: usize) {
        let now = self.now();
        let host = &mut self.hosts[index];
        host.engine.renew(now).await.unwrap();
        host.engine.drop_expired();
        let (dropped, claimed): (Vec<_>, Vec<_>) = host
            .claimed
            .drain(..)
            .partition(|(_, stop)| stop.is_dropped());
        host.claimed = claimed;
        let engine = Arc::clone(&host.engine);
        for (work, stop) in dropped {
            if stop.is_cancelled() {
                let message = "it did not end in its time".to_owned();
                let end = finish(&work, RunEnd::Cancelled { message }, now);
                engine.finish(&[end]).await.unwrap();
            }
            engine.untrack(work.run_id(), work.fence());
            self.orphans.push(work);
        }
    }

    async fn tick_hosts(&mut self) {
        for index in 0..self.hosts.len() {
            if !self.one_in(4) {
                self.tick(index).await;
            }
        }
    }

    /// Tick a host once; return how many runs it started.
    async fn tick(&mut self, index: usize) -> usize {
        self.renew(index).await;
        let now = self.now();
        let host = &mut self.hosts[index];
        host.engine.recover(now).await.unwrap();
        while host.engine.decide(now).await.unwrap().more {}
        if self.random.random_ratio(1, 12) {
            host.seal(now).await;
        }
        while host.engine.run_backfills(now).await.unwrap().has_more {}
        host.engine.release(now).await.unwrap();
        let mut started = 0;
        if host.claimed.len() < settings().runs_max {
            for work in host.engine.claim(now).await.unwrap() {
                let stop = host.engine.track(&work);
                host.take(work, stop, self.random.random_ratio(3, 4));
                started += 1;
            }
        }
        started
    }

    async fn add(&mut self) -> &'static str {
        if self.model.existing().len() >= SCHEDULES_MAX {
            return "enough schedules";
        }
        let definition = definition::random_definition(&mut self.random, self.clock.now(), None);
        let name = format!("schedule-{}", self.model.schedules.len());
        let wanted = wanted(&name, &definition);
        let now = self.now();
        let added = schedule_admin::change(&self.test.db, async |tx| {
            schedule_admin::add(tx, &wanted, Origin::Operator, now).await
        })
        .await;
        match added {
            Ok(id) => {
                self.model.add(id, name, definition, now);
                self.count("add");
                "a schedule was added"
            }
            Err(error) => refused(&error),
        }
    }

    fn any_existing(&mut self) -> Option<usize> {
        let existing = self.model.existing();
        (!existing.is_empty()).then(|| existing[self.random.random_range(0..existing.len())])
    }

    async fn edit(&mut self) -> &'static str {
        let Some(index) = self.any_existing() else {
            return "no schedule to edit";
        };
        let previous = self.model.schedules[index].definition().clone();
        let mut definition =
            definition::random_definition(&mut self.random, self.clock.now(), Some(&previous));
        if self.one_in(2) {
            // Keep the timing.
            definition.interval = previous.interval;
            definition.policies.jitter = previous.policies.jitter;
            definition.policies.start_at = previous.policies.start_at;
            definition.policies.end_at = previous.policies.end_at;
        }
        let name = self.model.schedules[index].name.clone();
        let wanted = wanted(&name, &definition);
        let now = self.now();
        let edited = schedule_admin::change(&self.test.db, async |tx| {
            let schedule = schedule_admin::find(tx, &name).await?;
            schedule_admin::revise(tx, &schedule, &wanted, Origin::Operator, now).await
        })
        .await;
        match edited {
            Ok(()) => {
                self.model.edit(index, definition, now);
                self.count("edit");
                "a schedule was edited"
            }
            Err(error) => refused(&error),
        }
    }

    async fn pause_or_resume(&mut self) -> &'static str {
        let Some(index) = self.any_existing() else {
            return "no schedule to pause";
        };
        let name = self.model.schedules[index].name.clone();
        let now = self.now();
        let until = self.one_in(3).then(|| now.plus(self.seconds(200)));
        let catch_up = self.one_in(2);
        let pause = Pause {
            by: "the sequence",
            note: Some("for a while"),
            until,
        };
        let paused = schedule_admin::change(&self.test.db, async |tx| {
            schedule_admin::pause(tx, &name, pause, now).await
        })
        .await;
        if paused.is_ok() {
            self.count("pause");
            return "a schedule was paused";
        }
        let resumed = schedule_admin::change(&self.test.db, async |tx| {
            schedule_admin::resume(tx, &name, "the sequence", catch_up, now).await
        })
        .await;
        match resumed {
            Ok(()) => {
                self.count("resume");
                "a schedule was resumed"
            }
            Err(error) => refused(&error),
        }
    }

    async fn remove(&mut self) -> &'static str {
        let Some(index) = self.any_existing() else {
            return "no schedule to remove";
        };
        let name = self.model.schedules[index].name.clone();
        let now = self.now();
        schedule_admin::change(&self.test.db, async |tx| {
            schedule_admin::remove(tx, &name, now).await
        })
        .await
        .unwrap();
        self.model.schedules[index].removed_at = Some(now);
        self.count("remove");
        "a schedule was removed"
    }

    async fn trigger(&mut self) -> &'static str {
        let Some(index) = self.any_existing() else {
            return "no schedule to trigger";
        };
        let name = self.model.schedules[index].name.clone();
        let now = self.now();
        let allows = self.model.schedules[index].definition().policies.overlap == Overlap::Allow;
        let trigger = Trigger {
            // The manual launch must run alone, although the schedule's launches may overlap.
            overlap: (allows && self.one_in(2)).then_some(Overlap::BufferOne),
            ..Trigger::default()
        };
        let triggered = schedule_admin::change(&self.test.db, async |tx| {
            schedule_admin::trigger(tx, &name, trigger, now).await
        })
        .await;
        match triggered {
            Ok(_) => "a schedule was triggered",
            Err(error) => refused(&error),
        }
    }

    async fn run_backfills(&mut self) -> &'static str {
        let Some(index) = self.any_existing() else {
            return "no schedule to backfill";
        };
        let name = self.model.schedules[index].name.clone();
        let now = self.now();
        let request = BackfillRequest {
            id: BackfillId(uuid::Uuid::from_u128(self.random.random())),
            from: now.minus(self.seconds(600)),
            to: now,
            spread: self.seconds(4) - Duration::from_secs(1),
            forced: self.one_in(2),
            context: None,
            by: "the sequence",
        };
        let backfill = schedule_admin::change(&self.test.db, async |tx| {
            let preview = backfill::preview(tx, &name, &request, now).await?;
            backfill::begin(tx, &preview, &request, now).await
        })
        .await;
        match backfill {
            Ok(_) => "a backfill was started",
            Err(error) => refused(&error),
        }
    }

    /// Let an operator skip the next slot.
    async fn skip(&mut self) -> &'static str {
        let Some(index) = self.any_existing() else {
            return "no schedule to skip a slot of";
        };
        let now = self.now();
        let known = &self.model.schedules[index];
        let name = known.name.clone();
        let Some(slot) = known.next_slot(now) else {
            return "no slot to skip";
        };
        let skip = Skip {
            slot,
            by: "the sequence",
            undo: false,
        };
        let skipped = schedule_admin::change(&self.test.db, async |tx| {
            schedule_admin::skip(tx, &name, skip, now).await
        })
        .await;
        match skipped {
            Ok(()) => {
                self.model.schedules[index].skipped_slots.insert(slot);
                "a slot was skipped"
            }
            Err(error) => refused(&error),
        }
    }

    fn kill_host(&mut self) -> &'static str {
        if self.hosts.is_empty() {
            return "no host to kill";
        }
        let index = self.random.random_range(0..self.hosts.len());
        let host = self.hosts.remove(index);
        self.orphans
            .extend(host.claimed.into_iter().map(|(work, _)| work));
        self.count("death");
        "a host died"
    }

    async fn add_host(&mut self) -> &'static str {
        // A SQLite file is served by one host at a time.
        let most = match self.test.backend() {
            Backend::Sqlite => 1,
            Backend::Postgres => 3,
        };
        if self.hosts.len() >= most {
            return "enough hosts";
        }
        self.start_host().await;
        "a host started"
    }

    async fn start_host(&mut self) {
        self.hosts_started += 1;
        // On SQLite a host often has the name of a dead one.
        let name = match self.test.backend() {
            Backend::Sqlite => format!("host-{}", self.hosts_started % 2),
            Backend::Postgres => format!("host-{}", self.hosts_started),
        };
        let host = host::start(&self.test, &self.clock, &self.loader, &name).await;
        self.hosts.push(host);
    }

    /// Finish a run whose claim was lost or whose host died. Only a current claim may be applied.
    async fn finish_orphan(&mut self) -> &'static str {
        if self.orphans.is_empty() || self.hosts.is_empty() {
            return "no orphaned run";
        }
        let index = self.random.random_range(0..self.orphans.len());
        let work = self.orphans.swap_remove(index);
        let now = self.now();
        let state = format!(
            "SELECT CAST(count(*) AS TEXT) FROM launch WHERE status = 'running' AND attempts = {} AND id = {}",
            work.fence(),
            self.test.backend().id(work.launch.launch_id.0),
        );
        let claimed: usize = self.test.value(&state).await.parse().unwrap();
        let end = RunEnd::Succeeded { output: None };
        let engine = Arc::clone(&self.hosts[0].engine);
        let applied = engine.finish(&[finish(&work, end, now)]).await.unwrap();
        assert_eq!(
            applied, claimed,
            "an orphaned run, CAMPANILE_TEST_SEED={}",
            self.seed
        );
        self.count("orphaned run");
        "an orphaned run ended"
    }

    async fn finish_run(&mut self) -> &'static str {
        let busy_hosts: Vec<usize> = (0..self.hosts.len())
            .filter(|index| !self.hosts[*index].claimed.is_empty())
            .collect();
        if busy_hosts.is_empty() {
            return "no run to finish";
        }
        let index = busy_hosts[self.random.random_range(0..busy_hosts.len())];
        let claimed = self.hosts[index].claimed.len();
        let (work, stop) = {
            let which = self.random.random_range(0..claimed);
            self.hosts[index].claimed.swap_remove(which)
        };
        let now = self.now();
        let failed = |kind: FailureKind| RunEnd::Failed {
            kind,
            message: "the disk is full".to_owned(),
        };
        let at_most_once = work.spec.policies.delivery() == Delivery::AtMostOnce;
        let end = match self.random.random_range(0..10) {
            0..5 => RunEnd::Succeeded {
                output: Some("1".to_owned()),
            },
            _ if stop.is_cancelled() => RunEnd::Cancelled {
                message: "it ended when it was asked to".to_owned(),
            },
            5..7 if !at_most_once => RunEnd::Waiting {
                retry_at: now.plus(self.seconds(60)),
            },
            5..9 => failed(FailureKind::Failed),
            _ => failed(FailureKind::Trapped),
        };
        let engine = Arc::clone(&self.hosts[index].engine);
        engine.finish(&[finish(&work, end, now)]).await.unwrap();
        engine.untrack(work.run_id(), work.fence());
        "a task ended"
    }

    /// Replace all hosts by one new host that works until no work is left.
    async fn finish_all(&mut self) {
        self.hosts.clear();
        self.start_host().await;
        let deadline = self.now();
        for _ in 0..4 {
            self.advance().await;
            self.tick(0).await;
        }
        for _ in 0..ROUNDS_MAX {
            // These hold permits that a real host gives back.
            self.orphans.clear();
            while let Some((work, _)) = self.hosts[0].claimed.pop() {
                let end = RunEnd::Succeeded { output: None };
                let engine = Arc::clone(&self.hosts[0].engine);
                engine
                    .finish(&[finish(&work, end, self.now())])
                    .await
                    .unwrap();
                engine.untrack(work.run_id(), work.fence());
            }
            if self.tick(0).await > 0 {
                continue;
            }
            self.check("after all work").await;
            if !self.has_unfinished(deadline).await {
                return self.verify().await;
            }
            // Wait for a fire time, a retry time, or the end of a dead host's lease.
            let later = self.now().plus(Duration::from_secs(10));
            self.clock.advance_to(later);
        }
        let rows = model::unfinished(&mut self.test.read().await).await;
        let (now, seed) = (self.now(), self.seed);
        panic!("launches stay unfinished, at {now}, CAMPANILE_TEST_SEED={seed}: {rows:#?}");
    }

    /// Verify the record as `audit verify` does, and the rollup.
    async fn verify(&self) {
        let (now, seed) = (self.now(), self.seed);
        host::seal_all(&self.hosts, now).await;
        crate::rollup::check(&self.test, now, &format!("CAMPANILE_TEST_SEED={seed}")).await;
        let found = verify::verify(&self.test.db, ALL, None, now).await.unwrap();
        assert!(
            found.faults.is_empty(),
            "at {now}, CAMPANILE_TEST_SEED={seed}: {found:#?}"
        );
    }

    /// Return whether a launch that was decided by `deadline` is unfinished. Later launches may be endless.
    async fn has_unfinished(&mut self, deadline: Timestamp) -> bool {
        let rows = model::unfinished(&mut self.test.read().await).await;
        rows.iter()
            .any(|row| row.decided_at <= deadline && !self.model.waits_for_resume(row))
    }
}

/// Accept the errors of random requests that contradict each other, and panic on any other error.
fn refused(error: &ScheduleError) -> &'static str {
    match error {
        ScheduleError::Policy(_) | ScheduleError::NothingAhead | ScheduleError::Past(_) => {
            "refused"
        }
        ScheduleError::Backfill(_) | ScheduleError::Skipped(..) | ScheduleError::NoSlot { .. } => {
            "refused"
        }
        other => panic!("{other}"),
    }
}
