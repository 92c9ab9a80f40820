//! Each statement does to a launch what its arrow does to a life, from every life that is a few arrows away from its decision.

use std::collections::{HashMap, HashSet, VecDeque};

use campanile_model::clock::Timestamp;
use campanile_model::ids::{BackfillId, HostId, LaunchKind, RunId};
use campanile_model::life::{ACTIVE, Arrow, IDLE, Life, NOT_RUNNING, QUEUED};
use campanile_model::status::Displaced;
use campanile_store::launch::{
    self, Claim, Finish, LOSS_COUNTS_WITHIN, NewClaim, NewLaunch, RecoveryAction, RecoveryDecision,
    RunEnd, RunHashes, UncalledClaim,
};
use campanile_store::{Decision, FailureKind, LaunchStatus, Tx};
use campanile_tests::{TestDb, on_both};
use uuid::Uuid;

use crate::fixtures::{at, host_with_schedules, launch, lease_until};

on_both!(
    every_arrow_does_to_a_row_what_it_does_to_a_life,
    launches_that_end_together_end_as_arrows_say,
    a_launch_that_never_runs_is_reopened_as_often_as_its_life_says,
);

/// When launches are decided and claimed.
const BEGIN: u64 = 20;

/// The backfill of all launches.
const BACKFILL: BackfillId = BackfillId(Uuid::from_u128(0xD000));

/// Maximum number of arrows between a decision and the lives being tried.
const DEPTH: usize = 3;

/// A way to begin a life.
#[derive(Debug, Clone, Copy)]
struct Beginning {
    decision: Decision,
    fence: Option<i64>,
}

const BEGINNINGS: [Beginning; 4] = [
    Beginning {
        decision: Decision::Launched,
        fence: None,
    },
    Beginning {
        decision: Decision::Launched,
        fence: Some(1),
    },
    Beginning {
        decision: Decision::Queued,
        fence: None,
    },
    Beginning {
        decision: Decision::Skipped,
        fence: None,
    },
];

/// How a life came about.
#[derive(Debug, Clone)]
struct Path {
    beginning: Beginning,
    arrows: Vec<Arrow>,
}

/// Returns the arrows to try from a life, possible or not, among them claims and ends under a wrong fence.
fn arrows(life: Life) -> Vec<Arrow> {
    let mut all = vec![
        Arrow::Release,
        Arrow::AskToEnd,
        Arrow::Reopen { took_long: false },
        Arrow::Reopen { took_long: true },
        Arrow::GiveUp(LaunchStatus::Abandoned),
        Arrow::GiveUp(LaunchStatus::Unknown),
        Arrow::GiveUp(LaunchStatus::Cancelled),
        Arrow::EndEarly(QUEUED),
        Arrow::EndEarly(IDLE),
        Arrow::EndEarly(ACTIVE),
        Arrow::EndEarly(NOT_RUNNING),
        Arrow::Withdraw,
    ];
    for fence in [life.attempts, life.attempts + 1] {
        all.push(Arrow::Claim { fence });
        for begins_run in [true, false] {
            all.push(Arrow::HandBack { fence, begins_run });
        }
        for status in [
            LaunchStatus::Succeeded,
            LaunchStatus::Failed,
            LaunchStatus::Cancelled,
            LaunchStatus::Waiting,
        ] {
            all.push(Arrow::Finish { fence, status });
        }
    }
    all
}

/// Returns the statuses that a launch can have later, and its present one.
pub fn statuses_from(life: Life) -> HashSet<LaunchStatus> {
    let mut found = HashSet::from([life]);
    let mut left = VecDeque::from([life]);
    while let Some(life) = left.pop_front() {
        for next in arrows(life)
            .into_iter()
            .filter_map(|arrow| life.after(arrow))
        {
            // Further claims and recoveries lead nowhere else.
            if next.attempts <= 3 && next.recoveries <= 2 && found.insert(next) {
                left.push_back(next);
            }
        }
    }
    found.into_iter().map(|life| life.status).collect()
}

