use rand::Rng as _;
use uuid::Uuid;

use super::super::Verdict;
use super::super::testing::{at, policies, standing, terms};
use super::*;
use crate::rule::testing::{cron, seeded};

/// Launches as in `1:running 2~queued`: number, `:` for a prompt and `~` for a patient one, stage.
fn active(text: &str) -> Vec<Active> {
    text.split_whitespace()
        .filter(|text| *text != "-")
        .map(|text| {
            let (number, claim, stage) = match (text.split_once(':'), text.split_once('~')) {
                (Some((number, stage)), _) => (number, Claim::Prompt, stage),
                (_, Some((number, stage))) => (number, Claim::Patient, stage),
                _ => panic!("{text}"),
            };
            Active {
                launch: id(number.parse().unwrap()),
                claim,
                stage: stage.parse().unwrap(),
                alone: false,
            }
        })
        .collect()
}

fn id(number: u128) -> LaunchId {
    LaunchId(Uuid::from_u128(number))
}

fn numbers(ids: &[LaunchId]) -> String {
    let numbers: Vec<String> = ids.iter().map(|id| id.0.as_u128().to_string()).collect();
    numbers.join(",")
}

/// `cancel 1 2` where 1 goes on and 2 waits.
fn shown(admission: &Admission) -> String {
    let text = match admission {
        Admission::Launch => "launch".to_owned(),
        Admission::Queue => "queue".to_owned(),
        Admission::Replace { waiting } => format!("replace {}", numbers(waiting)),
        Admission::Cancel { running, waiting } => {
            format!("cancel {} {}", numbers(running), numbers(waiting))
        }
        Admission::Terminate { running, waiting } => {
            format!("terminate {} {}", numbers(running), numbers(waiting))
        }
        Admission::Skip { overlaps } => format!("skip {}", overlaps.0.as_u128()),
    };
    text.trim_end().to_owned()
}

const BUFFER_LATEST: &str = r#"{"overlap":"buffer_one","keep":"latest"}"#;

#[test]
fn every_policy_in_every_state_for_every_claim() {
    // The columns after the claim are what is not over when the launch comes.
    let states = [
        "-",
        "1:running",
        "1:running 2:queued",
        "1:running 2~queued",
        "1~queued",
    ];
    let table = r#"
{"overlap":"skip"}                           | prompt  | launch | skip 1      | skip 1        | skip 1      | launch
{"overlap":"buffer_one"}                     | prompt  | launch | queue       | skip 1        | queue       | launch
{"overlap":"buffer_one","keep":"latest"}     | prompt  | launch | queue       | replace 2     | queue       | launch
{"overlap":"buffer_all"}                     | prompt  | launch | queue       | queue         | queue       | launch
{"overlap":"buffer_all","max_buffered":1}    | prompt  | launch | queue       | skip 1        | queue       | launch
{"overlap":"cancel_other"}                   | prompt  | launch | cancel 1    | cancel 1 2    | cancel 1    | launch
{"overlap":"terminate_other"}                | prompt  | launch | terminate 1 | terminate 1 2 | terminate 1 | launch
{"overlap":"allow"}                          | prompt  | launch | launch      | launch        | launch      | launch
{"overlap":"allow","max_concurrent":2}       | prompt  | launch | launch      | skip 1        | launch      | launch
{"overlap":"allow","max_concurrent":1}       | prompt  | launch | skip 1      | skip 1        | skip 1      | launch
{"overlap":"skip"}                           | patient | launch | queue       | queue         | queue       | queue
{"overlap":"buffer_one"}                     | patient | launch | queue       | queue         | queue       | queue
{"overlap":"buffer_one","keep":"latest"}     | patient | launch | queue       | queue         | queue       | queue
{"overlap":"buffer_all"}                     | patient | launch | queue       | queue         | queue       | queue
{"overlap":"buffer_all","max_buffered":1}    | patient | launch | queue       | queue         | queue       | queue
{"overlap":"cancel_other"}                   | patient | launch | queue       | queue         | queue       | queue
{"overlap":"terminate_other"}                | patient | launch | queue       | queue         | queue       | queue
{"overlap":"allow"}                          | patient | launch | launch      | launch        | launch      | launch
{"overlap":"allow","max_concurrent":2}       | patient | launch | launch      | queue         | queue       | launch
{"overlap":"allow","max_concurrent":1}       | patient | launch | queue       | queue         | queue       | queue
"#;
    for line in table.trim().lines() {
        let parts: Vec<&str> = line.split(" | ").map(str::trim).collect();
        let [json, claim, answers @ ..] = &parts[..] else {
            panic!("{line}");
        };
        assert_eq!(answers.len(), states.len(), "{line}");
        for (state, answer) in states.iter().zip(answers) {
            let admission = admit(&policies(json), &active(state), claim.parse().unwrap());
            assert_eq!(shown(&admission), *answer, "{json} {claim} beside {state}");
        }
    }
}

