use rand::Rng as _;
use uuid::Uuid;

use super::super::SlotAction;
use super::super::testing::{at, evaluator, policies, progress_at};
use super::*;
use crate::rule::testing::{cron, seeded};

/// Read launches such as `1:running 2~queued`: number, `:` for on time or `~` for deferred, stage.
fn active(text: &str) -> Vec<Active> {
    text.split_whitespace()
        .filter(|text| *text != "-")
        .map(|text| {
            let (number, class, stage) = match (text.split_once(':'), text.split_once('~')) {
                (Some((number, stage)), _) => (number, LaunchClass::OnTime, stage),
                (_, Some((number, stage))) => (number, LaunchClass::Deferred, stage),
                _ => panic!("{text}"),
            };
            Active {
                launch: id(number.parse().unwrap()),
                class,
                stage: stage.parse().unwrap(),
                alone: false,
            }
        })
        .collect()
}

fn id(number: u128) -> LaunchId {
    LaunchId(Uuid::from_u128(number))
}

fn ids(displaced: &[Displaced]) -> Vec<LaunchId> {
    displaced.iter().map(|other| other.launch).collect()
}

fn numbers(ids: &[LaunchId]) -> String {
    let numbers: Vec<String> = ids.iter().map(|id| id.0.as_u128().to_string()).collect();
    numbers.join(",")
}

/// Print a decision; `cancel 1 2` cancels the started launch 1 and skips the queued launch 2.
fn text((decision, displaced): &(OverlapDecision, Displacements)) -> String {
    let Displacements {
        skipped,
        cancelled,
        terminated,
    } = displaced;
    let word = match decision {
        OverlapDecision::Skip(overlaps) => return format!("skip {}", overlaps.0.as_u128()),
        OverlapDecision::Start if terminated.is_empty() => "launch",
        OverlapDecision::Start => "terminate",
        OverlapDecision::Queue if !cancelled.is_empty() => "cancel",
        OverlapDecision::Queue if skipped.is_empty() => "queue",
        OverlapDecision::Queue => "replace",
    };
    let launches = [terminated, cancelled, skipped].map(|all| numbers(&ids(all)));
    let launches: Vec<String> = launches.into_iter().filter(|ids| !ids.is_empty()).collect();
    format!("{word} {}", launches.join(" "))
        .trim_end()
        .to_owned()
}

const BUFFER_LATEST: &str = r#"{"overlap":"buffer_one","keep":"latest"}"#;

#[test]
fn every_policy_in_every_state_for_every_class() {
    // The columns after the class: the launches that are not over when the new launch fires.
    let states = [
        "-",
        "1:running",
        "1:running 2:queued",
        "1:running 2~queued",
        "1~queued",
    ];
    let table = r#"
{"overlap":"skip"}                           | on_time  | launch | skip 1      | skip 1        | skip 1      | launch
{"overlap":"buffer_one"}                     | on_time  | launch | queue       | skip 1        | queue       | launch
{"overlap":"buffer_one","keep":"latest"}     | on_time  | launch | queue       | replace 2     | queue       | launch
{"overlap":"buffer_all"}                     | on_time  | launch | queue       | queue         | queue       | launch
{"overlap":"buffer_all","max_buffered":1}    | on_time  | launch | queue       | skip 1        | queue       | launch
{"overlap":"cancel_other"}                   | on_time  | launch | cancel 1    | cancel 1 2    | cancel 1    | launch
{"overlap":"terminate_other"}                | on_time  | launch | terminate 1 | terminate 1 2 | terminate 1 | launch
{"overlap":"allow"}                          | on_time  | launch | launch      | launch        | launch      | launch
{"overlap":"allow","max_concurrent":2}       | on_time  | launch | launch      | skip 1        | launch      | launch
{"overlap":"allow","max_concurrent":1}       | on_time  | launch | skip 1      | skip 1        | skip 1      | launch
{"overlap":"skip"}                           | deferred | launch | queue       | queue         | queue       | queue
{"overlap":"buffer_one"}                     | deferred | launch | queue       | queue         | queue       | queue
{"overlap":"buffer_one","keep":"latest"}     | deferred | launch | queue       | queue         | queue       | queue
{"overlap":"buffer_all"}                     | deferred | launch | queue       | queue         | queue       | queue
{"overlap":"buffer_all","max_buffered":1}    | deferred | launch | queue       | queue         | queue       | queue
{"overlap":"cancel_other"}                   | deferred | launch | queue       | queue         | queue       | queue
{"overlap":"terminate_other"}                | deferred | launch | queue       | queue         | queue       | queue
{"overlap":"allow"}                          | deferred | launch | launch      | launch        | launch      | launch
{"overlap":"allow","max_concurrent":2}       | deferred | launch | launch      | queue         | queue       | launch
{"overlap":"allow","max_concurrent":1}       | deferred | launch | queue       | queue         | queue       | queue
"#;
    for line in table.trim().lines() {
        let parts: Vec<&str> = line.split(" | ").map(str::trim).collect();
        let [json, class, answers @ ..] = &parts[..] else {
            panic!("{line}");
        };
        assert_eq!(answers.len(), states.len(), "{line}");
        for (state, answer) in states.iter().zip(answers) {
            let admission = admission(
                &policies(json),
                &active(state),
                id(99),
                class.parse().unwrap(),
            );
            assert_eq!(text(&admission), *answer, "{json} {class} beside {state}");
        }
    }
}

