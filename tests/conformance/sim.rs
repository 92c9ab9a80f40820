//! Random histories of hosts on a simulated clock, against a small model of what Campanile promises.
//!
//! A sequence is a list of random steps: time passes, schedules are added, edited, paused, resumed, removed and
//! triggered, hosts start and die, tasks end well or badly or not at all. The hosts are real engines on a real
//! database; only the sandbox is scripted: the sequence decides how each run ends. After every step [`model`] looks
//! whether everything on the record can be.
//!
//! `CAMPANILE_TEST_SEED=N` replays one sequence.

pub mod host;
mod model;
mod said;

use std::sync::Arc;
use std::time::Duration;

use campanile_engine::Work;
use campanile_engine::backfill::{self, BackfillRequest};
use campanile_engine::schedule_admin::{self, ScheduleError, Skip, Trigger};
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::BackfillId;
use campanile_sandbox::Sandbox;
use campanile_schedule::policy::{Delivery, Overlap};
use campanile_store::runs::RunEnd;
use campanile_store::schedules::Pause;
use campanile_store::{FailureKind, Origin};
use campanile_tests::{Backend, TestDb, on_both};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::fixtures::at;
use host::{LiveHost, finish, settings};
use model::Model;
use said::wanted;

on_both!(five_hundred_histories, another_five_hundred_histories);

/// Of each case: two thousand in all.
const SEQUENCES: u64 = 500;
const STEPS: usize = 30;
const SCHEDULES_MAX: usize = 4;
/// How often a host may be asked until nothing is left to do.
const ROUNDS_MAX: usize = 500;

async fn five_hundred_histories(test: TestDb) {
    check_histories(test).await;
}

async fn another_five_hundred_histories(test: TestDb) {
    check_histories(test).await;
}

async fn check_histories(test: TestDb) {
    let mut tower = Tower::new(test);
    if let Ok(text) = std::env::var("CAMPANILE_TEST_SEED") {
        let seed = text.parse().expect("CAMPANILE_TEST_SEED is a number");
        return tower.sequence(seed).await;
    }
    let first: u64 = rand::random::<u32>().into();
    for seed in first..first + SEQUENCES {
        tower.sequence(seed).await;
    }
    println!("{SEQUENCES} sequences from {first} on: {:?}", tower.done);
    for what in model::EXPECTED {
        let times = tower.done.get(what).copied().unwrap_or_default();
        assert!(
            times >= 20,
            "these sequences hardly ever had {what}: {:?}",
            tower.done
        );
    }
}

struct Tower {
    test: TestDb,
    sandbox: Arc<Sandbox>,
    clock: Clock,
    random: StdRng,
    seed: u64,
    hosts: Vec<LiveHost>,
    /// Runs that hosts held when they died, or lost: their ends may still be recorded.
    ghosts: Vec<Work>,
    lives: usize,
    model: Model,
    /// What was seen how often; a simulation in which nothing happens proves nothing.
    done: std::collections::BTreeMap<&'static str, usize>,
}

impl Tower {
    fn new(test: TestDb) -> Tower {
        let clock = Clock::simulated(at(0));
        Tower {
            test,
            sandbox: host::sandbox(&clock),
            clock,
            random: StdRng::seed_from_u64(0),
            seed: 0,
            hosts: Vec::new(),
            ghosts: Vec::new(),
            lives: 0,
            model: Model::default(),
            done: Default::default(),
        }
    }

    fn one_in(&mut self, times: u32) -> bool {
        self.random.random_ratio(1, times)
    }

    fn seconds(&mut self, most: u64) -> Duration {
        Duration::from_secs(self.random.random_range(1..=most))
    }

    fn did(&mut self, what: &'static str) {
        *self.done.entry(what).or_default() += 1;
    }

    /// Run one history, from an empty database until all launches have ended.
    async fn sequence(&mut self, seed: u64) {
        self.begin(seed).await;
        for step in 0..STEPS {
            let what = self.step().await;
            if !self.one_in(5) {
                self.turns().await;
            }
            self.check(&format!("step {step}, {what}")).await;
        }
        self.settle().await;
    }

