//! Tests of the store and the engine on SQLite and on Postgres: the same calls have the same results. Hosts run on a
//! simulated clock, also over outages and clock changes.

mod backfill;
mod buckets;
mod claim_at_once;
mod clock_changes;
mod constraints;
mod events_and_stats;
mod fixtures;
mod forecast;
mod harness;
mod host_steps;
mod hosts;
mod last_result;
mod launches;
mod migrations;
mod open_errors;
mod overlap;
mod postgres_tls;
mod query_plans;
mod random;
mod record_quota;
mod recovery;
mod retention;
mod round_trips;
mod rule_texts;
mod run_context;
mod runs;
mod schedules;
mod serving;
mod shares;
mod sidecars;
mod sim;
mod statements;
mod version_checks;
mod versions;
mod why;
