//! The evaluator against a model that sees every slot at once, under random policies.

use std::time::Duration;

use rand::Rng as _;
use rand::rngs::StdRng;

use super::testing::{evaluated_in_parts, evaluator, policies, progress_at};
use super::{
    Catchup, DropReason, LastCatchup, Policies, SlotAction, SlotDecision, SlotDecisions,
    SlotEvaluator, SlotProgress,
};
use crate::rule::testing::{cron, every, seeded, time};
use campanile_model::clock::Timestamp;

/// Returns the decisions that the model makes.
fn modelled(
    evaluator: SlotEvaluator<'_>,
    progress: &SlotProgress,
    now: Timestamp,
) -> Vec<SlotDecision> {
    let policies = evaluator.policies;
    let grace = policies
        .misfire_grace
        .unwrap_or(evaluator.defaults.misfire_grace);
    let window = policies
        .catchup_window
        .unwrap_or(evaluator.defaults.catchup_window);
    let late_at = |instant: Timestamp, slot| instant.since(evaluator.fire_time(slot));
    let within = |slot: &Timestamp| {
        policies.start_at.is_none_or(|start| *slot >= start)
            && policies.end_at.is_none_or(|end| *slot <= end)
    };
    let slots = evaluator.rule.slots(progress.cursor, now).filter(within);
    let slots: Vec<Timestamp> = slots.collect();
    let candidates: Vec<Timestamp> = slots
        .iter()
        .copied()
        .filter(|slot| !progress.skips.contains(slot))
        .filter(|slot| late_at(now, *slot) > grace && late_at(now, *slot) <= window)
        .collect();
    let settled = |slot: &&Timestamp| {
        let before = progress.caught_up.map(|before| before.decided_at);
        before.is_some_and(|decided_at| late_at(decided_at, **slot) > grace)
    };
    let kept: Vec<Timestamp> = match policies.catchup() {
        Catchup::None => vec![],
        Catchup::Latest => candidates.last().copied().into_iter().collect(),
        Catchup::Earliest => candidates
            .iter()
            .find(|slot| !settled(slot))
            .copied()
            .into_iter()
            .collect(),
        Catchup::All => {
            let dropped = candidates
                .len()
                .saturating_sub(policies.catchup_max() as usize);
            candidates[dropped..].to_vec()
        }
    };
    let mut left = policies
        .launches_left(progress.launches)
        .unwrap_or(u64::MAX);
    let mut fires = progress
        .caught_up
        .map_or(now, |before| before.fire_time.max(now));
    let mut decisions = SlotDecisions {
        decisions: vec![],
        cursor: None,
        next: None,
    };
    for slot in slots {
        let lateness = late_at(now, slot);
        let fire_time = evaluator.fire_time(slot);
        if left == 0 {
            break;
        }
        let action = if progress.skips.contains(&slot) {
            SlotAction::Drop(DropReason::SkippedOnce)
        } else if lateness <= grace {
            SlotAction::Launch { fire_time }
        } else if policies.catchup() == Catchup::None {
            SlotAction::Drop(DropReason::CatchupNone)
        } else if lateness > window {
            SlotAction::Drop(DropReason::Window)
        } else if kept.contains(&slot) {
            fires = policies
                .catchup_spread
                .map_or(fires, |spread| fires.plus(spread));
            let fire_time = policies.catchup_spread.map_or(fire_time, |_| fires);
            SlotAction::CatchUp { fire_time }
        } else if policies.catchup() == Catchup::All {
            SlotAction::Drop(DropReason::CatchupMax)
        } else {
            SlotAction::Drop(DropReason::Coalesced)
        };
        left -= u64::from(!matches!(action, SlotAction::Drop(_)));
        decisions.push(SlotDecision {
            action,
            first: slot,
            last: slot,
            count: 1,
        });
    }
    decisions.decisions
}

const EXPRESSIONS: [&str; 6] = [
    "@every 7m",
    "@every 41s",
    "*/5 9-17 * * MON-FRI",
    "0 * * * *",
    "30 1,2 * * *",
    "@daily",
];

/// Returns an instant near a clock change in London.
fn any_now(random: &mut StdRng) -> Timestamp {
    Timestamp::from_micros(1_774_700_000_000_000 + random.random_range(0..99_999_999_999))
}

/// Returns `Some` half of the time.
fn maybe<T>(random: &mut StdRng, value: impl FnOnce(&mut StdRng) -> T) -> Option<T> {
    random.random_bool(0.5).then(|| value(random))
}

fn any_policies(random: &mut StdRng, now: Timestamp) -> Policies {
    let seconds =
        |most| move |random: &mut StdRng| Duration::from_secs(random.random_range(0..most));
    let before = |random: &mut StdRng| now.minus(seconds(200_000)(random));
    Policies {
        catchup: Some(Catchup::ALL[random.random_range(0..Catchup::ALL.len())]),
        catchup_window: maybe(random, seconds(150_000)),
        catchup_max: maybe(random, |random| random.random_range(1..40)),
        catchup_spread: maybe(random, seconds(1_000)),
        misfire_grace: maybe(random, seconds(3_000)),
        jitter: maybe(random, seconds(2_000)),
        start_at: maybe(random, before),
        end_at: maybe(random, |random| {
            before(random).plus(Duration::from_secs(50_000))
        }),
        max_launches: maybe(random, |random| random.random_range(1..60)),
        ..Policies::default()
    }
}

