//! The number of statements of a transaction does not depend on how many schedules, runs or keys it handles.
//!
//! On Postgres, where the driver runs a statement on the thread of its caller. SQLite runs the same code.

use campanile_engine::buckets::{RunBuckets, Turns};
use campanile_model::clock::Clock;
use campanile_sandbox::Buckets as _;
use campanile_schedule::policy::{Overlap, Policies};
use campanile_schedule::rule::{RuleKind, RuleText};
use campanile_store::Origin;
use campanile_store::probe::StatementCounter;
use campanile_store::runs::RunEnd;
use campanile_store::schedules::{self, Revision};
use campanile_tests::{Backend, fresh_db, run_case};

use crate::fixtures::{at, revision};
use crate::sim::host::{self, finish};

#[test]
fn many_schedules_need_as_many_statements_as_one() {
    run_case(Backend::Postgres, async |_| {
        let one = count(1).await;
        let four = count(4).await;
        assert!(one.iter().all(|(_, statements)| *statements > 0), "{one:?}");
        assert_eq!(one, four);
    });
}

/// Count the statements of each transaction of a host with so many schedules, whose launches overlap.
async fn count(schedules: u128) -> Vec<(&'static str, usize)> {
    let test = fresh_db(Backend::Postgres).await;
    let clock = Clock::simulated(at(0));
    let host = host::start(&test, &clock, &host::sandbox(&clock), "tower").await;
    let policies = Policies {
        overlap: Overlap::CancelOther,
        ..Policies::default()
    };
    let mut tx = test.write().await;
    for number in 1..=schedules {
        let definition = Revision {
            rule: RuleText {
                anchor: Some(at(0)),
                ..RuleText::new(RuleKind::Every, "20s", "UTC")
            },
            policies: serde_json::to_string(&policies).unwrap(),
            ..revision(number)
        };
        schedules::insert(&mut tx, &definition, Origin::Operator, Some(at(20)))
            .await
            .unwrap();
    }
    tx.commit().await.unwrap();

    let engine = &host.engine;
    let runs = schedules as usize;
    let counter = StatementCounter::start();
    let mut counts = Vec::new();
    clock.advance_to(at(20));
    assert_eq!(engine.intend(at(20)).await.unwrap().decisions, runs);
    counts.push(("decide", counter.take()));
    let first = engine.take(at(20)).await.unwrap();
    assert_eq!(first.len(), runs);
    counts.push(("claim", counter.take()));
    let _stops: Vec<_> = first.iter().map(|work| engine.hold(work)).collect();
    clock.advance_to(at(40));
    engine.renew(at(40)).await.unwrap();
    counts.push(("renew", counter.take()));

    assert_eq!(engine.intend(at(40)).await.unwrap().decisions, runs);
    counts.push(("displace", counter.take()));
    let cancelled = || RunEnd::Cancelled {
        message: "asked".to_owned(),
    };
    let ends: Vec<_> = first
        .iter()
        .map(|work| finish(work, cancelled(), at(41)))
        .collect();
    assert_eq!(engine.finish(&ends).await.unwrap(), runs);
    counts.push(("finish", counter.take()));
    assert_eq!(engine.release(at(41)).await.unwrap(), runs);
    counts.push(("release", counter.take()));

    let second = engine.take(at(41)).await.unwrap();
    assert_eq!(second.len(), runs);
    counter.take();
    let buckets = RunBuckets {
        db: test.db.clone(),
        run: second[0].run_id,
        fence: second[0].fence,
        turns: Turns::default(),
    };
    let keys: Vec<String> = (0..schedules).map(|key| key.to_string()).collect();
    let set = keys.iter().map(|key| (key.clone(), Some(Vec::new())));
    let set: Vec<_> = set.collect();
    buckets.write("p/default", &set, 1 << 20).await.unwrap();
    counts.push(("set keys", counter.take()));
    buckets.get("p/default", &keys).await.unwrap();
    counts.push(("get keys", counter.take()));
    let waiting: Vec<_> = second
        .iter()
        .map(|work| finish(work, RunEnd::Waiting { retry_at: at(42) }, at(42)))
        .collect();
    assert_eq!(engine.finish(&waiting).await.unwrap(), runs);
    counter.take();
    assert_eq!(engine.take(at(43)).await.unwrap().len(), runs);
    counts.push(("claim retries", counter.take()));
    clock.advance_to(at(90));
    assert_eq!(engine.recover(at(90)).await.unwrap().again, runs);
    counts.push(("recover", counter.take()));
    counts
}
