//! Definitions of schedules in a simulation.

use std::time::Duration;

use campanile_control::admin::schedule_admin::ScheduleDefinition;
use campanile_model::clock::Timestamp;
use campanile_model::json_text::JsonObject;
use campanile_schedule::policy::{Catchup, Delivery, Keep, Overlap, Policies};
use campanile_schedule::rule::{RuleKind, RuleText};
use rand::Rng as _;
use rand::rngs::StdRng;

use crate::fixtures::{PACKAGE, at};

/// A schedule's definition.
#[derive(Debug, Clone)]
pub struct Definition {
    pub interval: Duration,
    pub policies: Policies,
}

/// Return a random definition. A new definition of a schedule keeps the overlap policy, since active launches stay.
pub fn random_definition(
    random: &mut StdRng,
    now: Timestamp,
    previous: Option<&Definition>,
) -> Definition {
    let interval = [7, 20, 60, 300][random.random_range(0..4)];
    let mut maybe = |span: std::ops::Range<u64>| {
        let seconds = random.random_range(span);
        random
            .random_bool(0.2)
            .then_some(Duration::from_secs(seconds))
    };
    let mut policies = Policies {
        misfire_grace: maybe(1..100),
        jitter: maybe(1..7),
        start_at: maybe(1..600).map(|span| now.plus(span)),
        end_at: maybe(700..4_000).map(|span| now.plus(span)),
        ..Policies::default()
    };
    policies.catchup = Some(Catchup::ALL[random.random_range(0..Catchup::ALL.len())]);
    if policies.catchup() != Catchup::None {
        policies.catchup_window = random.random_bool(0.3).then_some(Duration::from_secs(900));
        policies.catchup_spread = random.random_bool(0.2).then_some(Duration::from_secs(30));
    }
    if policies.catchup() == Catchup::All {
        policies.catchup_max = Some(random.random_range(1..20));
    }
    policies.max_launches = random.random_bool(0.1).then_some(5);
    policies.pause_on_failure = random.random_bool(0.15).then_some(2);
    policies.delivery = Some(Delivery::ALL[usize::from(random.random_bool(0.25))]);
    match previous {
        Some(previous) => {
            let previous = &previous.policies;
            policies.overlap = previous.overlap;
            policies.keep = previous.keep;
            policies.max_buffered = previous.max_buffered;
            policies.max_concurrent = previous.max_concurrent;
        }
        None => {
            policies.overlap = Overlap::ALL[random.random_range(0..Overlap::ALL.len())];
            match policies.overlap {
                Overlap::BufferOne => policies.keep = Some(Keep::ALL[random.random_range(0..2)]),
                Overlap::BufferAll => policies.max_buffered = Some(3),
                Overlap::Allow => policies.max_concurrent = Some(random.random_range(1..4)),
                _ => {}
            }
        }
    }
    Definition {
        interval: Duration::from_secs(interval),
        policies,
    }
}

pub fn wanted(name: &str, definition: &Definition) -> ScheduleDefinition {
    ScheduleDefinition {
        name: name.to_owned(),
        package: PACKAGE.to_owned(),
        task: None,
        rule: RuleText {
            anchor: Some(at(0)),
            ..RuleText::new(
                RuleKind::Every,
                format!("{}s", definition.interval.as_secs()),
                "UTC",
            )
        },
        policies: definition.policies.clone(),
        args: None,
        context: JsonObject::new(),
        enabled: true,
    }
}
