//! The functions of the store on SQLite and on Postgres: the same calls have the same results. And hosts on a simulated
//! clock, through outages and the nights in which local clocks change.

mod backfill;
mod buckets;
mod constraints;
mod fixtures;
mod forecast;
mod harness;
mod hosts;
mod last_result;
mod launches;
mod migrations;
mod nights;
mod overlap;
mod plans;
mod random;
mod record;
mod recovery;
mod refusals;
mod rule_texts;
mod runs;
mod schedules;
mod services;
mod serving;
mod sidecars;
mod sim;
mod statements;
mod values;
mod versions;
mod why;
