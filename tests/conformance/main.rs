//! Every function of the database room, on SQLite and on Postgres: same calls, same results.

mod fixtures;
mod harness;
mod launches;
mod recovery;
mod refusals;
mod runs;
mod schedules;
mod statements;
mod values;