/// Returns each life within [`DEPTH`] with the shortest path to it.
fn lives() -> HashMap<Life, Path> {
    let mut found: HashMap<Life, Path> = HashMap::new();
    let mut left = VecDeque::new();
    for beginning in BEGINNINGS {
        let path = Path {
            beginning,
            arrows: Vec::new(),
        };
        left.push_back((Life::decided(beginning.decision, beginning.fence), path));
    }
    while let Some((life, path)) = left.pop_front() {
        if found.contains_key(&life) {
            continue;
        }
        if path.arrows.len() < DEPTH {
            for arrow in arrows(life) {
                if let Some(next) = life.after(arrow) {
                    let arrows = path.arrows.iter().copied().chain([arrow]).collect();
                    left.push_back((
                        next,
                        Path {
                            arrows,
                            ..path.clone()
                        },
                    ));
                }
            }
        }
        found.insert(life, path);
    }
    found
}

async fn every_arrow_does_to_a_row_what_it_does_to_a_life(test: TestDb) {
    let host = host_with_schedules(&test, 1).await;
    let lives = lives();
    let statuses: HashSet<_> = lives.keys().map(|life| life.status).collect();
    assert_eq!(
        statuses.len(),
        10,
        "a status is never reached: {statuses:?}"
    );
    for (life, path) in &lives {
        for arrow in arrows(*life) {
            // Dropped, so that the next case begins without a launch.
            let mut tx = test.write().await;
            let mut row = Row::begin(&mut tx, host, path.beginning).await;
            for arrow in &path.arrows {
                row.follow(&mut tx, *arrow).await;
            }
            let case = format!("{arrow:?} after {path:?}");
            assert_eq!(row.life(&mut tx).await, *life, "before {case}");
            row.follow(&mut tx, arrow).await;
            let mut expected = life.after(arrow);
            if matches!(arrow, Arrow::EndEarly(from) if from == IDLE) {
                // A displacement asks those that run to end.
                expected = expected.or(life.after(Arrow::AskToEnd));
            }
            assert_eq!(row.life(&mut tx).await, expected.unwrap_or(*life), "{case}");
        }
    }
}

/// Two statements end launches all at once after a restore, and one those of a backfill.
async fn launches_that_end_together_end_as_arrows_say(test: TestDb) {
    let host = host_with_schedules(&test, 1).await;
    let now = at(BEGIN + 1);
    for (life, path) in lives() {
        for is_cancelled in [false, true] {
            let mut tx = test.write().await;
            let mut row = Row::begin(&mut tx, host, path.beginning).await;
            for arrow in &path.arrows {
                row.follow(&mut tx, *arrow).await;
            }
            let ended = if is_cancelled {
                launch::withdraw_backfill(&mut tx, BACKFILL, now)
                    .await
                    .unwrap();
                life.after(Arrow::Withdraw)
            } else {
                launch::abandon_all(&mut tx, "restored", "restored", now)
                    .await
                    .unwrap();
                launch::skip_all_queued(&mut tx, "restored", now)
                    .await
                    .unwrap();
                let abandoned = life.after(Arrow::GiveUp(LaunchStatus::Abandoned));
                abandoned.or(life.after(Arrow::EndEarly(QUEUED)))
            };
            let after = row.life(&mut tx).await;
            assert_eq!(
                after,
                ended.unwrap_or(life),
                "{is_cancelled} after {path:?}"
            );
        }
    }
}

/// Far more often than the lives above.
async fn a_launch_that_never_runs_is_reopened_as_often_as_its_life_says(test: TestDb) {
    let host = host_with_schedules(&test, 1).await;
    let mut tx = test.write().await;
    let mut row = Row::begin(&mut tx, host, BEGINNINGS[0]).await;
    let mut life = row.life(&mut tx).await;
    for round in 0..105 {
        let arrow = Arrow::Reopen { took_long: false };
        row.follow(&mut tx, arrow).await;
        life = life.after(arrow).unwrap();
        assert_eq!(row.life(&mut tx).await, life, "{round}");
    }
    assert_eq!(life.recoveries, 100);
}

/// A launch in the database.
struct Row {
    launch: NewLaunch,
    host: HostId,
}