#[test]
fn the_kind_of_a_launch_is_its_class() {
    let classes: Vec<LaunchClass> = LaunchKind::ALL.iter().map(|&kind| kind.into()).collect();
    let (on_time, deferred) = (LaunchClass::OnTime, LaunchClass::Deferred);
    // Schedule, catchup, manual, backfill, startup.
    assert_eq!(classes, [on_time, deferred, on_time, deferred, on_time]);
}

#[test]
fn every_started_launch_blocks_whatever_its_kind() {
    for stage in ["open", "running", "retrying", "recovering", "cancelling"] {
        for kind in [':', '~'] {
            let others = active(&format!("1{kind}{stage}"));
            for (json, answer) in [
                (r#"{"overlap":"skip"}"#, "skip 1"),
                (r#"{"overlap":"buffer_one"}"#, "queue"),
                (r#"{"overlap":"buffer_all"}"#, "queue"),
                (r#"{"overlap":"terminate_other"}"#, "terminate 1"),
                (r#"{"overlap":"allow","max_concurrent":1}"#, "skip 1"),
            ] {
                let admission = admission(&policies(json), &others, id(99), LaunchClass::OnTime);
                assert_eq!(text(&admission), answer, "{json} beside {kind} {stage}");
            }
            // A launch gets one request to end.
            let answer = if stage == "cancelling" {
                "queue"
            } else {
                "cancel 1"
            };
            let cancel_other = policies(r#"{"overlap":"cancel_other"}"#);
            assert_eq!(
                text(&admission(
                    &cancel_other,
                    &others,
                    id(99),
                    LaunchClass::OnTime
                )),
                answer
            );
        }
    }
}

#[test]
fn an_early_launch_blocks_nothing() {
    for (other, answer) in [
        ("1:early", "launch"),
        ("1:due", "launch"),
        ("1~early", "launch"),
        ("1:queued", "skip 1"),
    ] {
        let admission = admission(
            &Policies::default(),
            &active(other),
            id(99),
            LaunchClass::OnTime,
        );
        assert_eq!(text(&admission), answer, "{other}");
    }
}

#[test]
fn a_skipped_launch_names_the_started_launch_first() {
    let others = active("1~queued 2:queued 3~running");
    let admission = admission(
        &policies(r#"{"overlap":"buffer_one"}"#),
        &others,
        id(99),
        LaunchClass::OnTime,
    );
    assert_eq!(text(&admission), "skip 3");
}

#[test]
fn queued_launches_start_in_order() {
    for (json, state, released) in [
        ("{}", "-", ""),
        ("{}", "1:running 2~queued", ""),
        ("{}", "1~queued 2:queued", "1"),
        ("{}", "1~early 2~queued 3~queued", "2"),
        ("{}", "1~cancelling 2:queued", ""),
        (BUFFER_LATEST, "1~queued 2:queued", "1"),
        (
            r#"{"overlap":"buffer_all"}"#,
            "1:queued 2:queued 3:queued",
            "1",
        ),
        (r#"{"overlap":"terminate_other"}"#, "1~queued 2~queued", "1"),
        (
            r#"{"overlap":"cancel_other"}"#,
            "1~queued 2~queued 3:queued",
            "3",
        ),
        (r#"{"overlap":"cancel_other"}"#, "1~queued 2~queued", "1"),
        (
            r#"{"overlap":"allow","max_concurrent":3}"#,
            "1:running 2~queued 3~queued 4~queued",
            "2,3",
        ),
        (
            r#"{"overlap":"allow","max_concurrent":1}"#,
            "1:running 2:running 3~queued",
            "",
        ),
        // The current policy applies, not the one under which they were queued.
        (
            r#"{"overlap":"allow"}"#,
            "1:running 2:queued 3~queued",
            "2,3",
        ),
    ] {
        let ids = release(&policies(json), active(state)).open;
        assert_eq!(numbers(&ids), released, "{json} {state}");
    }
}

#[test]
fn a_launch_that_runs_alone_waits_for_all_others_and_blocks_none() {
    let allow = policies(r#"{"overlap":"allow"}"#);
    for (state, released) in [
        ("1:queued", "1"),
        ("1:queued 2:queued", "1,2"),
        ("1:queued 2:running", ""),
        ("1:queued 2:running 3:queued", "3"),
    ] {
        let mut active = active(state);
        active[0].alone = true;
        assert_eq!(numbers(&release(&allow, active).open), released, "{state}");
    }
}

#[test]
fn a_due_launch_is_admitted_at_its_fire_time() {
    for (json, state, open, skipped, cancelled, terminated) in [
        ("{}", "1:due", "1", "", "", ""),
        ("{}", "1:running 2:due", "", "2", "", ""),
        ("{}", "1:due 2:due", "1", "2", "", ""),
        // A launch on time starts before a deferred launch.
        ("{}", "1~queued 2:due", "2", "", "", ""),
        (
            r#"{"overlap":"buffer_one"}"#,
            "1:running 2:due 3:due",
            "",
            "3",
            "",
            "",
        ),
        (
            r#"{"overlap":"buffer_all","max_buffered":1}"#,
            "1:running 2:due 3:due",
            "",
            "3",
            "",
            "",
        ),
        (
            r#"{"overlap":"cancel_other"}"#,
            "1:running 2:due",
            "",
            "",
            "1",
            "",
        ),
        (
            r#"{"overlap":"terminate_other"}"#,
            "1:running 2:due",
            "2",
            "",
            "",
            "1",
        ),
        (r#"{"overlap":"allow"}"#, "1:running 2:due", "2", "", "", ""),
        // The later of two due launches displaces the earlier, which no host has claimed.
        (
            r#"{"overlap":"cancel_other"}"#,
            "1:due 2:due",
            "2",
            "1",
            "",
            "",
        ),
        (
            r#"{"overlap":"terminate_other"}"#,
            "1:due 2:due",
            "2",
            "1",
            "",
            "",
        ),
    ] {
        let released = release(&policies(json), active(state));
        let launches = |displaced: &[Displaced]| -> Vec<LaunchId> {
            displaced.iter().map(|displaced| displaced.launch).collect()
        };
        let displacements = &released.displacements;
        assert_eq!(numbers(&released.open), open, "{json} {state}");
        assert_eq!(
            numbers(&launches(&displacements.skipped)),
            skipped,
            "{json} {state}"
        );
        assert_eq!(
            numbers(&launches(&displacements.cancelled)),
            cancelled,
            "{json} {state}"
        );
        assert_eq!(
            numbers(&launches(&displacements.terminated)),
            terminated,
            "{json} {state}"
        );
    }
}

/// Returns how many launches are active, and how many launches on time are queued, at most.
fn limits(policies: &Policies) -> (usize, usize) {
    let waiting = match policies.overlap {
        Overlap::Skip | Overlap::Allow | Overlap::TerminateOther => 0,
        Overlap::BufferOne | Overlap::CancelOther => 1,
        Overlap::BufferAll => policies.max_buffered() as usize,
    };
    (policies.at_once_max(), waiting)
}

#[test]
fn random_launches_keep_the_limits_and_all_start() {
    let mut random = seeded("overlap");
    for json in [
        "{}",
        r#"{"overlap":"buffer_one"}"#,
        BUFFER_LATEST,
        r#"{"overlap":"buffer_all","max_buffered":3}"#,
        r#"{"overlap":"cancel_other"}"#,
        r#"{"overlap":"terminate_other"}"#,
        r#"{"overlap":"allow"}"#,
        r#"{"overlap":"allow","max_concurrent":3}"#,
    ] {
        let policies = policies(json);
        let (at_once_max, waiting_max) = limits(&policies);
        let mut active: Vec<Active> = Vec::new();
        for number in 0..2_000 {
            let ends = active.iter().position(|launch| launch.is_started());
            if let (Some(ends), true) = (ends, random.random_bool(0.45)) {
                active.remove(ends);
            } else {
                let class = LaunchClass::ALL[random.random_range(0..LaunchClass::ALL.len())];
                apply(&policies, &mut active, id(number), class);
            }
            for released in release(&policies, active.clone()).open {
                let launch = active.iter_mut().find(|launch| launch.launch == released);
                launch.unwrap().stage = Stage::Running;
            }
            let started = active.iter().filter(|launch| launch.is_started()).count();
            let waiting = active
                .iter()
                .filter(|launch| launch.is_queued_on_time())
                .count();
            assert!(started <= at_once_max, "{json}: {active:?}");
            assert!(waiting <= waiting_max, "{json}: {active:?}");
            assert!(started > 0 || active.is_empty(), "{json}: {active:?}");
        }
    }
}

#[test]
fn an_outage_under_every_policy() {
    let rule = cron("*/5 * * * *", "UTC").unwrap();
    // Launches 1 and 2 are the slots 04:55 and 05:00, on time; 3 and 4 are 04:45 and 04:50, caught up.
    for (overlap, answers) in [
        (r#""skip""#, ["launch", "skip 1", "queue", "queue"]),
        (r#""buffer_one""#, ["launch", "queue", "queue", "queue"]),
        (
            r#""buffer_one","keep":"latest""#,
            ["launch", "queue", "queue", "queue"],
        ),
        (r#""buffer_all""#, ["launch", "queue", "queue", "queue"]),
        (
            r#""cancel_other""#,
            ["launch", "cancel 1", "queue", "queue"],
        ),
        (
            r#""terminate_other""#,
            ["launch", "terminate 1", "queue", "queue"],
        ),
        (r#""allow""#, ["launch", "launch", "launch", "launch"]),
    ] {
        let json = format!(r#"{{"catchup":"all","catchup_window":"15m","overlap":{overlap}}}"#);
        let policies = policies(&json);
        let decided =
            evaluator(&rule, &policies).evaluate(&progress_at(at("01:55")), at("05:00"), 100);
        let classes = decided
            .decisions
            .iter()
            .filter_map(|decision| match decision.action {
                SlotAction::Launch { .. } => Some(LaunchClass::OnTime),
                SlotAction::CatchUp { .. } => Some(LaunchClass::Deferred),
                SlotAction::Drop(_) => None,
            });
        let mut classes: Vec<LaunchClass> = classes.collect();
        classes.sort_by_key(|class| *class == LaunchClass::Deferred);
        let mut active = Vec::new();
        let texts: Vec<String> = (1..)
            .zip(classes)
            .map(|(number, class)| apply(&policies, &mut active, id(number), class))
            .collect();
        assert_eq!(texts, answers, "{json}");
    }
}

/// Apply the decision about a new launch to `active`, and return its text.
fn apply(
    policies: &Policies,
    active: &mut Vec<Active>,
    launch: LaunchId,
    class: LaunchClass,
) -> String {
    let admission = admission(policies, active, launch, class);
    let (decision, displaced) = &admission;
    let stage = match decision {
        OverlapDecision::Skip(_) => return text(&admission),
        OverlapDecision::Start => Stage::Running,
        OverlapDecision::Queue => Stage::Queued,
    };
    let over = [ids(&displaced.skipped), ids(&displaced.terminated)].concat();
    let cancelled = ids(&displaced.cancelled);
    active.retain(|other| !over.contains(&other.launch));
    for other in active.iter_mut() {
        if cancelled.contains(&other.launch) {
            other.stage = Stage::Cancelling;
        }
    }
    active.push(Active {
        launch,
        class,
        stage,
        alone: false,
    });
    text(&admission)
}
