//! The judge against a model that looks at every slot at once, and at any policies whatever.

use std::time::Duration;

use rand::Rng as _;
use rand::rngs::StdRng;

use super::testing::{judged_in_pieces, policies, standing, terms};
use super::{
    Catchup, CaughtUp, Decision, DropReason, Judgement, Policies, Standing, Terms, Verdict,
};
use crate::rule::testing::{cron, every, seeded, time};
use campanile_model::clock::Timestamp;

/// What `terms` come to, decided with all slots in view.
fn modelled(terms: Terms<'_>, standing: &Standing, now: Timestamp) -> Vec<Decision> {
    let policies = terms.policies;
    let grace = policies
        .misfire_grace
        .unwrap_or(terms.defaults.misfire_grace);
    let window = policies
        .catchup_window
        .unwrap_or(terms.defaults.catchup_window);
    let late_at = |instant: Timestamp, slot| instant.since(terms.fire_time(slot));
    let within = |slot: &Timestamp| {
        policies.start_at.is_none_or(|start| *slot >= start)
            && policies.end_at.is_none_or(|end| *slot <= end)
    };
    let slots = terms.rule.slots(standing.cursor, now).filter(within);
    let slots: Vec<Timestamp> = slots.collect();
    let candidates: Vec<Timestamp> = slots
        .iter()
        .copied()
        .filter(|slot| !standing.taken_out.contains(slot))
        .filter(|slot| late_at(now, *slot) > grace && late_at(now, *slot) <= window)
        .collect();
    let settled = |slot: &&Timestamp| {
        let before = standing.caught_up.map(|before| before.decided_at);
        before.is_some_and(|decided_at| late_at(decided_at, **slot) > grace)
    };
    let kept: Vec<Timestamp> = match policies.catchup {
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
        .launches_left(standing.launches)
        .unwrap_or(u64::MAX);
    let mut fires = standing
        .caught_up
        .map_or(now, |before| before.fire_time.max(now));
    let mut decisions = Judgement {
        decisions: vec![],
        cursor: None,
        next: None,
    };
    for slot in slots {
        let lateness = late_at(now, slot);
        let fire_time = terms.fire_time(slot);
        if left == 0 {
            break;
        }
        let verdict = if standing.taken_out.contains(&slot) {
            Verdict::Drop(DropReason::SkippedOnce)
        } else if lateness <= grace {
            Verdict::Launch { fire_time }
        } else if policies.catchup == Catchup::None {
            Verdict::Drop(DropReason::CatchupNone)
        } else if lateness > window {
            Verdict::Drop(DropReason::Window)
        } else if kept.contains(&slot) {
            fires = policies
                .catchup_spread
                .map_or(fires, |spread| fires.plus(spread));
            let fire_time = policies.catchup_spread.map_or(fire_time, |_| fires);
            Verdict::CatchUp { fire_time }
        } else if policies.catchup == Catchup::All {
            Verdict::Drop(DropReason::CatchupMax)
        } else {
            Verdict::Drop(DropReason::Coalesced)
        };
        left -= u64::from(!matches!(verdict, Verdict::Drop(_)));
        decisions.append(Decision {
            verdict,
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

/// Somewhere around a change of clocks in London.
fn any_now(random: &mut StdRng) -> Timestamp {
    Timestamp::from_micros(1_774_700_000_000_000 + random.random_range(0..99_999_999_999))
}

/// `Some` every other time.
fn maybe<T>(random: &mut StdRng, value: impl FnOnce(&mut StdRng) -> T) -> Option<T> {
    random.random_bool(0.5).then(|| value(random))
}

fn any_policies(random: &mut StdRng, now: Timestamp) -> Policies {
    let seconds =
        |most| move |random: &mut StdRng| Duration::from_secs(random.random_range(0..most));
    let before = |random: &mut StdRng| now.minus(seconds(200_000)(random));
    Policies {
        catchup: Catchup::ALL[random.random_range(0..Catchup::ALL.len())],
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
fn slots_are_decided_as_with_all_of_them_in_view_in_one_call_or_many() {
    let mut random = seeded("judge");
    for _ in 0..4_000 {
        let expression = EXPRESSIONS[random.random_range(0..EXPRESSIONS.len())];
        let rule = cron(expression, "Europe/London").unwrap();
        let now = any_now(&mut random);
        let policies = any_policies(&mut random, now);
        let terms = terms(&rule, &policies);
        let mut standing =
            standing(now.minus(Duration::from_secs(random.random_range(0..200_000))));
        standing.launches = random.random_range(0..40);
        let before =
            |random: &mut StdRng| now.minus(Duration::from_secs(random.random_range(0..90_000)));
        standing.caught_up = maybe(&mut random, |random| CaughtUp {
            decided_at: before(random),
            fire_time: before(random).plus(Duration::from_secs(20_000)),
        });
        let slots: Vec<Timestamp> = rule.slots(standing.cursor, now).collect();
        let chance = random.random_range(0.0..0.3);
        standing.taken_out = slots
            .iter()
            .copied()
            .filter(|_| random.random_bool(chance))
            .collect();

        let expected = modelled(terms, &standing, now);
        let slots_max = random.random_range(1..=2 + slots.len() * 2);
        for slots_max in [usize::MAX, slots_max] {
            let judgement = judged_in_pieces(terms, &standing, now, slots_max);
            let case = format!("`{expression}` {now} {policies:?} {standing:?} {slots_max}");
            assert_eq!(judgement.decisions, expected, "{case}");
            let last = expected.last().map(|decision| decision.last);
            assert_eq!(judgement.cursor, last, "{case}");
            assert!(judgement.next.is_none_or(|next| next > now), "{case}");
        }
    }
}

#[test]
fn a_host_that_looks_in_time_launches_every_slot_whatever_is_caught_up() {
    let rule = cron("*/5 9-17 * * MON-FRI", "Europe/London").unwrap();
    for mode in Catchup::ALL {
        let policies = policies(&format!(r#"{{"catchup":"{mode}","jitter":"5m"}}"#));
        let terms = terms(&rule, &policies);
        let mut standing = standing(time("2026-03-27T12:00:00Z"));
        while let Some(slot) = terms.next_slot(standing.cursor, 0)
            && slot < time("2026-04-01T00:00:00Z")
        {
            let judgement = terms.judge(&standing, slot, 10);
            let fire_time = terms.fire_time(slot);
            assert_eq!(judgement.decisions.len(), 1);
            assert_eq!(
                judgement.decisions[0].verdict,
                Verdict::Launch { fire_time }
            );
            assert!(slot <= fire_time && Some(fire_time) < rule.next(slot));
            standing.cursor = slot;
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
        let terms = terms(&rule, &policies);
        let judgement = judged_in_pieces(terms, &standing(cursor), now, 10_000);
        assert_eq!(judgement.decisions.len(), decisions, "{json}");
        let slots: u64 = judgement
            .decisions
            .iter()
            .map(|decision| decision.count)
            .sum();
        assert_eq!(slots, 1_000_000);
    }
}
