//! Every function of the database room, on SQLite and on Postgres: same calls, same results;
//! and a host that lives through the nights in which clocks change.

mod backfill;
mod buckets;
mod constraints;
mod fixtures;
mod forecast;
mod harness;
mod hosts;
mod launches;
mod migrations;
mod nights;
mod plans;
mod random;
mod record;
mod recovery;
mod refusals;
mod runs;
mod schedules;
mod serving;
mod sim;
mod statements;
mod texts;
mod told;
mod turns;
mod values;
mod versions;
mod why;
