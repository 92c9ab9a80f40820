//! Rounds of random faults on three hosts of one Postgres: kills, suspensions, and partitions by a proxy.
//!
//! The rounds are those of `campanile selftest`, which has no proxy. The record is verified after each.

use std::time::Duration;

use campanile::selftest::{self, Network, Outcome, Place, SCHEDULES, Scratch, Settings};
use campanile_model::clock::Clock;
use campanile_store::{DatabaseUrl, Db};
use campanile_tests::{Cluster, campanile_binary};

use crate::consistency;
use crate::proxy::Proxy;
use crate::site::Site;

const HOSTS: usize = 3;
const ROUNDS: usize = 30;
/// This variable has another number of rounds.
const ROUNDS_VARIABLE: &str = "CAMPANILE_TEST_ROUNDS";
const LEASE: Duration = Duration::from_secs(3);
const CONFIGURATION: &str = "[recovery]\nlease = \"3s\"\nrenew = \"500ms\"\ninterval = \"500ms\"\n";

impl Network for Proxy {
    fn cut(&self) {
        self.stall();
    }

    fn mend(&self) {
        self.resume();
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable} is a number")),
    )
}

#[test]
fn three_hosts_lose_and_double_nothing_in_rounds_of_random_faults() {
    let rounds = number(ROUNDS_VARIABLE).map_or(ROUNDS, |rounds| rounds as usize);
    let seed = number("CAMPANILE_TEST_SEED").unwrap_or_else(rand::random);
    println!("CAMPANILE_TEST_SEED={seed}");
    let cluster = Cluster::start().unwrap_or_else(|line| panic!("{line}"));
    let site = Site::on(cluster.url().clone());
    let scratch = Scratch::create(&site.folder, SCHEDULES, CONFIGURATION).expect("a folder");
    let places = (1..=HOSTS).map(|number| {
        let proxy = Proxy::to(&cluster);
        Place {
            name: format!("host-{number}"),
            database: proxy.url.clone(),
            network: Some(Box::new(proxy)),
        }
    });
    let settings = Settings {
        program: campanile_binary().to_owned(),
        rounds,
        seed,
        lease: LEASE,
        crash_points: &[],
    };
    let outcome = site.block_on(run(cluster.url(), &scratch, places.collect(), &settings));

    println!("{}", shown(&outcome));
    assert!(
        outcome.problems.is_empty(),
        "seed {seed}: {:#?}",
        outcome.problems
    );
    assert_eq!(outcome.rounds_done, rounds, "seed {seed}");
    let totals = &outcome.totals;
    assert_eq!(
        (totals.lost, totals.doubled, totals.unfinished),
        (0, 0, 0),
        "seed {seed}"
    );
    assert!(outcome.kills > 0 && outcome.suspensions > 0 && outcome.cuts > 0);
    assert!(outcome.take_overs > 0, "no run was lost: seed {seed}");
    let checked = consistency::check(&site.record(), &site.effects(), 3);
    assert_eq!(
        checked.succeeded, totals.succeeded,
        "seed {seed}: {checked}"
    );
}

async fn run(
    database: &DatabaseUrl,
    scratch: &Scratch,
    places: Vec<Place>,
    settings: &Settings,
) -> Outcome {
    let db = Db::open_and_migrate(database).await.expect("a database");
    let outcome = selftest::run(&db, &Clock::system(), scratch, places, settings, |_| ()).await;
    db.close().await;
    outcome.expect("the database answers")
}

fn shown(outcome: &Outcome) -> String {
    format!(
        "{} rounds on {HOSTS} hosts with a lease of {LEASE:?}: {} kills, {} suspensions, {} partitions; {} slots, {} events, {} seals verified; {:?}; \
         {} take-overs: {:?} ms; longest delays: {:?} ms",
        outcome.rounds_done,
        outcome.kills,
        outcome.suspensions,
        outcome.cuts,
        outcome.slots,
        outcome.verification.events,
        outcome.verification.seals,
        outcome.totals,
        outcome.take_overs,
        outcome.take_over_ms,
        outcome.delay_ms
    )
}