impl Row {
    async fn begin(tx: &mut Tx, host: HostId, beginning: Beginning) -> Row {
        let launch = NewLaunch {
            decision: beginning.decision,
            reason: (beginning.decision == Decision::Skipped).then_some("overlap"),
            kind: LaunchKind::Backfill,
            backfill_id: Some(BACKFILL),
            ..launch(1, BEGIN)
        };
        let claim = beginning.fence.map(|fence| NewClaim {
            host,
            fence,
            at: at(BEGIN),
            lease_until: lease_until(at(BEGIN)),
            hashes: RunHashes::default(),
        });
        launch::insert_claimed(tx, &[(&launch, claim)])
            .await
            .unwrap();
        Row { launch, host }
    }

    async fn life(&self, tx: &mut Tx) -> Life {
        let state = launch::state(tx, self.launch.id).await.unwrap();
        state.unwrap().life
    }

    /// Runs the statement of an arrow.
    async fn follow(&mut self, tx: &mut Tx, arrow: Arrow) {
        let (id, host, now) = (self.launch.id, self.host, at(BEGIN + 1));
        let displaced = Displaced { launch: id, by: id };
        match arrow {
            Arrow::Release => launch::release(tx, host, &[id], now).await.unwrap(),
            Arrow::Claim { fence } => {
                let claim = Claim {
                    launch_id: id,
                    fence,
                    hashes: RunHashes::default(),
                };
                launch::claim(tx, host, &[claim], at(BEGIN), lease_until(now))
                    .await
                    .unwrap();
            }
            Arrow::Finish { fence, status } => {
                let life = self.life(tx).await;
                let finish = Finish {
                    run_id: RunId::of(id, life.recoveries + 1),
                    fence,
                    schedule_id: self.launch.schedule_id,
                    scheduled_time: self.launch.scheduled_time,
                    at: now,
                    end: end(status, now),
                    tasks: Vec::new(),
                };
                launch::finish(tx, &[finish]).await.unwrap();
            }
            Arrow::HandBack { fence, begins_run } => {
                let claim = UncalledClaim {
                    launch_id: id,
                    fence,
                    begins_run,
                    lease_until: None,
                    not_before: None,
                };
                launch::hand_back(tx, host, &[claim], now).await.unwrap();
            }
            Arrow::AskToEnd => {
                launch::ask_to_end(tx, id, now, "by a person")
                    .await
                    .unwrap();
            }
            Arrow::Reopen { took_long } => {
                let now = if took_long {
                    at(BEGIN).plus(LOSS_COUNTS_WITHIN)
                } else {
                    now
                };
                self.recover(tx, RecoveryAction::RunAgain, now).await;
            }
            Arrow::GiveUp(status) => {
                let action = match status {
                    LaunchStatus::Unknown => RecoveryAction::MarkUnknown,
                    LaunchStatus::Cancelled => RecoveryAction::Cancel,
                    _ => RecoveryAction::Abandon("recovery_age"),
                };
                self.recover(tx, action, now).await;
            }
            Arrow::EndEarly(from) if from == QUEUED => {
                launch::skip(tx, &[displaced], now).await.unwrap();
            }
            Arrow::EndEarly(from) if from == IDLE => {
                launch::cancel(tx, &[(displaced, now)], now).await.unwrap();
            }
            Arrow::EndEarly(from) if from == ACTIVE => {
                launch::terminate(tx, &[displaced], now).await.unwrap();
            }
            Arrow::EndEarly(_) => {
                launch::end(tx, id, "by a person", now).await.unwrap();
            }
            Arrow::Withdraw => {
                launch::withdraw(tx, self.launch.schedule_id, "schedule_deleted", now)
                    .await
                    .unwrap();
            }
        }
    }

    async fn recover(&self, tx: &mut Tx, action: RecoveryAction, now: Timestamp) {
        let decision = RecoveryDecision {
            launch_id: self.launch.id,
            action,
            not_before: None,
        };
        launch::recover(tx, self.host, &[decision], "lost", now)
            .await
            .unwrap();
    }
}

/// Returns an end of a run with this status.
fn end(status: LaunchStatus, now: Timestamp) -> RunEnd {
    let message = "over".to_owned();
    match status {
        LaunchStatus::Succeeded => RunEnd::Succeeded { output: None },
        LaunchStatus::Failed => RunEnd::Failed {
            kind: FailureKind::Failed,
            message,
        },
        LaunchStatus::Cancelled => RunEnd::Cancelled { message },
        _ => RunEnd::Waiting { retry_at: now },
    }
}
