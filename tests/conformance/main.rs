//! Every function of the database room, on SQLite and on Postgres: same calls, same results.

mod constraints;
mod fixtures;
mod harness;
mod hosts;
mod launches;
mod migrations;
mod plans;
mod random;
mod record;
mod recovery;
mod refusals;
mod runs;
mod schedules;
mod statements;
mod values;
