//! What is left when the host, the database or the disk fails: the real program, killed and starved, on both databases.
//!
//! | file       | what happens to the host                                                          |
//! |------------|-----------------------------------------------------------------------------------|
//! | `points`   | it dies at a named point of a launch's path; the documented guarantee             |
//! | `kills`    | `kill -9` in the middle of a backup, and at random moments over and over           |
//! | `hosts`    | one of two hosts dies, or stands still for longer than its lease                   |
//! | `outage`   | the Postgres server goes away or falls silent, and comes back                      |
//! | `disk`     | the SQLite file cannot be written, the disk is full, the file is not what it was   |
//! | `stop`     | it is told to stop at an awkward moment                                            |
//!
//! `account` checks the record afterwards: every slot decided once, every launch ended or still
//! legitimately open, and an effect for every success.
//!
//! `CAMPANILE_LONG_TESTS=1` gives outages and loads their full length.

mod account;
mod disk;
mod hosts;
mod kills;
mod line;
mod outage;
mod points;
mod stop;
mod storm;
mod tower;
mod weather;

/// Whether to take the time that a demonstration takes, rather than that of the usual suite.
fn long() -> bool {
    std::env::var_os("CAMPANILE_LONG_TESTS").is_some()
}