#[test]
fn the_evaluator_decides_as_the_model_in_one_call_or_many() {
    let mut random = seeded("slots");
    for _ in 0..4_000 {
        let expression = EXPRESSIONS[random.random_range(0..EXPRESSIONS.len())];
        let rule = cron(expression, "Europe/London").unwrap();
        let now = any_now(&mut random);
        let policies = any_policies(&mut random, now);
        let evaluator = evaluator(&rule, &policies);
        let mut progress =
            progress_at(now.minus(Duration::from_secs(random.random_range(0..200_000))));
        progress.launches = random.random_range(0..40);
        let before =
            |random: &mut StdRng| now.minus(Duration::from_secs(random.random_range(0..90_000)));
        progress.caught_up = maybe(&mut random, |random| LastCatchup {
            decided_at: before(random),
            fire_time: before(random).plus(Duration::from_secs(20_000)),
        });
        let slots: Vec<Timestamp> = rule.slots(progress.cursor, now).collect();
        let chance = random.random_range(0.0..0.3);
        progress.skips = slots
            .iter()
            .copied()
            .filter(|_| random.random_bool(chance))
            .collect();

        let expected = modelled(evaluator, &progress, now);
        let slots_max = random.random_range(1..=2 + slots.len() * 2);
        for slots_max in [usize::MAX, slots_max] {
            let decided = evaluated_in_parts(evaluator, &progress, now, slots_max);
            let case = format!("`{expression}` {now} {policies:?} {progress:?} {slots_max}");
            assert_eq!(decided.decisions, expected, "{case}");
            let last = expected.last().map(|decision| decision.last);
            assert_eq!(decided.cursor, last, "{case}");
            assert!(decided.next.is_none_or(|next| next > now), "{case}");
        }
    }
}

#[test]
fn a_host_on_time_launches_every_slot_under_every_catchup() {
    let rule = cron("*/5 9-17 * * MON-FRI", "Europe/London").unwrap();
    for mode in Catchup::ALL {
        let policies = policies(&format!(r#"{{"catchup":"{mode}","jitter":"5m"}}"#));
        let evaluator = evaluator(&rule, &policies);
        let mut progress = progress_at(time("2026-03-27T12:00:00Z"));
        while let Some(slot) = policies.next_slot(&rule, progress.cursor, 0)
            && slot < time("2026-04-01T00:00:00Z")
        {
            let decided = evaluator.evaluate(&progress, slot, 10);
            let fire_time = evaluator.fire_time(slot);
            assert_eq!(decided.decisions.len(), 1);
            assert_eq!(
                decided.decisions[0].action,
                SlotAction::Launch { fire_time }
            );
            assert!(slot <= fire_time && Some(fire_time) < rule.next(slot));
            progress.cursor = slot;
        }
    }
}

#[test]
fn a_million_missed_slots_are_few_decisions() {
    let rule = every("1s", "UTC").unwrap();
    let now = time("2026-01-13T00:00:00Z");
    let cursor = now.minus(Duration::from_secs(1_000_000));
    for (json, decisions) in [
        (r#"{"catchup":"none","misfire_grace":"10s"}"#, 1 + 11),
        (r#"{"catchup":"latest","misfire_grace":"10s"}"#, 2 + 1 + 11),
        (
            r#"{"catchup":"earliest","misfire_grace":"10s"}"#,
            2 + 1 + 11,
        ),
        (r#"{"catchup":"all","misfire_grace":"10s"}"#, 2 + 100 + 11),
    ] {
        let policies = policies(json);
        let evaluator = evaluator(&rule, &policies);
        let decided = evaluated_in_parts(evaluator, &progress_at(cursor), now, 10_000);
        assert_eq!(decided.decisions.len(), decisions, "{json}");
        let slots: u64 = decided
            .decisions
            .iter()
            .map(|decision| decision.count)
            .sum();
        assert_eq!(slots, 1_000_000);
    }
}

#[test]
fn slots_since_1970_are_decided_in_one_call() {
    let now = time("2026-01-13T00:00:00.5Z");
    let second = every("1s", "UTC").unwrap();
    let cron = cron("* * * * * *", "Europe/London").unwrap();
    let millions = now.micros() as u64 / 1_000_000;
    for rule in [&second, &cron] {
        for (json, decisions) in [
            (r#"{"catchup":"none"}"#, 1 + 300),
            (r#"{"catchup":"latest"}"#, 2 + 1 + 300),
            (r#"{"catchup":"all"}"#, 2 + 100 + 300),
            (r#"{"catchup":"all","catchup_window":"1h"}"#, 2 + 100 + 300),
            (r#"{"catchup":"earliest"}"#, 2 + 1 + 300),
            // With jitter, one more slot ends up within the grace period.
            (r#"{"catchup":"none","jitter":"10s"}"#, 1 + 301),
        ] {
            let policies = policies(json);
            let mut progress = progress_at(Timestamp::EPOCH);
            let skipped = time("2001-01-01T00:00:00Z");
            for skip in [false, true] {
                progress.skips.extend(skip.then_some(skipped));
                let decided = evaluator(rule, &policies).evaluate(&progress, now, 1_000);
                let expected = decisions + 2 * usize::from(skip);
                assert_eq!(decided.decisions.len(), expected, "{json}");
                let counts = decided.decisions.iter().map(|decision| decision.count);
                assert_eq!(counts.sum::<u64>(), millions, "{json}");
                assert!(decided.next.is_some_and(|next| next > now), "{json}");
            }
        }
    }
}