#[test]
fn who_asks_decides_whether_a_launch_can_wait() {
    let claims: Vec<Claim> = LaunchKind::ALL.iter().map(|&kind| kind.into()).collect();
    let (prompt, patient) = (Claim::Prompt, Claim::Patient);
    // Schedule, catchup, manual, backfill, startup.
    assert_eq!(claims, [prompt, patient, prompt, patient, prompt]);
}

#[test]
fn whatever_goes_on_is_in_the_way_whoever_asked_for_it() {
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
                let admission = admit(&policies(json), &others, Claim::Prompt);
                assert_eq!(shown(&admission), answer, "{json} beside {kind} {stage}");
            }
            // Asked once is enough.
            let answer = if stage == "cancelling" {
                "cancel"
            } else {
                "cancel 1"
            };
            let cancel_other = policies(r#"{"overlap":"cancel_other"}"#);
            assert_eq!(shown(&admit(&cancel_other, &others, Claim::Prompt)), answer);
        }
    }
}

#[test]
fn what_has_yet_to_fire_is_in_nobodys_way() {
    for (other, answer) in [
        ("1:early", "launch"),
        ("1:arriving", "launch"),
        ("1~early", "launch"),
        ("1:queued", "skip 1"),
    ] {
        let admission = admit(&Policies::default(), &active(other), Claim::Prompt);
        assert_eq!(shown(&admission), answer, "{other}");
    }
}