    async fn begin(&mut self, seed: u64) {
        self.hosts.clear();
        self.ghosts.clear();
        self.test
            .execute(
                "DELETE FROM task_run; DELETE FROM run; DELETE FROM launch; DELETE FROM schedule_result;
                 DELETE FROM backfill; DELETE FROM schedule_revision; DELETE FROM schedule; DELETE FROM package_host; DELETE FROM package_version;
                 DELETE FROM package_sidecar;
                 DELETE FROM package; DELETE FROM artifact; DELETE FROM event; DELETE FROM host",
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
        let seen = self.model.check(&mut tx, self.now(), &case).await;
        for what in seen {
            self.did(what);
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
            64..67 => self.host_dies(),
            67 => self.skip().await,
            68..74 => self.host_starts().await,
            74..76 => self.ghost_speaks().await,
            _ => self.task_ends().await,
        }
    }

    /// Let time pass, with heartbeats of every host.
    async fn advance(&mut self) -> &'static str {
        let later = self.now().plus(self.seconds(25));
        self.clock.advance_to(later);
        for place in 0..self.hosts.len() {
            self.renew(place).await;
        }
        "time passes"
    }

    /// Let time pass without heartbeats: the machine slept.
    fn sleep(&mut self) -> &'static str {
        let long = if self.one_in(4) { 100_000 } else { 2_000 };
        let later = self.now().plus(self.seconds(long));
        self.clock.advance_to(later);
        self.did("sleep");
        "the machine slept"
    }

    async fn renew(&mut self, place: usize) {
        let now = self.now();
        let host = &mut self.hosts[place];
        host.engine.renew(now).await.unwrap();
        host.engine.drop_expired(now);
        let (dropped, held): (Vec<_>, Vec<_>) =
            host.held.drain(..).partition(|(_, stop)| stop.is_dropped());
        host.held = held;
        let engine = Arc::clone(&host.engine);
        for (work, stop) in dropped {
            if stop.is_cancelled() {
                let message = "it did not end in its time".to_owned();
                let end = finish(&work, RunEnd::Cancelled { message }, now);
                engine.finish(&[end]).await.unwrap();
            }
            engine.untrack(work.run_id, work.fence);
            self.ghosts.push(work);
        }
    }

    async fn turns(&mut self) {
        for place in 0..self.hosts.len() {
            if !self.one_in(4) {
                self.turn(place).await;
            }
        }
    }

    /// Tick a host once; return how many runs it started.
    async fn turn(&mut self, place: usize) -> usize {
        self.renew(place).await;
        let now = self.now();
        let host = &mut self.hosts[place];
        host.engine.recover(now).await.unwrap();
        while host.engine.decide(now).await.unwrap().more {}
        while host.engine.run_backfills(now).await.unwrap().has_more {}
        host.engine.release(now).await.unwrap();
        let mut begun = 0;
        if host.held.len() < settings().runs_max {
            for work in host.engine.claim(now).await.unwrap() {
                let stop = host.engine.track(&work);
                host.held.push((work, stop));
                begun += 1;
            }
        }
        begun
    }

    async fn add(&mut self) -> &'static str {
        if self.model.living().len() >= SCHEDULES_MAX {
            return "enough schedules";
        }
        let said = said::any(&mut self.random, self.clock.now(), None);
        let name = format!("bell-{}", self.model.schedules.len());
        let wanted = wanted(&name, &said);
        let now = self.now();
        let added = schedule_admin::change(&self.test.db, async |tx| {
            schedule_admin::add(tx, &wanted, Origin::Operator, now).await
        })
        .await;
        match added {
            Ok(id) => {
                self.model.added(id, name, said, now);
                self.did("add");
                "a schedule was added"
            }
            Err(error) => refused(&error),
        }
    }

    fn any_living(&mut self) -> Option<usize> {
        let living = self.model.living();
        (!living.is_empty()).then(|| living[self.random.random_range(0..living.len())])
    }

    async fn edit(&mut self) -> &'static str {
        let Some(place) = self.any_living() else {
            return "no schedule to edit";
        };
        let before = self.model.schedules[place].said().clone();
        let mut said = said::any(&mut self.random, self.clock.now(), Some(&before));
        if self.one_in(2) {
            // Of its timing nothing changes.
            said.interval = before.interval;
            said.policies.jitter = before.policies.jitter;
            said.policies.start_at = before.policies.start_at;
            said.policies.end_at = before.policies.end_at;
        }
        let name = self.model.schedules[place].name.clone();
        let wanted = wanted(&name, &said);
        let now = self.now();
        let edited = schedule_admin::change(&self.test.db, async |tx| {
            let schedule = schedule_admin::find(tx, &name).await?;
            schedule_admin::revise(tx, &schedule, &wanted, Origin::Operator, now).await
        })
        .await;
        match edited {
            Ok(()) => {
                self.model.edited(place, said, now);
                self.did("edit");
                "a schedule was edited"
            }
            Err(error) => refused(&error),
        }
    }

    async fn pause_or_resume(&mut self) -> &'static str {
        let Some(place) = self.any_living() else {
            return "no schedule to pause";
        };
        let name = self.model.schedules[place].name.clone();
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
            self.did("pause");
            return "a schedule was paused";
        }
        let resumed = schedule_admin::change(&self.test.db, async |tx| {
            schedule_admin::resume(tx, &name, "the sequence", catch_up, now).await
        })
        .await;
        match resumed {
            Ok(()) => {
                self.did("resume");
                "a schedule was resumed"
            }
            Err(error) => refused(&error),
        }
    }

    async fn remove(&mut self) -> &'static str {
        let Some(place) = self.any_living() else {
            return "no schedule to remove";
        };
        let name = self.model.schedules[place].name.clone();
        let now = self.now();
        schedule_admin::change(&self.test.db, async |tx| {
            schedule_admin::remove(tx, &name, now).await
        })
        .await
        .unwrap();
        self.model.schedules[place].removed_at = Some(now);
        self.did("remove");
        "a schedule was removed"
    }

    async fn trigger(&mut self) -> &'static str {
        let Some(place) = self.any_living() else {
            return "no schedule to trigger";
        };
        let name = self.model.schedules[place].name.clone();
        let now = self.now();
        let allows = self.model.schedules[place].said().policies.overlap == Overlap::Allow;
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
        let Some(place) = self.any_living() else {
            return "no schedule to fill back";
        };
        let name = self.model.schedules[place].name.clone();
        let now = self.now();
        let asked = BackfillRequest {
            id: BackfillId(uuid::Uuid::from_u128(self.random.random())),
            from: now.minus(self.seconds(600)),
            to: now,
            spread: self.seconds(4) - Duration::from_secs(1),
            forced: self.one_in(2),
            context: None,
            by: "the sequence",
        };
        let begun = schedule_admin::change(&self.test.db, async |tx| {
            let survey = backfill::preview(tx, &name, &asked, now).await?;
            backfill::begin(tx, &survey, &asked, now).await
        })
        .await;
        match begun {
            Ok(_) => "a backfill was begun",
            Err(error) => refused(&error),
        }
    }

    /// A person skips the next slot.
    async fn skip(&mut self) -> &'static str {
        let Some(place) = self.any_living() else {
            return "no schedule to skip a slot of";
        };
        let now = self.now();
        let known = &self.model.schedules[place];
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
                self.model.schedules[place].taken_out.insert(slot);
                "a slot was taken out"
            }
            Err(error) => refused(&error),
        }
    }

    fn host_dies(&mut self) -> &'static str {
        if self.hosts.is_empty() {
            return "nobody to die";
        }
        let place = self.random.random_range(0..self.hosts.len());
        let host = self.hosts.remove(place);
        self.ghosts
            .extend(host.held.into_iter().map(|(work, _)| work));
        self.did("death");
        "a host died"
    }

    async fn host_starts(&mut self) -> &'static str {
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
        self.lives += 1;
        // Sometimes in the name of one that has died.
        let name = match self.test.backend() {
            Backend::Sqlite => format!("tower-{}", self.lives % 2),
            Backend::Postgres => format!("tower-{}", self.lives),
        };
        let host = host::start(&self.test, &self.clock, &self.sandbox, &name).await;
        self.hosts.push(host);
    }

    /// A run that its host has lost, or that outlived its host, comes to an end all the same.
    async fn ghost_speaks(&mut self) -> &'static str {
        if self.ghosts.is_empty() || self.hosts.is_empty() {
            return "no ghost";
        }
        let place = self.random.random_range(0..self.ghosts.len());
        let work = self.ghosts.swap_remove(place);
        let now = self.now();
        let state = format!(
            "SELECT CAST(count(*) AS TEXT) FROM run WHERE status = 'running' AND fence = {} AND id = {}",
            work.fence,
            model::id_literal(self.test.backend(), work.run_id.0),
        );
        let held: usize = self.test.value(&state).await.parse().unwrap();
        let end = RunEnd::Succeeded { output: None };
        let engine = Arc::clone(&self.hosts[0].engine);
        let applied = engine.finish(&[finish(&work, end, now)]).await.unwrap();
        assert_eq!(applied, held, "a ghost, CAMPANILE_TEST_SEED={}", self.seed);
        self.did("ghost");
        "a ghost spoke"
    }

    async fn task_ends(&mut self) -> &'static str {
        let holders: Vec<usize> = (0..self.hosts.len())
            .filter(|place| !self.hosts[*place].held.is_empty())
            .collect();
        if holders.is_empty() {
            return "nothing runs";
        }
        let place = holders[self.random.random_range(0..holders.len())];
        let held = self.hosts[place].held.len();
        let (work, stop) = {
            let which = self.random.random_range(0..held);
            self.hosts[place].held.swap_remove(which)
        };
        let now = self.now();
        let failed = |kind: FailureKind| RunEnd::Failed {
            kind,
            message: "cracked".to_owned(),
        };
        let at_most_once = work.spec.policies.delivery == Delivery::AtMostOnce;
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
        let engine = Arc::clone(&self.hosts[place].engine);
        engine.finish(&[finish(&work, end, now)]).await.unwrap();
        engine.untrack(work.run_id, work.fence);
        "a task ended"
    }

    /// Everybody is gone; one host comes and works until nothing is left to do.
    async fn settle(&mut self) {
        self.ghosts.clear();
        self.hosts.clear();
        self.start_host().await;
        let begin = self.now();
        for _ in 0..4 {
            self.advance().await;
            self.turn(0).await;
        }
        for _ in 0..ROUNDS_MAX {
            while let Some((work, _)) = self.hosts[0].held.pop() {
                let end = RunEnd::Succeeded { output: None };
                let engine = Arc::clone(&self.hosts[0].engine);
                engine
                    .finish(&[finish(&work, end, self.now())])
                    .await
                    .unwrap();
                engine.untrack(work.run_id, work.fence);
            }
            if self.turn(0).await > 0 {
                continue;
            }
            self.check("all is done").await;
            if !self.is_waited_for(begin).await {
                return;
            }
            // For a fire time, a retry, or the end of a lease that a dead host had.
            let later = self.now().plus(Duration::from_secs(10));
            self.clock.advance_to(later);
        }
        let rows = model::unfinished(&mut self.test.read().await).await;
        let (now, seed) = (self.now(), self.seed);
        panic!("it never comes to rest, at {now}, CAMPANILE_TEST_SEED={seed}: {rows:#?}");
    }

    /// Whether a launch decided by `begin` is unfinished. Later launches do not count: they may be endless.
    async fn is_waited_for(&mut self, begin: Timestamp) -> bool {
        let rows = model::unfinished(&mut self.test.read().await).await;
        rows.iter()
            .any(|row| row.claimed_at <= begin && !self.model.waits_while_paused(row))
    }
}

/// What was asked for cannot be: policies drawn at random contradict each other now and then.
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
