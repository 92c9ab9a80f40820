//! Every function of the database room, on SQLite and on Postgres: same calls, same results.

mod statements;