#[test]
fn the_one_skipped_is_told_what_runs_and_not_what_waits() {
    let others = active("1~queued 2:queued 3~running");
    let admission = admit(
        &policies(r#"{"overlap":"buffer_one"}"#),
        &others,
        Claim::Prompt,
    );
    assert_eq!(shown(&admission), "skip 3");
}

#[test]
fn those_that_wait_go_on_in_turn() {
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
        // The policy in force counts, not the one under which they were admitted.
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
fn one_that_is_to_be_alone_waits_for_all_others_and_holds_nobody_up() {
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
fn what_comes_to_its_fire_time_is_decided_about_then() {
    for (json, state, open, skipped, cancelled, terminated) in [
        ("{}", "1:arriving", "1", "", "", ""),
        ("{}", "1:running 2:arriving", "", "2", "", ""),
        ("{}", "1:arriving 2:arriving", "1", "2", "", ""),
        // It is for now; what was caught up can wait.
        ("{}", "1~queued 2:arriving", "2", "", "", ""),
        (
            r#"{"overlap":"buffer_one"}"#,
            "1:running 2:arriving 3:arriving",
            "",
            "3",
            "",
            "",
        ),
        (
            r#"{"overlap":"buffer_all","max_buffered":1}"#,
            "1:running 2:arriving 3:arriving",
            "",
            "3",
            "",
            "",
        ),
        (
            r#"{"overlap":"cancel_other"}"#,
            "1:running 2:arriving",
            "",
            "",
            "1",
            "",
        ),
        (
            r#"{"overlap":"terminate_other"}"#,
            "1:running 2:arriving",
            "2",
            "",
            "",
            "1",
        ),
        (
            r#"{"overlap":"allow"}"#,
            "1:running 2:arriving",
            "2",
            "",
            "",
            "",
        ),
        // Of two in one moment the later displaces the earlier, which is not begun.
        (
            r#"{"overlap":"cancel_other"}"#,
            "1:arriving 2:arriving",
            "2",
            "1",
            "",
            "",
        ),
        (
            r#"{"overlap":"terminate_other"}"#,
            "1:arriving 2:arriving",
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

/// How many go on, and how many prompt ones wait, at most.
fn limits(policies: &Policies) -> (usize, usize) {
    let waiting = match policies.overlap {
        Overlap::Skip | Overlap::Allow | Overlap::TerminateOther => 0,
        Overlap::BufferOne | Overlap::CancelOther => 1,
        Overlap::BufferAll => policies.max_buffered() as usize,
    };
    (policies.at_once_max(), waiting)
}

#[test]
fn whatever_comes_and_ends_the_limits_hold_and_nobody_is_forgotten() {
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
            let ends = active.iter().position(|launch| launch.goes_on());
            if let (Some(ends), true) = (ends, random.random_bool(0.45)) {
                active.remove(ends);
            } else {
                let claim = Claim::ALL[random.random_range(0..Claim::ALL.len())];
                come(&policies, &mut active, id(number), claim);
            }
            for released in release(&policies, active.clone()).open {
                let launch = active.iter_mut().find(|launch| launch.launch == released);
                launch.unwrap().stage = Stage::Running;
            }
            let going_on = active.iter().filter(|launch| launch.goes_on()).count();
            let waiting = active
                .iter()
                .filter(|launch| launch.waits_promptly())
                .count();
            assert!(going_on <= at_once_max, "{json}: {active:?}");
            assert!(waiting <= waiting_max, "{json}: {active:?}");
            assert!(going_on > 0 || active.is_empty(), "{json}: {active:?}");
        }
    }
}

#[test]
fn what_an_outage_comes_to_under_every_policy() {
    let rule = cron("*/5 * * * *", "UTC").unwrap();
    // 04:55 and 05:00 are in time, the launches 1 and 2; 04:45 and 04:50 are caught up after them, 3 and 4.
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
        let judgement = terms(&rule, &policies).judge(&standing(at("01:55")), at("05:00"), 100);
        let claims = judgement
            .decisions
            .iter()
            .filter_map(|decision| match decision.verdict {
                Verdict::Launch { .. } => Some(Claim::Prompt),
                Verdict::CatchUp { .. } => Some(Claim::Patient),
                Verdict::Drop(_) => None,
            });
        let mut claims: Vec<Claim> = claims.collect();
        claims.sort_by_key(|claim| *claim == Claim::Patient);
        let mut active = Vec::new();
        let told: Vec<String> = (1..)
            .zip(claims)
            .map(|(number, claim)| come(&policies, &mut active, id(number), claim))
            .collect();
        assert_eq!(told, answers, "{json}");
    }
}

/// Carry out what is decided about a new launch, and tell what that was.
fn come(policies: &Policies, active: &mut Vec<Active>, launch: LaunchId, claim: Claim) -> String {
    let mut stage = Stage::Queued;
    let admission = admit(policies, active, claim);
    let told = shown(&admission);
    match admission {
        Admission::Skip { .. } => return told,
        Admission::Queue => {}
        Admission::Launch => stage = Stage::Running,
        Admission::Replace { waiting } => {
            active.retain(|other| !waiting.contains(&other.launch));
        }
        Admission::Cancel { running, waiting } => {
            active.retain(|other| !waiting.contains(&other.launch));
            for other in active.iter_mut() {
                if running.contains(&other.launch) {
                    other.stage = Stage::Cancelling;
                }
            }
        }
        Admission::Terminate { running, waiting } => {
            let over = [running, waiting].concat();
            active.retain(|other| !over.contains(&other.launch));
            stage = Stage::Running;
        }
    }
    active.push(Active {
        launch,
        claim,
        stage,
        alone: false,
    });
    told
}
